"""Writing entries, x[key] = value, against Monte Carlo and the plain network; what has no rule is named."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from propagation import Lambda, assert_moments_of, by_jacobian, draws_of, propagate, random_moments
from torch import Tensor, nn

import bayesify as bf

NUM_DRAWS = 20_000
MASK = torch.tensor([[True, False, True, False]] * 3)


def written(key: Any) -> Callable[[Any, Any], Any]:
    def function(x: Any, value: Any) -> Any:
        y = x + 0.0
        y[key] = value
        return y

    return function


@pytest.mark.parametrize(
    ("key", "shape"),
    [
        ((slice(None), 0), (3,)),
        (1, (4,)),
        ((..., slice(1, 3)), (3, 2)),
        (MASK, (6,)),
        (([0, 2], [1, 3]), (2,)),
    ],
    ids=["column", "row", "slice", "mask", "indices"],
)
def test_random_entries_are_written(key: Any, shape: tuple[int, ...]) -> None:
    x, value = random_moments(3, 4), random_moments(*shape)
    result = propagate(written(key), x, value)
    x_draws, draws = draws_of(x, NUM_DRAWS), draws_of(value, NUM_DRAWS)
    assert_moments_of(torch.stack([written(key)(a, b) for a, b in zip(x_draws, draws, strict=True)]), result)
    exact = propagate(written(key), x, value.mean)
    assert torch.equal(exact.mean, written(key)(x.mean, value.mean))
    assert torch.equal(exact.var, written(key)(x.var, 0.0))


@pytest.mark.parametrize("value", [0, 1.5, torch.tensor(2.0).double(), torch.arange(3.0).double()])
def test_a_deterministic_entry_has_no_variance(value: Any) -> None:
    x = random_moments(3, 4)
    result = propagate(lambda t: written((slice(None), 0))(t, value), x)
    expected = by_jacobian(lambda t: written((slice(None), 0))(t, value), x)
    torch.testing.assert_close(result.mean, expected.mean)
    torch.testing.assert_close(result.var, expected.var)


def test_moments_may_be_written_and_the_source_stays() -> None:
    """x + 0 shares its variance with x, which must not change."""
    x = random_moments(3, 4)
    kept = x.var.clone()
    ones = torch.ones(4).double()
    result = propagate(lambda t: written(1)(t, bf.Moments(ones, 2 * ones)), x)
    assert torch.equal(result.mean[1], ones) and torch.equal(result.var[1], 2 * ones)
    assert torch.equal(x.var, kept)


def test_gradients_reach_what_was_written() -> None:
    x, value = random_moments(3, 4), random_moments(3)
    arguments = [t.requires_grad_() for t in (*x, *value)]

    def function(*t: Tensor) -> Any:
        return tuple(propagate(written((slice(None), 0)), bf.Moments(*t[:2]), bf.Moments(*t[2:])))

    assert torch.autograd.gradcheck(function, arguments)


def test_written_entries_compile() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            y = self.layer(x)
            y[:, 0] = 0
            return y

    model, x = bf.bayesify(Net(), bf.DensityPropagation()), torch.randn(2, 4)
    eager = model(x)
    assert not eager.mean[:, 0].any() and not eager.var[:, 0].any() and eager.var[:, 1:].all()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")(x)
    torch.testing.assert_close(compiled.var, eager.var)


def test_a_plain_tensor_cannot_hold_a_full_covariance() -> None:
    net = nn.Sequential(nn.Linear(4, 3), Lambda(lambda x: torch.zeros(2, 3).add_(x)))
    model = bf.bayesify(net, bf.DensityPropagation(covariance="full"), num_data=10)
    with pytest.raises(
        NotImplementedError,
        match=r"'torch.Tensor.add_'.*cannot hold a variance in compiled code or with full covariances",
    ):
        model(torch.randn(2, 4))


def _entry_of_a_row(x: Any) -> Any:
    x[0][1] = 0.0
    return x


def _rows_then_a_column(x: Any) -> Any:
    rows, flat = x[1:3], x.view(-1)
    rows.relu_()
    x[:, 0].zero_()
    return rows + 0, flat + 0, x


def _parts(x: Any) -> Any:
    left, right = x[:, :2], x.narrow(1, 2, 2)
    F.relu(left, inplace=True)
    right *= 2
    return x


def _chunks(x: Any) -> Any:
    for part in x.chunk(2, 1):
        part.relu_()
    return x


def _reshaped_in_place(x: Any) -> Any:
    y = x.t()
    y.unsqueeze_(dim=0)
    y[0, 0].fill_(3.0)
    y.add_(1)
    return x, y


def _perhaps_a_view(x: Any) -> Any:
    flat, other = x.contiguous().flatten(), x.t().reshape(-1)  # the second is a copy
    flat[::2].copy_(flat[1::2])
    other.zero_()
    return x


def _of_softmax(x: Any) -> Any:
    p = x.softmax(-1)
    p[:, 0].zero_()
    return p


WRITERS = (
    *(_entry_of_a_row, _rows_then_a_column, _parts, _chunks),
    *(_reshaped_in_place, _perhaps_a_view, _of_softmax),
)


@pytest.mark.parametrize("function", WRITERS)
@pytest.mark.parametrize("mode", [torch.enable_grad, torch.inference_mode])
def test_writing_into_a_view_changes_what_it_is_a_view_of(function: Any, mode: Any) -> None:
    x = random_moments(4, 6)
    with mode():
        results = propagate(lambda t: function(t * 1), x)
        expected = function(x.mean.clone())
    pairs = [(results, expected)] if isinstance(expected, Tensor) else zip(results, expected, strict=True)
    for mine, theirs in pairs:
        torch.testing.assert_close(mine.mean, theirs)
        assert mine.var.shape == theirs.shape
        assert not mine.var[(theirs == 0) | (theirs == 4)].any()  # what was written had no variance


def test_gradients_reach_what_is_written_into_a_view() -> None:
    def function(mean: Tensor, var: Tensor) -> Any:
        return tuple(propagate(lambda t: _parts(t * 1), bf.Moments(mean, var)))

    assert torch.autograd.gradcheck(function, [t.requires_grad_() for t in random_moments(3, 4)])


def test_views_written_into_compile() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 6)

        def forward(self, x: Tensor) -> Tensor:
            return _parts(self.layer(x)) + self.layer.bias[None].clone().squeeze_(0)

    model, x = bf.bayesify(Net(), bf.DensityPropagation()), torch.randn(2, 4)
    eager, compiled = model(x), torch.compile(model, fullgraph=True, backend="aot_eager")(x)
    torch.testing.assert_close(compiled.mean, eager.mean)
    torch.testing.assert_close(compiled.var, eager.var)


@pytest.mark.parametrize(("beta", "alpha"), [(1, 1), (0.5, 2.0), (0, -1.5)])
def test_addmm_scales_its_parts(beta: float, alpha: float) -> None:
    def function(b: Any, x: Any, w: Any) -> Any:
        return torch.addmm(b, x, w, beta=beta, alpha=alpha)

    b, x, w = random_moments(2), random_moments(3, 4), random_moments(4, 2)
    draws = torch.func.vmap(function)(*(draws_of(m, NUM_DRAWS) for m in (b, x, w)))
    assert_moments_of(draws, propagate(function, b, x, w))


class Embedding(nn.Module):
    def forward(self, weight: Any) -> Any:
        return F.embedding(torch.tensor([0, 1]), weight, max_norm=1.0)


#: operation -> (network, input shape, what the message says of the case)
REFUSED: dict[str, tuple[nn.Module, tuple[int, ...], str]] = {
    "torch.einsum": (Lambda(lambda x: torch.einsum("i,i,i->i", x, x, x)), (3,), "'i,i,i->i'"),
    "F.embedding": (Embedding(), (3, 2), "max_norm"),
    "F.multi_head_attention_forward": (
        nn.MultiheadAttention(4, 2, add_bias_kv=True).double(),
        (3, 4),
        "add_bias_kv",
    ),
    "torch.div": (Lambda(lambda x: torch.div(x, 2, rounding_mode="floor")), (3,), "rounding_mode='floor'"),
    "torch.pow": (Lambda(lambda x: torch.pow(x, x)), (3,), "itself as exponent"),
    "F.alpha_dropout": (nn.AlphaDropout(0.1), (3,), "training=True"),
}


@pytest.mark.parametrize("operation", REFUSED)
def test_a_case_without_a_rule_is_named_with_its_module(operation: str) -> None:
    layer, shape, case = REFUSED[operation]

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = layer

        def forward(self, x: Any) -> Any:
            return self.inner(x, x, x) if isinstance(self.inner, nn.MultiheadAttention) else self.inner(x)

    with pytest.raises(NotImplementedError) as error:
        propagate(Outer(), random_moments(*shape))
    message = str(error.value)
    assert f"no rule for '{operation}' with" in message and case in message
    assert f"used in module 'inner' ({type(layer).__name__})" in message
    assert f"@bf.moments.rule({operation})" in message
