"""Dropout: its mask is one more random factor, so it brings a variance of its own in training."""

from typing import Any

import torch.nn.functional as F

from bayesify.moments.missing import not_covered
from bayesify.moments.registry import rule, spelled
from bayesify.moments.values import Moments, Simplex

NAMES = ("dropout", "dropout_", "dropout1d", "dropout2d", "dropout3d", "feature_dropout", "feature_dropout_")


@rule(*spelled(*NAMES), simplex=True)
def dropout(x: Any, p: float = 0.5, training: bool = True) -> Any:
    """y = x b / (1 − p), b ~ Bernoulli(1 − p): E y = E x;  Var y = (Var x + p (E x)²)/(1 − p)."""
    if not 0 <= p < 1:
        raise ValueError(f"dropout p={p!r} must lie in [0, 1) in the moments pass")
    if not training or p == 0:
        return x
    if isinstance(x, Simplex):
        return x._replace(dropped=1 - (1 - x.dropped) * (1 - p))
    return Moments(x.mean, (x.var + p * x.mean.square()) / (1 - p))


@rule(F.alpha_dropout, F.feature_alpha_dropout)
def alpha_dropout(x: Moments, p: float = 0.5, training: bool = False) -> Moments:
    """The identity in eval mode; in training it has no rule."""
    if not training or p == 0:
        return x
    raise NotImplementedError(not_covered(F.alpha_dropout, "training=True (nn.Dropout has one)"))
