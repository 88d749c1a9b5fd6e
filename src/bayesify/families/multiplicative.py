"""The normal family whose variance is a multiple of the squared mean: Gaussian dropout of weights (paper 5)."""

from typing import Any

import torch
from torch import Tensor

from bayesify.families.base import Start
from bayesify.families.variance import VarianceNormal, open_gates, wide

SHARINGS = ("layer", "neuron", "weight")


class Multiplicative(VarianceNormal):
    """q(w) = N(c, α c²): one α for the tensor (eq. 17), for each output (eq. 18) or for each weight (eq. 19).

    The free parameter is log α, kept between its bounds; beyond a bound only the gradient that leads back passes.
    max_log_alpha = 0 is variational dropout (Kingma et al. 2015), which keeps α ≤ 1.
    """

    name = "multiplicative"
    about = "normal with variance α·mean², α per layer, neuron or weight"

    def __init__(
        self,
        centre: Tensor,
        log_alpha: Tensor,
        mean_gate: Tensor,
        noise_gate: Tensor,
        min_log_alpha: float,
        max_log_alpha: float,
    ) -> None:
        super().__init__(centre, mean_gate, noise_gate)
        self.log_alpha: Tensor = _Between.apply(log_alpha, min_log_alpha, max_log_alpha)

    @classmethod
    def init(  # type: ignore[override]
        cls,
        like: Tensor,
        init_log_alpha: float = -5.0,
        per: str = "layer",
        output_dim: int = 0,
        groups: int = 1,
        min_log_alpha: float = -20.0,
        max_log_alpha: float = 20.0,
    ) -> Start:
        """log α = `init_log_alpha` everywhere. `output_dim` and `groups` say where the outputs of the layer are."""
        if not min_log_alpha <= init_log_alpha <= max_log_alpha:
            raise ValueError(
                f"init_log_alpha={init_log_alpha!r} must lie between min_log_alpha={min_log_alpha!r} and "
                f"max_log_alpha={max_log_alpha!r}"
            )
        shape = alpha_shape(tuple(like.shape), per, output_dim, groups)
        log_alpha = torch.full(shape, float(init_log_alpha), dtype=like.dtype, device=like.device)
        bounds = {"min_log_alpha": float(min_log_alpha), "max_log_alpha": float(max_log_alpha)}
        return Start({"log_alpha": log_alpha}, {**open_gates(like), **bounds})

    @property
    def spread(self) -> Tensor:
        return _for_each(self.shape, (0.5 * wide(self.log_alpha)).exp()) * self.centre

    @property
    def ratio(self) -> Tensor:
        return _for_each(self.shape, (-0.5 * wide(self.log_alpha)).exp())


def alpha_shape(shape: tuple[int, ...], per: str, output_dim: int, groups: int) -> tuple[int, ...]:
    """() for a layer, the tensor's own for weights; for neurons the outputs, with 1 in every other dimension.

    A transposed convolution holds (inputs, outputs/groups, ...), so its α are (groups, outputs/groups, 1, ...).
    """
    if per not in SHARINGS:
        raise ValueError(f"per={per!r} does not exist; choose from {', '.join(SHARINGS)}")
    if per == "layer" or not shape:
        return ()
    if per == "weight":
        return shape
    if output_dim == 0 or len(shape) == 1:
        return (shape[0], *(1,) * (len(shape) - 1))
    return (groups, shape[1], *(1,) * (len(shape) - 2))


def _for_each(shape: torch.Size, values: Tensor) -> Tensor:
    """Values that broadcast against a weight of `shape`: those of a group once for each of its inputs."""
    if values.dim() and values.shape[0] not in (1, shape[0]):
        return values.repeat_interleave(shape[0] // values.shape[0], 0)
    return values


class _Between(torch.autograd.Function):
    """x between two bounds. A plain clamp would hold what has once passed a bound there for ever."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, low: float, high: float) -> Tensor:
        return x.clamp(low, high)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, float, float], output: Tensor) -> None:
        x, ctx.low, ctx.high = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (x,) = ctx.saved_tensors
        outward = ((x <= ctx.low) & (grad > 0)) | ((x >= ctx.high) & (grad < 0))  # descent goes against grad
        return grad.masked_fill(outward, 0.0), None, None
