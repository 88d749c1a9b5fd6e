"""Many tensors in few kernels: the same numbers and gradients as one by one."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import bayesify as bf
from bayesify.divergences import kl_all
from bayesify.families import Normal, RandomTensor

SHAPES = [(3, 5), (7,), (2, 3, 3, 3), ()]


def tensors(dtype: torch.dtype) -> list[RandomTensor]:
    return [bf.family("normal", like=torch.randn(shape, dtype=dtype)) for shape in SHAPES]


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
