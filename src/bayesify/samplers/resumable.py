"""What a chain needs to go on where it was: its states, the number of its steps, and where its noise stood."""

import warnings
from typing import Any

import torch
from torch import Generator, Tensor
from torch.optim import Optimizer

from bayesify.checks import check_num_data, check_value
from bayesify.samplers.axes import Axes
from bayesify.samplers.bucket import Bucket
from bayesify.samplers.warm_start import WarmStart


class Resumable(Optimizer):
    """An optimiser whose `state_dict` also holds the states of its own generators, in their own precision.

    Members, in this order: `state_dict`, `load_state_dict`; copies and pickles go on alike.
    """

    def __init__(self, params: Any, num_data: int, seed: int, defaults: dict[str, Any]) -> None:
        check_num_data(num_data)
        check_value("seed", seed, int, 0)
        self.num_data = num_data
        self.seed = seed
        self.steps = 0
        self.generators: dict[str, Generator] = {}
        self.buckets: dict[tuple[int, ...], Bucket] = {}
        self.warm: WarmStart | None = None
        self.axes = Axes()
        self.counters: dict[str, Tensor] = {}  # `steps` on the devices, which a replayed graph moves on
        super().__init__(params, defaults)

    def __getstate__(self) -> dict[str, Any]:
        """Of a copy: everything but hooks and buckets, which it makes again."""
        mine = {k: v for k, v in self.__dict__.items() if not k.startswith("_") and k != "buckets"}
        return {**mine, "generators": {key: g.get_state() for key, g in self.generators.items()}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__({**state, "buckets": {}})
        if "generators" in state:  # torch's load_state_dict comes here too, with states and groups only
            self._restore(state["generators"])

    def state_dict(self) -> dict[str, Any]:
        """A copy of everything the chain needs to go on: it does not change with the sampler."""
        self.steps = max([int(counter) for counter in self.counters.values()], default=self.steps)
        stored = super().state_dict()
        states = {i: {k: t.clone() for k, t in entry.items()} for i, entry in stored["state"].items()}
        generators = {key: generator.get_state() for key, generator in self.generators.items()}
        facts = {"seed": self.seed, "steps": self.steps, "num_data": self.num_data}
        axes = {"axes": [*self.axes.pairs]} if self.axes.pairs else {}
        warm = {} if self.warm is None else {"warm": self.warm.facts()}
        whole = {**stored, "state": states, "generators": generators, "sampler": type(self).__name__}
        return {**whole, **facts, **warm, **axes}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As torch's, but states keep their precision (torch would cast them to the parameter's dtype)."""
        stored = dict(state_dict)
        states, generators = stored.pop("state"), stored.pop("generators", {})
        facts = {name: stored.pop(name, getattr(self, name)) for name in ("seed", "steps", "num_data")}
        warm, self.axes = stored.pop("warm", None), Axes(stored.pop("axes", []))
        mine = type(self).__name__
        sampler = stored.pop("sampler", mine)
        if sampler != mine:
            raise ValueError(
                f"the stored chain was drawn by {sampler}, this sampler is {mine}: go on with {sampler}, or start a "
                f"new chain"
            )
        if facts["num_data"] != self.num_data:
            raise ValueError(
                f"the stored chain has num_data={facts['num_data']}, this sampler {self.num_data}: "
                f"another data set is another posterior; start a new chain"
            )
        parameters = [p for group in self.param_groups for p in group["params"]]
        self._compare(parameters, states)
        super().load_state_dict({**stored, "state": {}})
        self.buckets = {}
        for index, entry in states.items():
            p = parameters[index]
            dtype = torch.promote_types(p.dtype, torch.float32)
            self.state[p] = {k: t.to(p.device, dtype, copy=True) for k, t in entry.items()}
        self.seed, self.steps = facts["seed"], facts["steps"]
        self.counters = {}
        self.warm = None  # a chain that began without a warm start goes on without one
        if warm is not None:
            self.warm = WarmStart(warm["length"])
            self.warm.take(warm)
        self._restore(generators)

    def _restore(self, generators: dict[str, Tensor]) -> None:
        self.generators = {}
        for key, state in generators.items():
            try:
                self.generators[key] = Generator(torch.device(key))
            except RuntimeError:
                warnings.warn(
                    f"the stored chain drew its noise on {key}, which is not here: it goes on with other noise",
                    stacklevel=3,
                )
                continue
            self.generators[key].set_state(state.cpu())

    @staticmethod
    def _compare(parameters: list[Tensor], states: dict[int, dict[str, Tensor]]) -> None:
        for index, entry in states.items():
            for name, value in entry.items():
                numbers = name.startswith(
                    ("pull_blocks", "common_sums", "axes")
                )  # not one for every coordinate
                if index >= len(parameters) or (value.shape != parameters[index].shape and not numbers):
                    mine = tuple(parameters[index].shape) if index < len(parameters) else "not there"
                    raise ValueError(
                        f"the stored {name} of parameter {index} is {tuple(value.shape)}, "
                        f"the parameter is {mine}: this state belongs to another network"
                    )
