"""Real targets of which some are only known to be larger: times of those who are still alive."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from bayesify.likelihoods.base import Likelihood, log_of_option
from bayesify.likelihoods.shapes import at_least_float32, match_real, match_shape, sum_over_example


class CensoredNormal(Likelihood):
    """p(y | mean) = N(y; mean, std²) where y was seen, P(Y > y) = Φ((mean − y) / std) where it was censored at y.

    Targets are twice as wide as the output: numbers first, then for each 1 where it was seen and 0 where it is only
    known to be larger. Of times give logarithms, which are nearer to normal (accelerated failure times). Metrics other
    than the nll take the numbers as they were recorded.

    std:       of the noise, in the target's units
    learn_std: make it a parameter of the model, started at the value given
    """

    name = "censored_normal"
    task = "regression"
    has_flags = True
    log_std: Tensor

    def __init__(self, std: float = 1.0, learn_std: bool = True) -> None:
        super().__init__()
        self.learn_std = learn_std
        self.learned = ("std",) * learn_std
        log = log_of_option("std", std)
        if learn_std:
            self.log_std = nn.Parameter(log)
        else:
            self.register_buffer("log_std", log)

    @property
    def std(self) -> Tensor:
        return self.log_std.exp()

    def check(self, output: Tensor, target: Tensor, values: bool) -> Tensor:
        if target.dim() != 2 or target.shape != (len(output), 2 * math.prod(output.shape[1:])):
            raise ValueError(
                f"target has shape {tuple(target.shape)}, the network's output {tuple(output.shape)}: a censored "
                f"normal likelihood needs targets twice as wide, numbers and then 1 (seen) or 0 (censored) for each"
            )
        target = match_real(target.to(output.dtype), target, values)
        seen = target.chunk(2, -1)[1]
        if values and ((seen != 0) & (seen != 1)).any():
            raise ValueError(
                f"the second half of target holds {float(seen[(seen != 0) & (seen != 1)][0]):g}: it says of each "
                f"number whether it was seen, 1, or censored, 0"
            )
        return target

    def log_prob(self, output: Tensor, target: Tensor) -> Tensor:
        return _log_prob(at_least_float32(output), self.std, target)

    def summarize(self, output: Tensor) -> tuple[Tensor, Tensor]:
        output = at_least_float32(output)
        return output, (2 * self.log_std).exp().to(output.dtype).expand(output.shape)

    @property
    def options(self) -> dict[str, Any]:
        return {"std": float(self.std.detach()), "learn_std": self.learn_std}

    def gaussian_log_prob(self, output: Any, target: Tensor, var_floor: float = 1e-3) -> Tensor:
        """σ² = Var z + std²."""
        return _log_prob(output.mean, (output.var + self.std.square()).sqrt(), target)

    def numbers(self, like: Tensor, target: Tensor) -> Tensor:
        """The first half."""
        return match_real(like, target.chunk(2, -1)[0], True)

    def rescaled(self, target: Tensor, shift: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
        """The first half in other units; only what was seen has a density, which the units change."""
        value, seen = (match_shape(shift, part) for part in target.chunk(2, -1))
        return torch.cat([(value - shift) / scale, seen], -1), -sum_over_example(seen * scale.log())

    @classmethod
    def num_outputs(cls, num_targets: int) -> int:
        if num_targets % 2:
            raise ValueError(
                f"targets have {num_targets} columns: likelihood='censored_normal' needs numbers and as many columns "
                f"that say 1 (seen) or 0 (censored)"
            )
        return num_targets // 2


def _log_prob(mean: Tensor, std: Tensor, target: Tensor) -> Tensor:
    value, seen = target.chunk(2, -1)
    z = (value.reshape(mean.shape) - mean) / std
    density = -0.5 * z.square() - std.log() - 0.5 * math.log(2 * math.pi)
    return sum_over_example(torch.where(seen.reshape(mean.shape) > 0, density, _log_above(z)))


def _log_above(z: Tensor) -> Tensor:
    """log P(N(0, 1) > z), by functions that vmap knows: log(erfcx(z / √2) / 2) − z² / 2 for z > 0."""
    right, left = (z / math.sqrt(2)).clamp_min(0), (z / math.sqrt(2)).clamp_max(0)
    above = torch.special.erfcx(right).log() - math.log(2) - right.square()
    return torch.where(z > 0, above, torch.log1p(-0.5 * torch.special.erfc(-left)))
