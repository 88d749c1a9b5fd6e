"""Exact KL(q ‖ p) for the pairs that have one."""

import math
from collections.abc import Callable
from typing import Any

from torch import Tensor

from bayesify import families, priors

EXACT: dict[tuple[type, type], Callable[[Any, Any], Tensor]] = {}


def exact(family: type, prior: type) -> Callable[[Callable], Callable]:
    """Register the exact KL of a pair."""

    def register(function: Callable[[Any, Any], Tensor]) -> Callable[[Any, Any], Tensor]:
        EXACT[family, prior] = function
        return function

    return register


@exact(families.Normal, priors.Normal)
def normal_normal(q: families.Normal, p: priors.Normal) -> Tensor:
    """Σ log(s/σ) + (σ² + (μ − m)²) / (2 s²) − ½, with q = N(μ, σ²) and p = N(m, s²)."""
    quadratic = (q.variance + (q.loc - p.mean).square()).sum() / (2 * p.std**2)
    return quadratic - q.log_scale.sum() + q.loc.numel() * (math.log(p.std) - 0.5)
