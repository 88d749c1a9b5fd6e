"""Smaller networks from a posterior: pruning by size or by signal-to-noise, sparse ensembles, and what they cost.

In sparse ensembles only weights whose noise matters keep it, others are zero or stay at their mean (paper 5, 6.4). The
gates of the families of variance networks (families/variance.py) hold which weights are kept; prediction, `bf.save`
and the mean network all follow them.
"""

import copy
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor, nn

from bayesify.checks import Count, Rate, checked
from bayesify.evaluation.evaluate import evaluate
from bayesify.families.location_scale import LOG_STD_OF_NOTHING
from bayesify.files.storage import save
from bayesify.methods import Point
from bayesify.model import BayesianModule, bayesify
from bayesify.names import check_choice, lookup
from bayesify.studies.diagnostics.variance import log_alpha, variance_posterior

__all__ = [
    "SCORES",
    "Pruned",
    "SparsityPoint",
    "prune",
    "pruning_curve",
    "sparsify",
    "sparsify_by_log_alpha",
    "sparsity",
    "sparsity_curve",
]


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


FILLS = ("zero", "mean")
#: shares of the weights that the default thresholds cut
SPARSITIES = (0.0, 0.5, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995)


class SparsityPoint(NamedTuple):
    """A sparse ensemble: what its threshold leaves random, and how good it is."""

    threshold: float
    kept: int  # weights that are still random
    total: int
    accuracy: float

    @property
    def sparsity(self) -> float:
        """The share of the weights that are not random any more."""
        return 1 - self.kept / self.total

    @property
    def compression(self) -> float:
        """How many weights there are for each random one."""
        return self.total / max(self.kept, 1)


@checked
def sparsify(
    model: BayesianModule, scores: Mapping[str, Tensor], threshold: float, fill: str = "zero"
) -> int:
    """Keep the noise of weights with a score above `threshold`; returns how many those are. Changes `model`.

    scores:  κ by name (`bf.diagnostics.kappa`), or `-log_alpha` for sparse variational dropout
    fill:    the other weights become "zero", or are fixed at their "mean"

    >>> kept = sparsify(model, kappa(model, train_loader), threshold=10**1.5)
    """
    check_choice(FILLS, fill, "fill")
    posterior = variance_posterior(model)
    kept = 0
    for name, score in scores.items():
        if name not in posterior.slots:
            raise ValueError(f"scores: {name!r} is no random weight; there are {', '.join(posterior.slots)}")
        leaf = posterior.random_tensor(name)
        if "noise_gate" not in leaf._buffers:
            raise ValueError(
                f"{name!r} has the {leaf.family.name} family, which has no gates: use noise='normal'"
            )
        keep = score > threshold
        for gate in ("noise_gate", "mean_gate") if fill == "zero" else ("noise_gate",):
            leaf._buffers[gate] = leaf.get_buffer(gate) * keep
        kept += int(leaf.get_buffer("noise_gate").sum())
    return kept


@checked
def sparsify_by_log_alpha(model: BayesianModule, threshold: float = 3.0) -> int:
    """Zero every weight with log α above `threshold`: sparse variational dropout (Molchanov et al. 2017)."""
    return sparsify(model, {name: -a for name, a in log_alpha(model).items()}, -threshold)


@checked
def sparsity_curve(
    model: BayesianModule,
    scores: Mapping[str, Tensor],
    loader: Iterable[Any],
    thresholds: Sequence[float] | None = None,
    fill: str = "zero",
    num_draws: Count = 20,
    generator: Generator | None = None,
) -> list[SparsityPoint]:
    """Accuracy of the ensemble against the threshold of the score (Fig. 5). The model is left as it was.

    thresholds: without them those that cut the shares SPARSITIES of the weights
    """
    if thresholds is None:
        every = torch.cat([score.flatten() for score in scores.values()]).double().sort().values
        cuts = [int(share * len(every)) - 1 for share in SPARSITIES]
        thresholds = [float(every[cut]) if cut >= 0 else -1.0 for cut in cuts]
    total = sum(score.numel() for score in scores.values())
    points = []
    for threshold in thresholds:
        with unchanged(model):
            kept = sparsify(model, scores, threshold, fill)
            metrics = evaluate(model, loader, num_draws, generator=generator)
        points.append(SparsityPoint(float(threshold), kept, total, metrics["accuracy"]))
    return points


@contextmanager
def unchanged(model: BayesianModule) -> Iterator[None]:
    """Put the gates back afterwards."""
    posterior = variance_posterior(model)
    old = {name: dict(posterior.random_tensor(name)._buffers) for name in posterior.slots}
    try:
        yield
    finally:
        for name, buffers in old.items():
            posterior.random_tensor(name)._buffers.update(buffers)
