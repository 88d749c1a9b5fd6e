"""Moment rules, one decorated function per formula; importing this room registers them."""

from bayesify.moments.rules import activation, arithmetic, linear, norm, shape

__all__ = ["activation", "arithmetic", "linear", "norm", "shape"]
