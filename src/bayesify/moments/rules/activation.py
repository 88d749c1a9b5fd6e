"""Elementwise non-linearities."""

import torch
import torch.nn.functional as F

from bayesify.moments.carrier import Moments, rule


@rule(F.relu, torch.relu, torch.relu_, torch.Tensor.relu, torch.Tensor.relu_)
def relu(x: Moments) -> Moments:
    """First order: f(E x), f′(E x)² Var x (paper 3, eq. 4 and 5)."""
    return Moments(x.mean.relu(), torch.where(x.mean > 0, x.var, 0.0))
