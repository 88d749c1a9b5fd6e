"""What the samplers with momentum share: settings, the order of their operators, one step."""

import math
from abc import abstractmethod
from typing import Any, ClassVar

import torch
from torch import Tensor

from bayesify.names import lookup
from bayesify.samplers.base import Group, Sampler, States, check_number
from bayesify.samplers.bucket import Bucket
from bayesify.samplers.fused import available, fused_step
from bayesify.samplers.kinetic import Number, kinetic
from bayesify.samplers.splitting import Phase, advance

DECAY = 0.9  # of the momentum in a full step, where `noise` is left out (paper 4, section 5)
SETTINGS = ("lr", "mass", "temperature", "thermostat_rate", "noise", "max_speed")


class MomentumSampler(Sampler):
    """lr = h, mass = m, noise = D, max_speed = c (None: Gaussian kinetic energy), thermostat_rate = κ.

    `noise=None` takes D = −log(0.9) / lr: a full step keeps 0.9 of the momentum. D stays as it is when a
    schedule changes the step. Keep √(λ/m) h below about 0.3, λ the largest curvature of U.

    integrator: "fused", Algorithm 1 of paper 4 corrected, or "strang", kick and friction apart (BAOAB).
                Both are second order; the position is the same function of time in both.
    compile:    compile the update for the CPU or GPU (the first step takes seconds)
    fused:      one Triton kernel for the whole update; None: where it can be had (CUDA, float32, "fused")
    capturable: steps may be captured in a CUDA graph, after a first one outside of it. Settings are then constants of
                the graph, but for an lr that is a tensor on the device. Replays pass by the hooks of the optimiser:
                call `model.posterior.after_step()` after each, or every stored draw takes the place of the last
    """

    #: the operators of one step, from left to right, see `splitting`; an own order for every integrator
    orders: ClassVar[dict[str, str]]
    #: how α follows ξ, for the kernel: "constant" or "adaptive"
    adaptive: ClassVar[bool] = False

    def __init__(
        self,
        params: Any,
        lr: float,
        num_data: int,
        mass: float = 1.0,
        noise: float | None = None,
        max_speed: float | None = None,
        thermostat_rate: float = 1.0,
        temperature: float = 1.0,
        integrator: str = "fused",
        seed: int = 0,
        compile: bool = False,
        fused: bool | None = None,
        capturable: bool = False,
    ) -> None:
        self.order = lookup(self.orders, integrator, "integrator")
        self.integrator = integrator
        self.fused = fused
        settings = {"lr": lr, "mass": mass, "noise": noise, "max_speed": max_speed}
        rates = {"thermostat_rate": thermostat_rate, "temperature": temperature}
        super().__init__(params, num_data, seed, compile, **settings, **rates)
        self.capturable = capturable
        self._prepare()

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._prepare()

    def _prepare(self) -> None:
        self._function = torch.compile(_advance, dynamic=True) if self.compile else _advance
        if self._kernel(self.param_groups[0]["params"]):
            self._step_supports_amp_scaling = True  # a step with `found_inf` set does nothing

    @staticmethod
    @abstractmethod
    def injected(thermostat: Tensor | None, noise: Number) -> Number:
        """α(ξ), the rate of the injected noise."""

    def check(self, group: Group) -> None:
        super().check(group)
        check_number("mass", group["mass"], above=True)
        check_number("thermostat_rate", group["thermostat_rate"])
        for name in ("noise", "max_speed"):
            if group[name] is not None:
                check_number(name, group[name], above=name == "max_speed")

    def fill(self, group: Group) -> None:
        if group["noise"] is None:
            if group["lr"] == 0:
                raise ValueError("noise=None takes its value from lr, which is 0: give noise")
            group["noise"] = -math.log(DECAY) / float(group["lr"])

    def update(self, states: States, group: Group, gradient: Tensor, noise: Tensor | None) -> Tensor:
        settings = [group[name] for name in SETTINGS]
        if self.compile:  # numbers would be compiled in, and every new step size anew
            settings = [None if v is None else torch.tensor(v, dtype=torch.float64) for v in settings]
        p, xi = states["momentum"], states.get("thermostat")
        return self._function(self.injected, self.order, settings, p, xi, gradient, noise)

    def advance(self, bucket: Bucket, group: Group, noise: list[Tensor] | None) -> None:
        if not self._kernel(bucket.parameters):
            super().advance(bucket, group, noise)
            return
        fused_step(self, bucket, group, noise)

    def _kernel(self, parameters: list[Tensor]) -> bool:
        """Does the one kernel serve these parameters?"""
        can = self.integrator == "fused" and not self.compile and available(parameters)
        for name in ("fused", "capturable"):
            if getattr(self, name) and not can:
                raise ValueError(
                    f"{name}=True needs float32 parameters on CUDA, triton, integrator='fused' and compile=False"
                )
        return can and self.fused is not False


def _advance(
    injected: Any,
    order: str,
    settings: list[Any],
    p: Tensor,
    xi: Tensor | None,
    gradient: Tensor,
    noise: Tensor | None,
) -> Tensor:
    """One step of p and xi, in place; returns the move of θ."""
    h, mass, temperature, rate, level, max_speed = settings
    z = Phase(
        momentum=p,
        thermostat=xi,
        gradient=gradient,
        noise=noise,
        h=h,
        mass=mass,
        temperature=temperature,
        rate=rate,
        kinetic=kinetic(max_speed),
        injected=lambda thermostat: injected(thermostat, level),
    )
    advance(z, order)
    return z.moves[0] if len(z.moves) == 1 else torch.stack(z.moves).sum(0)
