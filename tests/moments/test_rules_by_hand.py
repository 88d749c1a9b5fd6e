"""Rules whose operation does not fit the tables: random slopes, sparse matrices, products of many factors; and what is
refused."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from propagation import assert_moments_of, by_jacobian, draws_of, propagate, random_moments
from torch import Tensor, nn

import bayesify as bf

NUM_DRAWS = 20_000
GRAPH = torch.tensor([[0.5, 0.5, 0.0], [0.0, 2.0, 0.0], [1.0, 0.0, -1.0]]).double()


@pytest.mark.parametrize("training", [True, False])
def test_a_random_slope_of_the_negative_half_adds_its_variance(training: bool) -> None:
    """Means six standard deviations from the kink, where the rule is exact."""
    x = bf.Moments(torch.tensor([-3.0, -1.0, 1.0, 2.0]).double(), torch.full((4,), 0.02).double())
    layer = nn.RReLU(0.1, 0.5).train(training)
    assert_moments_of(layer(draws_of(x, NUM_DRAWS)), propagate(layer, x))


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
@pytest.mark.parametrize("multiply", [torch.sparse.mm, torch.mm, lambda a, x: a @ x])
def test_a_sparse_matrix_is_a_linear_map(multiply: Callable[..., Any], layout: Any) -> None:
    x, graph = random_moments(3, 2), GRAPH.to_sparse(layout=layout)
    result, expected = propagate(lambda t: multiply(graph, t), x), by_jacobian(lambda t: GRAPH @ t, x)
    torch.testing.assert_close(result.mean, expected.mean)
    torch.testing.assert_close(result.var, expected.var)


@pytest.mark.parametrize("last", [lambda x: x.prod(0), lambda x: x.cumprod(0)[-1]])
def test_a_product_of_many_factors_is_exact(last: Callable[[Any], Any]) -> None:
    x = random_moments(5, 3)
    second = (x.mean.square() + x.var).prod(0)
    result = propagate(last, x)
    torch.testing.assert_close(result.mean, x.mean.prod(0))
    torch.testing.assert_close(result.var, second - x.mean.square().prod(0))


@pytest.mark.parametrize("product", [lambda x: x.prod(), lambda x: x.cumprod(0)])
def test_small_variances_of_a_product_are_not_lost_in_rounding(product: Callable[[Any], Any]) -> None:
    """In float32, with Var x = 1e-10 (E x)²: the difference of both products would be 0 or negative."""
    mean = torch.linspace(1, 2, 6)
    exact = propagate(product, bf.Moments(mean.double(), 1e-10 * mean.double().square()))
    result = propagate(product, bf.Moments(mean, 1e-10 * mean.square()))
    torch.testing.assert_close(result.var, exact.var.float(), rtol=1e-5, atol=0.0)


def test_a_product_with_a_zero_among_its_factors_has_finite_gradients() -> None:
    mean = torch.tensor([2.0, 0.0, 3.0, 0.0]).double().requires_grad_()
    var = torch.tensor([0.1, 0.2, 0.0, 0.3]).double().requires_grad_()
    for function in (torch.prod, lambda x: torch.cumprod(x, 0)):
        result = propagate(function, bf.Moments(mean, var))
        gradients = torch.autograd.grad(result.mean.sum() + result.var.sum(), (mean, var))
        assert all(g.isfinite().all() for g in gradients)


def test_a_row_that_comes_twice_in_a_bag_is_one_row() -> None:
    """x + x has four times the variance of x, not twice."""
    table = random_moments(3, 2)
    result = propagate(lambda w: F.embedding_bag(torch.tensor([[1, 1]]), w, mode="sum"), table)
    torch.testing.assert_close(result.var[0], 4 * table.var[1])


def test_a_spatial_transformer_with_random_image_and_grid() -> None:
    """To first order both variances add. The mean image is a plane, so only products of both deviations are left out,
    of relative size Var θ · 25/4 (places per unit of the grid, squared), well below 1 %."""
    theta = bf.Moments(
        torch.tensor([[[0.55, 0.1, 0.03], [-0.05, 0.6, 0.02]]]).double(), torch.full((1, 2, 3), 1e-4).double()
    )
    image = bf.Moments(
        torch.arange(25).double().view(1, 1, 5, 5) / 3, torch.full((1, 1, 5, 5), 0.01).double()
    )

    def warp(image: Any, theta: Any) -> Any:
        grid = F.affine_grid(theta, [len(theta), 1, 2, 2], align_corners=False)
        return F.grid_sample(image, grid, align_corners=False)

    draws = warp(draws_of(image, NUM_DRAWS).flatten(0, 1), draws_of(theta, NUM_DRAWS).flatten(0, 1))[:, None]
    assert_moments_of(draws, propagate(warp, image, theta), bias=0.01)


@pytest.mark.parametrize(
    ("function", "case"),
    [
        (lambda x: F.embedding_bag(torch.zeros(1, 1).long(), x, mode="max"), "mode='max'"),
        (lambda x: F.embedding_bag(torch.zeros(1, 1).long(), x, max_norm=1.0), "max_norm"),
        (
            lambda x: F.grid_sample(x[None, None], torch.zeros(1, 1, 1, 2).double(), "bicubic"),
            "mode='bicubic'",
        ),
        (lambda x: x.scatter(0, torch.zeros(1, 2).long(), x, reduce="multiply"), "reduce='multiply'"),
    ],
)
def test_a_case_that_a_rule_leaves_out_is_named(function: Callable[[Any], Any], case: str) -> None:
    with pytest.raises(NotImplementedError, match=f"no rule for .* with {case}, used in module Lambda"):
        propagate(function, random_moments(2, 2))


@pytest.mark.parametrize("check", [torch.isnan, torch.isinf, torch.isfinite])
def test_checks_for_numbers_read_the_mean(check: Callable[[Any], Tensor]) -> None:
    mean = torch.tensor([1.0, float("nan"), float("inf")])
    assert torch.equal(propagate(check, bf.Moments(mean, torch.ones(3))), check(mean))


def test_rows_of_masked_scores_give_nothing_and_no_nan() -> None:
    """Attention written out, with a row in which every score is masked; the others are as without it."""
    scores, v = random_moments(3, 4), random_moments(4, 2)
    mask = torch.zeros(3, 4, dtype=torch.bool)
    mask[1] = True

    def attention(s: Any, v: Any) -> Any:
        return torch.nan_to_num(s.masked_fill(mask, float("-inf")).softmax(-1)) @ v

    result, plain = propagate(attention, scores, v), propagate(lambda s, v: s.softmax(-1) @ v, scores, v)
    assert not result.mean[1].any() and not result.var[1].any()
    for mine, expected in zip(result, plain, strict=True):
        torch.testing.assert_close(mine[[0, 2]], expected[[0, 2]])
