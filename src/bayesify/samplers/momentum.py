"""What the samplers with momentum share: settings, the order of their operators, one step."""

import math
from typing import Any, ClassVar

import torch
from torch import Tensor

from bayesify.checks import NotNegative, Positive, check_setting
from bayesify.names import lookup
from bayesify.samplers.base import SGD_RATE, Group, Sampler, States, base_lr
from bayesify.samplers.bucket import Bucket
from bayesify.samplers.fused import available, fused_step
from bayesify.samplers.kinetic import Number, kinetic
from bayesify.samplers.splitting import Phase, advance

DECAY = 0.9  # of the momentum in a full step, where `noise` is left out (paper 4, section 5)
MASS_PER_EXAMPLE = 1e-6 / (4 * SGD_RATE)  # lr = 1e-3 is then like SGD at four times that rate
RATE = 1e-3  # κ h²: the thermostat follows within some hundred steps
SETTINGS = ("lr", "mass", "temperature", "thermostat_rate", "noise", "max_speed")


class MomentumSampler(Sampler):
    """Momentum p and friction, for some with a thermostat ξ; h = lr. Keep √(λ/m) h below about 0.3, λ the largest
    curvature of U.

    mass:       m, above 0
    noise:      D; None: −log(0.9) / lr, with which a full step keeps 0.9 of the momentum. It stays as it is when a
                schedule changes the step
    max_speed:  c of the hyperbolic kinetic energy; None: Gaussian
    thermostat_rate: κ; samplers without a thermostat, as SGHMC, take none
    integrator: "fused", Algorithm 1 of paper 4 corrected, or "strang", kick and friction apart (BAOAB).
                Both are second order; the position is the same function of time in both.
    compile:    compile the update for the CPU or GPU (the first step takes seconds)
    fused:      one Triton kernel for the whole update; None: where it can be had (CUDA, float32, "fused")
    capturable: steps may be captured in a CUDA graph, after a first one outside of it. Settings are then constants of
                the graph, but for an lr that is a tensor on the device. Replays pass by the hooks of the optimiser:
                call `model.posterior.after_step()` after each, or every stored draw takes the place of the last

    Members, in this order: `orders`, `states`, `kernel`, `injected`.
    """

    #: the operators of one step, from left to right, see `splitting`; an own order for every integrator
    orders: ClassVar[dict[str, str]]
    lightest: ClassVar[float] = 0.4
    limits: ClassVar[tuple[float, float, float]] = (1.0, 0.36, 0.36)
    share: ClassVar[float] = 0.1
    #: which α(ξ) of the Triton kernel is `injected`: "constant" or "adaptive"; None: the kernel has no such step
    kernel: ClassVar[str | None] = None

    def __init_subclass__(cls, **options: Any) -> None:
        """Another order or α than its parent's is not in the parent's kernel."""
        super().__init_subclass__(**options)
        if {"orders", "injected"} & vars(cls).keys() and "kernel" not in vars(cls):
            cls.kernel = None

    def __init__(
        self,
        params: Any,
        lr: float,
        num_data: int,
        mass: Positive = 1.0,
        noise: NotNegative | None = None,
        max_speed: Positive | None = None,
        thermostat_rate: NotNegative = 1.0,
        temperature: float = 1.0,
        integrator: str = "fused",
        seed: int = 0,
        compile: bool = False,
        fused: bool | None = None,
        capturable: bool = False,
    ) -> None:
        if "thermostat" not in self.states and thermostat_rate != 1.0:
            raise ValueError(
                f"thermostat_rate={thermostat_rate!r} must be left out: {type(self).__name__} has no thermostat; take "
                f"SGNHT or ATMC"
            )
        self.order = lookup(self.orders, integrator, "integrator")
        self.integrator = integrator
        self.fused = fused
        self.compile = compile
        settings = {"mass": mass, "noise": noise, "max_speed": max_speed, "thermostat_rate": thermostat_rate}
        super().__init__(params, num_data, seed, lr=lr, temperature=temperature, **settings)
        self.capturable = capturable
        self._prepare()

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._prepare()

    def _prepare(self) -> None:
        self._function = torch.compile(_advance, dynamic=True) if self.compile else _advance
        if self._kernel(self.param_groups[0]["params"]):
            self._step_supports_amp_scaling = True  # a step with `found_inf` set does nothing

    @classmethod
    def settings(cls, lr: float, num_data: int) -> dict[str, Any]:
        """m = 5.6e-5 · num_data and κ = 0.001 / lr²; no κ without a thermostat."""
        check_setting("lr", lr, Positive)
        known = super().settings(lr, num_data) | {"mass": MASS_PER_EXAMPLE * num_data}
        if "thermostat" in cls.states:
            return known | {"thermostat_rate": RATE / lr**2}
        return {name: value for name, value in known.items() if name != "thermostat_rate"}

    @classmethod
    def default_lr(cls, num_data: int, num_members: int = 1) -> float:
        """1e-3: only h²/m matters, and the mass grows with the data."""
        return 1e-3

    @staticmethod
    def injected(thermostat: Tensor | None, noise: Number) -> Number:
        """α(ξ), the rate of the injected noise; here D."""
        return noise

    def fill(self, group: Group) -> None:
        """D = −log(0.9) / lr where it is left out."""
        if group["noise"] is None:
            if group["lr"] == 0:
                raise ValueError("noise=None takes its value from lr, which is 0: give noise")
            group["noise"] = -math.log(DECAY) / float(group["lr"])

    def unit(self, p: Tensor, group: Group) -> float:
        """h²."""
        return base_lr(group) ** 2

    def quiet(self, group: Group) -> float:
        """2 h D B/D: gradient noise of rate B = h Var G / 2 m T, at most a tenth of the injected."""
        return 2 * base_lr(group) * float(group["noise"]) * self.share

    def friction(self, group: Group) -> float:
        """h D."""
        return base_lr(group) * float(group["noise"])

    def rest(self, heat: bool) -> None:
        """p = 0, or N(0, m T) with `heat`; ξ = 0."""
        for group in self.param_groups:
            for p in group["params"]:
                state, temperature = self.state.get(p, {}), float(group["temperature"])
                if "mass" not in state:
                    continue
                if "thermostat" in state:
                    state["thermostat"].zero_()
                if heat and temperature > 0:
                    mass = state["mass"]
                    drawn = self.normal(mass.numel(), mass.device, mass.dtype).view_as(mass)
                    state["momentum"].copy_(drawn.mul_((mass * temperature).sqrt()))
                else:
                    state["momentum"].zero_()

    def release(self, p: Tensor, group: Group, variance: Tensor) -> None:
        """ξ = h V / 2 m T."""
        state, temperature = self.state[p], float(group["temperature"])
        if "thermostat" in state and temperature > 0:
            state["thermostat"].copy_(float(group["lr"]) * variance / (2 * state["mass"] * temperature))

    def update(self, states: States, group: Group, gradient: Tensor, noise: Tensor | None) -> Tensor:
        """The operators of the order, from left to right."""
        settings = [states.get(name, group[name]) for name in SETTINGS]
        if self.compile:  # numbers would be compiled in, and every new step size anew
            settings = [v if v is None else torch.as_tensor(v, dtype=torch.float64) for v in settings]
        return self._function(self.injected, self.order, settings, states, gradient, noise)

    def advance(self, bucket: Bucket, group: Group, noise: list[Tensor] | None) -> None:
        """One step of one bucket, by the kernel where it can."""
        if not self._kernel(bucket.parameters):
            super().advance(bucket, group, noise)
            return
        fused_step(self, bucket, group, noise)

    def _kernel(self, parameters: list[Tensor]) -> bool:
        """Does the one kernel serve these parameters?"""
        mine = self.kernel is not None and self.integrator == "fused" and not self.compile
        can = mine and available(parameters)
        for name in ("fused", "capturable"):
            if getattr(self, name) and not can:
                raise ValueError(
                    f"{name}=True needs float32 parameters on CUDA, triton, integrator='fused', compile=False and a "
                    f"sampler that the kernel knows (SGHMC, SGNHT, ATMC)"
                )
        return can and self.fused is not False


def _advance(
    injected: Any, order: str, settings: list[Any], states: States, gradient: Tensor, noise: Tensor | None
) -> Tensor:
    """One step of momentum and thermostat, in place; returns the move of θ."""
    h, mass, temperature, rate, level, max_speed = settings
    p, xi = states["momentum"], states.get("thermostat")
    k = kinetic(max_speed)
    z = Phase(p, xi, gradient, noise, h, mass, temperature, rate, k, lambda now: injected(now, level))
    advance(z, order)
    return z.moves[0] if len(z.moves) == 1 else torch.stack(z.moves).sum(0)
