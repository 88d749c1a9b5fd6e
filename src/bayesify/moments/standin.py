"""An object that stands in for a tensor inside a network it knows nothing about.

A plain Python object, not a Tensor subclass (dynamo traces it), with `__torch_function__`: torch hands
it every operation it appears in. Methods, operators and attributes of a tensor are turned into such
operations, so `x.view(...)`, `x + y` and `torch.relu(x)` all arrive in `handle`.
"""

import inspect
from typing import Any

import torch
from torch import Tensor

from bayesify import torch_internals as internals


class StandIn:
    """Base of the stand-ins: subclasses say what to do with an operation in `operate`."""

    def metadata(self) -> Tensor:
        """The tensor whose shape, dtype and device this object shows."""
        raise NotImplementedError(f"{type(self).__name__}.metadata")

    @classmethod
    def handle(cls, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What becomes of an operation that takes a stand-in: one that reads no values asks the tensor it shows."""
        if func not in METADATA:
            return cls.operate(func, args, kwargs)
        return func(*replace(args, StandIn, _shown), **replace(kwargs, StandIn, _shown))

    @classmethod
    def operate(cls, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What becomes of an operation that reads values."""
        raise NotImplementedError(f"{cls.__name__}.operate")

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return cls.handle(func, args, kwargs or {})

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in vars(type(self)):
            raise AttributeError(name)
        member = getattr(torch.Tensor, name)  # AttributeError for what a tensor has not
        if callable(member) and not isinstance(member, property):
            return lambda *args, **kwargs: self.handle(member, (self, *args), kwargs)
        return getattr(self.metadata(), name)

    @property
    def shape(self) -> torch.Size:
        """Of the tensor it stands for."""
        return self.metadata().shape

    @property
    def dtype(self) -> torch.dtype:
        """Of the tensor it stands for."""
        return self.metadata().dtype

    @property
    def device(self) -> torch.device:
        """Of the tensor it stands for."""
        return self.metadata().device

    @property
    def ndim(self) -> int:
        """Of the tensor it stands for."""
        return self.metadata().ndim

    # these hold values, so they are operations like any other
    @property
    def T(self) -> Any:
        """The transpose."""
        return self.handle(torch.Tensor.t, (self,), {}) if self.ndim <= 2 else self.mT

    @property
    def mT(self) -> Any:
        """The transpose of the last two dimensions."""
        return self.handle(torch.Tensor.transpose, (self, -2, -1), {})

    @property
    def H(self) -> Any:
        """The conjugate transpose."""
        return self.T.conj() if self.dtype.is_complex else self.T

    @property
    def mH(self) -> Any:
        """The conjugate transpose of the last two dimensions."""
        return self.mT.conj() if self.dtype.is_complex else self.mT

    @property
    def data(self) -> Any:
        """The same values without a graph."""
        return self.handle(torch.Tensor.detach, (self,), {})

    @property
    def real(self) -> Any:
        """The real part."""
        return self.handle(torch.real, (self,), {})

    @property
    def imag(self) -> Any:
        """The imaginary part."""
        return self.handle(torch.imag, (self,), {})

    def dim(self) -> int:
        """The number of dimensions."""
        return self.metadata().dim()

    def size(self, dim: int | None = None) -> Any:
        """The shape, or the length of one dimension."""
        return self.metadata().shape if dim is None else self.metadata().shape[dim]

    def numel(self) -> int:
        """The number of entries."""
        return self.metadata().numel()

    def __len__(self) -> int:
        return len(self.metadata())

    def __iter__(self) -> Any:
        return (self[i] for i in range(len(self)))  # type: ignore[index]


def _shown(standin: StandIn) -> Tensor:
    return standin.metadata()


def _operator(operation: Any, reflected: bool = False) -> Any:
    def operator(self: StandIn, *args: Any) -> Any:
        return self.handle(operation, (*args, self) if reflected else (self, *args), {})

    return operator


_ARITHMETIC = ("add", "sub", "mul", "truediv")
_OPERATORS = [
    *(prefix + name for name in _ARITHMETIC for prefix in ("", "r", "i")),
    *("matmul", "floordiv", "rfloordiv", "mod", "neg", "pos", "abs", "getitem", "setitem"),
    *("eq", "ne", "lt", "le", "gt", "ge"),
]
for _name in _OPERATORS:
    setattr(StandIn, f"__{_name}__", _operator(getattr(torch.Tensor, f"__{_name}__")))
#: torch writes these in Python, and dynamo does not find such functions in a dict: so `2 - x` is torch.sub(2, x)
_REFLECTED = {"rsub": torch.sub, "rtruediv": torch.div, "rpow": torch.pow, "rmatmul": torch.matmul}
for _name, _operation in _REFLECTED.items():
    setattr(StandIn, f"__{_name}__", _operator(_operation, reflected=True))
for _name, _operation in {"pow": torch.Tensor.pow, "ipow": torch.Tensor.pow_}.items():
    setattr(StandIn, f"__{_name}__", _operator(_operation))
OPERATORS = [name for name, value in vars(StandIn).items() if getattr(value, "__name__", "") == "operator"]
StandIn.__hash__ = object.__hash__  # type: ignore[method-assign]  # __eq__ above is elementwise

#: operations that read what a tensor is, not what it holds
_METADATA = [
    *("size", "dim", "numel", "nelement", "ndimension", "stride", "element_size"),
    *("is_floating_point", "is_complex", "is_contiguous"),
]
METADATA = {getattr(torch.Tensor, name) for name in _METADATA}
METADATA |= {torch.is_floating_point, torch.is_complex, torch.numel}


#: these hold nothing; asked here, because compiled code pays for every call when it is traced
LEAVES = (type(None), bool, int, float, str)


def replace(value: Any, kind: Any, function: Any) -> Any:
    """`value` with all objects of class `kind` in it, also in lists, tuples and dicts, put through `function`."""
    if isinstance(value, kind):
        return function(value)
    if isinstance(value, list):
        return [v if type(v) in LEAVES else replace(v, kind, function) for v in value]
    if type(value) is tuple:
        return tuple([v if type(v) in LEAVES else replace(v, kind, function) for v in value])
    if type(value) is dict and value:
        return {k: v if type(v) in LEAVES else replace(v, kind, function) for k, v in value.items()}
    return value


def holds(value: Any, kind: Any, test: Any = None) -> bool:
    """Is there an object of class `kind`, that passes `test`, in `value`, where `replace` would find it?"""
    if isinstance(value, kind):
        return test is None or test(value)
    if type(value) is dict:
        value = list(value.values())
    return type(value) in (list, tuple) and any(type(v) not in LEAVES and holds(v, kind, test) for v in value)


ORDER: dict[Any, tuple[str, ...]] = {}  # names of the positional arguments of torch's own functions
NUMPY_NAMES = {"axis": "dim", "keepdims": "keepdim"}  # torch takes these too


def renamed(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Keywords by torch's own names."""
    return {NUMPY_NAMES.get(name, name): value for name, value in kwargs.items()}


def in_order(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Random operands given by name, torch.baddbmm(b, batch1=x, batch2=y), in their places: rules have names of their
    own for them."""
    if not kwargs or not holds(kwargs, StandIn):
        return args, kwargs
    kwargs = {"self" if name == "input" else name: value for name, value in kwargs.items()}
    for name in ORDER.get(func, ())[len(args) :]:
        if name not in kwargs:
            break
        args = (*args, kwargs.pop(name))
    return args, {"input" if name == "self" else name: value for name, value in kwargs.items()}


def learn_order(operation: Any) -> None:
    """Ask torch for it once, because compiled code cannot. Functions in Python have an order of their own."""
    if inspect.isfunction(operation):
        code = operation.__code__
        ORDER[operation] = tuple("self" if n == "input" else n for n in code.co_varnames[: code.co_argcount])
        return
    schemas = internals.operator_schemas(f"aten::{getattr(operation, '__name__', '')}")
    if schemas:
        ORDER[operation] = tuple(a.name for a in schemas[0].arguments if not a.kwarg_only)
