"""The options of `bf.fit`, checked before anything starts."""

from typing import Any


class Options:
    """The arguments of `fit` as attributes; a value that cannot be right is an error at once."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.__dict__.update(options)
        for name in ("epochs", "num_draws", "accumulate", "keep_last", "val_draws"):
            value = options[name]
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{name}={value!r} must be a whole number of at least 1")
        for name in ("checkpoint_every", "patience", "steps_per_epoch"):
            if options[name] is not None and options[name] < 1:
                raise ValueError(f"{name}={options[name]!r} must be at least 1")
        if options["patience"] is not None and options["val_loader"] is None:
            raise ValueError(f"patience={options['patience']!r} needs a val_loader to watch")
        if str(options["precision"]) in ("16-mixed", "16", "16-true"):
            raise ValueError(
                f"precision={options['precision']!r} needs loss scaling: use 'bf16-mixed' instead"
            )
        if options["kl_warmup"] < 0:
            raise ValueError(f"kl_warmup={options['kl_warmup']!r} must not be negative (epochs)")

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)
