"""Normal families of variance networks (paper 5)."""

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Generator, Tensor

from bayesify.execution import Function, applied
from bayesify.families.base import Start
from bayesify.families.location_scale import Normal, root_mean_square
from bayesify.names import check_choice

SHARINGS = ("layer", "neuron", "weight")


class VarianceNormal(Normal):
    """q(w) = N(g c, h² s²), entries independent; c is the centre, s the `spread` of the family.

    The gates g (`mean_gate`) and h (`noise_gate`) are 0 or 1, one number for the tensor or one for each weight. They
    do not train: g = 0 is the swap to zero mean (eq. 11), h = 0 fixes a weight at its mean, both 0 zero it.
    """

    moves = False

    def __init__(self, centre: Tensor, mean_gate: Tensor, noise_gate: Tensor) -> None:
        self.centre = centre
        self.mean_gate = mean_gate
        self.noise_gate = noise_gate

    @property
    @abstractmethod
    def spread(self) -> Tensor:
        """s, the standard deviation up to its sign, a smooth function of the parameters; in float32 at least."""

    @property
    @abstractmethod
    def ratio(self) -> Tensor:
        """|c|/|s| without the gates, in float32 at least; of a smaller shape than the weight where it is shared."""

    @property
    def loc(self) -> Tensor:  # type: ignore[override]
        """g c."""
        return self.centre * self.mean_gate

    @property
    def scale(self) -> Tensor:
        """h |s|."""
        return self._gated_spread.abs()

    @property
    def log_scale(self) -> Tensor:  # type: ignore[override]
        """log scale, of a positive number also where the gate h is 0."""
        return self.scale.clamp_min(torch.finfo(self.centre.dtype).tiny).log()

    def transform(self, noise: Tensor) -> Tensor:
        """w = g c + h s ξ."""
        return torch.addcmul(self.loc, self._gated_spread, noise)

    @property
    def mean(self) -> Tensor:
        """g c."""
        return self.loc

    @property
    def variance(self) -> Tensor:
        """h² s²."""
        return self._gated_spread.square()

    @property
    def _gated_spread(self) -> Tensor:
        """h s in the precision of the weights."""
        return (self.spread * self.noise_gate).to(self.centre.dtype)

    @classmethod
    def rsample_all(cls, qs: Sequence[Any], generator: Generator | None = None) -> list[Tensor]:
        """One by one, without log_scale, which gates make infinite."""
        return [q.rsample(generator=generator) for q in qs]


class Additive(VarianceNormal):
    """q(w) = N(c, σ²), the free parameter is log σ (eq. 20): the normal family with the gates of variance networks.

    With the log-uniform prior it is sparse variational dropout (Molchanov et al. 2017), log α = log σ² − log c².
    """

    name = "additive"

    def __init__(self, centre: Tensor, log_std: Tensor, mean_gate: Tensor, noise_gate: Tensor) -> None:
        super().__init__(centre, mean_gate, noise_gate)
        self.log_std = log_std

    @classmethod
    def init(cls, like: Tensor, init_log_alpha: float = -5.0) -> Start:  # type: ignore[override]
        """σ² = α × the mean square of the tensor, one number."""
        start = 0.5 * init_log_alpha + math.log(root_mean_square(like))
        return Start({"log_std": torch.full_like(like, start)}, open_gates(like))

    @property
    def spread(self) -> Tensor:
        """σ."""
        return wide(self.log_std).exp()

    @property
    def ratio(self) -> Tensor:
        """|c|/σ."""
        return wide(self.centre).abs() * (-wide(self.log_std)).exp()


class Multiplicative(VarianceNormal):
    """q(w) = N(c, α c²): one α for the tensor (eq. 17), for each output (eq. 18) or for each weight (eq. 19).

    The free parameter is log α, kept between its bounds; beyond a bound only the gradient that leads back passes.
    max_log_alpha = 0 is variational dropout (Kingma et al. 2015), which keeps α ≤ 1.
    """

    name = "multiplicative"

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
        self.log_alpha: Tensor = applied(_Between, log_alpha, min_log_alpha, max_log_alpha)

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
        log_alpha = like.new_full(shape, float(init_log_alpha))
        bounds = {"min_log_alpha": float(min_log_alpha), "max_log_alpha": float(max_log_alpha)}
        return Start({"log_alpha": log_alpha}, {**open_gates(like), **bounds})

    @property
    def spread(self) -> Tensor:
        """√α c."""
        return _for_each(self.shape, (0.5 * wide(self.log_alpha)).exp()) * self.centre

    @property
    def ratio(self) -> Tensor:
        """1/√α."""
        return _for_each(self.shape, (-0.5 * wide(self.log_alpha)).exp())


class ZeroMeanNormal(VarianceNormal):
    """q(w) = N(0, c²): the network's own parameter is the standard deviation, up to its sign (eq. 12)."""

    name = "zero_mean_normal"
    zero_mean = True

    @classmethod
    def init(cls, like: Tensor) -> Start:  # type: ignore[override]
        """Nothing beside the gates."""
        return Start({}, open_gates(like))

    @property
    def loc(self) -> Tensor:  # type: ignore[override]
        """0."""
        return torch.zeros_like(self.centre)

    @property
    def spread(self) -> Tensor:
        """c."""
        return wide(self.centre)

    @property
    def ratio(self) -> Tensor:
        """0."""
        return wide(self.centre.new_zeros(()))


def wide(values: Tensor) -> Tensor:
    """Half precision as float32, before an exponential is taken: in bfloat16 it would be off by half a per cent."""
    return values.to(torch.promote_types(values.dtype, torch.float32))


def open_gates(like: Tensor) -> dict[str, Tensor]:
    """Both gates at 1."""
    return {name: like.new_ones(()) for name in ("mean_gate", "noise_gate")}


def alpha_shape(shape: tuple[int, ...], per: str, output_dim: int, groups: int) -> tuple[int, ...]:
    """() for a layer, the tensor's own for weights; for neurons the outputs, with 1 in every other dimension.

    A transposed convolution holds (inputs, outputs/groups, ...), so its α are (groups, outputs/groups, 1, ...).
    """
    check_choice(SHARINGS, per, "per")
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


class _Between(Function):
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
