"""Mass, noise and greatest speed for a network, from a short run of the sampler itself."""

import copy
import math
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from bayesify.batches import inputs_of, target_of, to_device
from bayesify.checks import Count, NonFiniteLossError, Positive, checked
from bayesify.methods import ThermostatMCMC
from bayesify.samplers import ATMC
from bayesify.studies.diagnostics.tuning import DECAY, Suggestion, suggest, usual_reasons

FASTEST = 1e-3 / 3e-4  # largest over root mean square update of a step (paper 4, section 5)
THROWN = 10.0  # thermal steps; chance alone gives 6.5 at most in 10¹⁰ of them


@checked
def tune(
    model: Any, loader: Iterable[Any], lr: Positive = 1e-3, num_steps: Count = 200, seed: int = 0
) -> Suggestion:
    """Settings for a step of `lr`, from `num_steps` steps of ATMC on a copy of `model`, which itself stays as it is.

    The run starts with what `suggest` says of the first batch. What it shows:

        curvature        after the run too, because it grows while a network learns; √(λ/m) h ≤ 0.3
        gradient noise   V, of every tensor; its thermostat will stand at h V / 2m, and noise is injected while that
                         is below D. With e^{−Dh} = 0.9 this asks for m ≥ h² V / (2 · 0.105)
        updates          root mean square and largest of a step; where the largest is more than ten times what the
                         temperature gives, a largest speed is suggested: 3.3 times that, as in paper 4

    The larger of the two masses is taken. `lr` is free, because only h²/m matters (see `suggest`).
    Run it where the chain will be: after a few epochs of training. ATMC runs whatever the model's own sampler is:
    curvature and gradient noise are the network's, and a mass serves every sampler that has one.

    >>> tuned = bf.diagnostics.tune(model, train_loader, lr=1e-3)
    >>> print(tuned)
    """
    if not isinstance(model.method, ThermostatMCMC):
        raise TypeError(f"{model.method.name} is no sampling method: use bf.ThermostatMCMC()")
    if not model.method.has("mass"):
        raise ValueError(
            f"tune() finds a mass, and sampler={model.method.sampler!r} has none: its step size is what "
            f"bf.diagnostics.suggest(model, x, y) gives"
        )
    if model.method.temperature == 0:
        raise ValueError(
            "tune() looks at a chain, and at temperature=0 there is none: give a temperature above 0"
        )
    if num_steps < 2:
        raise ValueError(f"num_steps={num_steps!r} must be at least 2: gradients of two steps are compared")
    trial = copy.deepcopy(model).train()
    batches = _endless(loader, next(trial.parameters()).device)
    x, y = next(batches)
    start = suggest(trial, x, y, lr, seed=seed)
    run = _Run(trial, start, seed)
    for step in range(num_steps):
        run.step(step, *next(batches))
    return _conclude(start, suggest(trial, x, y, lr, seed=seed), run, num_steps)


class _Run:
    """A few steps of the sampler, and what is seen of them."""

    def __init__(self, model: Any, start: Suggestion, seed: int) -> None:
        self.model, self.num_data, self.mass = model, int(model.num_data), start.mass
        self.temperature = model.method.temperature
        settings = ATMC.settings(start.lr, self.num_data) | start.settings | {"temperature": self.temperature}
        self.sampler = ATMC(model.method.groups(model), num_data=self.num_data, seed=seed, **settings)
        self.parameters = {n: p for n, p in model.net.named_parameters() if p.requires_grad}
        self.before: dict[str, Tensor] = {}
        self.noise: dict[str, list[float]] = {name: [] for name in self.parameters}  # ½ mean (G − G')²
        self.squares: list[float] = []  # mean square of the updates of a step
        self.largest = 0.0
        self.losses: list[float] = []

    def step(self, index: int, x: Any, y: Tensor) -> None:
        """One step, and what it showed."""
        self.sampler.zero_grad()
        try:
            loss = self.model.loss(x, y).total
        except NonFiniteLossError as error:
            raise RuntimeError(
                f"the short run has diverged after {index} steps with mass {self.mass:.3g} ({error}): the curvature "
                f"grows faster than one batch can tell. Train the network first, then ask again"
            ) from error
        loss.backward()
        self.losses.append(loss.item())
        for name, p in self.parameters.items():
            gradient = torch.zeros_like(p) if p.grad is None else p.grad * self.num_data
            if name in self.before:
                self.noise[name].append((gradient - self.before[name]).square().mean().item() / 2)
            self.before[name] = gradient
        old = [p.detach().clone() for p in self.parameters.values()]
        self.sampler.step()
        moves = [(p.detach() - q).abs() for p, q in zip(self.parameters.values(), old, strict=True)]
        size = sum(m.numel() for m in moves)
        self.squares.append(sum(m.square().sum().item() for m in moves) / size)
        self.largest = max(self.largest, *(m.max().item() for m in moves))

    def noisiest(self) -> tuple[str, float]:
        """The tensor whose gradient is the noisiest, and its V."""
        means = {name: sum(values) / len(values) for name, values in self.noise.items()}
        name = max(means, key=lambda n: means[n])
        return name, means[name]


def _conclude(start: Suggestion, end: Suggestion, run: _Run, num_steps: int) -> Suggestion:
    assert start.mass is not None and end.mass is not None
    h, curved = start.lr, max(start.mass, end.mass)
    name, variance = run.noisiest()
    quiet = h**2 * variance / (2 * -math.log(DECAY) * run.temperature)
    mass = max(curved, quiet)
    noise = start.noise
    usual = math.sqrt(sum(run.squares) / num_steps)
    thermal = h * math.sqrt(run.temperature / start.mass)
    thrown = run.largest > THROWN * thermal
    shift = math.sqrt(start.mass / mass)
    reasons = [
        f"mass: curvature asks for {curved:.3g} ({start.mass:.3g} before and {end.mass:.3g} after {num_steps} "
        f"steps; √(λ/m) · lr ≤ 0.3), gradient noise for {quiet:.3g} ({name} is the noisiest: with mass {mass:.3g} its "
        f"thermostat stands at {h * variance / (2 * mass * run.temperature):.3g}, D is {noise:.3g})",
        f"updates of a step in the run: {usual:.2g} root mean square, {run.largest:.2g} at most; with this mass the "
        f"temperature alone moves weights by {thermal * shift:.2g}",
        f"a step is like SGD with learning rate {h**2 * run.num_data / mass:.2g} and momentum {DECAY}; the loss went "
        f"from {run.losses[0]:.3g} to {run.losses[-1]:.3g}",
        *usual_reasons(h, mass)[: 2 if start.thermostat_rate is None else 3],
    ]
    speed = FASTEST / math.sqrt(mass) if thrown else None
    if thrown:
        reasons.append(
            f"max_speed: some weights moved {run.largest / thermal:.1f} times their thermal step; paper 4 bounds "
            f"it at 3.3"
        )
    return Suggestion(h, mass, noise, start.thermostat_rate, tuple(reasons), speed)


def _endless(loader: Iterable[Any], device: torch.device) -> Iterator[tuple[Any, Tensor]]:
    while True:
        count = 0
        for count, batch in enumerate(loader, 1):  # noqa: B007
            batch = to_device(batch, device)
            yield inputs_of(batch), target_of(batch)
        if count == 0:
            raise ValueError("the loader is empty: nothing to run on")
