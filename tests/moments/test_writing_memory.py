"""Plain tensors that random values are written into, and everything that sees their memory."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from propagation import by_jacobian, propagate, random_moments
from torch import Tensor

import bayesify as bf


def test_what_a_layer_returns_is_no_view() -> None:
    """torch's linear map of a batch of sequences is a view of a matrix, which nobody else has."""

    def function(x: Any, w: Any) -> Any:
        y = F.linear(x, w)
        y[..., :2] += 1.0
        return y

    x, w = random_moments(2, 3, 4), random_moments(5, 4)
    result, plain = propagate(function, x, w), propagate(F.linear, x, w)
    assert torch.equal(result.mean[..., 2:], plain.mean[..., 2:]) and torch.equal(result.var, plain.var)
    torch.testing.assert_close(result.mean[..., :2], plain.mean[..., :2] + 1)


def test_a_view_whose_base_is_gone_may_be_written() -> None:
    def function(x: Any) -> Any:
        y = (2 * x).view(4, 3).T
        y[0] = 1.0
        return y

    x = random_moments(3, 4)
    result, expected = propagate(function, x), by_jacobian(function, x)
    torch.testing.assert_close(result.mean, expected.mean)
    torch.testing.assert_close(result.var, expected.var)


def into_rows(x: Any) -> Any:
    y = torch.zeros(3, 4).double()
    y[0] = x
    y[2, 1:] = 2 * x[1:]
    return x.sum() + y  # the plain tensor on the right: the carrier's own operator


def into_slices(x: Any) -> Any:
    y = x.new_empty(2, 4)
    y[..., :2].copy_(x[:2])
    y[..., 2:].copy_(x[2:])
    return 3 * y


def into_a_view_made_before(x: Any) -> Any:
    y = torch.zeros(2, 4).double()
    row, turned = y[1], y.T
    row.add_(x)
    y[0] += x
    y[1, 0] = 5.0
    return turned.exp()


def into_places(x: Any) -> Any:
    y = torch.ones(6).double()
    y.index_add_(0, torch.tensor([0, 2, 2, 5]), x)
    return y.view(2, 3)


@pytest.mark.parametrize("function", [into_rows, into_slices, into_a_view_made_before, into_places])
def test_random_entries_of_a_plain_tensor_are_seen_by_it_and_its_views(function: Callable[..., Any]) -> None:
    x = random_moments(4, var=1e-3)
    result, expected = propagate(function, x), by_jacobian(function, x)
    torch.testing.assert_close(result.mean, expected.mean)
    if function is into_rows:  # shared entries of x, which the pass takes as independent
        expected = bf.Moments(expected.mean, expected.var - 2 * shared(x))
    torch.testing.assert_close(result.var, expected.var)


def shared(x: bf.Moments) -> Tensor:
    """Cov(Σ x, y) of `into_rows`."""
    nothing = torch.zeros(4).double()
    return torch.stack([x.var, nothing, torch.cat([nothing[:1], 2 * x.var[1:]])])


def test_a_plain_tensor_that_was_written_into_may_be_the_output() -> None:
    def function(x: Any) -> Any:
        y = torch.zeros(3).double()
        y[1] = x[0]
        return {"kept": y}

    x = random_moments(1)
    result = propagate(function, x)["kept"]
    assert torch.equal(result.var, torch.stack([0 * x.var[0], x.var[0], 0 * x.var[0]]))


def test_gradients_reach_what_was_written_into_a_plain_tensor() -> None:
    x = [t.requires_grad_() for t in random_moments(4)]
    assert torch.autograd.gradcheck(lambda *t: tuple(propagate(into_slices, bf.Moments(*t))), x)


def test_compiled_code_refuses_random_entries_of_a_plain_tensor() -> None:
    message = r"__setitem__.*tensor that is not random.*torch\.where|as_proxy"  # torch 2.15 refuses by itself
    with pytest.raises(Exception, match=message):
        torch.compile(lambda x: propagate(into_rows, x), backend="eager", fullgraph=True)(random_moments(4))


def test_as_strided_takes_entries_by_the_place_of_the_mean() -> None:
    x = random_moments(4, 6)
    turned = bf.Moments(x.mean.T, x.var.T.contiguous())  # another layout than the mean's
    windows = propagate(lambda t: t.as_strided((3, 4), (6, 1)), turned)
    assert torch.equal(windows.mean, x.mean[:3, :4]) and torch.equal(windows.var, x.var[:3, :4])
    with pytest.raises(NotImplementedError, match="as_strided.*beside the tensor's own"):
        propagate(lambda t: t[:, 1:3].as_strided((2, 4), (6, 1)), x)
