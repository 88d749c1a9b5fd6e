"""Residual sums with the covariance of both summands, against Monte Carlo."""

import copy
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bayesify as bf
from bayesify.moments.rules import residual

DRAWS = 400_000


class Block(nn.Module):
    """x + F(x), F a linear layer or two with a function between."""

    def __init__(self, branch: nn.Module, sign: float = 1.0) -> None:
        super().__init__()
        self.branch, self.sign = branch, sign

    def forward(self, x: Tensor) -> Tensor:
        return x + self.branch(x) if self.sign > 0 else x - self.branch(x)


def model_of(net: nn.Module, **options: Any) -> bf.BayesianModule:
    return bf.bayesify(
        net.double(), bf.DensityPropagation(init_std=0.2, covariance="diagonal", **options)
    ).eval()


def drawn_var(model: bf.BayesianModule, x: bf.Moments) -> tuple[Tensor, Tensor]:
    """Variance over draws of the input and of all weights, a new set for each draw, and its standard error.

    s² of n draws has the standard error √((m₄ − s⁴)/n).
    """
    generator = torch.Generator().manual_seed(1)
    noise = torch.randn(DRAWS, *x.mean.shape[1:], generator=generator, dtype=torch.float64)
    weights = model.posterior.draw(0, DRAWS, generator)

    def one(values: dict[str, Tensor], z: Tensor) -> Tensor:
        return torch.func.functional_call(model.net, values, (z[None],))[0]

    with torch.no_grad():
        y = torch.func.vmap(one)(weights, x.mean[0] + x.var[0].sqrt() * noise)
    centred = y - y.mean(0)
    var = centred.square().mean(0)
    return var, ((centred**4).mean(0) - var.square()).sqrt() / math.sqrt(DRAWS)


def noisy(n: int) -> bf.Moments:
    generator = torch.Generator().manual_seed(0)
    mean = torch.randn(1, n, generator=generator, dtype=torch.float64)
    return bf.Moments(mean, 0.1 + 0.4 * torch.rand(1, n, generator=generator, dtype=torch.float64))


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_linear_branch_has_the_exact_variance(sign: float) -> None:
    """Five standard errors for six numbers: a failure rate below 4e-6 (fixed seed)."""
    torch.manual_seed(3)
    x = noisy(6)
    model = model_of(Block(nn.Linear(6, 6), sign), residual="cross")
    with torch.no_grad():
        var = model(x).var[0]
    expected, error = drawn_var(model, x)
    assert ((var - expected).abs() < 5 * error).all()
    with torch.no_grad():
        plain = model_of(Block(nn.Linear(6, 6), sign)).eval()
        plain.load_state_dict(model.state_dict())
        assert ((plain(x).var[0] - expected).abs() > 20 * error).any()


def test_the_cross_term_of_a_branch_that_is_not_linear() -> None:
    """With exact pre-activations E F is exact, and so is Cov(x, F) = Var x ∂E F/∂E x: within five standard errors."""
    torch.manual_seed(3)
    x = noisy(6)
    net = Block(nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 6)))
    net.branch[0].requires_grad_(False)  # type: ignore[index]
    plain = model_of(copy.deepcopy(net))
    model = model_of(net, residual="cross")
    with torch.no_grad():
        term = (model(x).var - plain(x).var)[0] / 2
        noise = torch.randn(DRAWS, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        z = x.mean[0] + x.var[0].sqrt() * noise
        products = (z - z.mean(0)) * (
            net.branch(z) - net.branch(z).mean(0)
        )  # the last layer at its mean: independent
    assert ((products.mean(0) - term).abs() < 5 * products.std(0) / math.sqrt(DRAWS)).all()
    assert term.abs().max() > 0.02


def test_the_slope_is_the_diagonal_of_the_jacobian() -> None:
    torch.manual_seed(0)
    conv = nn.Sequential(nn.Conv2d(2, 2, 3, padding=1), nn.Tanh()).double()
    x = torch.randn(2, 2, 3, 3, dtype=torch.float64, requires_grad=True)
    slope = residual.diagonal(conv(x), x)
    assert slope is not None
    for b in range(2):
        jacobian = torch.func.jacrev(lambda z: conv(z[None])[0])(x[b].detach()).reshape(18, 18)
        torch.testing.assert_close(slope[b].flatten(), jacobian.diagonal())
    assert residual.diagonal(torch.randn(2, 3), x) is None


def test_it_trains_and_predicts_the_same_in_every_mode() -> None:
    torch.manual_seed(0)
    model = model_of(
        nn.Sequential(nn.Linear(4, 4), Block(nn.Linear(4, 4)), nn.Linear(4, 2)), residual="cross"
    )
    x, y = torch.randn(20, 4, dtype=torch.float64), torch.arange(20) % 2
    model.num_data = 20
    model.loss(x, y).total.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
    trained = model(x)
    with torch.no_grad():
        quiet = model(x)
    model.requires_grad_(False)
    frozen = model(x)
    assert not quiet.var.requires_grad
    for other in (quiet, frozen):
        torch.testing.assert_close(other.var, trained.var)


def test_a_large_sum_is_refused_with_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(residual, "MAX_NUMBERS", 3)
    model = model_of(nn.Sequential(nn.Linear(4, 4), Block(nn.Linear(4, 4))), residual="cross")
    with pytest.raises(ValueError, match="each of the 4 numbers of a residual sum, the limit is 3"):
        model(torch.randn(2, 4, dtype=torch.float64))


def test_compiling_is_refused() -> None:
    model = model_of(nn.Sequential(nn.Linear(4, 4), Block(nn.Linear(4, 4))), residual="cross")
    with pytest.raises(Exception, match="cannot be compiled or exported"):
        torch.compile(model, backend="eager", fullgraph=True)(torch.randn(2, 4, dtype=torch.float64))


def test_entries_without_variance_leave_the_gradients_finite() -> None:
    """Hardswish is flat below −3: entries there have no variance, and the bound of their covariance is 0."""
    model = model_of(nn.Sequential(nn.Linear(3, 4), nn.Hardswish(), Block(nn.Linear(4, 4))), residual="cross")
    with torch.no_grad():
        model.net[0].bias[:2] = -50.0
    result = model(torch.randn(2, 3).double())
    (result.mean.sum() + result.var.sum()).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
