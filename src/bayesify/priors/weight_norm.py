"""The priors of a weight-normalised network (ResNet++), by the names of its parameters."""

from typing import Any

from torch import Tensor

from bayesify.priors.base import Prior, positive
from bayesify.priors.direction import Direction
from bayesify.priors.group_laplace import GroupLaplace
from bayesify.priors.normal import Normal


class WeightNorm(Prior):
    """Paper 4, section 5: `….direction` the direction prior, `….scale` group-Laplace, all else normal (the paper
    says nothing of biases). The density of the scales is taken in the scales themselves.

    scale:    b of the group-Laplace prior on the scales
    bias_std: of the normal prior on everything else
    flat:     of the direction prior: 0 as in the paper, 1 for directions of length 1
    """

    name = "weight_norm"
    about = "of ResNet++: direction prior, group-Laplace on scales, normal on the rest"

    def __init__(self, scale: float = 5.0, bias_std: float = 1.0, flat: float = 0.0) -> None:
        self.scale = positive("scale", scale)
        self.bias_std = positive("bias_std", bias_std)
        self.direction = Direction(flat)

    def log_prob(self, value: Tensor) -> Tensor:
        raise ValueError(
            "the weight_norm prior depends on the tensor's name: use prior.at(name, like).log_prob(value)"
        )

    @property
    def options(self) -> dict[str, Any]:
        return {"scale": self.scale, "bias_std": self.bias_std, "flat": self.direction.flat}

    def at(self, name: str, like: Tensor) -> Prior:
        kind = name.rpartition(".")[2]
        if kind == "direction":
            return self.direction
        return GroupLaplace(self.scale) if kind == "scale" else Normal(std=self.bias_std)
