"""Posteriors of small models, with real mini-batches, against exact ones."""

import math
from typing import NamedTuple

import pytest
import torch
from chains import assert_near, average
from torch import Tensor, nn

from bayesify.samplers import SAMPLERS, SGHMC, SGNHT
from bayesify.samplers.schedules import Cyclic

NUM_DATA, CHAINS, BATCH = 2000, 100, 20


def linear_regression(orthogonal: bool) -> tuple[Tensor, Tensor, Tensor]:
    """(features, targets, posterior covariance): y = x·w + N(0, 1), prior w ~ N(0, 1)."""
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(NUM_DATA, 2, generator=generator)
    if orthogonal:
        x = torch.linalg.qr(x)[0] * math.sqrt(NUM_DATA)
    else:
        x[:, 1] = 0.6 * x[:, 0] + 0.8 * x[:, 1]
    y = x @ torch.tensor([0.5, -1.0]) + torch.randn(NUM_DATA, generator=generator)
    return x, y, torch.linalg.inv(x.T @ x + torch.eye(2))


def variance_ratio(name: str, orthogonal: bool, steps: int = 2500) -> Tensor:
    """Sampled over exact variance of both weights; every chain draws mini-batches of its own."""
    x, y, covariance = linear_regression(orthogonal)
    mean = covariance @ x.T @ y
    w = nn.Parameter(mean.expand(CHAINS, 2).clone())
    settings = {"lr": 0.1, "mass": float(NUM_DATA)}
    sampler = SAMPLERS[name]([w], num_data=NUM_DATA, noise=1.0, **settings)  # type: ignore[call-arg]
    generator = torch.Generator().manual_seed(6)
    total = torch.zeros(2)
    for step in range(steps):
        batch = torch.randint(NUM_DATA, (CHAINS, BATCH), generator=generator)
        xb, now = x[batch], w.detach()  # (chains, batch, 2)
        error = (xb * now[:, None]).sum(-1) - y[batch]  # (chains, batch)
        w.grad = (error[..., None] * xb).mean(1) + now / NUM_DATA
        sampler.step()
        if step >= 500:
            total += (w.detach() - mean).square().mean(0) / (steps - 500)
    return total / covariance.diagonal()


@pytest.mark.parametrize(("name", "expected"), [("sghmc", 6.2), ("sgnht", 1.0), ("atmc", 1.0)])
def test_linear_regression_with_uncorrelated_features(name: str, expected: float) -> None:
    """100 chains of 200 units of time, about 20 independent draws each: √(2 / 2000) = 3 % a standard error;
    4.9 of them, and 5 % for gradient noise that is neither constant nor normal."""
    ratios = variance_ratio(name, orthogonal=True)
    assert ratios.tolist() == pytest.approx([expected] * 2, rel=0.2)


@pytest.mark.parametrize("name", ["sgnht", "atmc"])
def test_a_diagonal_thermostat_shrinks_correlated_posteriors(name: str) -> None:
    """Sec. 2.3 of the paper says so: with correlated gradient noise .69 to .81 in FORMULAS' table."""
    ratios = variance_ratio(name, orthogonal=False)
    assert all(0.5 < r < 0.95 for r in ratios.tolist())


class Logistic(NamedTuple):
    """y ~ Bernoulli(σ(x·w)), prior w ~ N(0, 1), its posterior and gradient noise by quadrature."""

    x: Tensor  # (examples, 2)
    y: Tensor  # (examples,)
    mean: Tensor  # (2,)
    std: Tensor
    noise: Tensor  # V: variance of G, mean over the posterior
    shift: Tensor  # E |V(w) / V − 1| |z| and
    spread: Tensor  # E |V(w) / V − 1| z², z = (w − mean) / std: what V's change over the posterior weighs


def logistic_regression(batch: int) -> Logistic:
    """100 examples and their mirror images (x₁, −x₂): gradient noise hardly correlated, as ATMC takes it to be."""
    generator = torch.Generator().manual_seed(7)
    half = torch.randn(100, 2, generator=generator, dtype=torch.float64)
    x = torch.cat([half, half * torch.tensor([1, -1])])
    y = (torch.rand(200, generator=generator) < torch.sigmoid(1.5 * x[:, 0])).double()
    axis = torch.linspace(-1.5, 3.5, 200, dtype=torch.float64)
    grid = torch.cartesian_prod(axis, axis)  # (cells, 2)
    logits = grid @ x.T  # (cells, examples)
    log_density = (logits * y - nn.functional.softplus(logits)).sum(1) - grid.square().sum(1) / 2
    weight = torch.softmax(log_density, 0)[:, None]
    mean = (weight * grid).sum(0)
    std = (weight * (grid - mean).square()).sum(0).sqrt()
    error = torch.sigmoid(logits) - y
    local = len(x) * (error.square() @ x.square() - (error @ x).square() / len(x)) / batch  # V(w): (cells, 2)
    noise = (weight * local).sum(0)
    changes, z = (local / noise - 1).abs(), (grid - mean).abs() / std
    shift, spread = (weight * changes * z).sum(0), (weight * changes * z.square()).sum(0)
    return Logistic(x.float(), y.float(), mean, std, noise, shift, spread)


