"""Layers whose inputs have a mean move at it: the same posterior, in coordinates that do not hang together."""

import copy
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import bayesify as bf
from bayesify.samplers import SAMPLERS, Sampler
from bayesify.samplers.curvature import stiffness

NUM, STD, ROWS = 200, 0.3, 64


def data(mean: float) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = mean + torch.randn(NUM, 3, generator=generator)
    noise = STD * torch.randn(NUM, 1, generator=generator)
    return x, x @ torch.tensor([[1.0], [-2.0], [3.0]]) + noise


@pytest.mark.parametrize("mean", [10.0, 100.0])
@pytest.mark.parametrize("sampler", ["atmc", "psgld"])
def test_features_with_a_mean(sampler: str, mean: float) -> None:
    """Mean square about the exact mean over 64 chains, the rows of one layer, ÷ exact variance; 2,000 steps in batches
    of 50. Within 0.8 to 1.25, or 4 standard errors of the spread between chains: 6e-5 for each of 8;
    seeded."""
    x, y = data(mean)
    torch.manual_seed(0)
    model = bf.bayesify(
        nn.Linear(3, ROWS),
        bf.ThermostatMCMC(sampler=sampler, num_kept=250),
        likelihood=bf.likelihood("normal", std=STD),
        num_data=NUM,
    )
    batches = DataLoader(TensorDataset(x, y.expand(-1, ROWS)), batch_size=50, shuffle=True)
    bf.fit(model, batches, epochs=500, progress=False, seed=0, compile=False, on_bad_sampling="ignore")
    draws = [torch.cat([w["weight"], w["bias"][:, None]], 1) for _, w in model.posterior.each()]  # type: ignore[operator]
    design = torch.cat([x, torch.ones(NUM, 1)], 1).double()
    covariance = torch.linalg.inv(design.T @ design / STD**2 + torch.eye(4))
    exact = covariance @ design.T @ y.double().flatten() / STD**2
    squares = torch.stack(draws).double().sub(exact).square().mean(0) / covariance.diag()  # (rows, weights)
    ratio, error = squares.mean(0), squares.std(0) / math.sqrt(ROWS)
    assert (((ratio > 0.8) & (ratio < 1.25)) | ((ratio - 1).abs() < 4 * error)).all(), (ratio, error)


@pytest.mark.parametrize("integrator", ["fused", "strang"])
def test_a_step_is_one_of_the_output_at_the_mean(integrator: str) -> None:
    """(W, b) with a centre c goes the way of (W, b′), U(W, b) = U(W, b′ − W c), by the same noise."""
    torch.manual_seed(0)
    centre = torch.tensor([[2.0, -7.0, 0.0]], dtype=torch.float64)
    weight, bias = (nn.Parameter(torch.randn(*shape, dtype=torch.float64)) for shape in ((2, 3), (2,)))
    other = nn.Parameter(weight.detach().clone())
    there = nn.Parameter((bias + (weight * centre).sum(1)).detach())

    def energy(w: Tensor, b: Tensor) -> Tensor:
        return (w**4).sum() + (b * w.sum(1)).cos().sum()

    made = [
        SAMPLERS["atmc"](pair, lr=0.01, num_data=3, integrator=integrator)
        for pair in ([weight, bias], [other, there])
    ]
    made[0].centres.set(made[0], {weight: (bias, centre)})
    for _ in range(30):
        noise = [torch.randn(2, 3, dtype=torch.float64), torch.randn(2, dtype=torch.float64)]
        places = ((weight, bias), (other, there - (other * centre).sum(1)))
        for sampler, place in zip(made, places, strict=True):
            sampler.zero_grad()
            energy(*place).backward()
            sampler.step(noise=noise)
    torch.testing.assert_close(weight, other)
    torch.testing.assert_close(bias, there - (other * centre).sum(1))


