"""The state of every random number generator a run may use, as tensors and plain data."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn


def random_state() -> tuple[dict[str, Tensor], dict[str, Any]]:
    """(tensors, plain data) of Python's, numpy's, torch's and every CUDA device's generator."""
    tensors = {"torch": torch.get_rng_state()}
    if torch.cuda.is_available():
        tensors |= {f"cuda.{i}": state for i, state in enumerate(torch.cuda.get_rng_state_all())}
    version, internal, gauss = random.getstate()
    name, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    tensors["numpy"] = torch.from_numpy(np.asarray(keys).astype(np.int64))
    plain = {
        "python": [version, list(internal), gauss],
        "numpy": [str(name), int(position), int(has_gauss), float(cached)],
    }
    return tensors, plain


def restore_random_state(tensors: dict[str, Tensor], plain: dict[str, Any]) -> None:
    """Put every generator back; more or fewer CUDA devices than then are left alone."""
    version, internal, gauss = plain["python"]
    random.setstate((version, tuple(internal), gauss))
    name, position, has_gauss, cached = plain["numpy"]
    keys = tensors["numpy"].numpy().astype(np.uint32)
    np.random.set_state((name, keys, position, has_gauss, cached))
    torch.set_rng_state(tensors["torch"])
    devices = torch.cuda.device_count() if torch.cuda.is_available() else 0
    for i in range(devices):
        if f"cuda.{i}" in tensors:
            torch.cuda.set_rng_state(tensors[f"cuda.{i}"], i)


def seed_everything(seed: int, rank: int = 0) -> None:
    """Seed every generator; ranks of a distributed run draw different numbers."""
    random.seed(seed + rank)
    np.random.seed((seed + rank) % 2**32)
    torch.manual_seed((seed + rank) % 2**64)


@contextmanager
def untouched(model: nn.Module) -> Iterator[None]:
    """Calls of the model in here leave its buffers (running statistics of norms) and all generators as they were."""
    before, state = [buffer.clone() for buffer in model.buffers()], random_state()
    try:
        yield
    finally:
        restore_random_state(*state)
        with torch.no_grad():
            for buffer, old in zip(model.buffers(), before, strict=True):
                buffer.copy_(old)