@pytest.mark.parametrize("name", ["sgnht", "atmc"])
def test_logistic_regression_against_quadrature(name: str) -> None:
    """Mini-batches of 20 of 200, drawn by each of 200 chains for itself: B / 2mD is 0.4 and 0.8, which SGHMC would
    add to its variances. Errors are 4.9 standard errors from the spread between chains, and the two that are derived:
    (λ/m) h²/3 of the integrator, and V that changes over the posterior while ξ holds its mean only, a temperature
    of 1 + (V(w)/V − 1) B / 2mβ.
    """
    chains, batch, h, mass, steps, burn_in = 200, 20, 0.1, 30.0, 1200, 300
    exact = logistic_regression(batch)
    w = nn.Parameter(exact.mean.float().expand(chains, 2).clone())
    settings = {"mass": mass, "noise": 1.0, "seed": 1}
    sampler = SAMPLERS[name]([w], lr=h, num_data=200, **settings)  # type: ignore[call-arg]
    generator = torch.Generator().manual_seed(8)
    sums = torch.zeros(2, chains, 2, dtype=torch.float64)
    for step in range(steps):
        chosen = torch.randint(200, (chains, batch), generator=generator)
        xb, now = exact.x[chosen], w.detach()  # (chains, batch, 2)
        error = torch.sigmoid((xb * now[:, None]).sum(-1)) - exact.y[chosen]  # (chains, batch)
        w.grad = (error[..., None] * xb).mean(1) + now / 200
        sampler.step()
        if step >= burn_in:
            z = (w.detach() - exact.mean) / exact.std
            sums += torch.stack([z, z.square()])
    heat = h * exact.noise / (2 * mass)  # B / 2m, the mean of ξ
    share = heat if name == "atmc" else heat / (1 + heat)  # over β: D of ATMC while ξ < D, D + ξ of SGNHT
    for j in range(2):
        assert 0.4 < heat[j] < 1
        integrator = h**2 / (3 * mass * exact.std[j].item() ** 2)
        assert_near(average(sums[0, :, j], steps - burn_in), 0.0, (share * exact.shift)[j].item())
        assert_near(
            average(sums[1, :, j], steps - burn_in), 1.0, integrator + (share * exact.spread)[j].item()
        )


def test_the_cyclic_schedule_visits_both_modes() -> None:
    """½ N((−2.5, 0), 1) + ½ N((2.5, 0), 1), 500 chains that all start in the left mode.

    At the ends of 8 cycles both modes have about half of the chains: a share has standard error
    √(¼ / 500) = 0.022, 4.9 of them 0.11; the start is not wholly forgotten, hence 0.2.
    """
    centre = torch.tensor([2.5, 0.0])
    theta = nn.Parameter(-centre + torch.randn(500, 2, generator=torch.Generator().manual_seed(3)))
    sampler = SGNHT([theta], lr=0.3, num_data=1, noise=0.3)
    scheduler = Cyclic(250).scheduler(sampler)
    for _ in range(8 * 250):
        now = theta.detach()
        right = torch.sigmoid(5 * now[:, :1])  # posterior probability of the right mode
        theta.grad = now - centre * (2 * right - 1)
        sampler.step()
        scheduler.step()
    assert (theta[:, 0] > 0).float().mean().item() == pytest.approx(0.5, abs=0.2)
    near = (theta[:, 0].abs() - 2.5).square().mean().item()
    assert near == pytest.approx(1.0, rel=0.4)


def test_sghmc_is_wrong_by_design_where_sgnht_is_right() -> None:
    theta = {name: nn.Parameter(torch.zeros(4000)) for name in ("sghmc", "sgnht")}
    samplers = [SGHMC([theta["sghmc"]], 0.05, 1, noise=1.0), SGNHT([theta["sgnht"]], 0.05, 1, noise=1.0)]
    for _ in range(1200):
        for p, sampler in zip(theta.values(), samplers, strict=True):
            p.grad = p.detach() + math.sqrt(2 / 0.05) * torch.randn(4000)  # B = 2
            sampler.step()
    tolerance = 4.9 * math.sqrt(2 / 4000)  # 4000 independent values
    assert theta["sghmc"].var().item() == pytest.approx(2, rel=tolerance + 0.01)
    assert theta["sgnht"].var().item() == pytest.approx(1, rel=tolerance + 0.01)
