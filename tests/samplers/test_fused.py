"""The Triton kernel does what the tensor operations do. Needs a GPU, or in part Triton's interpreter."""

import copy
import importlib.util
import math
import os
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bayesify.samplers import ATMC, SGHMC, SGNHT

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
SHAPES = [(7, 11), (3,), (50, 61), (1,), (4097,), (2048,)]
SETTINGS: list[dict[str, Any]] = [
    {},
    {"max_speed": 0.7},
    {"mass": 4.0, "noise": 0.5, "thermostat_rate": 3.0},
    {"temperature": 0.0},
    {"temperature": 0.3, "noise": 2.0},
    {"masses": True},
    {"masses": True, "max_speed": 0.7, "temperature": 0.3},
]


def make(cls: Any, device: str, **settings: Any) -> tuple[list[nn.Parameter], Any]:
    if cls is SGHMC:  # it has no thermostat
        settings = {name: value for name, value in settings.items() if name != "thermostat_rate"}
    generator = torch.Generator().manual_seed(0)
    theta = [nn.Parameter(torch.randn(shape, generator=generator).to(device)) for shape in SHAPES]
    masses = settings.pop("masses", False)
    sampler = cls(theta, lr=0.1, num_data=5, **settings)
    if masses:  # one for every coordinate, as after a warm start
        for p in theta:
            sampler.state[p]["mass"] = torch.rand(p.shape, generator=generator).add(0.5).to(device)
    return theta, sampler


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> str:
    """CUDA, or the CPU where Triton interprets its kernels (TRITON_INTERPRET=1)."""
    if torch.cuda.is_available():
        return "cuda"
    if os.environ.get("TRITON_INTERPRET") != "1" or importlib.util.find_spec("triton") is None:
        pytest.skip("needs CUDA, or triton and TRITON_INTERPRET=1")
    monkeypatch.setattr("bayesify.samplers.momentum.available", lambda parameters: True)
    monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext())
    return "cpu"


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("cls", [SGHMC, SGNHT, ATMC])
def test_equal_to_the_reference_given_the_noise(cls: Any, settings: dict[str, Any], device: str) -> None:
    """Six steps, each from the state of the reference: 1e-6 of the size of each state and of the entry. That is
    17 roundings of float32, and a step has about a dozen."""
    theta, kernel = make(cls, device, fused=True, **settings)
    other, reference = make(cls, "cpu", fused=False, **settings)
    generator = torch.Generator().manual_seed(3)
    for _ in range(6):
        noise = [torch.randn(p.shape, generator=generator) for p in other]
        extra = [torch.randn(p.shape, generator=generator) for p in other]
        for p, q, e in zip(theta, other, extra, strict=True):
            q.grad = (q.detach() + e) / 5
            p.grad = q.grad.to(device)
        kernel.step(noise=[n.to(device) for n in noise])
        reference.step(noise=noise)
        for key in ("θ", *reference.states):
            found, expected = states(kernel, theta, key), states(reference, other, key)
            size = expected.square().mean().sqrt().item()
            allowed = 1e-6 * (size + expected.abs())
            assert ((found - expected).abs() <= allowed).all(), key
        _restart(kernel, theta, reference, other)


@pytest.mark.parametrize("bias", [True, False])
def test_along_the_axes_of_inputs_too(bias: bool, device: str) -> None:
    """Twenty steps by the same noise, a weight of 3 inputs: 1e-4 of the largest, where a step has a dozen roundings of
    float32."""
    generator, chains = torch.Generator().manual_seed(0), []
    shapes = [(4, 3), (4,)][: 1 + bias]
    starts = [torch.randn(shape, generator=generator) for shape in shapes]
    x = 5 + torch.randn(50, 3 + bias, generator=generator)
    for where in (device, "cpu"):
        mine = [nn.Parameter(start.to(where, copy=True)) for start in starts]
        sampler = ATMC(mine, lr=0.05, num_data=3, fused=not chains)
        sampler.axes.add(sampler, {mine[0]: (mine[1] if bias else None, (x.T @ x / 50).to(where), 50)})
        sampler.axes.turn(sampler)
        chains.append((mine, sampler))
    for _ in range(20):
        noise = [torch.randn(shape, generator=generator) for shape in shapes]
        for mine, sampler in chains:
            for p in mine:
                p.grad = 2 * p.detach() - p.detach().sin()
            sampler.step(noise=[eta.to(mine[0].device) for eta in noise])
    for found, expected, start in zip(chains[0][0], chains[1][0], starts, strict=True):
        largest = expected.abs().max().item()
        torch.testing.assert_close(found.cpu(), expected, rtol=0, atol=1e-4 * largest)
        assert (expected - start).abs().max() > 0.1 * largest


def states(sampler: Any, parameters: list[nn.Parameter], key: str) -> Tensor:
    """All coordinates of a state, or of the parameters."""
    tensors = [p.detach() if key == "θ" else sampler.state[p][key] for p in parameters]
    return torch.cat([t.cpu().flatten() for t in tensors])


