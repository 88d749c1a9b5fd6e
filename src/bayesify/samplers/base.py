"""The face of every sampler: a torch optimiser whose steps draw from the posterior."""

from abc import ABC
from typing import Any

import torch
from torch import Generator, Tensor
from torch.optim import Optimizer


class Sampler(Optimizer, ABC):
    """Gradients are of the mean loss per example, −log posterior / num_data; `num_data` scales them back.

    The noise comes from the sampler's own generators, one per device, seeded with `seed`: equal on all
    ranks of a DDP group, and stored in `state_dict` so that a resumed chain draws the same numbers.
    """

    def __init__(self, params: Any, num_data: int, seed: int, **defaults: Any) -> None:
        if isinstance(num_data, bool) or not isinstance(num_data, int) or num_data < 1:
            raise ValueError(f"num_data={num_data!r} must be a positive whole number")
        for name in ("lr", "temperature"):
            if not defaults[name] >= 0:
                raise ValueError(f"{name}={defaults[name]!r} must not be negative")
        super().__init__(params, defaults)
        self.num_data = num_data
        self.seed = seed
        self.generators: dict[str, Generator] = {}

    def noise(self, like: Tensor) -> Tensor:
        """N(0, 1) of the shape of `like`."""
        key = str(like.device)
        if key not in self.generators:
            self.generators[key] = Generator(like.device).manual_seed(self.seed)
        return torch.randn(like.shape, generator=self.generators[key], dtype=like.dtype, device=like.device)

    def state_dict(self) -> dict[str, Any]:
        states = {key: generator.get_state() for key, generator in self.generators.items()}
        return {**super().state_dict(), "generators": states}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        state_dict = dict(state_dict)
        states = state_dict.pop("generators", {})
        super().load_state_dict(state_dict)
        for key, state in states.items():
            self.generators[key] = Generator(torch.device(key))
            self.generators[key].set_state(state.cpu())