def test_the_look_at_the_curvature_is_one_at_what_is_moved() -> None:
    """U = 5/2 Σ_n (W x_n + b)²: the curvature of (W, b) is 5 Σ x̃ x̃ᵀ, that of (W, b′) the same of x − c."""
    x = torch.randn(50, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) + 8
    weight, bias = (nn.Parameter(torch.zeros(*shape, dtype=torch.float64)) for shape in ((1, 3), (1,)))
    sampler = SAMPLERS["atmc"]([weight, bias], lr=0.1, num_data=5)
    sampler.warm_up(400)
    sampler.bucket([weight, bias], sampler.param_groups[0])

    def gradients(_: Any) -> list[Tensor]:
        loss = (x @ weight.T + bias).square().sum() / 2
        return [*torch.autograd.grad(loss, [weight, bias])]

    for centre in (None, x.mean(0)):
        if centre is not None:
            sampler.centres.set(sampler, {weight: (bias, centre[None])})
        inputs = torch.cat([x if centre is None else x - centre, torch.ones(50, 1)], 1)
        exact = 0.01 * 5 * torch.linalg.eigvalsh(inputs.T @ inputs)[-1].item()
        with torch.no_grad():
            found = stiffness(sampler, [weight, bias], gradients)
        assert found == pytest.approx(exact, rel=0.05)


def test_weights_that_do_not_belong_together_have_no_centre() -> None:
    """A bias that only trains, or is not there, cannot move with its weights."""
    weight, bias = nn.Parameter(torch.ones(2, 3)), nn.Parameter(torch.ones(2))
    groups = [{"params": [weight]}, {"params": [bias], "temperature": 0.0}]
    sampler = SAMPLERS["atmc"](groups, lr=0.1, num_data=5)
    sampler.centres.set(
        sampler, {weight: (bias, torch.ones(1, 3)), torch.ones(2, 3): (bias, torch.ones(1, 3))}
    )
    assert not sampler.centres.pairs


def run(epochs: int, folder: Path, half: bool = False) -> Tensor:
    torch.manual_seed(0)
    method = bf.ThermostatMCMC(burn_in=80, every=2)
    model = bf.bayesify(nn.Linear(3, 1), method, likelihood=bf.likelihood("normal", std=STD), num_data=NUM)
    x, y = data(8.0)
    if half:
        model, x, y = model.to(torch.bfloat16), x.bfloat16(), y.bfloat16()
    batches = DataLoader(TensorDataset(x, y), batch_size=50, shuffle=True)
    options: dict[str, Any] = {"progress": False, "seed": 0, "on_bad_sampling": "ignore", "compile": False}
    bf.fit(model, batches, epochs=epochs, folder=folder, **options)
    return torch.cat([p.detach().flatten() for p in model.net.parameters()])


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("stop", [1, 12, 18])
def test_a_run_resumes_bit_for_bit(stop: int, half: bool, tmp_path: Path) -> None:
    whole = run(24, tmp_path / "whole", half)
    run(stop, tmp_path / "parts", half)
    assert torch.equal(run(24, tmp_path / "parts", half), whole)


def test_half_precision_follows_a_master() -> None:
    """Moves of the bias far below its rounding add up: −ΔW c for c = 1, with no gradient of its own."""
    weight, bias = (nn.Parameter(torch.full(shape, 8.0, dtype=torch.bfloat16)) for shape in ((1, 2), (1,)))
    sampler: Sampler = SAMPLERS["sgld"]([weight, bias], lr=1e-4, num_data=1)
    sampler.centres.set(sampler, {weight: (bias, torch.ones(1, 2))})
    zeros = [torch.zeros(1, 2), torch.zeros(1)]
    for _ in range(500):
        weight.grad, bias.grad = torch.full_like(weight, 10.0), torch.zeros_like(bias)
        sampler.step(noise=zeros)
    torch.testing.assert_close(weight, torch.full_like(weight, 7.5))
    torch.testing.assert_close(bias, torch.full_like(bias, 9.0))
    assert (weight.grad == 10).all()
    twin = copy.deepcopy((weight, bias, sampler))
    assert twin[2].centres.pairs == [[0, 1]]
