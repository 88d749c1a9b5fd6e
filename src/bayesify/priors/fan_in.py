"""A normal prior whose width is the network's initialisation scale."""

import math
from typing import Any

from torch import Tensor

from bayesify.priors.base import Prior, positive
from bayesify.priors.normal import Normal


class FanIn(Prior):
    """N(0, gain²/fan_in) for every tensor of two or more dimensions, fan_in = entries of one output (shape[1:]).

    bias_std: the std for tensors of fewer dimensions (biases, norms), whose fan-in is not in their shape.
    """

    name = "fan_in"
    about = "N(0, gain²/fan_in) of each tensor; std bias_std for biases"

    def __init__(self, gain: float = 1.0, bias_std: float = 1.0) -> None:
        self.gain = positive("gain", gain)
        self.bias_std = positive("bias_std", bias_std)

    def log_prob(self, value: Tensor) -> Tensor:
        raise ValueError("the fan_in prior depends on the tensor: use prior.at(name, like).log_prob(value)")

    @property
    def options(self) -> dict[str, Any]:
        return {"gain": self.gain, "bias_std": self.bias_std}

    def at(self, name: str, like: Tensor) -> Prior:
        if like.dim() < 2:
            return Normal(std=self.bias_std)
        return Normal(std=self.gain / math.sqrt(math.prod(like.shape[1:])))
