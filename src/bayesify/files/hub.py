"""bf.hub: folders as the Hugging Face Hub holds them: a model's file, its network's config.json and a model card."""

import json
import sys
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import nn

from bayesify.atomic import read_json, write_json
from bayesify.checks import naming
from bayesify.files.storage import as_path, check_network, load, save
from bayesify.likelihoods import Likelihood
from bayesify.model import BayesianModule

MODEL, CONFIG = "model.safetensors", "config.json"
#: in a config.json what names code elsewhere, or ways of computing that the Hub would fetch
FOREIGN = {"auto_map", "quantization_config", "use_kernels", "use_pretrained_backbone", "_name_or_path"}
CARD = """---
{{ card_data }}
---

# {{ network }}, Bayesian by {{ method }}

{{ num_random }} of {{ num_parameters }} parameters are random: predictions are averaged over draws of them.

## Method

```json
{{ settings }}
```

## Data

{{ data }}

## Metrics

{{ metrics }}

## How to load

```python
{{ how }}
```

The files are safetensors and JSON; opening them runs no code of theirs.
"""


def save_pretrained(
    model: BayesianModule,
    folder: str | Path,
    data: str = "",
    metrics: Mapping[str, float] | None = None,
    **options: Any,
) -> None:
    """Write `model` to a folder: model.safetensors (`bf.save`), config.json of a network of transformers, README.md.

    data:     what it was trained on, in words, for the model card
    metrics:  of it, as `bf.evaluate` gives them, for the model card
    options:  of `huggingface_hub.ModelHubMixin.save_pretrained`: push_to_hub, repo_id, …

    >>> bf.hub.save_pretrained(model, "folder", data="GLUE SST-2", metrics=bf.evaluate(model, loader))
    >>> model = bf.hub.from_pretrained("folder")
    """
    card = _card(model, data, metrics)
    folder = as_path(folder)
    (folder / "README.md").unlink(missing_ok=True)  # one that is there would stay
    _on_hub()(model).save_pretrained(folder, model_card_kwargs=card, **options)


def from_pretrained(
    name: str | Path,
    net: nn.Module | None = None,
    output: Callable[[Any], Any] | None = None,
    likelihood: Likelihood | None = None,
    **options: Any,
) -> BayesianModule:
    """The model in a folder, or of a repository of the Hub.

    net:      the network it was saved with; not needed for one of transformers, which config.json describes
    output, likelihood: as for `bf.load`
    options:  of `huggingface_hub.ModelHubMixin.from_pretrained`: revision, cache_dir, token, …
    """
    more = {"net": net, "output": output, "likelihood": likelihood}
    return _on_hub().from_pretrained(str(as_path(name)), **more, **options).model


def push_to_hub(
    model: BayesianModule,
    repo_id: str,
    data: str = "",
    metrics: Mapping[str, float] | None = None,
    **options: Any,
) -> str:
    """Send what `save_pretrained` writes to a repository of the Hub; the address of the commit.

    options: of `huggingface_hub.ModelHubMixin.push_to_hub`: private, token, commit_message, …
    """
    return _on_hub()(model).push_to_hub(repo_id, model_card_kwargs=_card(model, data, metrics), **options)


@cache
def _on_hub() -> Any:
    from huggingface_hub import ModelHubMixin, snapshot_download

    class OnHub(
        ModelHubMixin, library_name="bayesify", tags=["bayesian", "uncertainty"], model_card_template=CARD
    ):
        """A model, as the mixin saves, sends and fetches it."""

        def __init__(self, model: BayesianModule) -> None:
            self.model = model

        def _save_pretrained(self, save_directory: Path) -> None:
            save(self.model, save_directory / MODEL)
            if _described(self.model.net):
                write_json(save_directory / CONFIG, _config(self.model.net))

        @classmethod
        def _from_pretrained(  # type: ignore[override]
            cls,
            *,
            model_id: str,
            net: nn.Module | None,
            output: Any,
            likelihood: Any,
            **where: Any,
        ) -> "OnHub":
            folder = Path(model_id)
            if not folder.is_dir():
                folder = Path(snapshot_download(model_id, allow_patterns=[MODEL, CONFIG], **where))
            made = network_of(folder) if net is None else net
            return cls(load(folder / MODEL, made, output=output, likelihood=likelihood))

    return OnHub


def network_of(folder: Path) -> nn.Module:
    """The network, not yet trained, that a config.json of transformers describes; only classes of transformers, and
    only where the model file beside it is of such a network."""
    path = folder / CONFIG
    if not path.exists():
        raise ValueError(
            f"{folder} has no {CONFIG} of a network of transformers: give from_pretrained(…, net=…)"
        )
    import transformers

    config = read_json(path)
    names = config.get("architectures") if isinstance(config, dict) else None
    name = names[0] if isinstance(names, list) and len(names) == 1 else None
    made = getattr(transformers, name, None) if isinstance(name, str) and name.isidentifier() else None
    if not isinstance(made, type) or not issubclass(made, transformers.PreTrainedModel):
        raise ValueError(
            f"{path}: architectures={names!r} is no network of transformers: give from_pretrained(…, net=…)"
        )
    with naming(path, Exception):  # of whatever kind its classes raise
        settings = made.config_class.from_dict(_own(config))  # type: ignore[union-attr]
        with torch.device("meta"):
            check_network(folder / MODEL, made(settings))
        return made._from_config(settings)


def _own(config: Any) -> Any:
    """A configuration without what would be fetched from elsewhere."""
    if isinstance(config, list):
        return [_own(part) for part in config]
    if not isinstance(config, dict):
        return config
    kept = {key for key in config if key not in FOREIGN and not key.endswith("implementation")}
    return {key: _own(config[key]) for key in kept}


def _described(net: Any) -> bool:
    """Does its `config` make it again?"""
    transformers = sys.modules.get("transformers")
    return transformers is not None and getattr(transformers, type(net).__name__, None) is type(net)


def _config(net: Any) -> dict[str, Any]:
    """As transformers writes it."""
    kind = {"architectures": [type(net).__name__], "dtype": str(net.dtype).removeprefix("torch.")}
    return {**json.loads(net.config.to_json_string()), **kind}


def _card(model: BayesianModule, data: str, metrics: Mapping[str, float] | None) -> dict[str, Any]:
    """What the model card says."""
    if not isinstance(model, BayesianModule):
        raise TypeError(f"model={type(model).__name__} must be what bf.bayesify returned")
    summary = model.summary()
    rows = [f"| {name} | {value:.4g} |" for name, value in (metrics or {}).items()]
    likelihood = {"name": model.likelihood.name, **model.likelihood.options}
    settings = {"method": model.method.options(), "likelihood": likelihood, "num_data": model.num_data}
    net = "" if _described(model.net) else ", net=net"
    return {
        "network": type(model.net).__name__,
        "method": model.method.name,
        "num_random": f"{summary.num_random:,}",
        "num_parameters": f"{summary.num_parameters:,}",
        "settings": json.dumps(settings, indent=2, default=repr),
        "data": data or "Not said.",
        "metrics": "\n".join(["| metric | value |", "|---|---|", *rows]) if rows else "Not said.",
        "how": f'import bayesify as bf\n\nmodel = bf.hub.from_pretrained("this repository or folder"{net})\n'
        "prediction = model.predict(inputs)  # averaged over draws: .probs, .epistemic, …",
    }
