"""Unstructured pruning: the weights that matter least become zero, with no variance left."""

import copy
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from bayesify.checks import Rate, checked
from bayesify.families.location_scale import LOG_STD_OF_NOTHING
from bayesify.files.storage import save
from bayesify.methods import Point
from bayesify.model import BayesianModule, bayesify
from bayesify.names import lookup


class Pruned(NamedTuple):
    """One point of a curve: the share of weights set to zero, what was measured then, and the size of the file."""

    share: float
    value: float
    num_bytes: int  # of the file that `bf.save` writes


def magnitude(mean: Tensor, std: Tensor | None) -> Tensor:
    """|E w| (L1)."""
    return mean.abs()


def signal_to_noise(mean: Tensor, std: Tensor | None) -> Tensor:
    """|E w| / std w: a weight whose sign the posterior does not know carries little."""
    if std is None:
        raise ValueError("by='signal_to_noise' needs a posterior with a std per weight: use by='magnitude'")
    return mean.abs() / std.clamp_min(torch.finfo(std.dtype).tiny)


SCORES: dict[str, Callable[[Tensor, Tensor | None], Tensor]] = {
    "magnitude": magnitude,
    "signal_to_noise": signal_to_noise,
}


@torch.no_grad()
@checked
def prune(model: nn.Module, share: Rate, by: str = "magnitude", per_layer: bool = False) -> nn.Module:
    """A copy of `model` with the `share` of its weights that score lowest set to zero.

    model:      what `bf.bayesify` returned, or a plain network
    by:         "magnitude" (L1) of the posterior mean, or "signal_to_noise", |mean| / std
    per_layer:  the same share in every tensor; else the lowest scores of the whole network (global pruning)

    Weight matrices and kernels are pruned, not biases and norms. In a model the std of a pruned weight goes too,
    where each weight has its own. `bf.save` stores what is left.
    """
    score = lookup(SCORES, by, "by")
    pruned = copy.deepcopy(model)
    weights = _weights(pruned)
    if not weights:
        raise ValueError("the model has no weight matrix or kernel to prune")
    scores = {name: score(mean, std) for name, (mean, std, _) in weights.items()}
    keep = _kept(scores, share, per_layer)
    for name, (mean, _, log_std) in weights.items():
        mean.masked_fill_(~keep[name], 0.0)
        if log_std is not None:
            log_std.masked_fill_(~keep[name], LOG_STD_OF_NOTHING)
    return pruned


def _weights(model: nn.Module) -> dict[str, tuple[Tensor, Tensor | None, Tensor | None]]:
    """name -> (mean, std or None, the log std's own tensor or None), of all matrices and kernels."""
    posterior: Any = getattr(model, "posterior", None)
    if posterior is not None and not posterior.is_around_net:
        raise ValueError(
            "prune() takes models whose draws lie around the network's own weights; an ensemble or a chain has "
            "weights of its own for every member or draw: prune model.mean_net() or model.draw(), or each member"
        )
    net: nn.Module = model.net if posterior is not None else model  # type: ignore[assignment]
    parameters = {n: p for n, p in net.named_parameters() if p.dim() > 1}
    free = {} if posterior is None else dict(posterior.named_parameters())
    log_stds = {n: free.get(f"q.{n}.log_scale") for n in parameters}
    own = {n: s.data for n, s in log_stds.items() if s is not None and s.shape == parameters[n].shape}
    if not hasattr(posterior, "distributions"):
        return {n: (p.data, None, own.get(n)) for n, p in parameters.items()}
    found = posterior.distributions(list(posterior.slots))
    return {n: (p.data, found[n].variance.sqrt(), own.get(n)) for n, p in parameters.items() if n in found}


def _kept(scores: dict[str, Tensor], share: float, per_layer: bool) -> dict[str, Tensor]:
    """Which weights stay: exactly ⌊share · number⌋ go, ties broken by order."""
    if per_layer:
        return {name: _top(score.flatten(), share).view(score.shape) for name, score in scores.items()}
    flat = torch.cat([score.flatten() for score in scores.values()])
    parts = _top(flat, share).split([score.numel() for score in scores.values()])
    return {name: part.view(score.shape) for (name, score), part in zip(scores.items(), parts, strict=True)}


def _top(scores: Tensor, share: float) -> Tensor:
    keep = torch.ones_like(scores, dtype=torch.bool)
    lowest = scores.argsort(stable=True)[: int(share * scores.numel())]
    keep[lowest] = False
    return keep


@torch.no_grad()
def sparsity(model: nn.Module) -> float:
    """The share of exact zeros among the weights that `prune` looks at."""
    means = [mean for mean, _, _ in _weights(model).values()]
    return sum(int((mean == 0).sum()) for mean in means) / sum(mean.numel() for mean in means)


def pruning_curve(
    model: nn.Module,
    measure: Callable[[Any], float],
    shares: Iterable[float] = (0.0, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98),
    by: str = "magnitude",
    per_layer: bool = False,
) -> list[Pruned]:
    """`measure(pruned model)` at every share, for example its accuracy, and the size of its file.

    >>> curve = pruning_curve(model, lambda m: bf.evaluate(m, test_loader)["accuracy"])
    """
    points = []
    for share in shares:
        pruned = prune(model, share, by, per_layer)
        points.append(Pruned(share, float(measure(pruned)), size_of(pruned)))
    return points


def size_of(model: nn.Module) -> int:
    """Bytes of the file that `bf.save` writes of a model, or of a plain network as a point estimate."""
    if not isinstance(model, BayesianModule):
        model = bayesify(copy.deepcopy(model), Point())
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        save(model, path)
        return path.stat().st_size
