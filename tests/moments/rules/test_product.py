"""Products of random tensors against Monte Carlo: matrix products, einsum, bilinear maps, attention, dropout."""

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from propagation import assert_moments_of, by_jacobian, draws_of, propagate, random_moments
from rule_tables import PRODUCTS
from torch import nn

import bayesify as bf

NUM_DRAWS = 20_000


@pytest.mark.parametrize("var", [0.01, 1.0, 4.0])
@pytest.mark.parametrize("name", PRODUCTS)
def test_a_product_agrees_with_monte_carlo(name: str, var: float) -> None:
    f, x_shape, y_shape = PRODUCTS[name]
    x, y = random_moments(*x_shape, var=var), random_moments(*y_shape, var=var)
    outputs = torch.func.vmap(f)(draws_of(x, NUM_DRAWS), draws_of(y, NUM_DRAWS))
    assert_moments_of(outputs, propagate(f, x, y))


@pytest.mark.parametrize("name", PRODUCTS)
def test_a_deterministic_factor_leaves_a_linear_map(name: str) -> None:
    f, x_shape, y_shape = PRODUCTS[name]
    x, y = random_moments(*x_shape), random_moments(*y_shape)
    for result, expected in (
        (propagate(f, x, y.mean), by_jacobian(lambda t: f(t, y.mean), x)),
        (propagate(f, x.mean, y), by_jacobian(lambda t: f(x.mean, t), y)),
    ):
        torch.testing.assert_close(result.mean, expected.mean)
        torch.testing.assert_close(result.var, expected.var)


def test_a_quotient_to_first_order() -> None:
    x, y = random_moments(50), random_moments(50, var=1e-4)
    y = bf.Moments(y.mean.abs() + 1, y.var)
    result = propagate(lambda a, b: a / b, bf.Moments(x.mean, 1e-4 * x.var), y)
    a, b = draws_of(bf.Moments(x.mean, 1e-4 * x.var), NUM_DRAWS), draws_of(y, NUM_DRAWS)
    assert_moments_of(a / b, result, bias=0.01)  # second order: Var y / (E y)² ≤ 1e-4 · 1.1, in std 1 %


def test_a_bilinear_map_with_everything_random() -> None:
    x, y, w, b = random_moments(5, 3), random_moments(5, 4), random_moments(2, 3, 4), random_moments(2)
    draws = [draws_of(m, NUM_DRAWS) for m in (x, y, w, b)]
    outputs = torch.einsum("sni,skij,snj->snk", draws[0], draws[2], draws[1]) + draws[3][:, None]
    assert_moments_of(outputs, propagate(F.bilinear, x, y, w, b))


@pytest.mark.parametrize("row", ["weights", "conv"])
def test_one_variance_per_row_takes_a_shorter_way_to_the_same_variance(row: str) -> None:
    shape = (4, 3) if row == "weights" else (4, 3, 2, 2)
    mean, s = torch.randn(shape).double(), torch.rand(4, *(1,) * (len(shape) - 1)).double()
    x = random_moments(5, 3) if row == "weights" else random_moments(2, 3, 5, 5)
    b = random_moments(4)
    operation = F.linear if row == "weights" else lambda x, w, b: F.conv2d(x, w, b, stride=2, padding=1)
    for value in (x, x.mean):
        short = propagate(operation, value, bf.Moments(mean, s.expand(shape)), b)
        long = propagate(operation, value, bf.Moments(mean, s.expand(shape).contiguous()), b)
        torch.testing.assert_close(short.mean, long.mean)
        torch.testing.assert_close(short.var, long.var)


def attention(q: Any, k: Any, v: Any) -> Any:
    return torch.softmax(q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1]), -1) @ v


def test_attention_weights_that_sum_to_one_do_not_see_an_offset_of_the_values() -> None:
    """The product rule for independent entries is ten times too large here, as in the formulas (.151 against .0133);
    the row-sum formula has the variance to 3 % (it is first order in scores of std 0.2)."""
    scores = random_moments(4, 5, var=0.04)
    v = bf.Moments(5 + 0.5 * torch.randn(5, 3).double(), torch.full((5, 3), 1e-3).double())
    draws = draws_of(scores, NUM_DRAWS).softmax(-1) @ draws_of(v, NUM_DRAWS)
    result = propagate(lambda s, v: torch.softmax(s, -1) @ v, scores, v)
    assert (result.var / draws.var(0) - 1).abs().mean() < 0.03 + 0.01  # 1 % is Monte Carlo's own error
    a = propagate(lambda s: torch.softmax(s, -1), scores)
    naive = (a.mean.square() + a.var) @ v.var + a.var @ v.mean.square()
    assert (naive / draws.var(0)).mean() > 10


