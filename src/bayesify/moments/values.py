"""What is known of a random tensor: its moments, and in which precision."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from bayesify.torch_internals import pytree


class MeanVar(NamedTuple):
    """What moments unpack as."""

    mean: Tensor
    var: Tensor


class Moments(MeanVar):
    """Elementwise mean and variance of a random tensor (`var` is a variance, of the mean's shape).

    Unpacks as mean, var. What leaves a network may know more:

    cov:   (batch, n, n), the covariance of the n numbers of each example; None where it is not known whole
    top:   of many numbers the covariance of the largest ones
    trace: by which `sweep` finds the covariance
    slope: by the input's mean, of a rule that takes it as fixed (batch norm); for the tape, lost on the way
    """

    cov: Tensor | None = None
    top: "Top | None" = None
    trace: "Trace | None" = None
    slope: Tensor | None = None

    def __new__(
        cls,
        mean: Tensor,
        var: Tensor,
        *,
        cov: Tensor | None = None,
        top: "Top | None" = None,
        trace: "Trace | None" = None,
        slope: Tensor | None = None,
    ) -> "Moments":
        self = super().__new__(cls, mean, var)
        if cov is not None:
            self.cov = cov
        if top is not None:
            self.top = top
        if trace is not None:
            self.trace = trace
        if slope is not None:
            self.slope = slope
        return self

    @property
    def _asdict(self) -> Any:
        """As of every named tuple. A property, because torch's pytrees take a class with the method for no more than
        its fields, whatever is registered for it below."""
        return super()._asdict


class Top(NamedTuple):
    """Some numbers of each example, (batch, k), and their covariance, (batch, k, k)."""

    indices: Tensor
    cov: Tensor


class Trace(NamedTuple):
    """Where noise entered on the way (a `Tape`), and the mean with a graph from there."""

    tape: Any
    mean: Tensor


def _leaves(m: Moments) -> tuple[list[Tensor], None]:
    return [m.mean, m.var, *([] if m.cov is None else [m.cov]), *(m.top or ())], None


def _of_leaves(values: Any, _: Any) -> Moments:
    mean, var, *more = values
    return Moments(
        mean, var, cov=more[0] if len(more) == 1 else None, top=Top(*more) if len(more) == 2 else None
    )


# the same with and without a covariance, which maps as mean and variance do
pytree.register_pytree_node(Moments, _leaves, _of_leaves, serialized_type_name="bayesify.Moments")


def certain(value: Tensor) -> Moments:
    """What no random weight took part in."""
    return Moments(value, torch.zeros_like(value))


class Simplex(NamedTuple):
    """What softmax gives over the last dimension: rows that sum to 1, and the variance of their scores.

    A product with such rows needs the variance of the scores, because the entries of a row are dependent. After
    dropout with rate `dropped` an entry a is a·b/(1 − dropped), b one or zero; `mean` and `var` are those of a.
    """

    mean: Tensor
    var: Tensor
    score_var: Tensor
    dropped: float = 0.0

    def moments(self) -> Moments:
        """Of each entry by itself."""
        if not self.dropped:
            return Moments(self.mean, self.var)
        return Moments(self.mean, (self.var + self.dropped * self.mean.square()) / (1 - self.dropped))


class Gaussian(NamedTuple):
    """Mean (batch, *shape) and full covariance (batch, n, n) of a random tensor, n numbers per example.

    parents: (Gaussian, linear map of rows (batch, k, *shape)) of which it is the sum, up to noise of its own: by them
             `rules.covariance.cross` finds Cov(x, F(x)), for residual sums
    depth:   more than that of its parents
    """

    mean: Tensor
    cov: Tensor
    parents: tuple[Any, ...] = ()
    depth: int = 0

    @classmethod
    def made(cls, mean: Tensor, cov: Tensor, *parents: Any) -> "Gaussian":
        """Of `parents`."""
        return cls(mean, cov, parents, 1 + max(x.depth for x, _ in parents))

    @property
    def var(self) -> Tensor:
        """The diagonal of the covariance, in the shape of the mean."""
        return self.cov.diagonal(dim1=-2, dim2=-1).reshape(self.mean.shape)


class Entries(NamedTuple):
    """Picked entries and where they stood, as torch returns them from max, min and topk."""

    values: Any
    indices: Tensor


def parts(value: Any) -> tuple[Any, Any]:
    """(mean, var) of an operand; var is None for what is not random."""
    return (value.mean, value.var) if isinstance(value, Moments) else (value, None)


def mean_of(value: Any) -> Tensor:
    """The mean alone of what is random."""
    return value.mean


def as_moments(value: Any) -> Moments:
    """An operand with its variance, 0 for what is not random."""
    return value if isinstance(value, Moments) else certain(value)


def narrowed(held: Any, forms: tuple[str, ...]) -> Any:
    """Variances in bfloat16 beside means in float32: a rounding of 0.2 % on average, no smaller range."""
    wanted = "half" in forms or ("half_on_gpu" in forms and held.mean.is_cuda)
    return _variances_in(held, torch.bfloat16) if wanted and held.mean.dtype == torch.float32 else held


def widened(held: Any) -> Any:
    """Variances in the precision of the mean."""
    return _variances_in(held, held.mean.dtype)


def _variances_in(held: Any, dtype: torch.dtype) -> Any:
    if isinstance(held, Gaussian) or held.var.dtype == dtype:
        return held
    var = in_dtype(held.var, dtype)
    if isinstance(held, Simplex):
        return Simplex(held.mean, var, in_dtype(held.score_var, dtype), held.dropped)
    return Moments(held.mean, var)


def in_dtype(var: Tensor, dtype: torch.dtype) -> Tensor:
    """`var` in another dtype; an expanded view stays one."""
    if var.dtype == dtype:
        return var
    if 0 not in var.stride():
        return var.to(dtype)
    own = var[tuple([slice(None, None if step else 1) for step in var.stride()])]
    return own.to(dtype).expand(var.shape)
