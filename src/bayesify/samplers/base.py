"""The face of every sampler: a torch optimiser whose steps draw from the posterior."""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar

import torch
from torch import Generator, Tensor

from bayesify.checks import NotNegative, Positive, check_setting
from bayesify.execution import capturing
from bayesify.samplers.bucket import Bucket, Piece, same_kind, views
from bayesify.samplers.resumable import Resumable
from bayesify.samplers.warm_start import SHORTEST, WarmStart

Group = dict[str, Any]
States = dict[str, Tensor]
SGD_RATE = 0.0045  # paper 4 on CIFAR-10: h = 1e-3 and m = 11.1 for 50,000 examples
#: arguments that say how a step is computed, not what it draws
TECHNICAL = ("seed", "compile", "fused", "capturable")


class Sampler(Resumable, ABC):
    """Gradients are of the mean loss per example, −log posterior / num_data; `num_data` scales them back.

    The noise comes from the sampler's own generators, one per device, seeded with `seed`: equal on all
    ranks of a DDP group, and stored in `state_dict` so that a resumed chain draws the same numbers.
    Settings may differ between parameter groups; a group at temperature 0 is optimised, not sampled.

    A sampler's settings are the arguments of its `__init__` that have defaults: `bf.ThermostatMCMC` hands over those
    that it finds there. Their annotations hold the ranges, the docstring of the class says what they mean.

    Members, in this order: `states`, `settings`, `default_lr`, `preconditioner`, `fill`, `update`, and of a
    warm start `lightest`, `limits`, `unit`, `quiet`, `friction`, `rest`, `weigh`, `release`. All but `update` may be
    left out. With a warm start the states that `update` gets hold a "mass", by which the step of a coordinate is to be
    divided.

    lr:          step size h
    num_data:    examples that the mean loss is a mean of
    temperature: 1 is Bayes, less a cold posterior, 0 optimisation
    seed:        of the noise
    """

    #: names of the states of every coordinate
    states: ClassVar[tuple[str, ...]] = ()
    #: steps may be captured in a CUDA graph
    capturable: bool = False
    #: made by the method, and not by the user's own hand
    is_default: bool = False
    #: set to skip a step on the device itself, as GradScaler does, which deletes both after it
    found_inf: Tensor | None = None
    grad_scale: Tensor | None = None
    #: networks that the loss is a mean over; `num_data` has this factor
    num_members: int = 1
    #: the smallest mass of a warm start, as a share of the given one (1 of a sampler without)
    lightest: ClassVar[float] = 0.025
    #: by how much gradient noise may add to the variance after a warm start, or to the injected noise
    share: ClassVar[float] = 0.05
    #: how large pace · curvature may be on the way down, at the bottom, and when drawing (see `WarmStart`)
    limits: ClassVar[tuple[float, float, float]] = (1.0, 0.5, 0.1)

    def __init__(
        self,
        params: Any,
        num_data: int,
        seed: int = 0,
        *,
        lr: Positive,
        temperature: NotNegative = 1.0,
        **settings: Any,
    ) -> None:
        check_setting("lr", lr, Positive)
        super().__init__(params, num_data, seed, {"lr": lr, "temperature": temperature, **settings})

    @classmethod
    def settings(cls, lr: float, num_data: int) -> dict[str, Any]:
        """The settings it takes, with what they are where none is given, at a step of `lr` on `num_data` examples."""
        found = {name: a.default for name, a in cls._arguments().items() if a.default is not a.empty}
        return {name: default for name, default in found.items() if name not in TECHNICAL}

    @classmethod
    def _arguments(cls) -> dict[str, inspect.Parameter]:
        """The arguments of `__init__`, and those of the parents' that stand behind its **settings."""
        found: dict[str, inspect.Parameter] = {}
        for kind in cls.__mro__:
            if "__init__" in vars(kind):
                arguments = inspect.signature(vars(kind)["__init__"]).parameters
                found = {**arguments, **found}
                if not any(a.kind is a.VAR_KEYWORD for a in arguments.values()):
                    break
        return found

    @classmethod
    def default_lr(cls, num_data: int, num_members: int = 1) -> float:
        """The step where none is given; here that of a Langevin step as large as one of SGD at 0.0045.

        num_members: networks that the loss is a mean over; the sampler's own num_data is num_members · num_data
        """
        return SGD_RATE / num_data

    @classmethod
    def preconditioner(cls, curvature: float, batch: int) -> float:
        """P in θ ← θ − h P G + √(2 h P T) η, of a sampler without mass, for batches of `batch` examples where the mean
        loss has this curvature."""
        return 1.0

    def warm_up(self, burn_in: int, adapts: bool = True, linear: bool = False) -> None:
        """Begin with a `WarmStart` in the first half of so many steps, where they are enough for one."""
        if burn_in // 2 >= SHORTEST:
            self.warm = WarmStart(burn_in // 2, adapts, linear)
            self.warm.start = self.steps

    def check(self, group: Group) -> None:
        """Hold the settings of a group to their annotations; a group at lr 0 stands still."""
        ranges = {"lr": NotNegative, "temperature": NotNegative}
        for name, argument in self._arguments().items():
            kind = ranges.get(name, argument.annotation)
            if name in group and kind is not argument.empty and not isinstance(kind, str):
                check_setting(name, group[name], kind)

    def fill(self, group: Group) -> None:
        """Settings left at None get their values, which then stay while the step size changes."""

    @abstractmethod
    def update(self, states: States, group: Group, gradient: Tensor, noise: Tensor | None) -> Tensor:
        """Advance the states of some coordinates by one step, in place; returns the move of the parameters.

        gradient: of U, summed over the data set, to be used up; noise: N(0, 1), None at temperature 0.
        """

    def unit(self, p: Tensor, group: Group) -> Tensor | float:
        """How far a unit gradient moves the coordinates of `p` at mass 1: here h."""
        return base_lr(group)

    def quiet(self, group: Group) -> float:
        """How large unit(…) · Var G / mass T may be: here 0.1, where draws are 5 % too wide by it."""
        return 2 * self.share

    def friction(self, group: Group) -> float:
        """The share of the momentum that a step takes; a coordinate of curvature λ forgets where it was in
        mass · friction / (unit(…) λ) steps."""
        return 1.0

    def rest(self, heat: bool) -> None:
        """Forget the way here."""

    def weigh(self, p: Tensor, group: Group, square: Tensor) -> None:
        """The masses are about to be set, from the mean `square` of the gradients."""

    def release(self, p: Tensor, group: Group, variance: Tensor) -> None:
        """The warm start ends: `variance` is that of the gradient, coordinate by coordinate."""

    def now(self, group: Group) -> Group:
        """The settings of the next step."""
        return group if self.warm is None else self.warm.settings(group, self.steps)

    def factor(self) -> float | Tensor:
        """Gradients times this are those of U."""
        return self.num_data if self.grad_scale is None else self.num_data / self.grad_scale

    def gradient(self, p: Tensor) -> Tensor:
        """∂U by what is moved (see `axes`), in single precision at least; 0 in a step that is skipped."""
        gradient = self.axes.gradient(self, p) * self.factor()
        return gradient if self.found_inf is None else gradient.masked_fill(self.found_inf.ne(0), 0.0)

    def add_param_group(self, param_group: Group) -> None:
        """As torch's; the group's settings are checked and filled."""
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
        if self.warm is not None:
            self.warm.turn(self)
            self.warm.observe(self)
        with self.axes.moving(self):
            self._move(given)
        self.steps += 1
        for counter in self.counters.values():
            counter.add_(1)
        return loss

    def _move(self, given: Iterator[Tensor] | None) -> None:
        """All parameters with a gradient by one step, with the noise that is `given`."""
        for group in self.param_groups:
            moved = [p for p in group["params"] if p.grad is not None]
            if any(p.grad.is_sparse for p in moved):
                raise RuntimeError(
                    f"{type(self).__name__} does not take sparse gradients: every weight moves, by its noise. Make "
                    f"the layer with sparse=False"
                )
            if self.warm is not None and group["temperature"] == 0:
                self.warm.bound(self, group)
            for parameters in same_kind(moved):
                bucket = self.bucket(parameters, group)
                mine = None if given is None else [next(given) for _ in parameters]
                self.advance(bucket, self.now(group), mine)

    def advance(self, bucket: Bucket, group: Group, noise: list[Tensor] | None) -> None:
        """One step of one bucket by tensor operations."""
        factor = self.factor()
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
        return self.normal(piece.numel, piece.bucket.device, piece.bucket.dtype)

    def normal(self, count: int, device: torch.device, dtype: torch.dtype) -> Tensor:
        """N(0, 1) from the sampler's own generator of this device."""
        key = str(device)
        if key not in self.generators:
            self.generators[key] = Generator(device).manual_seed(apart(self.seed))
        return torch.randn(count, generator=self.generators[key], dtype=dtype, device=device)

    def counter(self, device: torch.device) -> Tensor:
        """The number of steps, on the device."""
        key = str(device)
        if key not in self.counters:
            check_first_step()
            self.counters[key] = torch.tensor(self.steps, device=device)
        return self.counters[key]

    def bucket(self, parameters: list[Tensor], group: Group) -> Bucket:
        """The bucket of these parameters of `group`; their states are views of its vectors."""
        key = tuple(id(p) for p in parameters)
        if key not in self.buckets:
            check_first_step()
            mine = set(key)
            self.buckets = {k: b for k, b in self.buckets.items() if not mine & set(k)}
            self.buckets[key] = self._new_bucket(parameters, group)
        return self.buckets[key]

    def _new_bucket(self, parameters: list[Tensor], group: Group) -> Bucket:
        weighted = self.warm is not None or any("mass" in self.state[p] for p in parameters)
        bucket = Bucket(parameters, (*self.states, "mass") if weighted else self.states)
        if weighted:
            bucket.states["mass"].fill_(group.get("mass", 1.0))
        for name, flat in bucket.states.items():
            for p, view in zip(parameters, views(flat, parameters), strict=True):
                if name in self.state[p]:
                    view.copy_(self.state[p][name])
                self.state[p][name] = view
        return bucket


def base_lr(group: Group) -> float:
    """The step size before its schedule."""
    return float(group["initial_lr"] if "initial_lr" in group else group["lr"])


def check_first_step() -> None:
    """Raise where a CUDA graph is being recorded."""
    if capturing():
        raise RuntimeError("the first step of a sampler cannot be captured in a CUDA graph: take it before")


def apart(seed: int) -> int:
    """A seed far from `seed`: equal seeds here and in the global generator would make equal numbers, and noise
    that repeats that of the data (its order, dropout) does not average out."""
    mixed = (seed + 0x9E3779B97F4A7C15) * 0xBF58476D1CE4E5B9 % 2**64
    return (mixed ^ mixed >> 31) % 2**63
