"""Moment rules, one decorated function per formula; importing this room registers them."""

from bayesify.moments.rules import (
    activation,
    arithmetic,
    elementwise,
    embedding,
    extremes,
    fourier,
    grid,
    interpolate,
    lengths,
    linear,
    norm,
    pool,
    product,
    recurrent,
    scatter,
    shape,
    softmax,
)

from bayesify.moments.rules import attention, covariance, dropout, exact, residual  # isort: skip

__all__ = [
    "activation",
    "arithmetic",
    "attention",
    "covariance",
    "dropout",
    "elementwise",
    "embedding",
    "exact",
    "extremes",
    "fourier",
    "grid",
    "interpolate",
    "lengths",
    "linear",
    "norm",
    "pool",
    "product",
    "recurrent",
    "residual",
    "scatter",
    "shape",
    "softmax",
]
