"""Layers move along the axes of their inputs: the same posterior, in coordinates that do not hang together."""

import copy
import math
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import bayesify as bf
from bayesify.samplers import SAMPLERS, Sampler, momentum
from bayesify.samplers.curvature import stiffness
from bayesify.samplers.fused import fused_step

NUM, STD, ROWS = 200, 0.3, 64
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")


def data(mean: float) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = mean + torch.randn(NUM, 3, generator=generator)
    noise = STD * torch.randn(NUM, 1, generator=generator)
    return x, x @ torch.tensor([[1.0], [-2.0], [3.0]]) + noise


KINDS = {
    "a mean of 10": lambda x: 10 + x,
    "a mean of 100": lambda x: 100 + x,
    "almost alike": lambda x: x + 20 * x.sum(1, keepdim=True),
    "scales 0.01 to 100": lambda x: x * torch.tensor([0.01, 1.0, 100.0]),
}


@pytest.mark.filterwarnings("ignore:targets are .* learning rates and priors are made for a std near 1")
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sampler", ["atmc", "psgld"])
def test_features_that_tie_weights_together(sampler: str, kind: str, bias: bool) -> None:
    with warnings.catch_warnings():
        if sampler == "psgld":  # a chain of scales 0.01 to 100 is worth 7 draws, as it says
            warnings.filterwarnings("ignore", "the draws may not be .* worth some", bf.SamplingWarning)
        assert_right(sampler, kind, bias)


@needs_cuda
@pytest.mark.parametrize("bias", [True, False])
def test_features_that_tie_weights_together_on_cuda(bias: bool) -> None:
    assert_right("atmc", "a mean of 100", bias, "cuda")


def assert_right(sampler: str, kind: str, bias: bool, device: str = "cpu") -> None:
    """Mean square about the exact mean over 64 chains, the rows of one layer, ÷ exact variance; 2,000 steps in batches
    of 50. Within 0.8 to 1.25, or 4 standard errors of the spread between chains: 6e-5 for each of 63 weights;
    seeded. A warning is an error."""
    generator = torch.Generator().manual_seed(0)
    x = KINDS[kind](torch.randn(NUM, 3, generator=generator))
    y = x @ torch.tensor([[1.0], [-2.0], [3.0]]) + STD * torch.randn(NUM, 1, generator=generator)
    torch.manual_seed(0)
    model = bf.bayesify(
        nn.Linear(3, ROWS, bias=bias),
        bf.ThermostatMCMC(sampler=sampler, num_kept=250),
        likelihood=bf.likelihood("normal", std=STD),
        num_data=NUM,
    )
    batches = DataLoader(TensorDataset(x, y.expand(-1, ROWS)), batch_size=50, shuffle=True)
    options: dict[str, Any] = {"progress": False, "compile": False}
    bf.fit(model, batches, epochs=500, seed=0, accelerator=device, **options)
    design = torch.cat([x, torch.ones(NUM, 1)], 1)[:, : 3 + bias].double()
    draws = [torch.cat([p.reshape(ROWS, -1) for p in w.values()], 1).cpu() for _, w in model.posterior.each()]  # type: ignore[operator]
    covariance = torch.linalg.inv(design.T @ design / STD**2 + torch.eye(3 + bias))
    exact = covariance @ design.T @ y.double().flatten() / STD**2
    squares = torch.stack(draws).double().sub(exact).square().mean(0) / covariance.diag()  # (rows, weights)
    ratio, error = squares.mean(0), squares.std(0) / math.sqrt(ROWS)
    assert (((ratio > 0.8) & (ratio < 1.25)) | ((ratio - 1).abs() < 4 * error)).all(), (ratio, error)