def test_softmax_times_values_agrees_with_monte_carlo_for_small_variances() -> None:
    scores, v = random_moments(2, 4, 6, var=1e-4), random_moments(2, 6, 3, var=1e-4)
    draws = draws_of(scores, NUM_DRAWS).softmax(-1) @ draws_of(v, NUM_DRAWS)
    result = propagate(lambda s, v: torch.softmax(s, -1) @ v, scores, v)
    assert_moments_of(draws, result, bias=0.01)  # relative size of what first order leaves out: √var


def test_attention_is_an_approximation_where_scores_share_a_query() -> None:
    """Scores of a row share q, which the diagonal method does not see: within 25 % of the std on average."""
    q, k, v = (random_moments(2, 4, 8, var=1e-2) for _ in range(3))
    draws = torch.func.vmap(attention)(*(draws_of(m, NUM_DRAWS) for m in (q, k, v)))
    result = propagate(attention, q, k, v)
    assert (result.var.sqrt() / draws.std(0) - 1).abs().mean() < 0.25


def test_uncertain_scores_do_not_blow_up_the_variance() -> None:
    """At most the variance of a value picked at random, plus the values' own; first order would be a thousand times
    larger."""
    scores, v = (
        bf.Moments(torch.randn(4, 6).double(), torch.full((4, 6), 1e4).double()),
        random_moments(6, 3, var=0.1),
    )
    result = propagate(lambda s, v: torch.softmax(s, -1) @ v, scores, v)
    a = scores.mean.softmax(-1)
    o = a @ v.mean
    picked = (a[:, :, None] * (v.mean - o[:, None]).square()).sum(1)
    assert (result.var <= picked + v.var.amax(0) + 1e-9).all()
    weights = propagate(lambda s: torch.softmax(s, -1), scores)
    assert (weights.var <= a * (1 - a) + 1e-12).all()


MASKS = {
    "none": {},
    "boolean": {"attn_mask": torch.rand(4, 5, generator=torch.Generator().manual_seed(0)) > 0.3},
    "additive": {"attn_mask": torch.randn(4, 5, generator=torch.Generator().manual_seed(0)).double()},
    "scale": {"scale": 0.7},
}


@pytest.mark.parametrize("mask", MASKS)
def test_sdpa_equals_its_steps(mask: str) -> None:
    """The same formula reached operation by operation, as eager attention code does."""
    q, k, v = random_moments(2, 3, 4, 8), random_moments(2, 3, 5, 8), random_moments(2, 3, 5, 8)
    options = MASKS[mask]

    def steps(q: Any, k: Any, v: Any) -> Any:
        scores = torch.matmul(q, k.transpose(-2, -1)) * options.get("scale", 1 / math.sqrt(8))
        m = options.get("attn_mask")
        if m is not None and m.dtype == torch.bool:
            scores = scores.masked_fill(~m, -math.inf)
        elif m is not None:
            scores = scores + m
        weights = F.softmax(scores, dim=-1, dtype=torch.float64).to(q.dtype)
        return torch.matmul(F.dropout(weights, 0.1, False), v)

    whole = propagate(lambda *qkv: F.scaled_dot_product_attention(*qkv, **options), q, k, v)
    stepwise = propagate(steps, q, k, v)
    plain = F.scaled_dot_product_attention(q.mean, k.mean, v.mean, **options)
    torch.testing.assert_close(whole.mean, plain)
    torch.testing.assert_close(whole.mean, stepwise.mean)
    torch.testing.assert_close(whole.var, stepwise.var)


def test_causal_and_grouped_attention() -> None:
    q, k, v = random_moments(2, 4, 5, 8), random_moments(2, 2, 5, 8), random_moments(2, 2, 5, 8)
    result = propagate(
        lambda *qkv: F.scaled_dot_product_attention(*qkv, is_causal=True, enable_gqa=True), q, k, v
    )
    expected = F.scaled_dot_product_attention(q.mean, k.mean, v.mean, is_causal=True, enable_gqa=True)
    torch.testing.assert_close(result.mean, expected)
    torch.testing.assert_close(
        result.var[:, :, 0], v.var[:, :, 0].repeat_interleave(2, 1)
    )  # sees itself alone


