"""Each moment rule against brute force, or against the exact second moments by autograd."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from propagation import Lambda, assert_moments_of, propagate, random_moments
from propagation import draws_of as draw
from rule_tables import MAPS
from torch import Tensor, nn

import bayesify as bf
from bayesify.moments.registry import TAKES_HALF, find

NUM_DRAWS = 20_000


def draws_of(moments: bf.Moments) -> Tensor:
    return draw(moments, NUM_DRAWS)


def exact_var(f: Callable[..., Tensor], x: bf.Moments, w: bf.Moments, b: bf.Moments) -> Tensor:
    """Of a map that is linear in each of x and (w, b), entries independent:
    Var y = (∂y/∂w)² Var w + (∂y/∂x)² Var x + (∂²y/∂w∂x)² Var w Var x + (∂y/∂b)² Var b, at the means."""
    means = (x.mean, w.mean, b.mean)
    by_x, by_w, by_b = torch.func.jacrev(f, argnums=(0, 1, 2))(*means)
    by_w_x = torch.func.jacrev(torch.func.jacrev(f, argnums=1), argnums=0)(*means)
    outputs = f(*means).dim()
    cross = (by_w_x.square() * x.var).flatten(outputs + w.mean.dim()).sum(-1) * w.var
    parts = (by_w.square() * w.var, by_x.square() * x.var, cross, by_b.square() * b.var)
    return sum(part.flatten(outputs).sum(-1) for part in parts)


@pytest.mark.parametrize("name", MAPS)
def test_a_linear_map_has_the_exact_moments(name: str) -> None:
    f, x_shape, w_shape, b_size = MAPS[name]
    x, w, b = random_moments(*x_shape), random_moments(*w_shape), random_moments(b_size)
    result = propagate(f, x, w, b)
    torch.testing.assert_close(result.mean, f(x.mean, w.mean, b.mean))
    torch.testing.assert_close(result.var, exact_var(f, x, w, b), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("var", [1e-4, 1e-2, 1.0])
@pytest.mark.parametrize("name", MAPS)
def test_a_linear_map_agrees_with_monte_carlo(name: str, var: float) -> None:
    f, x_shape, w_shape, b_size = MAPS[name]
    x, w, b = (random_moments(*shape, var=var) for shape in (x_shape, w_shape, (b_size,)))
    outputs = torch.func.vmap(f)(*(draw(m, 5000) for m in (x, w, b)))
    assert_moments_of(outputs, propagate(f, x, w, b))


@pytest.mark.parametrize("random", ["x", "w", "b", "x w", "x b", "w b"])
def test_deterministic_operands_add_no_variance(random: str) -> None:
    x, w, b = random_moments(2, 4), random_moments(3, 4), random_moments(3)
    parts = {"x": x, "w": w, "b": b}
    operands = [m if name in random.split() else m.mean for name, m in parts.items()]
    still = {
        name: m if name in random.split() else bf.Moments(m.mean, 0 * m.var) for name, m in parts.items()
    }
    result = propagate(F.linear, *operands)
    torch.testing.assert_close(result.var, exact_var(F.linear, still["x"], still["w"], still["b"]))


def test_a_linear_map_without_bias() -> None:
    x, w = random_moments(2, 4), random_moments(3, 4)
    zero = bf.Moments(torch.zeros(3).double(), torch.zeros(3).double())
    torch.testing.assert_close(propagate(F.linear, x, w).var, exact_var(F.linear, x, w, zero))


@pytest.mark.parametrize("relu", [F.relu, torch.relu, lambda x: x.relu(), nn.ReLU(), nn.ReLU(inplace=True)])
def test_relu_is_first_order(relu: Any) -> None:
    x = random_moments(50)
    result = propagate(relu, x)
    torch.testing.assert_close(result.mean, x.mean.relu())
    torch.testing.assert_close(result.var, (x.mean > 0) * x.var)


def test_relu_agrees_with_monte_carlo_far_from_its_kink() -> None:
    x = bf.Moments(torch.tensor([-8.0, 8.0]).double(), torch.tensor([0.5, 0.5]).double())
    result = propagate(F.relu, x)
    draws = draws_of(x).relu()
    assert torch.equal(draws[:, 0], torch.zeros(NUM_DRAWS).double())
    assert result.var[0] == 0
    assert_moments_of(draws[:, 1:], bf.Moments(result.mean[1:], result.var[1:]))


def test_a_relu_in_place_changes_the_tensor_itself() -> None:
    def function(x: Any) -> Any:
        torch.relu_(x)
        return x

    x = random_moments(10)
    assert torch.equal(propagate(function, x).var, (x.mean > 0) * x.var)


def test_a_sum_of_independent_tensors_adds_variances() -> None:
    x, y = random_moments(3, 4), random_moments(3, 4)
    result = propagate(lambda a, b: torch.add(a, b, alpha=-2), x, y)
    assert_moments_of(draws_of(x) - 2 * draws_of(y), result)
    torch.testing.assert_close(result.var, x.var + 4 * y.var)


@pytest.mark.parametrize(
    "add",
    [lambda a, b: a + b, lambda a, b: b + a, torch.add, lambda a, b: a.add(b), lambda a, b: a.add_(b)],
)
def test_every_way_to_write_a_sum(add: Callable[..., Any]) -> None:
    x, y = random_moments(3, 4), random_moments(3, 4)
    result = propagate(add, x, y)
    torch.testing.assert_close(result.mean, x.mean + y.mean)
    torch.testing.assert_close(result.var, x.var + y.var)


def test_a_sum_in_place_changes_the_tensor_itself() -> None:
    def function(x: Any, y: Any) -> Any:
        z = x
        z += y
        return x

    x, y = random_moments(3), random_moments(3)
    torch.testing.assert_close(propagate(function, x, y).var, x.var + y.var)


@pytest.mark.parametrize(
    "other", [1.5, 2, torch.arange(4.0).double(), torch.arange(24.0).double().view(2, 3, 4)]
)
def test_a_deterministic_summand_moves_the_mean_only(other: Any) -> None:
    x = random_moments(3, 4)
    for add in (lambda a: a + other, lambda a: other + a):
        result = propagate(add, x)
        torch.testing.assert_close(result.mean, x.mean + other)
        assert torch.equal(result.var, x.var.expand(result.mean.shape))


def test_sums_broadcast_like_tensors() -> None:
    x, y = random_moments(3, 1), random_moments(4)
    result = propagate(torch.add, x, y)
    assert_moments_of(draws_of(x) + draws_of(y)[:, None], result)


@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize(("layer", "shape"), [(nn.BatchNorm1d, (5, 3)), (nn.BatchNorm2d, (2, 3, 2, 2))])
def test_batch_norm_in_eval_mode_agrees_with_monte_carlo(
    layer: type[nn.Module], shape: tuple[int, ...], affine: bool
) -> None:
    norm = layer(3, affine=affine).double().eval()
    with torch.no_grad():
        norm.running_mean.copy_(torch.randn(3))
        norm.running_var.copy_(torch.rand(3) + 0.5)
        for parameter in norm.parameters():
            parameter.copy_(torch.randn(3))
    x = random_moments(*shape)
    result = propagate(norm, x)
    assert_moments_of(torch.func.vmap(norm)(draws_of(x)).detach(), bf.Moments(*map(Tensor.detach, result)))


@pytest.mark.parametrize("random_input", [True, False])
def test_batch_norm_with_random_gain_and_shift_agrees_with_monte_carlo(random_input: bool) -> None:
    x, gain, shift = random_moments(2, 3, 2), random_moments(3), random_moments(3)
    mean, var = torch.randn(3).double(), torch.rand(3).double() + 0.5

    def norm(x: Any, gain: Any, shift: Any) -> Any:
        return F.batch_norm(x, mean, var, gain, shift, training=False)

    inputs = draws_of(x) if random_input else x.mean.expand(NUM_DRAWS, *x.mean.shape)
    outputs = torch.func.vmap(norm)(inputs, draws_of(gain), draws_of(shift))
    assert_moments_of(outputs, propagate(norm, x if random_input else x.mean, gain, shift))


def test_batch_norm_in_training_mode_divides_by_the_variance_of_the_batch() -> None:
    """The means are normalised as by torch, the running statistics move as torch moves them, and the variance is
    divided by the variance the means were divided by."""
    norm, other = nn.BatchNorm2d(3).double(), nn.BatchNorm2d(3).double()
    x = random_moments(4, 3, 2, 2)
    result = propagate(norm, x)
    torch.testing.assert_close(result.mean, other(x.mean))
    torch.testing.assert_close(norm.running_mean, other.running_mean)
    torch.testing.assert_close(norm.running_var, other.running_var)
    batch = x.mean.var((0, 2, 3), correction=0).view(1, 3, 1, 1)
    torch.testing.assert_close(result.var, x.var / (batch + norm.eps))


def test_in_a_large_batch_the_statistics_add_little() -> None:
    """With n = 4000 entries per channel what is left out is of relative size 1/n; Monte Carlo sees none of it."""
    x = random_moments(1000, 2, 4)
    noise = torch.randn(3000, *x.mean.shape[1:], dtype=torch.float64)  # only the first example is drawn
    first = x.mean[0] + x.var[0].sqrt() * noise
    m, v = x.mean.mean((0, 2)), x.mean.var((0, 2), correction=0)
    n = x.mean.numel() / 2
    batch_mean = m + (first - x.mean[0]).sum(-1) / n
    centred = first - batch_mean[:, :, None]
    outputs = centred / (v + 1e-5).sqrt()[:, None]
    result = propagate(nn.BatchNorm1d(2).double(), x)
    assert_moments_of(outputs, bf.Moments(result.mean[0].detach(), result.var[0].detach()))


@pytest.mark.parametrize(
    "move",
    [
        lambda x: x.reshape(4, 6),
        lambda x: torch.reshape(x, (-1, 2)),
        lambda x: x.view(x.size(0), -1),
        lambda x: x.view(len(x), x.shape[1] * x.shape[2]),
        lambda x: x.flatten(1),
        lambda x: torch.flatten(x, 1),
        lambda x: nn.Flatten()(x),
        lambda x: x.contiguous(),
    ],
)
def test_shape_operations_move_both_moments_alike(move: Callable[[Any], Any]) -> None:
    x = random_moments(2, 3, 4)
    result = propagate(move, x)
    assert torch.equal(result.mean, move(x.mean))
    assert torch.equal(result.var, move(x.var))


@pytest.mark.parametrize("view", ["T", "mT", "H", "mH", "data", "real"])
def test_a_property_that_holds_values_does_not_drop_the_variance_silently(view: str) -> None:
    x = random_moments(2, 3)
    try:
        result = propagate(lambda a: getattr(a, view), x)
    except NotImplementedError:
        return
    assert isinstance(result, bf.Moments)
    assert torch.equal(result.var, getattr(x.var, view))


@pytest.mark.parametrize(
    ("net", "operation", "place"),
    [
        (nn.Sequential(nn.ReLU(), Lambda(torch.tan)), "tan", r"module '1' \(Lambda\)"),
        (nn.Sequential(nn.Sequential(nn.LPPool1d(2, 2))), "lp_pool1d", r"module '0\.0' \(LPPool1d\)"),
        (Lambda(lambda x: torch.cummax(x, 0)), "cummax", "module Lambda"),
        (Lambda(lambda x: x // 2), "floor", "module Lambda"),
        (Lambda(lambda x: torch.cartesian_prod(x, x)), "cartesian_prod", "module Lambda"),
    ],
)
def test_an_operation_without_a_rule_is_named_with_its_module(
    net: nn.Module, operation: str, place: str
) -> None:
    with pytest.raises(
        NotImplementedError, match=rf"no rule for '.*{operation}.*', used in {place}"
    ) as error:
        propagate(net, random_moments(3))
    assert "@bf.moments.rule(" in str(error.value)


def test_a_registered_rule_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(bf.moments.RULES, torch.tan, lambda x: bf.Moments(x.mean.tan(), x.var))
    x = random_moments(3)
    result = propagate(torch.tan, x)
    assert torch.equal(result.mean, x.mean.tan())
    assert torch.equal(result.var, x.var)


def test_a_rule_of_several_forms_is_told_which_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for form in ("", "total", "simple"):
        monkeypatch.setitem(bf.moments.FORMS[form], torch.tan, None)

    @bf.moments.rule(torch.tan, form=("total", ""), half=True)
    def rule(x: bf.Moments, *, form: str) -> bf.Moments:
        return bf.Moments(x.mean, x.var + len(form))

    x = random_moments(3)
    for form, added in (("", 0), ("total", 5), ("simple", 0)):
        assert torch.equal(propagate(torch.tan, x, forms=(form, "")).var, x.var + added)
        assert find(torch.tan, (form, "")) in TAKES_HALF


@pytest.mark.parametrize(
    ("function", "case"),
    [
        (lambda x: torch.linalg.norm(x, 2), "ord=2 of a matrix"),
        (lambda x: x.norm(float("inf")), "ord=inf"),
        (lambda x: torch.linalg.vector_norm(x, 0.5), "ord=0.5"),
        (lambda x: F.normalize(x, 0.5), "p=0.5"),
        (lambda x: x.scatter_reduce(0, torch.zeros(2, 2).long(), x, "prod"), "reduce='prod'"),
    ],
)
def test_a_case_that_a_rule_leaves_out_is_named(function: Callable[[Any], Any], case: str) -> None:
    with pytest.raises(NotImplementedError, match=f"no rule for .* with {case}, used in module Lambda"):
        propagate(function, random_moments(2, 2))


def test_the_length_of_a_zero_vector_has_finite_moments_and_gradients() -> None:
    """Nodes of a graph without neighbours, padding: nothing is known of the direction, and nothing is NaN."""
    mean, var = torch.zeros(1, 3).double().requires_grad_(), torch.ones(1, 3).double().requires_grad_()
    for function in (lambda x: x.norm(dim=1), lambda x: x.std(1), lambda x: F.cosine_similarity(x, x.exp())):
        result = propagate(function, bf.Moments(mean, var))
        gradients = torch.autograd.grad(result.mean.sum() + result.var.sum(), (mean, var), allow_unused=True)
        assert all(t is None or t.isfinite().all() for t in (*result, *gradients))
