"""bf.fit: train any model of any method, on any device, and be able to stop and go on at any time."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch.utils.data import RandomSampler, SequentialSampler

from bayesify.batches import check_loader
from bayesify.checks import NonFiniteError
from bayesify.engine.history import History
from bayesify.engine.loop import Loop
from bayesify.engine.options import FitOptions
from bayesify.engine.sampling_check import acting
from bayesify.engine.schema import documented
from bayesify.engine.signals import Signals
from bayesify.model import BayesianModule


@documented(FitOptions)
def fit(
    model: BayesianModule,
    train_loader: Iterable[Any],
    val_loader: Iterable[Any] | None = None,
    *,
    epochs: int | None = None,
    recipe: str | None = "auto",
    optimizer: str | torch.optim.Optimizer | Callable[[Any], torch.optim.Optimizer] | None = None,
    lr: float | None = None,
    momentum: float | None = None,
    weight_decay: float | None = None,
    schedule: str | Callable[..., Any] | None = None,
    steps_per_epoch: int | None = None,
    num_draws: int = 1,
    kl_warmup: float | None = None,
    frozen_norm: float | None = None,
    plain_first: float | None = None,
    accumulate: int = 1,
    clip_norm: float | None = None,
    ema: float | None = None,
    on_bad_sampling: str = "warn",
    patience: int | None = None,
    val_draws: int = 20,
    calibrate: bool | None = None,
    folder: str | Path | None = None,
    resume: bool = True,
    data_changed: bool = False,
    checkpoint_every: int | None = None,
    keep_last: int = 2,
    accelerator: str = "auto",
    devices: int | str | list[int] = 1,
    num_nodes: int = 1,
    strategy: str = "auto",
    precision: str = "32-true",
    compile: bool | Literal["auto"] = "auto",
    on_epoch: Callable[[BayesianModule, int], dict[str, Any] | None] | None = None,
    tensorboard: bool = False,
    seed: int | None = None,
    progress: bool = True,
) -> History:
    """Train `model`; returns one row per epoch.

    `schedule` may also be a function (optimizer, num_steps) -> scheduler. The model stays on the device it was trained
    on. `model.predict` and the other functions of bayesify take inputs from any device; for `model(x)` bring them
    together, model.to(x.device).

    The folder holds checkpoints/step-*.safetensors (the last `keep_last`, each enough to go on from; one
    that turns out damaged is named and the one before it is used), metrics.csv (the history),
    model.safetensors (the model after the last epoch, written once at the end; the average with `ema`)
    and, with a val_loader, best.safetensors (the model after the epoch with the smallest validation nll so
    far, replaced whenever that falls; `calibrate` is for the last one). Every file is written beside its
    name and moved there, so a reader never sees half of one. The model in memory is that of the last epoch: load
    best.safetensors for the other. One run owns the folder at a time; a second one is refused.

    >>> history = bf.fit(model, train_loader, val_loader, epochs=20, folder="runs/first")

    model:         what `bf.bayesify` returned
    train_loader:  batches (x, y), iterated once per epoch, and for a part of one where `ema` or the start of a
                   regression looks at them
    val_loader:    batches that the model is evaluated on after each epoch; None: no validation

    All options by their meaning, which `bayesify.engine.options` declares and `help(bf.fit)` lists:
    """
    options = FitOptions.picked(locals())
    if not isinstance(model, BayesianModule):
        raise TypeError(
            f"model={type(model).__name__} must be what bf.bayesify returned: bf.fit(bf.bayesify(net, method), …)"
        )
    loaders = {"train_loader": train_loader, "val_loader": () if val_loader is None else val_loader}
    for name, loader in loaders.items():
        check_loader(loader, name)
    if options.patience is not None and val_loader is None:
        raise ValueError(f"patience={options.patience!r} needs a val_loader to watch")
    if options.calibrate and val_loader is None:
        raise ValueError("calibrate=True needs a val_loader: examples that the model is not trained on")
    if options.calibrate is not False and _is_the_same(train_loader, val_loader):
        if options.calibrate:
            raise ValueError(
                "calibrate=True with a val_loader that goes through the training data, on which the model is too "
                "good: hold some examples back, e.g. with torch.utils.data.random_split"
            )
        options = replace(options, calibrate=False)
    loop = Loop(model, train_loader, val_loader, options)
    acted = acting(options.on_bad_sampling, loop.fabric.is_global_zero)
    with loop.folder, Signals() as signals, loop.progress, acted:
        return loop.run(signals)


def _is_the_same(train: Any, val: Any) -> bool:
    """Are these the same examples, as far as one can see?"""
    one = getattr(train, "dataset", train) is getattr(val, "dataset", val)
    samplers = [getattr(each, "sampler", None) for each in (train, val)]
    return train is val or (
        one and all(isinstance(each, RandomSampler | SequentialSampler) for each in samplers)
    )


__all__ = ["NonFiniteError", "fit"]
