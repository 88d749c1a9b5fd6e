"""Moment rules, one decorated function per formula; importing this room registers them."""

from bayesify.moments.rules import (
    activation,
    arithmetic,
    elementwise,
    linear,
    norm,
    pool,
    product,
    shape,
    softmax,
)

from bayesify.moments.rules import attention, covariance, dropout, exact, interpolate, residual  # isort: skip

__all__ = [
    "activation",
    "arithmetic",
    "attention",
    "covariance",
    "dropout",
    "elementwise",
    "exact",
    "interpolate",
    "linear",
    "norm",
    "pool",
    "product",
    "residual",
    "shape",
    "softmax",
]
