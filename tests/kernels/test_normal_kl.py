"""The KL of normal tensors over M draws in one kernel: its noise has the right law, its numbers are the formula's."""

import math
from collections.abc import Sequence

import pytest
import torch
from scipy import stats
from torch import Tensor

import bayesify as bf
from bayesify.divergences import kl_of
from bayesify.divergences import multi_tensor as together
from bayesify.divergences.statistics import Draws
from bayesify.families import Normal
from bayesify.kernels.normal_kl import given_noise
from bayesify.laws.chi_squared import chi_squared, quantile_polynomial

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
DEVICES = ["cpu", pytest.param("cuda", marks=needs_gpu)]
FAILURE_RATE = 1e-6
SHAPES = [(3, 5), (64, 33), (2, 3, 3, 3), (), (1000,)]
PRIOR = bf.prior("normal", mean=0.3, std=0.7)


def tensors(device: str, shapes: Sequence[tuple[int, ...]] = SHAPES) -> list[Normal]:
    generator = torch.Generator().manual_seed(0)
    parts = [[torch.randn(s, generator=generator) for s in shapes] for _ in range(2)]
    return [
        Normal(a.to(device).requires_grad_(), (b / 3 - 1).to(device).requires_grad_())
        for a, b in zip(*parts, strict=True)
    ]


def leaves(qs: list[Normal]) -> list[Tensor]:
    return [t for q in qs for t in (q.loc, q.log_scale)]


def flat(tensors: Sequence[Tensor]) -> Tensor:
    return torch.cat([t.flatten() for t in tensors])


def fused(qs: list[Normal], num_draws: int) -> Tensor:
    return together._fused(qs, PRIOR, num_draws)  # type: ignore[arg-type]


def run(loc: Tensor, log_scale: Tensor, num_draws: int, seed: int = 7) -> tuple[Tensor, Tensor, Tensor]:
    gradients = loc.clone(), log_scale.clone()
    polynomial = quantile_polynomial(num_draws - 1) if num_draws > 1 else ()
    at = torch.tensor(seed, device=loc.device)
    value = torch.ops.bayesify.normal_kl_(*gradients, at, 0.3, 0.7, num_draws, polynomial)
    return value, *gradients


@pytest.mark.parametrize("mean", [0.0, 0.3])
@pytest.mark.parametrize("num_draws", [1, 1000])
def test_the_formula_is_that_of_the_multi_tensor_form(num_draws: int, mean: float) -> None:
    loc, log_scale, z = torch.randn(3, 500)
    chi = chi_squared(num_draws - 1, (500,), loc)
    value, *found = given_noise(loc, log_scale, z, chi, mean, 0.7, num_draws)
    parts = [loc.requires_grad_(), log_scale.requires_grad_()]
    expected = together._Repar.apply(mean, 0.7, num_draws, 1, *parts, z, *([chi] if num_draws > 1 else []))
    torch.testing.assert_close(value, expected.detach(), rtol=1e-6, atol=0)
    for a, b in zip(found, torch.autograd.grad(expected, parts), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=3e-6)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("num_draws", [1, 50, 1000, 20_000])
def test_the_noise_has_its_law_and_the_value_is_the_formula_of_it(num_draws: int, device: str) -> None:
    """z and χ² follow from both gradients; 100,003 weights, the last program half empty."""
    count, sigma = 100_003, 0.5
    loc = torch.full((count,), 0.4, device=device)
    log_scale = torch.full_like(loc, math.log(sigma))
    value, by_loc, by_scale = run(loc, log_scale, num_draws)
    y = by_loc.double() * 0.7**2
    shift = y - 0.1
    z = shift * math.sqrt(num_draws) / sigma
    chi = num_draws * ((by_scale.double() + 1) * 0.7**2 - y * shift) / sigma**2
    assert stats.kstest(z.cpu().numpy(), stats.norm.cdf).pvalue > FAILURE_RATE
    bound = stats.norm.isf(FAILURE_RATE / 2) / math.sqrt(count)  # of a correlation
    for lag in (1, 512, 1024, 2048):
        assert torch.corrcoef(torch.stack([z[lag:], z[:-lag]]))[0, 1].abs() < 1.02 * bound
    if num_draws == 1:
        assert chi.abs().max() < 1e-4
    else:
        assert stats.kstest(chi.cpu().numpy(), stats.chi2(num_draws - 1).cdf).pvalue > FAILURE_RATE
        for power in (1, 2):
            assert torch.corrcoef(torch.stack([chi, z**power]))[0, 1].abs() < bound
    again = given_noise(loc.double(), log_scale.double(), z, chi, 0.3, 0.7, num_draws)
    torch.testing.assert_close(value.double(), again[0], rtol=1e-5, atol=0)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("num_draws", [1, 1000])
