"""Parameters and buffers under the dotted names of another network: `root.bn1.weight` for `bn1.weight`."""

from typing import Any

from torch import Tensor, nn


def put_parameter(root: nn.Module, name: str, parameter: nn.Parameter) -> None:
    path, last = _leaf(root, name)
    path.register_parameter(last, parameter)


def put_buffer(root: nn.Module, name: str, buffer: Tensor) -> None:
    path, last = _leaf(root, name)
    path.register_buffer(last, buffer)


def get_parameter(root: nn.Module, name: str) -> Tensor:
    return _walk(root, name)._parameters[name.rpartition(".")[2]]


def get_buffer(root: nn.Module, name: str) -> Tensor:
    return _walk(root, name)._buffers[name.rpartition(".")[2]]


def _leaf(root: nn.Module, name: str) -> tuple[nn.Module, str]:
    *path, last = name.split(".")
    for part in path:
        if part not in root._modules:
            root.add_module(part, nn.Module())
        root = root._modules[part]  # type: ignore[assignment]
    return root, last


def _walk(root: nn.Module, name: str) -> Any:
    for part in name.split(".")[:-1]:
        root = root._modules[part]  # type: ignore[assignment]
    return root
