"""Posteriors whose moments are known, for samplers at their defaults: what is easy, hard, and out of reach.

Every target has a model to build, a loader, and the exact mean and variance of some functions of the weights,
mostly the weights themselves. Conjugate regressions are exact by linear algebra; the others stand in
`densities.py` (exact) and `data_posteriors.py` (against long Hamiltonian runs).
"""

import math
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor, nn

import bayesify as bf

Build = Callable[[bf.ThermostatMCMC], tuple[bf.BayesianModule, "Batches"]]


@dataclass(frozen=True)
class Target:
    """A posterior and what is known of it.

    easy:        a default run of 6,000 steps must be right and must not warn
    build:       method -> (model, loader); the model's start is far from the posterior
    mean, var:   exact, of every coordinate
    coordinates: (..., weights) -> (..., coordinates), of all weights in the order of the parameters
    quantiles:   level -> value of every coordinate, where they are known
    """

    name: str
    easy: bool
    build: Build
    mean: Tensor
    var: Tensor
    coordinates: Callable[[Tensor], Tensor] = lambda weights: weights
    quantiles: dict[float, Tensor] | None = None


class Batches(Iterable[tuple[Tensor, Tensor]]):
    """Batches of equal size in a new order every epoch; size None: all data at once."""

    def __init__(self, x: Tensor, y: Tensor, size: int | None = None) -> None:
        self.x, self.y, self.size = x, y, size or len(x)
        assert len(x) % self.size == 0
        self.generator = Generator().manual_seed(0)

    def __len__(self) -> int:
        return len(self.x) // self.size

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        if len(self) == 1:
            yield self.x, self.y
            return
        for chosen in torch.randperm(len(self.x), generator=self.generator).split(self.size):
            yield self.x[chosen], self.y[chosen]


def data_target(
    name: str, easy: bool, net: Callable[[], nn.Module], likelihood: Any, data: Batches, **known: Any
) -> Target:
    """The posterior of a network given data, with the default prior N(0, 1) on every weight."""

    def build(method: bf.ThermostatMCMC) -> tuple[bf.BayesianModule, Batches]:
        torch.manual_seed(0)
        return bf.bayesify(net(), method, likelihood, num_data=len(data.x)), data

    return Target(name, easy, build, **known)


def design(dims: int, num: int, condition: float, correlated: bool, seed: int) -> Tensor:
    """Inputs whose second moments have about this condition number: (num, dims)."""
    generator = Generator().manual_seed(seed)
    x = torch.randn(num, dims, generator=generator, dtype=torch.float64)
    x = x * torch.logspace(0, -math.log10(condition) / 2, dims, dtype=torch.float64)
    return x @ rotation(dims, generator) if correlated else x


def rotation(dims: int, generator: Generator) -> Tensor:
    """A random orthogonal matrix."""
    return torch.linalg.qr(torch.randn(dims, dims, generator=generator, dtype=torch.float64))[0]


def regression(
    dims: int, num: int, noise: float, condition: float, batch: int | None, correlated: bool, seed: int
) -> Target:
    """y = w·x + b + noise: cov = (XᵀX/σ² + I)⁻¹, mean = cov Xᵀy/σ²."""
    x = design(dims, num, condition, correlated, seed)
    generator = Generator().manual_seed(seed + 1)
    ones = torch.cat([x, torch.ones(num, 1, dtype=x.dtype)], 1)
    truth, error = (torch.randn(n, generator=generator, dtype=x.dtype) for n in (dims + 1, num))
    y = ones @ truth + noise * error
    cov = torch.linalg.inv(ones.T @ ones / noise**2 + torch.eye(dims + 1, dtype=x.dtype))
    size, shape = "full" if batch is None else f"b{batch}", "correlated" if correlated else "plain"
    return data_target(
        f"regression d{dims} N{num} σ{noise} cond {condition:.0f} {shape} {size}",
        condition <= 100 and batch != 20,
        lambda: nn.Linear(dims, 1),
        bf.likelihood("normal", std=noise),
        Batches(x.float(), y[:, None].float(), batch),
        mean=cov @ ones.T @ y / noise**2,
        var=cov.diagonal(),
    )


def regressions(count: int = 10, seed: int = 20) -> list[Target]:
    """Conditions from 1 to 1e4, the rest by chance."""
    chance = random.Random(seed)
    sizes = chance.sample([None, None, None, None, 100, 100, 100, 20, 20, 20], count)
    return [
        regression(
            dims=chance.randint(3, 20),
            num=chance.choice((200, 400, 1000)),
            noise=round(math.exp(chance.uniform(math.log(0.05), math.log(0.3))), 2),
            condition=10 ** (4 * i / (count - 1)),
            batch=sizes[i],
            correlated=chance.random() < 0.5,
            seed=seed + 100 * i,
        )
        for i in range(count)
    ]


def all_targets() -> list[Target]:
    """The whole zoo."""
    import data_posteriors
    import densities

    return [*regressions(), *densities.targets(), *data_posteriors.targets()]