@torch.no_grad()
def _restart(kernel: Any, theta: list[nn.Parameter], reference: Any, other: list[nn.Parameter]) -> None:
    for p, q in zip(theta, other, strict=True):
        p.copy_(q)
        for key, value in reference.state[q].items():
            kernel.state[p][key].copy_(value)


@needs_cuda
def test_its_own_noise_is_standard_normal_and_new_at_every_step() -> None:
    """Friction so large that p = √m T η: 10⁶ draws, standard error 1e-3 of the mean, √2 e-3 of the variance."""
    theta = [nn.Parameter(torch.zeros(1_000_000, device="cuda"))]
    sampler = SGHMC(theta, lr=1.0, num_data=1, noise=1e3, fused=True)
    draws = []
    for _ in range(3):
        theta[0].grad = torch.zeros_like(theta[0])
        sampler.step()
        draws.append(sampler.state[theta[0]]["momentum"].double().cpu())
    for eta in draws:
        assert abs(eta.mean().item()) < 4.9e-3
        assert abs(eta.var().item() - 1) < 4.9 * math.sqrt(2) * 1e-3
        assert abs((eta**4).mean().item() - 3) < 4.9 * math.sqrt(96) * 1e-3
        assert abs((eta[1:] * eta[:-1]).mean().item()) < 4.9e-3
        assert abs((eta[512:] * eta[:-512]).mean().item()) < 4.9e-3  # two quarters of one Philox call
    assert abs((draws[0] * draws[1]).mean().item()) < 4.9e-3


@needs_cuda
def test_equal_seeds_are_equal_chains_and_a_resumed_one_goes_on() -> None:
    theta, sampler = make(ATMC, "cuda", fused=True, seed=4)
    other, twin = make(ATMC, "cuda", fused=True, seed=4)

    def steps(parameters: list[nn.Parameter], optimizer: Any, count: int) -> None:
        for _ in range(count):
            for p in parameters:
                p.grad = p.detach() / 5
            optimizer.step()

    steps(theta, sampler, 4)
    steps(other, twin, 4)
    assert all(torch.equal(a, b) for a, b in zip(theta, other, strict=True))
    middle, state = copy.deepcopy(theta), sampler.state_dict()
    resumed = ATMC(middle, lr=0.1, num_data=5, fused=True, seed=4)
    resumed.load_state_dict(state)
    steps(theta, sampler, 3)
    steps(middle, resumed, 3)
    assert all(torch.equal(a, b) for a, b in zip(theta, middle, strict=True))


@needs_cuda
@pytest.mark.parametrize("tensor", [False, True])
@pytest.mark.parametrize("cls", [SGHMC, SGNHT, ATMC])
def test_replays_of_a_captured_step_are_the_steps_of_the_chain(cls: Any, tensor: bool) -> None:
    """An lr that is a tensor may change between replays; the state goes on where the replays ended."""
    rates = [0.1, 0.1, 0.1, 0.05, 0.2] if tensor else [0.1] * 5
    theta, plain = make(cls, "cuda", fused=True, seed=4)
    other, _ = make(cls, "cuda")
    lr = torch.tensor(0.1, device="cuda") if tensor else 0.1
    sampler = cls(other, lr=lr, num_data=5, capturable=True, seed=4)

    def step() -> None:
        for p in other:
            p.grad = p.detach() / 5
        sampler.step()

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    for rate in rates[1:]:
        if isinstance(lr, torch.Tensor):
            lr.fill_(rate)
        graph.replay()
    for rate in rates:
        plain.param_groups[0]["lr"] = rate
        for p in theta:
            p.grad = p.detach() / 5
        plain.step()
    for p, q in zip(theta, other, strict=True):
        torch.testing.assert_close(q, p, rtol=1e-6, atol=1e-6)
    assert sampler.state_dict()["steps"] == plain.steps == 5


@needs_cuda
@pytest.mark.filterwarnings("ignore:The CUDA Graph is empty")
def test_capturing_without_saying_so_or_at_the_first_step_is_refused() -> None:
    for options, message in (({}, "capturable=True"), ({"capturable": True}, "first step")):
        theta, sampler = make(ATMC, "cuda", **options)
        for p in theta:
            p.grad = torch.zeros_like(p)
        with pytest.raises(RuntimeError, match=message), torch.cuda.graph(torch.cuda.CUDAGraph()):
            sampler.step()


@needs_cuda
def test_a_bad_step_is_skipped_on_the_device() -> None:
    theta, sampler = make(ATMC, "cuda", fused=True)
    for p in theta:
        p.grad = torch.full_like(p, torch.nan)
    before = copy.deepcopy(theta)
    sampler.found_inf = torch.ones((), device="cuda")
    sampler.step()
    assert all(torch.equal(a, b) for a, b in zip(theta, before, strict=True))
    sampler.found_inf = torch.zeros((), device="cuda")
    sampler.grad_scale = torch.full((), 4.0, device="cuda")
    for p in theta:
        p.grad = torch.ones_like(p)
    sampler.step()
    assert all(p.isfinite().all() for p in theta)
