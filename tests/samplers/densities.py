"""Targets that are a density and no data: a network that returns its energy. Moments by formula or integral."""

import math
from collections.abc import Callable
from typing import Any

import torch
from targets import Batches, Target, rotation
from torch import Generator, Tensor, nn

import bayesify as bf

# Rubin 1981: effects of coaching in eight schools and their standard errors
EFFECTS = torch.tensor([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0], dtype=torch.float64)
ERRORS = torch.tensor([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0], dtype=torch.float64)


class Energy(nn.Module):
    """Returns U(θ) − θ²/2: the default prior N(0, 1) adds its θ²/2 again, so the posterior is e^−U exactly."""

    def __init__(self, energy: Callable[[Tensor], Tensor], dims: int, start: float) -> None:
        super().__init__()
        self.energy, self.start = energy, start
        self.theta = nn.Parameter(torch.empty(dims))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.theta, std=self.start)

    def forward(self, x: Tensor) -> Tensor:
        return (self.energy(self.theta) - self.theta.square().sum() / 2).expand(len(x), 1)


class MinusEnergy(bf.likelihoods.Likelihood):
    """log p = −output."""

    name, task, options = "minus_energy", "regression", {}  # type: ignore[assignment]

    def check(self, output: Tensor, target: Tensor, values: bool) -> Tensor:
        return target

    def log_prob(self, output: Tensor, target: Tensor) -> Tensor:
        return -output[:, 0]

    def summarize(self, output: Tensor) -> tuple[Tensor, Tensor]:
        return output, torch.zeros_like(output)


def density(
    name: str, easy: bool, energy: Callable[[Tensor], Tensor], dims: int, start: float = 1.0, **known: Any
) -> Target:
    """The target e^−energy of `dims` numbers, from starts N(0, start²)."""

    def build(method: bf.ThermostatMCMC) -> tuple[bf.BayesianModule, Batches]:
        torch.manual_seed(0)
        net = Energy(energy, dims, start)
        return bf.bayesify(net, method, MinusEnergy(), num_data=1), Batches(*torch.zeros(2, 1, 1))

    return Target(name, easy, build, **known)


def gaussian(name: str, easy: bool, mean: Tensor, cov: Tensor, start: float = 1.0) -> Target:
    """N(mean, cov)."""
    centre, precision = mean.float(), torch.linalg.inv(cov).float()

    def energy(theta: Tensor) -> Tensor:
        return (theta - centre) @ precision @ (theta - centre) / 2

    return density(name, easy, energy, len(mean), start, mean=mean, var=cov.diagonal())


def correlated(dims: int, condition: float, seed: int) -> Target:
    """Variances from 1 down to 1 / condition along random directions."""
    generator = Generator().manual_seed(seed)
    axes = rotation(dims, generator)
    cov = (axes * torch.logspace(0, -math.log10(condition), dims, dtype=axes.dtype)) @ axes.T
    mean = 3 * torch.randn(dims, generator=generator, dtype=axes.dtype)
    return gaussian(f"gaussian d{dims} cond {condition:.0f}", condition <= 100, mean, cov)


def far_gaussian(dims: int, seed: int) -> Target:
    """The case of the library "posteriors": cov = A Aᵀ, A and the mean N(0, 1), from starts N(0, 10²)."""
    generator = Generator().manual_seed(seed)
    mean = torch.randn(dims, generator=generator, dtype=torch.float64)
    root = torch.randn(dims, dims, generator=generator, dtype=torch.float64)
    values = torch.linalg.svdvals(root).square()
    easy = bool(values[0] <= 100 * values[-1])
    return gaussian(f"far gaussian d{dims} seed {seed}", easy, mean, root @ root.T, start=10.0)


def banana(width: float = 0.5) -> Target:
    """θ₁ ~ N(0, 1), θ₂ | θ₁ ~ N(θ₁² − 1, width²): means 0, variances 1 and 2 + width²."""

    def energy(theta: Tensor) -> Tensor:
        off = (theta[1] - theta[0].square() + 1) / width
        return (theta[0].square() + off.square()) / 2

    mean = torch.zeros(2, dtype=torch.float64)
    return density("banana", False, energy, 2, mean=mean, var=mean + torch.tensor([1, 2 + width**2]))


def funnel(others: int = 4, width: float = 3.0) -> Target:
    """v ~ N(0, width²), x_i ~ N(0, e^v) (Neal 2003). Judged by v and log |x_i| = v/2 + log |z|: x itself has
    no variance that draws could find."""

    def energy(theta: Tensor) -> Tensor:
        v, x = theta[0], theta[1:]
        return (v / width).square() / 2 + (x.square() * (-v).exp() + v).sum() / 2

    def coordinates(theta: Tensor) -> Tensor:
        return torch.cat([theta[..., :1], theta[..., 1:].abs().log()], -1)

    log_mean, log_var = -(math.log(2) + 0.5772156649) / 2, math.pi**2 / 8  # of log |z|
    mean = torch.tensor([0.0] + [log_mean] * others, dtype=torch.float64)
    var = torch.tensor([width**2] + [width**2 / 4 + log_var] * others, dtype=torch.float64)
    return density("funnel", False, energy, 1 + others, mean=mean, var=var, coordinates=coordinates)


def eight_schools() -> Target:
    """y_i ~ N(μ + τ z_i, s_i²), z_i ~ N(0, 1), μ ~ N(0, 5²), τ ~ half-Cauchy(5); weights μ, log τ, z."""
    y, s2 = EFFECTS.float(), ERRORS.float().square()

    def energy(theta: Tensor) -> Tensor:
        mu, log_tau, z = theta[0], theta[1], theta[2:]
        tau = log_tau.exp()
        prior = (mu / 5).square() / 2 + z.square().sum() / 2 + (1 + (tau / 5).square()).log() - log_tau
        return prior + ((y - mu - tau * z).square() / s2).sum() / 2

    mean, var = eight_schools_moments()
    return density("eight schools", False, energy, 10, mean=mean, var=var)


def eight_schools_moments() -> tuple[Tensor, Tensor]:
    """Given τ everything is Gaussian; over log τ by a sum on a fine grid."""
    log_tau = torch.linspace(-25, 8, 20_001, dtype=torch.float64)
    tau = log_tau.exp()[:, None]
    total = ERRORS.square() + tau.square()  # (grid, schools): Var y given μ
    precision = 1 / 25 + (1 / total).sum(1)
    mu, mu_var = (EFFECTS / total).sum(1) / precision, 1 / precision
    log_evidence = -(total.log() + EFFECTS.square() / total).sum(1) / 2 + mu.square() * precision / 2
    log_weight = log_evidence - precision.log() / 2 - (1 + (tau[:, 0] / 5).square()).log() + log_tau
    weight = torch.softmax(log_weight, 0)[:, None]
    slope = tau / total
    z, z_var = slope * (EFFECTS - mu[:, None]), ERRORS.square() / total + slope.square() * mu_var[:, None]
    means = torch.cat([mu[:, None], log_tau[:, None], z], 1)
    inside = torch.cat([mu_var[:, None], torch.zeros_like(tau), z_var], 1)
    mean = (weight * means).sum(0)
    return mean, (weight * (inside + (means - mean).square())).sum(0)


def targets() -> list[Target]:
    """Every density."""
    return [
        correlated(5, 50, 6),
        correlated(20, 1, 1),
        correlated(20, 100, 2),
        correlated(50, 30, 7),
        correlated(100, 10, 3),
        correlated(100, 1000, 4),
        *(far_gaussian(2, seed) for seed in range(3)),
        banana(),
        funnel(),
        eight_schools(),
    ]
