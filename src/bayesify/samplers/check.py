"""Is it sampling? A sampler is looked at before its first draw is kept, and before the end of the run.

A look before every step of a window that ends there gives V = ½ mean (ΔG)² of successive gradients, and the kinetic
temperature E p K′(p) / T. What they mean is in `findings`.
"""

from collections.abc import Callable, Iterator, Mapping
from math import inf, tanh

import torch
from torch import Tensor

from bayesify.samplers.base import Group, Sampler
from bayesify.samplers.common_noise import CommonNoise
from bayesify.samplers.curvature import OwnCurvature
from bayesify.samplers.findings import NOISY, ROUNDS, STUCK, Seen, common_noise, findings
from bayesify.samplers.kinetic import kinetic
from bayesify.samplers.pull import Pull, on_its_way

WINDOW = 200  # steps that a temperature is a mean of, at least
UNKNOWN = 0.5  # of the steps to the first draw, after which a chain is checked where nobody knows its end
LONGEST = 10**7  # steps among which a first draw is looked for
FEWEST = 20  # steps below which nothing is said
OWN = OwnCurvature("check_")
ACCUMULATORS = (
    "check_gradient",
    "check_noise",
    "check_kinetic",
    *OWN.names,
)  # states of a parameter in a window


class Watch:
    """Looks at the sampler of a run in windows before the first kept draw and before the end: a fifth of the steps to
    the first draw each, but 200 where half of them are that many. Where nobody knows the end, the second is half as
    many steps after the first draw as it had before.

    Everything it adds up lies in the sampler's own state, so that a run that was stopped in a window goes on alike.

    due:        is a draw kept after so many steps of the run? None: nobody knows
    num_steps:  of the run, where it is known
    num_chains: chains that the parameters are stacked of, in their first dimension
    """

    def __init__(
        self, due: Callable[[int], bool] | None, num_steps: int | None = None, num_chains: int = 1
    ) -> None:
        self.num_chains = num_chains
        self.common = CommonNoise(num_chains)
        self.windows: list[range] = []  # of steps, counted from 1
        self.first = inf if due is None else next(filter(due, range(1, (num_steps or LONGEST) + 1)), inf)
        self.pull: Pull | None = None
        self.kept: float = inf  # steps that draws are kept of, where there are more than one
        if num_steps is not None and num_steps > self.first:
            self.kept = num_steps - self.first
        first = self.first
        if isinstance(first, int):
            end = num_steps or int(first * (1 + UNKNOWN))
            self.add(first, max(first // 5, min(WINDOW, first // 2)))
            self.add(end, min(len(self.windows[0]), end - first))
            self.pull = Pull(first, end, num_chains)

    def add(self, end: int, length: int) -> None:
        """Check after step `end`, and look at the `length` steps before."""
        self.windows.append(range(end - length + 1, end + 1))

    @torch.no_grad()
    def before(self, step: int, sampler: Sampler, parameters: Mapping[str, Tensor]) -> None:
        """A look, where step number `step` of the run is in a window."""
        window = next((w for w in self.windows if step in w and len(w) >= FEWEST), None)
        if self.pull is not None:
            self.pull.look(step, sampler, {p: group for _, p, group in sampled(sampler, parameters)})
        if window is not None:
            changes = []
            for _, p, group in sampled(sampler, parameters):
                change = look(sampler, p, group, first=step == window[0])
                share = None if change is None else noise_share(sampler, p, group, change.new_ones(()) / 6)
                if change is not None and share is not None:
                    changes.append((p, share, change))
            self.common.look(sampler, changes, step - window[0], len(window))

    @torch.no_grad()
    def after(self, step: int, sampler: Sampler, parameters: Mapping[str, Tensor]) -> dict[str, str]:
        """What is wrong, in words by their kind, where a window ends at `step`; what was added up is forgotten."""
        window = next((w for w in self.windows if len(w) >= FEWEST and step == w[-1]), None)
        if window is None:
            return {}
        rows: list[Seen] = []
        for name, p, group in sampled(sampler, parameters):
            if "check_noise" in sampler.state[p]:
                rows += seen(sampler, name, p, group, len(window), self.num_chains, self.kept)
            for accumulator in ACCUMULATORS:
                sampler.state[p].pop(accumulator, None)
        stationary = is_stationary(sampler)
        found = findings(rows, has_thermostat(sampler), stationary and len(window) >= WINDOW)
        common = self.common.found(sampler, parameters)
        if stationary and not found.keys() & {"noisy", "hot"}:  # coordinates do not show it
            found |= common_noise(common)
        if self.pull is not None and step == self.pull.last and stationary:
            found |= on_its_way(self.pull.found(sampler, parameters))
        return found


def sampled(sampler: Sampler, parameters: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor, Group]]:
    """Those that have a gradient and a temperature, with their groups."""
    names = {id(p): name for name, p in parameters.items()}
    for group in sampler.param_groups:
        if group["temperature"] > 0:
            mine = [p for p in group["params"] if id(p) in names and p.grad is not None]
            yield from ((names[id(p)], p, group) for p in mine)


def look(sampler: Sampler, p: Tensor, group: Group, first: bool) -> Tensor | None:
    """Add up (ΔG)² and p K′(p), before a step; `first`: of its window, which has no ΔG to return."""
    state, gradient, change = sampler.state[p], sampler.gradient(p), None
    if first:
        state["check_noise"], state["check_kinetic"] = torch.zeros_like(gradient), torch.zeros_like(gradient)
        OWN.add(sampler, p, None)
    elif "check_gradient" in state:  # not where a run of another length was resumed inside of the window
        change = gradient - state["check_gradient"]
        OWN.add(sampler, p, change)
        state["check_noise"].addcmul_(change, change)
    else:
        return None
    state["check_gradient"] = gradient
    if "momentum" in state and "mass" in group:
        speed = kinetic(group.get("max_speed")).velocity(state["momentum"], state.get("mass", group["mass"]))
        state["check_kinetic"] += speed.mul_(state["momentum"])
    return change


def noise_share(sampler: Sampler, p: Tensor, group: Group, variance: Tensor) -> Tensor | None:
    """h V / 2 m T D, gradient noise beside what is injected; without a D h V / 2 m T, the excess of variance that it
    makes. None where nothing is injected."""
    held = sampler.quiet(group) * group["temperature"] / sampler.share
    mass = sampler.state[p].get("mass", group.get("mass", 1.0))
    return sampler.unit(p, group) * variance / (mass * held) if held else None


def has_thermostat(sampler: Sampler) -> bool:
    """Does ξ take gradient noise away?"""
    return "thermostat" in sampler.states and all("thermostat_rate" in g for g in sampler.param_groups)


def is_stationary(sampler: Sampler) -> bool:
    """Is it meant to draw from one distribution all the time: neither colder than the posterior, nor by steps that a
    schedule changes?"""
    groups = [group for group in sampler.param_groups if group["temperature"] > 0]
    steady = [g["temperature"] >= 1 and g.get("initial_lr", g["lr"]) == g["lr"] for g in groups]
    return bool(steady) and all(steady)


def seen(
    sampler: Sampler,
    name: str,
    p: Tensor,
    group: Group,
    steps: int,
    num_chains: int = 1,
    kept: float = inf,
) -> Iterator[Seen]:
    """A row for every chain, from what `steps` looks added up; draws are kept of `kept` steps."""
    state, h, temperature = sampler.state[p], float(group["lr"]), group["temperature"]
    parts = (num_chains, p.numel() // num_chains)
    share = noise_share(sampler, p, group, state["check_noise"] / (2 * (steps - 1)))
    thermostat = has_thermostat(sampler)
    momentum = "momentum" in state and bool(group.get("noise"))
    curvature, alone = OWN.found(state, state["check_noise"])
    rate = (
        sampler.unit(p, group)
        * curvature
        / (sampler.friction(group) * state.get("mass", group.get("mass", 1.0)))
    )
    slow = (alone & (rate * kept < ROUNDS)).reshape(parts)
    for chain in range(num_chains):
        row = Seen(name, parts[1])
        if slow[chain].any():
            slowest = float(rate.reshape(parts)[chain][slow[chain]].min())
            row = row._replace(slow=int(slow[chain].sum()), round=1 / slowest)
        if share is not None and (thermostat or not momentum):
            mine = share.reshape(parts)[chain]
            over = mine > NOISY
            row = row._replace(noisy=int(over.sum()), noise=float(mine[over].mean()) if over.any() else 0.0)
        if share is not None and thermostat:
            above = state["thermostat"].reshape(parts)[chain] - STUCK * group["noise"] * mine.clamp(min=1)
            wait = float(above.max()) / max(group["thermostat_rate"] * h * temperature, 1e-30)
            row = row._replace(stuck=int((above > 0).sum()), wait=max(wait, 0.0))
        if momentum:
            mean = float(state["check_kinetic"].reshape(parts)[chain].mean()) / (steps * temperature)
            size = parts[1] * steps * tanh(h * group["noise"])  # p² forgets itself at the rate 2 D
            row = row._replace(kinetic=mean, independent=size)
        yield row
