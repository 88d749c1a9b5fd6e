"""The face of every sampler: a torch optimiser whose steps draw from the posterior."""

import math
import warnings
from abc import ABC, abstractmethod
from numbers import Real
from typing import Any, ClassVar

import torch
from torch import Generator, Tensor
from torch.optim import Optimizer

from bayesify.samplers.bucket import Bucket, Piece, same_kind

Group = dict[str, Any]
States = dict[str, Tensor]


class Sampler(Optimizer, ABC):
    """Gradients are of the mean loss per example, −log posterior / num_data; `num_data` scales them back.

    The noise comes from the sampler's own generators, one per device, seeded with `seed`: equal on all
    ranks of a DDP group, and stored in `state_dict` so that a resumed chain draws the same numbers.
    Settings may differ between parameter groups; a group at temperature 0 is optimised, not sampled.

    Members, in this order: `states`, `update`, `check`, `fill`.
    """

    #: names of the states of every coordinate
    states: ClassVar[tuple[str, ...]] = ()
    #: steps may be captured in a CUDA graph
    capturable: bool = False

    def __init__(self, params: Any, num_data: int, seed: int, compile: bool = False, **defaults: Any) -> None:
        if isinstance(num_data, bool) or not isinstance(num_data, int) or num_data < 1:
            raise ValueError(f"num_data={num_data!r} must be a positive whole number")
        self.num_data = num_data
        self.seed = seed
        self.compile = compile
        self.steps = 0
        self.generators: dict[str, Generator] = {}
        self.buckets: dict[tuple[int, ...], Bucket] = {}
        self.counters: dict[str, Tensor] = {}  # `steps` on the devices, which a replayed graph moves on
        self.found_inf: Tensor | None = None  # set to skip a step on the device itself, as GradScaler does
        self.grad_scale: Tensor | None = None
        super().__init__(params, defaults)

    @abstractmethod
    def update(self, states: States, group: Group, gradient: Tensor, noise: Tensor | None) -> Tensor:
        """Advance the states of some coordinates by one step, in place; returns the move of the parameters.

        gradient: of U, summed over the data set, to be used up; noise: N(0, 1), None at temperature 0.
        """

    def check(self, group: Group) -> None:
        """Raise for settings of a group that cannot be right."""
        for name in ("lr", "temperature"):
            check_number(name, group[name])

    def fill(self, group: Group) -> None:
        """Settings left at None get their values, which then stay while the step size changes."""

    def add_param_group(self, param_group: Group) -> None:
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        self.check(group)
        self.fill(group)
        for p in group["params"]:
            if not p.is_floating_point() or p.is_complex():
                raise TypeError(
                    f"{type(self).__name__} moves real floating-point parameters, not {p.dtype}: freeze it with "
                    f"requires_grad_(False), or keep a complex one as a real one and use torch.view_as_complex"
                )
            if hasattr(p, "device_mesh"):
                raise TypeError(f"{type(self).__name__} does not take sharded parameters (FSDP2): use DDP")

    @torch.no_grad()
    def step(self, closure: Any = None, noise: list[Tensor] | None = None) -> Any:
        """One step. `noise`: N(0, 1) for the parameters with a gradient, in order, instead of one's own."""
        if not self.capturable and capturing():
            raise RuntimeError(
                f"{type(self).__name__} cannot be captured in a CUDA graph: every replay would draw the same noise. "
                f"Samplers with momentum can, with capturable=True"
            )
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        given = None if noise is None else iter(noise)
        for group in self.param_groups:
            moved = [p for p in group["params"] if p.grad is not None]
            if any(p.grad.is_sparse for p in moved):
                raise RuntimeError(
                    f"{type(self).__name__} does not take sparse gradients: every weight moves, by its noise. Make "
                    f"the layer with sparse=False"
                )
            for parameters in same_kind(moved):
                bucket = self.bucket(parameters)
                mine = None if given is None else [next(given) for _ in parameters]
                self.advance(bucket, group, mine)
        self.steps += 1
        for counter in self.counters.values():
            counter.add_(1)
        return loss

    def advance(self, bucket: Bucket, group: Group, noise: list[Tensor] | None) -> None:
        """One step of one bucket by tensor operations."""
        factor = self.num_data if self.grad_scale is None else self.num_data / self.grad_scale
        given = None if noise is None else torch.cat([eta.reshape(-1) for eta in noise]).to(bucket.dtype)
        for piece in bucket.pieces:
            eta = None
            if group["temperature"] > 0:
                eta = self.noise(piece) if given is None else given[piece.part]
            gradient, states = piece.gradient(factor), piece.states()
            if self.found_inf is None:
                move = self.update(states, group, gradient, eta)
            else:
                move = self._update_or_skip(states, group, gradient, eta)
            piece.add(move)

    def _update_or_skip(self, states: States, group: Group, gradient: Tensor, noise: Tensor | None) -> Tensor:
        assert self.found_inf is not None
        bad = self.found_inf.ne(0)
        before = {name: state.clone() for name, state in states.items()}
        move = self.update(states, group, gradient, noise)
        for name, state in states.items():
            state.copy_(torch.where(bad, before[name], state))
        return torch.where(bad, 0.0, move)

    def noise(self, piece: Piece) -> Tensor:
        """N(0, 1) for every coordinate of `piece`."""
        device, dtype = piece.bucket.device, piece.bucket.dtype
        key = str(device)
        if key not in self.generators:
            self.generators[key] = Generator(device).manual_seed(apart(self.seed))
        return torch.randn(piece.numel, generator=self.generators[key], dtype=dtype, device=device)

    def counter(self, device: torch.device) -> Tensor:
        """The number of steps, on the device."""
        key = str(device)
        if key not in self.counters:
            if capturing():
                raise RuntimeError(
                    "the first step of a sampler cannot be captured in a CUDA graph: take it before"
                )
            self.counters[key] = torch.tensor(self.steps, device=device)
        return self.counters[key]

    def bucket(self, parameters: list[Tensor]) -> Bucket:
        """The bucket of these parameters; their states are views of its vectors."""
        key = tuple(id(p) for p in parameters)
        if key not in self.buckets:
            if capturing():
                raise RuntimeError(
                    "the first step of a sampler cannot be captured in a CUDA graph: take it before"
                )
            mine = set(key)
            self.buckets = {k: b for k, b in self.buckets.items() if not mine & set(k)}
            self.buckets[key] = self._new_bucket(parameters)
        return self.buckets[key]

    def _new_bucket(self, parameters: list[Tensor]) -> Bucket:
        bucket = Bucket(parameters, self.states)
        for name, flat in bucket.states.items():
            for p, view in zip(parameters, bucket.views(flat), strict=True):
                if name in self.state[p]:
                    view.copy_(self.state[p][name])
                self.state[p][name] = view
        return bucket

    def __getstate__(self) -> dict[str, Any]:
        """Of a copy: everything but hooks and buckets, which it makes again."""
        mine = {
            key: value for key, value in self.__dict__.items() if not key.startswith("_") and key != "buckets"
        }
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
        return {**stored, "state": states, "generators": generators, "sampler": type(self).__name__, **facts}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As torch's, but states keep their precision (torch would cast them to the parameter's dtype)."""
        stored = dict(state_dict)
        states, generators = stored.pop("state"), stored.pop("generators", {})
        facts = {name: stored.pop(name, getattr(self, name)) for name in ("seed", "steps", "num_data")}
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
                if index >= len(parameters) or value.shape != parameters[index].shape:
                    mine = tuple(parameters[index].shape) if index < len(parameters) else "not there"
                    raise ValueError(
                        f"the stored {name} of parameter {index} is {tuple(value.shape)}, "
                        f"the parameter is {mine}: this state belongs to another network"
                    )


def check_number(name: str, value: Any, above: bool = False) -> None:
    """A setting of a group must be finite and not negative, or above 0."""
    if isinstance(value, bool) or not isinstance(value, Real | Tensor):
        raise TypeError(f"{name}={value!r} must be a number")
    if not 0 <= float(value) < math.inf or (above and value == 0):
        raise ValueError(f"{name}={value!r} must {'be positive' if above else 'not be negative'}, and finite")


def capturing() -> bool:
    """Is a CUDA graph being recorded?"""
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


def apart(seed: int) -> int:
    """A seed far from `seed`: equal seeds here and in the global generator would make equal numbers, and noise
    that repeats that of the data (its order, dropout) does not average out."""
    mixed = (seed + 0x9E3779B97F4A7C15) * 0xBF58476D1CE4E5B9 % 2**64
    return (mixed ^ mixed >> 31) % 2**63
