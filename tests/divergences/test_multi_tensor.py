"""Many tensors in few kernels: the same numbers and gradients as one by one."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import bayesify as bf
from bayesify.divergences import kl_of, of_prior
from bayesify.families import Normal, RandomTensor
from bayesify.laws.chi_squared import chi_squared
from bayesify.laws.features import power

SHAPES = [(3, 5), (7,), (2, 3, 3, 3), ()]


def tensors(dtype: torch.dtype) -> list[RandomTensor]:
    return [bf.family("normal", like=torch.randn(shape, dtype=dtype)) for shape in SHAPES]


def kl_all(qs: list[Normal], *how: Any) -> Tensor:
    return kl_of(qs[0], *how)(qs)


def gradients(qs: list[RandomTensor], function: Callable[[], Tensor]) -> list[Tensor]:
    for q in qs:
        q.zero_grad()
    function().backward()
    return [p.grad.clone() for q in qs for p in q.parameters() if p.grad is not None]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_draws_and_their_gradients(dtype: torch.dtype) -> None:
    qs, generator = tensors(dtype), torch.Generator()
    factors = [torch.randn(shape, dtype=dtype) for shape in SHAPES]

    def together() -> Tensor:
        drawn = Normal.rsample_all([q.distribution() for q in qs], generator.manual_seed(1))
        return torch.stack([(w * f).sum() for w, f in zip(drawn, factors, strict=True)]).sum()

    def one_by_one() -> Tensor:
        generator.manual_seed(1)
        return torch.stack(
            [(q.rsample(generator=generator) * f).sum() for q, f in zip(qs, factors, strict=True)]
        ).sum()

    assert torch.allclose(together(), one_by_one())
    for a, b in zip(gradients(qs, together), gradients(qs, one_by_one), strict=True):
        assert torch.allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("mean", [0.0, 0.3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_kl_and_its_gradients(dtype: torch.dtype, mean: float) -> None:
    qs, prior = tensors(dtype), bf.prior("normal", mean=mean, std=0.7)

    def together() -> Tensor:
        return kl_all([q.distribution() for q in qs], prior)

    def by_torch() -> Tensor:
        p = torch.distributions.Normal(mean, 0.7)
        parts = [(q.loc, q.distribution().scale) for q in qs]  # type: ignore[attr-defined]
        return torch.stack(
            [torch.distributions.kl_divergence(torch.distributions.Normal(m, s), p).sum() for m, s in parts]
        ).sum()

    assert torch.allclose(together(), by_torch(), rtol=1e-6)
    for a, b in zip(gradients(qs, together), gradients(qs, by_torch), strict=True):
        assert torch.allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("num_draws", [1, 2, 30, 1000])
@pytest.mark.parametrize("mean", [0.0, 0.3])
def test_repar_and_its_gradients_are_the_tuple_of_the_pair(num_draws: int, mean: float) -> None:
    """The fused sum has the statistics ξ̄ and v; the tuple with the means ξ̄ and ξ̄² + v gives the same numbers."""
    qs, prior = tensors(torch.float64), bf.prior("normal", mean=mean, std=0.7)
    distributions = [q.distribution() for q in qs]
    found = kl_all(distributions, prior, "repar", num_draws, torch.Generator().manual_seed(1))
    ours = torch.autograd.grad(found, [p for q in qs for p in q.parameters()])
    generator = torch.Generator().manual_seed(1)
    length = sum(-(-q.shape.numel() // 4) * 4 for q in distributions)
    first = torch.randn(length, dtype=torch.float64, generator=generator) / math.sqrt(num_draws)
    var = chi_squared(num_draws - 1, (length,), first, generator) / num_draws
    parts, start = [], 0
    for q in distributions:
        count = q.shape.numel()
        a, v = (t[start : start + count].view(q.shape) for t in (first, var))
        cross = of_prior(q, prior)
        assert cross is not None
        parts.append(q.neg_entropy() - cross.combine(q, {power(1): a, power(2): a.square() + v}))
        start += -(-count // 4) * 4
    expected = torch.stack(parts).sum()
    torch.testing.assert_close(found, expected)
    theirs = torch.autograd.grad(expected, [p for q in qs for p in q.parameters()])
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("num_draws", [1, 10, 1000])
def test_the_mean_of_fused_repar_is_exact(num_draws: int) -> None:
    """200 estimates over 10,000 weights in float32; six standard errors, and rounding."""
    q = bf.family("normal", like=torch.randn(10_000), init_std=0.5).distribution()
    prior = bf.prior("normal", mean=0.1, std=0.7)
    with torch.no_grad():
        estimates = torch.stack([kl_all([q], prior, "repar", num_draws) for _ in range(200)])
        exact = kl_all([q], prior, "exact")
    assert (estimates.mean() - exact).abs() < 6 * estimates.std() / math.sqrt(200) + 1e-6 * exact


@pytest.mark.parametrize("estimator", ["exact", "repar"])
def test_tensors_of_several_dtypes(estimator: str) -> None:
    qs = [q.distribution() for q in (*tensors(torch.float32)[:2], *tensors(torch.float64)[:2])]
    assert torch.isfinite(kl_all(qs, bf.prior("normal"), estimator, 100))


@pytest.mark.parametrize("num_draws", [1, 10, 1000])
def test_fused_repar_traces_as_one_graph(num_draws: int) -> None:
    qs, prior = tensors(torch.float32), bf.prior("normal")
    torch._dynamo.reset()
    compiled = torch.compile(
        lambda: kl_all([q.distribution() for q in qs], prior, "repar", num_draws),
        fullgraph=True,
        backend="aot_eager",
    )
    value = compiled()
    value.backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for q in qs for p in q.parameters())
    exact = kl_all([q.distribution() for q in qs], prior, "exact")
    assert (value - exact).abs() < 0.2 * exact


def test_second_derivatives_through_a_draw() -> None:
    qs = tensors(torch.float64)[:1]
    noise = torch.Generator()

    def curved(loc: Tensor, log_scale: Tensor) -> Tensor:
        return Normal.rsample_all([Normal(loc, log_scale)], noise.manual_seed(0))[0].pow(3).sum()

    parts = [p.detach().requires_grad_() for p in qs[0].parameters()]
    assert torch.autograd.gradgradcheck(curved, parts)


def test_noise_without_a_generator_is_fresh_for_every_tensor() -> None:
    drawn = Normal.rsample_all([Normal(torch.zeros(6), torch.zeros(6)) for _ in range(3)])
    assert not torch.equal(drawn[0], drawn[1])
    assert torch.stack(drawn).abs().sum() > 0
