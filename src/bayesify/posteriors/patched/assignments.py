"""Assignments: which entries of which tensors share one choice z among the components (paper 2, eq. 1, 4, 5, Table 2).

An assignment says, for a tensor, whose z it takes (`unit`: tensors of one unit share it) and the shape of z.
Where an axis of the tensor must be split first (`view`), z has the dimensions of that view, each its size or 1.
"""

from abc import ABC, abstractmethod
from typing import ClassVar

from torch import Tensor, nn

from bayesify.weights.observing.watch import layer_of
from bayesify.weights.where import kind_of


class Assignment(ABC):
    """Members, in this order: `refusal`, `unit`, `view`, `shape`."""

    name: ClassVar[str]
    #: there are two components and the second is fixed at zero
    zero: ClassVar[bool] = False
    #: z is one number per unit
    scalar: ClassVar[bool] = False
    #: z keeps or drops inputs of the layer, in their order
    rows: ClassVar[bool] = False

    def refusal(self, name: str, shape: tuple[int, ...]) -> str:
        """Why this assignment leaves a tensor alone; "" where it takes it."""
        return ""

    @abstractmethod
    def unit(self, name: str) -> str:
        """The tensors that share z bear the same unit."""

    def view(self, weight: Tensor, module: nn.Module) -> tuple[int, ...]:
        """The tensor's shape, with axes split where z needs it."""
        return tuple(weight.shape)

    @abstractmethod
    def shape(self, weight: Tensor, module: nn.Module) -> tuple[int, ...]:
        """The shape of z against `view`."""


class Layer(Assignment):
    """EMP (eq. 4): one z for a layer, its weight and bias together."""

    name = "layer"
    scalar = True

    def unit(self, name: str) -> str:
        return layer_of(name)

    def shape(self, weight: Tensor, module: nn.Module) -> tuple[int, ...]:
        return (1,) * weight.dim()


class Element(Assignment):
    """ECMP (eq. 5): an independent z for every entry."""

    name = "element"

    def unit(self, name: str) -> str:
        return name

    def shape(self, weight: Tensor, module: nn.Module) -> tuple[int, ...]:
        return tuple(weight.shape)


class DropConnect(Element):
    """Every entry of a weight is kept or zero, independently; biases stay."""

    name = "dropconnect"
    zero = True

    def refusal(self, name: str, shape: tuple[int, ...]) -> str:
        if len(shape) < 2:
            return f"assignment={self.name!r} drops weight matrices only: biases and norm layers stay"
        return ""


class Dropout(DropConnect):
    """Every input unit of a layer is kept or dropped: z per row of W_i (an input channel of a convolution)."""

    name = "dropout"
    rows = True

    def view(self, weight: Tensor, module: nn.Module) -> tuple[int, ...]:
        groups = _groups(module)
        if groups == 1:
            return tuple(weight.shape)
        return (groups, weight.shape[0] // groups, *weight.shape[1:])  # (groups, out, in, ...)

    def shape(self, weight: Tensor, module: nn.Module) -> tuple[int, ...]:
        view = self.view(weight, module)
        grouped = len(view) > weight.dim()
        inputs = {0, 2} if grouped else {_input_axis(module)}
        return tuple(size if axis in inputs else 1 for axis, size in enumerate(view))


class Member(Layer):
    """An explicit ensemble: one z for the whole network."""

    name = "member"

    def unit(self, name: str) -> str:
        return ""


def _transposed(module: nn.Module) -> bool:
    """By class, or of other libraries by name."""
    own = isinstance(module, nn.ConvTranspose1d | nn.ConvTranspose2d | nn.ConvTranspose3d)
    return own or (kind_of(module) == "conv" and "Transpose" in type(module).__name__)


def _groups(module: nn.Module) -> int:
    """Groups that split the output axis; a transposed convolution has its inputs in front, one row each."""
    if kind_of(module) != "conv" or _transposed(module):
        return 1
    return getattr(module, "groups", 1)


def _input_axis(module: nn.Module) -> int:
    """Where a weight keeps its input units: in front for embeddings, transposed convolutions and Conv1D."""
    in_front = _transposed(module) or isinstance(module, nn.Embedding | nn.EmbeddingBag)
    return 0 if in_front or type(module).__name__ == "Conv1D" else 1


KINDS: tuple[Assignment, ...] = (Layer(), Element(), Dropout(), DropConnect(), Member())
ASSIGNMENTS = {kind.name: kind for kind in KINDS}
