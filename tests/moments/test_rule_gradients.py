"""Gradients of every rule by gradcheck, in float64."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from propagation import propagate, random_moments
from rule_tables import ELEMENTWISE, JOINT, MAPS, POSITIVE, PRODUCTS
from torch import Tensor

import bayesify as bf
from bayesify.moments import FORMS, Gaussian

Case = tuple[Callable[..., Any], list[tuple[int, ...]], tuple[str, ...]]  # function, shapes, forms

#: where functions of the tables have no kink nearby
MEANS = torch.tensor([-4.5, -1.4, -0.25, 0.25, 1.4, 4.5]).double()
LEFT_OUT = ("to another type",)  # rounds to float32


def weighted(scores: Any, values: Any) -> Any:
    return scores.softmax(-1) @ values


def batch_norm(training: bool) -> Callable[..., Any]:
    def function(x: Any, gain: Any, shift: Any) -> Any:
        mean, var = torch.zeros(3).double(), torch.ones(3).double()
        return F.batch_norm(x, mean, var, gain, shift, training)

    return function


FIRST = ("",)
CASES: dict[str, Case] = {
    **{name: (f, [shape], FIRST) for name, (f, shape) in JOINT.items() if name not in LEFT_OUT},
    **{name: (f, [x, w, (b,)], FIRST) for name, (f, x, w, b) in MAPS.items()},
    **{name: (f, [x, y], FIRST) for name, (f, x, y) in PRODUCTS.items()},
    "bilinear map": (F.bilinear, [(2, 3), (2, 2), (2, 3, 2), (2,)], FIRST),
    "baddbmm": (torch.baddbmm, [(1, 2, 2), (1, 2, 3), (1, 3, 2)], FIRST),
    "addmm": (lambda b, x, w: torch.addmm(b, x, w, beta=0.5, alpha=2), [(2,), (3, 2), (2, 2)], FIRST),
    "embedding": (lambda w: F.embedding(torch.tensor([0, 2, 0]), w), [(3, 2)], FIRST),
    "attention": (F.scaled_dot_product_attention, [(1, 3, 2), (1, 3, 2), (1, 3, 2)], FIRST),
    "causal attention": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        [(1, 3, 2), (1, 3, 2), (1, 3, 2)],
        FIRST,
    ),
    "weighted mean": (weighted, [(2, 4), (4, 2)], FIRST),
    "weighted mean, dropout": (
        lambda s, v: F.dropout(s.softmax(-1), 0.2, True) @ v,
        [(2, 4), (4, 2)],
        FIRST,
    ),
    "div": (lambda x, y: x / (y * y + 1), [(4,), (4,)], FIRST),
    "glu": (F.glu, [(2, 4)], FIRST),
    "cosine_similarity": (F.cosine_similarity, [(2, 3), (2, 3)], FIRST),
    "normalize, total": (F.normalize, [(2, 3)], ("total", "")),
    "dropout": (lambda x: F.dropout(x, 0.3, True), [(4,)], FIRST),
    "batch_norm, training": (batch_norm(True), [(4, 3, 2), (3,), (3,)], FIRST),
    "batch_norm, eval": (batch_norm(False), [(4, 3, 2), (3,), (3,)], FIRST),
    "layer_norm, random gain": (lambda x, g, b: F.layer_norm(x, (4,), g, b), [(2, 4), (4,), (4,)], FIRST),
    **{
        f"{norm}, {form}": (*(JOINT[norm][0], [JOINT[norm][1]]), (form, ""))
        for norm in ("layer_norm", "group_norm", "instance_norm", "rms_norm")
        for form in ("total", "simple")
    },
}


def assert_gradients(function: Callable[..., Any], arguments: list[Tensor], fast: bool) -> None:
    arguments = [t.clone().requires_grad_() for t in arguments]
    assert torch.autograd.gradcheck(function, arguments, fast_mode=fast)


@pytest.mark.parametrize("name", [*ELEMENTWISE, *POSITIVE])
def test_an_elementwise_rule(name: str) -> None:
    function = (ELEMENTWISE | POSITIVE)[name]
    mean = MEANS.abs() if name in POSITIVE else MEANS
    tolerance = 1e-3 if name in ("celu", "hardsigmoid") else 1e-5  # torch has float32 constants in these
    arguments = (mean.clone().requires_grad_(), torch.rand(6).double().add(0.1).requires_grad_())
    assert torch.autograd.gradcheck(
        lambda m, v: tuple(propagate(function, bf.Moments(m, v))), arguments, rtol=tolerance
    )


@pytest.mark.parametrize("name", CASES)
def test_a_rule(name: str) -> None:
    function, shapes, forms = CASES[name]

    def moments(*flat: Tensor) -> Any:
        random = [bf.Moments(*pair) for pair in zip(flat[::2], flat[1::2], strict=True)]
        result = propagate(function, *random, forms=forms)
        return result.mean, result.var

    arguments = [t for shape in shapes for t in random_moments(*shape)]
    assert_gradients(moments, arguments, fast=sum(t.numel() for t in arguments) > 40)


def with_random_weights(
    operation: Callable[..., Any], *weights: tuple[int, ...]
) -> Callable[[Gaussian], Gaussian]:
    generator = torch.Generator().manual_seed(0)
    random = [
        bf.Moments(*(torch.rand(2, *shape, generator=generator).double() + 0.1).unbind()) for shape in weights
    ]
    return lambda x: FORMS["full"][operation](x, *random)


def full(operation: Callable[..., Any], *args: Any) -> Callable[[Gaussian], Gaussian]:
    return lambda x: FORMS["full"][operation](x, *args)


#: name -> (rule for `Gaussian`, input shape)
FULL: dict[str, tuple[Callable[[Gaussian], Gaussian], tuple[int, ...]]] = {
    "linear": (with_random_weights(F.linear, (2, 3), (2,)), (2, 3)),
    "conv1d": (with_random_weights(F.conv1d, (2, 1, 2), (2,)), (1, 1, 4)),
    "conv2d": (with_random_weights(F.conv2d, (2, 1, 2, 2), (2,)), (1, 1, 3, 2)),
    "conv3d": (with_random_weights(F.conv3d, (1, 1, 2, 1, 2), (1,)), (1, 1, 2, 2, 2)),
    **{
        operation.__name__: (full(operation), (1, 4))
        for operation in (F.relu, F.leaky_relu, F.elu, F.selu, F.gelu, F.silu, F.softplus, F.hardswish)
    },
    "sigmoid": (full(torch.sigmoid), (1, 4)),
    "tanh": (full(torch.tanh), (1, 4)),
    "max_pool2d": (full(F.max_pool2d, 2), (1, 1, 2, 4)),
    "adaptive_max_pool1d": (full(F.adaptive_max_pool1d, 2), (1, 2, 4)),
    "avg_pool2d": (full(F.avg_pool2d, 2), (1, 1, 2, 4)),
    "adaptive_avg_pool2d": (full(F.adaptive_avg_pool2d, 1), (1, 2, 2, 2)),
    "batch_norm, training": (full(F.batch_norm, None, None, torch.ones(2).double(), None, True), (3, 2)),
    "batch_norm, eval": (full(F.batch_norm, torch.zeros(2).double(), torch.ones(2).double()), (3, 2)),
    "softmax": (full(F.softmax, -1), (2, 3)),
    "dropout": (full(F.dropout, 0.3, True), (2, 3)),
    "flatten": (full(torch.flatten, 1), (1, 2, 2)),
}


@pytest.mark.parametrize("name", FULL)
def test_a_rule_of_full_covariance(name: str) -> None:
    """By the mean and a root of the covariance."""
    function, shape = FULL[name]
    n = torch.Size(shape[1:]).numel()

    def moments(mean: Tensor, root: Tensor) -> Any:
        return tuple(function(Gaussian(mean, root @ root.mT))[:2])

    mean, root = torch.randn(shape).double(), torch.randn(shape[0], n, n).double()
    assert_gradients(moments, [mean, root], fast=n > 4)
