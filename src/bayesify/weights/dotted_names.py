"""Parameters, buffers and modules under the dotted names of another network: `root.bn1.weight` for `bn1.weight`."""

from torch import Tensor, nn

from bayesify.weights.calls import Slot


def put(root: nn.Module, name: str, value: nn.Parameter | nn.Module | Tensor) -> Slot:
    """Register `value` in `root` under `name`; returns its place."""
    *path, last = name.split(".")
    for part in path:
        if part not in root._modules:
            root.add_module(part, nn.Module())
        root = root._modules[part]  # type: ignore[assignment]
    if isinstance(value, nn.Module):
        root.add_module(last, value)
        return Slot(root, "_modules", last)
    if isinstance(value, nn.Parameter):
        root.register_parameter(last, value)
        return Slot(root, "_parameters", last)
    root.register_buffer(last, value)
    return Slot(root, "_buffers", last)
