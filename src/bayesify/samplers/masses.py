"""What the mass of a coordinate should be, for one reason or another."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from bayesify.samplers.curvature import OwnCurvature

if TYPE_CHECKING:
    from bayesify.samplers.base import Group, Sampler

OFTEN = 20  # times that a weight of an input that is always 0 goes through its prior, in a run as long as the burn-in
FEW = 100  # numbers of a parameter whose curvature is looked at anew as it moves
OWN = OwnCurvature("own_")  # of the steps that a warm start measures


def quiet_mass(sampler: "Sampler", group: "Group", p: Tensor, variance: Tensor) -> Tensor:
    """The mass at which gradient noise of this variance does little."""
    return sampler.unit(p, group) * variance / (sampler.quiet(group) * nominal_temperature(group))


def prior_mass(sampler: "Sampler", group: "Group", p: Tensor, dim: int, length: int) -> Tensor:
    """The masses at which weights of inputs that are always 0 go through their prior; infinite for all others.

    A unit that is silent has no gradient either, but may speak again, and would then be far too light: it is the
    input only where its weights are without data in all units, and those of others are not.

    dim:    of `p` that the inputs are in, which are data
    length: of the warm start
    """
    curvature, alone = OWN.found(sampler.state[p], 2 * sampler.state[p]["change"])
    dead = alone
    for other in range(p.dim()):
        if other != dim:
            dead = dead.all(dim=other, keepdim=True)
    steps = max(2 * length / OFTEN / sampler.friction(group), 1 / sampler.limits[2])
    light = sampler.unit(p, group) * curvature * steps
    return torch.where(dead & ~dead.all(), light, torch.inf)


def nominal_temperature(group: "Group") -> float:
    """That of the group, and 1 of one that only trains."""
    return float(group["temperature"]) or 1.0


def moved(sampler: "Sampler") -> list[Tensor]:
    """Those that have masses."""
    return [
        p for group in sampler.param_groups for p in group["params"] if "mass" in sampler.state.get(p, {})
    ]


def trained(sampler: "Sampler") -> list[Tensor]:
    """The small ones of those that have no temperature: noise levels and their like."""
    cold = {id(p) for group in sampler.param_groups if group["temperature"] == 0 for p in group["params"]}
    return [p for p in moved(sampler) if id(p) in cold and p.numel() < FEW]
