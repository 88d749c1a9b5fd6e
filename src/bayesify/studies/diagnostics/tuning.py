"""Mass, noise and thermostat rate for a network, or a step size: from the curvature of its loss, or a short run."""

import copy
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bayesify.batches import beside, inputs_of, target_of, to_device
from bayesify.checks import Count, NonFiniteLossError, Positive, check_setting, checked
from bayesify.methods import ThermostatMCMC
from bayesify.samplers import ATMC, SAMPLERS

STABLE = 0.3  # √(λ/m) h above it is read by the thermostat as gradient noise
DECAY = 0.9
TOO_WIDE = 0.05  # of SGLD's variance, by the size of its steps and the noise of its gradients


@dataclass(frozen=True)
class Suggestion:
    """Settings for `bf.ThermostatMCMC` or a sampler, and why. None: the sampler has no such setting, or needs none."""

    lr: float
    mass: float | None
    noise: float | None
    thermostat_rate: float | None
    reasons: tuple[str, ...]
    max_speed: float | None = None

    @property
    def settings(self) -> dict[str, float]:
        """The settings by name, without those that are None."""
        names = ("lr", "mass", "noise", "thermostat_rate", "max_speed")
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    def __str__(self) -> str:
        settings = ", ".join(f"{name}={value:.4g}" for name, value in self.settings.items())
        return "\n".join([settings, *(f"  {reason}" for reason in self.reasons)])


@checked
def suggest(
    model: Any, x: Any, y: Tensor, lr: Positive = 1e-3, iterations: Count = 20, seed: int = 0
) -> Suggestion:
    """Settings for a step of `lr`, from one batch; for a sampler without a mass, as SGLD, the step size itself.

    The largest curvature λ̄ of the mean loss is found by power iteration (two backward passes each). U = num_data ·
    loss has λ = num_data λ̄, and √(λ/m) h ≤ 0.3 gives the smallest mass that is safe.
    `lr` itself is free: h → a h with m → a² m, D → D / a, κ → κ / a² and c → c / a is the same chain, step for step,
    and D and κ are suggested so. What is chosen is h²/m, which sets the size of a step: weights move by √(h²/m) (root
    mean square), the learning rate of the equal SGD is num_data h²/m.
    Curvature grows in the first epochs of training: ask again after a while, or let `tune` run some steps.

    SGLD with k = h λ and batches of b draws a variance that is too large by k/2 (its step) and k/2 · (num_data/b − 1)
    (gradient noise, by a model that is right: the gradients of examples then have variance λ̄). `lr` is what makes this
    5 % for batches as large as that given. With a preconditioner P it is k = h P λ; pSGLD has P = √(b / λ̄).

    >>> print(bf.diagnostics.suggest(model, x, y, lr=1e-3))
    """
    if model.num_data is None:
        raise ValueError("num_data is missing: give bayesify(..., num_data=len(train_set))")
    check_setting("lr", lr, Positive)
    x, y = beside(model, (x, y))
    curvature = _largest_curvature(model, x, y, iterations, seed)
    sampled = isinstance(model.method, ThermostatMCMC)
    if sampled and not model.method.has("mass"):
        return _step_size(model.method.sampler, model.num_data, max(curvature, 1e-12), len(y), lr)
    mass = model.num_data * max(curvature, 1e-12) * lr**2 / STABLE**2
    noise = -math.log(DECAY) / lr
    rate = None if sampled and not model.method.has("thermostat_rate") else 1e-3 / lr**2
    step = lr**2 * model.num_data / mass
    reasons = (
        f"mass: the largest curvature of the mean loss is {curvature:.3g}; √(num_data · {curvature:.3g} / mass) "
        f"· lr = {STABLE} is about as far as the integrator stays true",
        f"a step is then like SGD with learning rate {step:.2g} and momentum {DECAY}; weights move by "
        f"{lr / math.sqrt(mass):.2g} a step (root mean square)",
        *usual_reasons(lr, mass)[: 2 if rate is None else 3],
        f"max_speed={3 / math.sqrt(mass):.3g} would bound a step at three times its usual size",
    )
    return Suggestion(lr, mass, noise, rate, reasons)


def _step_size(sampler: str, num_data: int, curvature: float, batch: int, lr: float) -> Suggestion:
    batch = min(batch, num_data)
    scale = SAMPLERS[sampler].preconditioner(curvature, batch)  # P
    each = scale * num_data * curvature  # k of lr = 1
    found = 2 * TOO_WIDE * batch / num_data / each
    size = "lr · num_data · curvature" + f" · P, where P = {scale:.3g}," * (scale != 1)
    k, wide = lr * each, lr * each / 2 * num_data / batch
    reasons = (
        f"lr: {sampler} has no mass, its step alone sets the width of the draws. The largest curvature of the "
        f"mean loss is {curvature:.3g}; k = {size} = {found * each:.3g} makes the variance about "
        f"{TOO_WIDE:.0%} too large there, k/2 · num_data / batch, with batches of {batch}; less elsewhere",
        f"the chain forgets in about 1/k = {1 / (found * each):.3g} steps there, in more elsewhere",
        f"the lr given, {lr:g}, has k = {k:.3g}: " + ("far too large" if k > 2 else f"{wide:.0%} too large"),
        "larger batches allow larger steps; sampler='atmc' has a thermostat that takes gradient noise away",
    )
    return Suggestion(found, None, None, None, reasons)


def usual_reasons(lr: float, mass: float) -> tuple[str, ...]:
    """Why no step size is chosen, and the other two settings."""
    return (
        f"lr: as given; only lr² / mass = {lr**2 / mass:.3g} matters, and the mass chooses that. Ten times the lr "
        f"with a hundred times the mass, noise and max_speed / 10 and thermostat_rate / 100 is the same chain",
        f"noise: a full step keeps {DECAY} of the momentum",
        "thermostat_rate: the thermostat follows the gradient noise within some hundred steps",
    )


def _largest_curvature(model: Any, x: Any, y: Tensor, iterations: int, seed: int) -> float:
    parameters = [p for p in model.net.parameters() if p.requires_grad]
    loss = model.loss(x, y).total
    gradients = torch.autograd.grad(loss, parameters, create_graph=True, allow_unused=True)
    pairs = [(p, g) for p, g in zip(parameters, gradients, strict=True) if g is not None and g.requires_grad]
    used, slopes = [p for p, _ in pairs], [g for _, g in pairs]
    generator = torch.Generator().manual_seed(seed)
    direction = [torch.randn(p.shape, generator=generator).to(p) for p in used]
    value = 0.0
    for _ in range(iterations):
        length = math.sqrt(sum(v.square().sum().item() for v in direction))
        direction = [v / max(length, 1e-30) for v in direction]
        products = torch.autograd.grad(slopes, used, direction, retain_graph=True, allow_unused=True)
        after = [torch.zeros_like(p) if h is None else h for p, h in zip(used, products, strict=True)]
        value = sum((a * v).sum().item() for a, v in zip(after, direction, strict=True))
        direction = after
    return abs(value)


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
    return _tuned(start, suggest(trial, x, y, lr, seed=seed), run, num_steps)


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


def _tuned(start: Suggestion, end: Suggestion, run: _Run, num_steps: int) -> Suggestion:
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
