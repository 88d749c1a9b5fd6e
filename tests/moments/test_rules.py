"""Each moment rule against brute force, or against the exact second moments by autograd."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from scipy import stats
from torch import Tensor, nn

import bayesify as bf
from bayesify.passes import call_with_moments

FAILURE_RATE = 1e-6
NUM_DRAWS = 20_000

#: name -> (operation of input, weight and bias; shapes of the three)
MAPS: dict[str, tuple[Callable[..., Tensor], tuple[int, ...], tuple[int, ...], int]] = {
    "linear": (F.linear, (2, 4), (3, 4), 3),
    "linear on tokens": (F.linear, (2, 2, 3), (2, 3), 2),
    "conv1d": (lambda x, w, b: F.conv1d(x, w, b, 2, 1, 2, 2), (1, 4, 6), (2, 2, 2), 2),
    "conv2d": (lambda x, w, b: F.conv2d(x, w, b, padding=1, stride=(2, 1)), (1, 2, 3, 3), (2, 2, 2, 2), 2),
    "conv3d": (lambda x, w, b: F.conv3d(x, w, b), (1, 1, 3, 2, 2), (2, 1, 2, 2, 1), 2),
    "conv_transpose1d": (
        lambda x, w, b: F.conv_transpose1d(x, w, b, stride=2, padding=1, output_padding=1, groups=2),
        (1, 4, 3),
        (4, 1, 3),
        2,
    ),
    "conv_transpose2d": (
        lambda x, w, b: F.conv_transpose2d(x, w, b, dilation=2),
        (1, 2, 2, 2),
        (2, 2, 2, 1),
        2,
    ),
    "conv_transpose3d": (lambda x, w, b: F.conv_transpose3d(x, w, b), (1, 2, 2, 1, 1), (2, 1, 1, 2, 2), 1),
}


class Lambda(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


def propagate(function: Callable[..., Any] | nn.Module, *args: Any) -> Any:
    """`function` of moments (and plain tensors) in the moments pass."""
    net = function if isinstance(function, nn.Module) else Lambda(function)
    return call_with_moments(net, {}, lambda names: {}, args, {})


def random_moments(*shape: int) -> bf.Moments:
    return bf.Moments(torch.randn(shape, dtype=torch.float64), torch.rand(shape, dtype=torch.float64) + 0.1)


def draws_of(moments: bf.Moments, num_draws: int = NUM_DRAWS) -> Tensor:
    noise = torch.randn(num_draws, *moments.mean.shape, dtype=torch.float64)
    return moments.mean + moments.var.sqrt() * noise


def assert_moments_of(draws: Tensor, moments: bf.Moments) -> None:
    """Mean and variance within z standard errors: √(var / n), and √((m₄ − var²) / n) by the draws' own m₄."""
    num = len(draws)
    z = stats.norm.isf(FAILURE_RATE / 4 / moments.mean.numel())
    assert ((draws.mean(0) - moments.mean).abs() <= z * (moments.var / num).sqrt()).all()
    squares = (draws - moments.mean).square()
    assert ((squares.mean(0) - moments.var).abs() <= z * squares.std(0) / math.sqrt(num)).all()


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


@pytest.mark.parametrize("name", ["linear", "conv1d", "conv2d", "conv_transpose1d"])
def test_a_linear_map_agrees_with_monte_carlo(name: str) -> None:
    f, x_shape, w_shape, b_size = MAPS[name]
    x, w, b = random_moments(*x_shape), random_moments(*w_shape), random_moments(b_size)
    outputs = torch.func.vmap(f)(draws_of(x), draws_of(w), draws_of(b))
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


def test_batch_norm_in_training_mode_is_refused() -> None:
    with pytest.raises(NotImplementedError, match=r"batch norm in eval mode only: call model\.eval\(\)"):
        propagate(nn.BatchNorm1d(3).double(), random_moments(2, 3))


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
        (nn.Sequential(nn.ReLU(), nn.Softplus()), "softplus", r"module '1' \(Softplus\)"),
        (nn.Sequential(nn.Sequential(nn.Tanh())), "tanh", r"module '0\.0' \(Tanh\)"),
        (Lambda(lambda x: torch.cumsum(x, 0)), "cumsum", "module Lambda"),
        (Lambda(lambda x: x * x), "mul", "module Lambda"),
        (Lambda(lambda x: torch.cat((x, x))), "cat", "module Lambda"),
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
    monkeypatch.setitem(bf.moments.RULES, torch.neg, lambda x: bf.Moments(-x.mean, x.var))
    x = random_moments(3)
    result = propagate(torch.neg, x)
    assert torch.equal(result.mean, -x.mean)
    assert torch.equal(result.var, x.var)