def seen(*shape: int) -> Tensor:
    """E x̃ x̃ᵀ of some inputs, and of no two alike."""
    x = torch.randn(50, *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    return x.mT @ x / 50 + torch.diag(torch.arange(1.0, shape[-1] + 1))


@pytest.mark.parametrize("integrator", ["fused", "strang"])
@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 2, 2)])
@pytest.mark.parametrize("bias", [True, False])
def test_a_step_is_one_along_the_axes(bias: bool, shape: tuple[int, ...], integrator: str) -> None:
    """θ = (W b) goes the way of z in U(z Aᵀ), by the same noise."""
    torch.manual_seed(0)
    inputs = math.prod(shape[1:])
    weight = nn.Parameter(torch.randn(*shape, dtype=torch.float64))
    mine = [weight, nn.Parameter(torch.randn(2, dtype=torch.float64))][: 1 + bias]

    def rows(parts: list[Any]) -> Tensor:
        return torch.cat([parts[0].flatten(1), *(p[:, None] for p in parts[1:])], 1)

    def energy(theta: Tensor) -> Tensor:
        return (theta**4).sum() + (theta[:, 0] * theta.sum(1)).cos().sum()

    sampler = SAMPLERS["atmc"](mine, lr=0.01, num_data=3, integrator=integrator)
    sampler.axes.add(sampler, {weight: (mine[1] if bias else None, seen(inputs + bias), 5)})
    sampler.axes.turn(sampler)
    axes = sampler.state[weight]["axes"]
    there = nn.Parameter(torch.linalg.solve(axes, rows(mine).T).T.detach().clone())
    torch.testing.assert_close(sampler.axes.place(sampler, weight).flatten(1), there[:, :inputs].detach())
    other = SAMPLERS["atmc"]([there], lr=0.01, num_data=3, integrator=integrator)
    for _ in range(30):
        noise = torch.randn_like(there)
        for one, place in ((sampler, rows(mine)), (other, there @ axes.T)):
            one.zero_grad()
            energy(place).backward()
        sampler.step(noise=[noise[:, :inputs].reshape(shape), noise[:, -1]][: 1 + bias])
        other.step(noise=[noise])
    torch.testing.assert_close(rows(mine), there @ axes.T)


def test_autocast_does_not_round_what_moves() -> None:
    """A step inside of it is the same to the bit: half precision would leak from steep directions into flat ones."""
    found = []
    for half in (False, True):
        torch.manual_seed(0)
        weight = nn.Parameter(torch.randn(2, 3))
        sampler = SAMPLERS["atmc"]([weight], lr=0.01, num_data=3)
        sampler.axes.add(sampler, {weight: (None, seen(3), 5)})
        sampler.axes.turn(sampler)
        weight.grad = torch.randn(2, 3)
        with torch.autocast("cpu", enabled=half):
            sampler.step()
        found.append(weight.detach().clone())
    assert torch.equal(*found)


def test_the_look_at_the_curvature_is_one_at_what_is_moved() -> None:
    """U = N/2 Σ_n (W x_n + b)²: the curvature of (W b) is N Σ x̃ x̃ᵀ. Along the axes curvatures are nearly alike,
    and what six rounds of power iteration find lies among them; without, one has nearly all of it."""
    x = torch.randn(50, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) + 8
    weight, bias = (nn.Parameter(torch.zeros(*shape, dtype=torch.float64)) for shape in ((1, 3), (1,)))
    sampler = SAMPLERS["atmc"]([weight, bias], lr=0.1, num_data=5000)
    sampler.warm_up(400)
    sampler.bucket([weight, bias], sampler.param_groups[0])
    inputs = torch.cat([x, torch.ones(50, 1)], 1)

    def gradients(_: Any) -> list[Tensor]:
        loss = (x @ weight.T + bias).square().sum() / 2
        return [*torch.autograd.grad(loss, [weight, bias])]

    for axes in (False, True):
        if axes:
            sampler.axes.add(sampler, {weight: (bias, inputs.mT @ inputs / 50, 50)})
            sampler.axes.turn(sampler)
        along = inputs @ sampler.state[weight]["axes"] if axes else inputs
        exact = 0.01 * 5000 * torch.linalg.eigvalsh(along.T @ along)
        with torch.no_grad():
            found = stiffness(sampler, [weight, bias], gradients)
        assert (1 - 1e-6) * exact[0] <= found <= (1 + 1e-6) * exact[-1]
        if axes:
            assert exact[-1] < 2 * exact[0]
        else:
            assert exact[-1] > 100 * exact[-2] and found == pytest.approx(exact[-1].item(), rel=1e-6)


def test_weights_that_do_not_belong_together_have_no_axes() -> None:
    """A bias that only trains cannot move with its weights; nor can weights of somebody else."""
    weight, bias = nn.Parameter(torch.ones(2, 3)), nn.Parameter(torch.ones(2))
    groups = [{"params": [weight]}, {"params": [bias], "temperature": 0.0}]
    sampler = SAMPLERS["atmc"](groups, lr=0.1, num_data=5)
    sampler.axes.add(sampler, {weight: (bias, seen(4), 5), torch.ones(2, 3): (None, seen(3), 5)})
    assert not sampler.axes.pairs


