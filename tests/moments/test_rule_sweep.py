"""Every rule against Monte Carlo of its one operation, over input variances; first-order rules with the remainder that
the next order says they have."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from propagation import assert_moments_of, draws_of, propagate
from rule_tables import ELEMENTWISE, JOINT, POSITIVE
from torch import Tensor

import bayesify as bf

NUM_DRAWS = 4000
SMALL = (1e-4, 1e-2)  # variances for which first order holds; linear operations are exact for all
KINKED = (
    *("max_pool1d", "max_pool2d", "max_pool3d", "adaptive_max_pool2d", "amax", "amax over two dimensions"),
    *("amin", "amin of all", "max", "max of all", "min", "maximum", "max of two", "topk", "sort"),
    "max_unpool2d",
)
CURVED = (
    "softmax",
    "softmin",
    "log_softmax",
    "logsumexp",
    "layer_norm",
    "group_norm",
    "instance_norm",
    "rms_norm",
    "weight norm",
    "vector norm",
    "norm of a tensor",
    "norm with p = 3",
    "linalg.norm",
    "normalize",
    "cosine_similarity",
    "cosine_similarity of halves",
    "cdist",
    "cdist of halves",
    "cdist, p = 1",
    "pairwise_distance",
    "dist",
    "local_response_norm",
    "local_response_norm, even",
    "pow of halves",
    "atan2 of halves",
    "dot of x with itself",
    "einsum of x with itself",
    "var",
    "var, biased",
    "std",
    "std_mean",
)
LEFT_OUT = ("to another type", "minimum with a plain tensor")  # rounds to float32; the kink is at a mean
SWEPT = {
    name: case
    for name, case in JOINT.items()
    if name not in LEFT_OUT and not name.startswith("places of a grid")  # as many kinks as pixels
}
#: the same function, where torch cannot derive it three times
WRITTEN: dict[str, Callable[[Tensor], Tensor]] = {
    "weight norm": lambda t: t / t.norm(dim=1, keepdim=True),
    "cdist": lambda t: (t[:, None] - torch.arange(8.0).double().view(2, 4)).norm(dim=-1),
    "cdist of halves": lambda t: (t[:1, :, None] - t[1:, None]).norm(dim=-1),
    "cdist, p = 1": lambda t: (t[:2, None] - t[None, 2:]).abs().sum(-1),
}
SWEPT |= {
    "batch_norm": (
        lambda x: F.batch_norm(
            x, torch.arange(3.0).double(), torch.arange(1.0, 4).double(), torch.ones(3).double()
        ),
        (2, 3, 2),
    )
}
#: at least six standard deviations (0.1) from every kink of the tables' functions
MEANS = torch.tensor([-4.5, -2.2, -1.4, 1.4, 2.2, 4.5]).double()


def remainder(function: Callable[[Tensor], Tensor], x: bf.Moments) -> bf.Moments:
    """What first order leaves out, of the next order in v = Var x, for normal x with independent entries:

    E f:  ½ Σ_j ∂_jj f v_j;   Var f:  Σ_jk (½ (∂_jk f)² + ∂_j f ∂_jkk f) v_j v_k;  twice that, for the orders above.
    """

    def flat(t: Tensor) -> Tensor:
        return function(t.view(x.mean.shape)).flatten()

    point, v = x.mean.flatten(), x.var.flatten()
    slope = torch.func.jacrev(flat)
    bend = torch.func.jacfwd(slope)
    with looping():
        first, second, third = (
            slope(point),
            bend(point),
            torch.func.jacfwd(bend)(point),
        )  # (outputs, inputs, ...)
    mean = 0.5 * torch.einsum("ijj,j->i", second, v)
    squares = 0.5 * torch.einsum("ijk,j,k->i", second.square(), v, v)
    var = squares + torch.einsum("ij,ijkk,j,k->i", first, third, v, v)
    shape = function(x.mean).shape
    return bf.Moments(2 * mean.abs().view(shape), 2 * torch.maximum(var.abs(), squares).view(shape))


def outputs(function: Callable[[Tensor], Tensor], x: bf.Moments) -> Tensor:
    with looping():
        return torch.func.vmap(function)(draws_of(x, NUM_DRAWS))


@contextmanager
def looping() -> Iterator[None]:
    """Some operations vmap loops over."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "There is a performance drop")
        yield


def with_var(mean: Tensor, var: float) -> bf.Moments:
    return bf.Moments(mean, var * (0.5 + 0.5 * torch.rand_like(mean)))


@pytest.mark.parametrize("var", SMALL)
@pytest.mark.parametrize("name", [*ELEMENTWISE, *POSITIVE])
def test_an_elementwise_rule(name: str, var: float) -> None:
    function = (ELEMENTWISE | POSITIVE)[name]
    means = MEANS if var > 1e-4 else torch.cat([MEANS, torch.tensor([0.25]).double()])
    x = with_var(means.abs() if name in POSITIVE else means, var)
    more = (
        None if name == "hardsigmoid" else remainder(function, x)
    )  # straight pieces, which torch derives once only
    assert_moments_of(outputs(function, x), propagate(function, x), remainder=more)


@pytest.mark.parametrize("var", SMALL)
@pytest.mark.parametrize("name", CURVED)
def test_a_rule_of_many_entries(name: str, var: float) -> None:
    function, shape = SWEPT[name]
    x = with_var(torch.linspace(-1.5, 1.5, torch.Size(shape).numel()).double().view(shape) ** 3, var)
    written = WRITTEN.get(name, function)
    assert_moments_of(outputs(written, x), propagate(function, x), remainder=remainder(written, x))


@pytest.mark.parametrize("var", SMALL)
@pytest.mark.parametrize("name", KINKED)
def test_a_maximum_whose_place_is_certain(name: str, var: float) -> None:
    """Means are a whole number apart, seven standard deviations of a difference or more: the rule is exact."""
    function, shape = SWEPT[name]
    x = with_var(torch.randperm(torch.Size(shape).numel()).double().view(shape), var)
    assert_moments_of(outputs(function, x), propagate(function, x))


@pytest.mark.parametrize("var", [*SMALL, 1.0])
@pytest.mark.parametrize(
    "name", [n for n in SWEPT if n not in (*CURVED, *KINKED) and not n.startswith(CURVED)]
)
def test_a_linear_rule(name: str, var: float) -> None:
    function, shape = SWEPT[name]
    x = with_var(torch.randn(shape).double(), var)
    assert_moments_of(outputs(function, x), propagate(function, x))


PAIRS: dict[str, Callable[[Any, Any], Any]] = {
    "div": lambda x, y: x / y,
    "prelu": lambda x, y: F.prelu(x, y[:1]),
    "glu": lambda x, y: F.glu(torch.cat([x, y])) if not isinstance(x, Tensor) else x * y.sigmoid(),
    "addcdiv": lambda x, y: torch.addcdiv(torch.ones(6).double(), x, y, value=3),
}


@pytest.mark.parametrize("var", SMALL)
@pytest.mark.parametrize("name", PAIRS)
def test_a_rule_of_two_random_operands(name: str, var: float) -> None:
    x, y = with_var(MEANS, var), with_var(MEANS.flip(0) * 2, var)
    both = bf.Moments(torch.cat([x.mean, y.mean]), torch.cat([x.var, y.var]))

    def function(t: Tensor) -> Any:
        return PAIRS[name](t[:6], t[6:])

    assert_moments_of(
        outputs(function, both), propagate(PAIRS[name], x, y), remainder=remainder(function, both)
    )