def test_means_are_exact_and_variances_those_of_the_estimator(num_draws: int, device: str) -> None:
    """300 estimates. With a = μ − m the variances times M s⁴ are: of the value Σ (a²σ² + σ⁴/2), by μ σ², by log σ
    a²σ² + 2σ⁴."""
    qs, runs = tensors(device), 300
    inputs = leaves(qs)
    values, gradients = [], []
    for _ in range(runs):
        value = fused(qs, num_draws)
        values.append(value.detach())
        gradients.append(flat(torch.autograd.grad(value, inputs)))
    exact = kl_of(qs[0], PRIOR, "exact")(qs)
    expected = flat(torch.autograd.grad(exact, inputs))
    with torch.no_grad():
        by_loc = [q.scale.double() ** 2 / (num_draws * 0.7**4) for q in qs]
        shifted = [(q.loc.double() - 0.3) ** 2 * v for q, v in zip(qs, by_loc, strict=True)]
        curved = [q.scale.double() ** 2 * v for q, v in zip(qs, by_loc, strict=True)]
    by_scale = [a + 2 * b for a, b in zip(shifted, curved, strict=True)]
    variance = flat(shifted).sum() + flat(curved).sum() / 2
    found = torch.stack(values).double()
    assert (found.mean() - exact).abs() < 5 * (variance / runs).sqrt() + 1e-6 * exact.abs()
    ratio = float((runs - 1) * found.var() / variance)
    assert stats.chi2(runs - 1).ppf(1e-5) < ratio < stats.chi2(runs - 1).isf(1e-5)
    std = flat([v for pair in zip(by_loc, by_scale, strict=True) for v in pair]).sqrt()
    error = (torch.stack(gradients).double().mean(0) - expected).abs()
    assert (error < 7 * std / math.sqrt(runs) + 1e-6).all()  # of 6,364 numbers, some of them skew


@pytest.mark.parametrize("device", DEVICES)
def test_the_seed_decides(device: str) -> None:
    qs, results = tensors(device), []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        value = fused(qs, 1000)
        results.append([value, *torch.autograd.grad(3 * value, leaves(qs))])
    assert all(torch.equal(a, b) for a, b in zip(*results[:2], strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(*results[1:], strict=True))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("num_draws", [1, 1000])
def test_the_operation_is_well_formed(num_draws: int, device: str) -> None:
    loc, log_scale = torch.randn(2, 1001, device=device)
    polynomial = quantile_polynomial(num_draws - 1) if num_draws > 1 else ()
    seed = torch.tensor(3, device=device)
    args = (loc, log_scale, seed, 0.3, 0.7, num_draws, polynomial)
    torch.library.opcheck(torch.ops.bayesify.normal_kl_.default, args)


@pytest.mark.parametrize(
    ("device", "backend"), [("cpu", "aot_eager"), pytest.param("cuda", "inductor", marks=needs_gpu)]
)
@pytest.mark.parametrize("num_draws", [1, 1000])
def test_it_compiles_as_one_graph(num_draws: int, device: str, backend: str) -> None:
    """Gradients reach every tensor, whatever the order in which the tensors are laid out."""
    qs = tensors(device)
    torch._dynamo.reset()
    value = torch.compile(lambda: fused(qs, num_draws), fullgraph=True, backend=backend)()
    found = torch.autograd.grad(value, leaves(qs))
    exact = kl_of(qs[0], PRIOR, "exact")(qs)
    assert (value - exact).abs() < 0.2 * exact
    if num_draws > 1:  # a standard deviation is below 0.1 for every number here
        for a, b in zip(found, torch.autograd.grad(exact, leaves(qs)), strict=True):
            torch.testing.assert_close(a, b, rtol=0.6, atol=0.6)


@pytest.mark.parametrize("device", DEVICES)
def test_one_tensor_without_gradients_compiles(device: str) -> None:
    q = Normal(torch.zeros(1000, device=device), torch.zeros(1000, device=device))
    torch._dynamo.reset()
    value = torch.compile(lambda: fused([q], 1000), fullgraph=True, backend="aot_eager")()
    exact = kl_of(q, PRIOR, "exact")([q])
    assert (value - exact).abs() < 0.2 * exact
    assert not q.loc.any() and not q.log_scale.any()  # the kernel has written over copies


@needs_gpu
def test_where_the_kernel_serves() -> None:
    qs = tensors("cuda")
    draws = Draws(1000)
    assert together._one_kernel(qs, draws) and together._one_kernel(qs, Draws(1))
    assert not together._one_kernel(qs, Draws(10))
    assert not together._one_kernel(qs, Draws(1000, torch.Generator("cuda")))
    assert not together._one_kernel([Normal(q.loc.double(), q.log_scale.double()) for q in qs], draws)
    assert not together._one_kernel([*qs, *tensors("cpu")], draws)
    assert not together._one_kernel(tensors("cpu"), draws)


@needs_gpu
def test_torch_func_takes_the_plain_form() -> None:
    def value(loc: Tensor) -> Tensor:
        q = Normal(loc, torch.zeros_like(loc))
        return kl_of(q, PRIOR, "repar", 1000)([q])

    gradients = torch.func.vmap(torch.func.grad(value), randomness="different")
    for function in (gradients, torch.compile(gradients, fullgraph=True, backend="aot_eager")):
        found = function(torch.ones(4, 50, device="cuda"))
        assert found.shape == (4, 50) and found.isfinite().all()


@needs_gpu
@pytest.mark.parametrize("num_draws", [1, 1000])
def test_a_captured_graph_draws_anew_at_every_replay(num_draws: int) -> None:
    qs = tensors("cuda")

    def step() -> list[Tensor]:
        value = kl_of(qs[0], PRIOR, "repar", num_draws)(qs)
        return [value, *torch.autograd.grad(value, leaves(qs))]

    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        step()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = step()
    graph.replay()
    first = [t.clone() for t in results]
    graph.replay()
    assert not any(torch.equal(a, b) for a, b in zip(first, results, strict=True))
    exact = kl_of(qs[0], PRIOR, "exact")(qs)
    assert (results[0] - exact).abs() < 0.2 * exact
