"""Numbers of a prior that are tensors: one for every weight, or for those of a row, a channel, …"""

import hashlib
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

TENSOR = "tensor"  # what plain data has in the place of one


class Values:
    """A tensor that is an option of a prior.

    As plain data it is its shape and a hash of what is in it: files have the numbers beside the weights that they are
    of, and a prior from plain data has none until then.
    """

    def __init__(self, tensor: Tensor | None, shape: tuple[int, ...], digest: str) -> None:
        self.tensor, self.shape, self.digest = tensor, shape, digest

    @classmethod
    def of(cls, option: str, value: Any, positive: bool = False) -> "Values":
        """A tensor, or the plain data of one."""
        if isinstance(value, Values):
            return value
        if isinstance(value, Mapping):
            return cls._of_data(option, value[TENSOR])
        tensor = value.detach().clone()
        if not tensor.is_floating_point() or not tensor.isfinite().all():
            raise ValueError(
                f"prior {option}={_short(value)} must be a tensor of finite floating-point numbers"
            )
        if positive and not (tensor > 0).all():
            raise ValueError(
                f"prior {option}={_short(value)} must be positive, the least is {tensor.min():.3g}"
            )
        content = tensor.to("cpu", torch.float64).contiguous().numpy().tobytes()
        return cls(tensor, tuple(tensor.shape), hashlib.sha256(content).hexdigest()[:16])

    @classmethod
    def _of_data(cls, option: str, text: Any) -> "Values":
        shape, _, digest = str(text).partition(":")
        sizes = [size for size in shape.split("x") if size]
        if not digest or not all(size.isdecimal() for size in sizes):
            raise ValueError(f"prior {option}={{'tensor': {text!r}}} is no tensor: give torch.tensor(...)")
        return cls(None, tuple(int(size) for size in sizes), digest)

    def data(self) -> dict[str, str]:
        """Plain data."""
        return {TENSOR: f"{'x'.join(map(str, self.shape))}:{self.digest}"}

    def over(self, option: str, name: str, weight: Tensor) -> Tensor:
        """Of every entry of a weight; NaN where a file has the numbers."""
        try:
            shape = torch.broadcast_shapes(self.shape, weight.shape)
        except RuntimeError:
            shape = torch.Size()
        if shape != weight.shape:
            raise ValueError(
                f"prior {option} of shape {self.shape} does not broadcast to the weight {name!r} of shape "
                f"{tuple(weight.shape)}"
            )
        if self.tensor is None:
            return torch.full_like(weight, torch.nan).detach()
        return self.tensor.to(weight).expand(weight.shape).clone()


def is_data(value: Any) -> bool:
    """Is this the plain data of a tensor?"""
    return isinstance(value, Mapping) and set(value) == {TENSOR}


def _short(value: Tensor) -> str:
    return f"tensor of {value.dtype} and shape {tuple(value.shape)}"