def test_a_bias_of_two_layers_moves_with_one_of_them() -> None:
    """It would be moved twice."""
    first, second, bias = (nn.Parameter(torch.ones(*shape)) for shape in ((2, 3), (2, 3), (2,)))
    sampler = SAMPLERS["atmc"]([first, second, bias], lr=0.1, num_data=5)
    for _ in range(2):
        sampler.axes.add(sampler, {first: (bias, seen(4), 5), second: (bias, seen(4), 5)})
    assert sampler.axes.pairs == [[0, 2]]


def run(epochs: int, folder: Path, half: bool = False, device: str = "cpu") -> Tensor:
    torch.manual_seed(0)
    method = bf.ThermostatMCMC(burn_in=80, every=2)
    model = bf.bayesify(nn.Linear(3, 1), method, likelihood=bf.likelihood("normal", std=STD), num_data=NUM)
    x, y = data(8.0)
    if half:
        model, x, y = model.to(torch.bfloat16), x.bfloat16(), y.bfloat16()
    batches = DataLoader(TensorDataset(x, y), batch_size=50, shuffle=True)
    options: dict[str, Any] = {"progress": False, "seed": 0, "on_bad_sampling": "ignore", "compile": False}
    bf.fit(model, batches, epochs=epochs, folder=folder, accelerator=device, **options)
    parameters = [*model.net.parameters()]
    assert all(p.device.type == device for p in parameters)
    return torch.cat([p.detach().flatten() for p in parameters])


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("stop", [1, 12, 18])
def test_a_run_resumes_bit_for_bit(stop: int, half: bool, tmp_path: Path) -> None:
    whole = run(24, tmp_path / "whole", half)
    run(stop, tmp_path / "parts", half)
    assert torch.equal(run(24, tmp_path / "parts", half), whole)


@needs_cuda
@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("stop", [1, 12, 18])
def test_a_run_on_cuda_resumes_bit_for_bit(
    stop: int, half: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the fused kernel in float32, by tensor operations and a master in bfloat16."""
    fused: list[object] = []
    monkeypatch.setattr(momentum, "fused_step", lambda *a: fused.append(fused_step(*a)))
    whole = run(24, tmp_path / "whole", half, "cuda")
    assert len(fused) == (0 if half else 24 * math.ceil(NUM / 50))
    run(stop, tmp_path / "parts", half, "cuda")
    assert torch.equal(run(24, tmp_path / "parts", half, "cuda"), whole)


def test_half_precision_follows_a_master() -> None:
    """Moves far below the rounding of the weights add up: Δ A Aᵀ G of 500 steps of 1e-4. The gradient along the axes
    is rounded to bfloat16, by 2⁻⁹ at most, and so is the weight in the end."""
    weight, bias = (nn.Parameter(torch.full(shape, 8.0, dtype=torch.bfloat16)) for shape in ((1, 2), (1,)))
    sampler: Sampler = SAMPLERS["sgld"]([weight, bias], lr=1e-4, num_data=1)
    sampler.axes.add(sampler, {weight: (bias, seen(3), 10**6)})
    sampler.axes.turn(sampler)
    axes = sampler.state[weight]["axes"]
    for _ in range(500):
        weight.grad, bias.grad = torch.full_like(weight, 10.0), torch.zeros_like(bias)
        sampler.step(noise=[torch.zeros(1, 2), torch.zeros(1)])
    moved = 8 - 0.05 * torch.tensor([10.0, 10.0, 0.0]) @ axes @ axes.T
    torch.testing.assert_close(
        torch.cat([weight[0], bias]).float(), moved.bfloat16().float(), rtol=0.004, atol=0
    )
    torch.testing.assert_close(sampler.state[bias]["master"], moved[2:], rtol=2e-3, atol=0)
    assert (weight.grad == 10).all()
    twin = copy.deepcopy((weight, bias, sampler))
    assert twin[2].axes.pairs == [[0, 1]]
    assert twin[2].axes.layers(twin[2])[id(twin[1])].weight is twin[0]
