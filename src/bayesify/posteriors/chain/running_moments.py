"""The running mean and variance of every weight of a chain, without its draws."""

from collections.abc import Mapping

import torch
from torch import Generator, Tensor

from bayesify.posteriors.base import Chunks
from bayesify.posteriors.chain.draw_store import NONE_YET, DrawKey, DrawStore, Weights


class RunningMoments(DrawStore):
    """Mean and Σ (w − mean)² by `welford`.

    A draw of it is normal, N(mean, squares/n), entries independent: the diagonal part of SWAG (Maddox et al.,
    "A Simple Baseline for Bayesian Uncertainty in Deep Learning", NeurIPS 2019).
    Sums are float32 at least: a mean in half precision stops moving when d/n is below its rounding.
    """

    def __init__(self, like: Mapping[str, Tensor]) -> None:
        self.count = 0
        self.means = {name: torch.zeros_like(w, dtype=wide(w)) for name, w in like.items()}
        self.squares = {name: torch.zeros_like(w, dtype=wide(w)) for name, w in like.items()}

    def __len__(self) -> int:
        return self.count

    def add(self, key: DrawKey, weights: Mapping[str, Tensor]) -> None:
        self.count += 1
        for name, w in weights.items():
            before = self.means[name].to(w.device), self.squares[name].to(w.device)
            self.means[name], self.squares[name] = welford(*before, w, self.count)

    def draw(self, n: int, generator: Generator | None) -> Weights:
        variance = self.variance()
        drawn = {}
        for name, mean in self.means.items():
            shape = (n, *mean.shape)
            noise = torch.randn(shape, generator=generator, dtype=mean.dtype, device=mean.device)
            drawn[name] = mean + variance[name].sqrt() * noise
        return drawn

    def stream(self, num_draws: int, chunk: int, generator: Generator | None, like: Weights) -> Chunks:
        for start in range(0, num_draws, chunk):
            n = min(chunk, num_draws - start)
            yield n, {name: w.to(like[name]) for name, w in self.draw(n, generator).items()}

    def mean(self) -> Weights:
        if not self.count:
            raise RuntimeError(NONE_YET)
        return self.means

    def variance(self) -> Weights:
        self.mean()
        return {name: squares / self.count for name, squares in self.squares.items()}

    def tensors(self, whole: bool) -> dict[str, Tensor]:
        kept = {"mean": self.means, "squares": self.squares}
        sums = {f"{kind}.{name}": w.clone() for kind, held in kept.items() for name, w in held.items()}
        return {"count": torch.tensor(self.count), **sums}

    def take(self, tensors: Mapping[str, Tensor]) -> None:
        self.count = int(tensors["count"])
        for kind, held in (("mean", self.means), ("squares", self.squares)):
            held.update({name: tensors[f"{kind}.{name}"].to(w.dtype, copy=True) for name, w in held.items()})


def welford(mean: Tensor, squares: Tensor, w: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Welford's update by the n-th value: d = w − mean, mean ← mean + d/n, squares ← squares + d (w − mean)."""
    before = w - mean
    mean = mean + before / n
    return mean, squares + before * (w - mean)


def wide(w: Tensor) -> torch.dtype:
    """Of sums over tensors like this one."""
    return torch.promote_types(w.dtype, torch.float32)