def test_a_row_without_a_key_is_zero() -> None:
    q, k, v = (random_moments(1, 2, 4) for _ in range(3))
    mask = torch.tensor([[True, True], [False, False]])
    result = propagate(lambda *qkv: F.scaled_dot_product_attention(*qkv, attn_mask=mask), q, k, v)
    assert torch.equal(result.mean[:, 1], torch.zeros(1, 4).double())
    assert result.var.isfinite().all() and not result.var[:, 1].any()


@pytest.mark.parametrize("batch_first", [True, False])
def test_multihead_attention_equals_sdpa(batch_first: bool) -> None:
    layer = nn.MultiheadAttention(8, 2, batch_first=batch_first).double().eval()
    x = random_moments(2, 5, 8)
    padding = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    options = {"key_padding_mask": padding if batch_first else None, "need_weights": True}
    with torch.no_grad():
        result, weights = propagate(lambda t: layer(t, t, t, **options), x)
        expected, shown = layer(x.mean, x.mean, x.mean, **options)
    torch.testing.assert_close(result.mean, expected)
    torch.testing.assert_close(weights.mean, shown)

    def steps(t: Any) -> Any:
        t = t if batch_first else t.transpose(0, 1)
        q, k, v = F.linear(t, layer.in_proj_weight, layer.in_proj_bias).chunk(3, -1)
        q, k, v = (h.unflatten(-1, (2, 4)).transpose(1, 2) for h in (q, k, v))
        mask = ~padding[:, None, None] if batch_first else None
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2).flatten(2)
        out = layer.out_proj(out)
        return out if batch_first else out.transpose(0, 1)

    with torch.no_grad():
        torch.testing.assert_close(result.var, propagate(steps, x).var)


def test_dropout_has_a_variance_of_its_own_in_training() -> None:
    x = random_moments(20)
    mask = (torch.rand(NUM_DRAWS, 20) > 0.3).double() / 0.7
    assert_moments_of(draws_of(x, NUM_DRAWS) * mask, propagate(lambda t: F.dropout(t, 0.3, True), x))
    still = propagate(lambda t: F.dropout(t, 0.3, False), x)
    assert torch.equal(still.mean, x.mean) and torch.equal(still.var, x.var)


def test_dropout_of_attention_weights() -> None:
    """Fixed scores, so that the only randomness is in the values and the masks: the formula is exact."""
    scores, v = torch.randn(3, 5).double(), random_moments(5, 4)
    a = scores.softmax(-1)
    masks = (torch.rand(NUM_DRAWS, 3, 5) > 0.25).double() / 0.75
    draws = (a * masks) @ draws_of(v, NUM_DRAWS)
    s = bf.Moments(scores, torch.zeros_like(scores))
    assert_moments_of(draws, propagate(lambda s, v: F.dropout(s.softmax(-1), 0.25) @ v, s, v))
    sdpa = propagate(
        lambda q, v: F.scaled_dot_product_attention(q, torch.eye(5).double(), v, dropout_p=0.25, scale=1.0),
        scores,
        v,
    )
    assert_moments_of(draws, sdpa)


def test_rows_of_an_embedding() -> None:
    table, index = random_moments(7, 3), torch.tensor([[1, 6], [0, 1]])
    result = propagate(lambda w: F.embedding(index, w), table)
    assert torch.equal(result.mean, table.mean[index]) and torch.equal(result.var, table.var[index])


@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("unitriangular", [False, True])
@pytest.mark.parametrize("random", ["a", "b", "a b"])
def test_a_triangular_system_is_solved_to_first_order(upper: bool, unitriangular: bool, random: str) -> None:
    a, b = random_moments(2, 4, 4), random_moments(2, 4, 3)

    def solve(a: Any, b: Any) -> Any:
        return torch.linalg.solve_triangular(a, b, upper=upper, unitriangular=unitriangular)

    result = propagate(solve, *(m if n in random else m.mean for n, m in (("a", a), ("b", b))))
    torch.testing.assert_close(result.mean, solve(a.mean, b.mean))
    parts = []
    if "a" in random:
        parts.append(by_jacobian(lambda t: solve(t, b.mean), a).var)
    if "b" in random:
        parts.append(by_jacobian(lambda t: solve(a.mean, t), b).var)
    torch.testing.assert_close(result.var, sum(parts))
