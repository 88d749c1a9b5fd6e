"""The covariance of the iterates of an optimiser: a diagonal and a few columns."""

import math
from collections.abc import Callable, Collection, Mapping

import torch
from torch import Generator, Tensor

from bayesify.posteriors.chain.running_moments import welford, wide
from bayesify.posteriors.gaussian.covariance import Covariance

FEWEST = 2  # iterates that have a covariance


class IterateCovariance(Covariance):
    """Σ = ½ diag v + D Dᵀ / (2 (K − 1)) of the iterates w_1 … w_n (Maddox et al. 2019, eq. 1).

    v = Σ (w_i − w̄)² / n, and the K columns of D are the last w_i − w̄_i, w̄_i the mean of the first i. v is found by
    Welford's update in float32 at least: E w² − (E w)² would lose it where it is small beside the mean, and be
    negative at times.

    A draw is w̄ + √(v/2) z₁ + D z₂ / √(2 (K − 1)). What is in here changes while a network trains, so it is no buffer:
    DDP would send it around at every step.

    like:   every weight that trains, by name; each has a mean
    random: those that have a covariance
    rank:   most columns K
    dtype:  of the columns; None: the weights' own
    """

    def __init__(
        self,
        like: Mapping[str, Tensor],
        random: Collection[str],
        rank: int,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.rank, self.count = rank, 0
        self.means = {name: torch.zeros_like(w, dtype=wide(w)) for name, w in like.items()}
        self.squares = {name: torch.zeros_like(self.means[name]) for name in random}
        self.columns = {name: like[name].new_zeros((0, *like[name].shape), dtype=dtype) for name in random}

    def deviations(self, n: int, generator: Generator | None = None) -> dict[str, Tensor]:
        first = next(iter(self.squares.values()))
        device = first.device if generator is None else generator.device
        z2 = torch.randn((n, self.num_columns), dtype=first.dtype, generator=generator, device=device).to(
            first
        )
        found = {}
        for name, var in self._diagonal().items():
            z1 = torch.randn((n, *var.shape), dtype=var.dtype, generator=generator, device=device).to(var)
            columns = self.columns[name].to(var.dtype).flatten(1)  # (K, entries)
            low = (z2.to(var.dtype) @ columns).view_as(z1)
            found[name] = var.sqrt() * z1 + low / math.sqrt(self._divisor())
        return found

    def variance(self) -> dict[str, Tensor]:
        low = {name: d.to(self.squares[name].dtype).square().sum(0) for name, d in self.columns.items()}
        return {name: var + low[name] / self._divisor() for name, var in self._diagonal().items()}

    def of_outputs(self, jacobian: Mapping[str, Tensor]) -> Tensor:
        """½ J diag(v) Jᵀ + (J D)(J D)ᵀ / (2 (K − 1)), the sums over all weights."""
        diagonal, along = [], []
        for name, var in self._diagonal().items():
            if name in jacobian:
                j = jacobian[name].flatten(2)  # (batch, outputs, entries)
                diagonal.append((j * var.flatten().to(j)) @ j.mT)
                along.append(j @ self.columns[name].flatten(1).to(j).mT)  # (batch, outputs, K)
        jd = torch.stack(along).sum(0)
        return torch.stack(diagonal).sum(0) + jd @ jd.mT / self._divisor()

    def describe(self, name: str) -> str:
        return f"normal by {self.count} iterates, rank {self.num_columns}"

    @property
    def num_columns(self) -> int:
        """K."""
        return min(self.count, self.rank)

    @torch.no_grad()
    def add(self, weights: Mapping[str, Tensor]) -> None:
        """Take in the next iterate."""
        self.count += 1
        for name, w in weights.items():
            mean, squares = self.means[name], self.squares.get(name)
            if squares is None:
                mean += (w - mean) / self.count
                continue
            self.means[name], self.squares[name] = welford(mean, squares, w, self.count)
            column = (w - self.means[name]).to(self.columns[name].dtype)[None]
            held = self.columns[name]
            if len(held) < self.rank:
                self.columns[name] = torch.cat([held, column])
            else:
                held[(self.count - 1) % self.rank] = column[0]

    def move(self, to: Callable[[Tensor], Tensor]) -> None:
        """As `nn.Module.to` moves buffers."""
        for part in (self.means, self.squares, self.columns):
            part.update({name: to(value) for name, value in part.items()})

    def tensors(self) -> dict[str, Tensor]:
        """All but the count, for files."""
        parts = {"mean": self.means, "squares": self.squares, "columns": self.columns}
        return {f"{kind}.{name}": value for kind, part in parts.items() for name, value in part.items()}

    def take(self, tensors: Mapping[str, Tensor], count: int) -> None:
        """Take back what `tensors` gave; what does not fit raises."""
        kinds = (("mean", self.means), ("squares", self.squares))
        columns = {name: tensors[f"columns.{name}"] for name in self.columns}
        there = {f"{k}.{n}": tensors[f"{k}.{n}"].shape for k, part in kinds for n in part}
        mine = {f"{k}.{n}": t.shape for k, part in kinds for n, t in part.items()}
        there |= {f"columns.{name}": d.shape for name, d in columns.items()}
        mine |= {
            f"columns.{name}": torch.Size((min(count, self.rank), *d.shape[1:]))
            for name, d in self.columns.items()
        }
        wrong = [name for name, shape in mine.items() if there[name] != shape]
        if wrong or count < 0:
            raise ValueError(f"{wrong[:1]} does not fit {count} iterates at rank {self.rank}")
        for kind, part in kinds:
            part.update({name: tensors[f"{kind}.{name}"].to(t, copy=True) for name, t in part.items()})
        self.columns = {name: d.to(self.columns[name], copy=True) for name, d in columns.items()}
        self.count = count

    def _divisor(self) -> int:
        return 2 * max(self.num_columns - 1, 1)

    def _diagonal(self) -> dict[str, Tensor]:
        """½ v."""
        return {name: squares / (2 * self.count) for name, squares in self.squares.items()}
