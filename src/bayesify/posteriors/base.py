"""The face of every posterior over the weights of a network."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor, nn


class Call(NamedTuple):
    """One evaluation of a network: its arguments and how to draw."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    generator: Generator | None = None


class Posterior(nn.Module, ABC):
    """Random weights of one network, or of several members.

    Members, in this order: `nets`, `run`, `draw`, `run_draw`, `mean`, `kl`, `describe`, `notes`.
    """

    #: every pass of one member gives the same output
    deterministic: bool = False
    #: the pass that evaluates the network: draw, local, flipout or moments
    sampling: str = "draw"
    #: why draws of this network cannot be batched by vmap; "" until one was refused
    vmap_refusal: str = ""

    def nets(self, net: nn.Module) -> list[nn.Module]:
        """The networks this posterior speaks of: `net` itself, then further members."""
        return [net]

    @abstractmethod
    def run(self, net: nn.Module, call: Call, member: int = 0, kl_terms: list[Tensor] | None = None) -> Any:
        """One pass of one member; with `kl_terms` also collects that member's KL."""

    @abstractmethod
    def draw(self, member: int, n: int, generator: Generator | None = None) -> dict[str, Tensor]:
        """`n` draws of every random weight of one member, by name: (n, *shape)."""

    @abstractmethod
    def run_draw(self, net: nn.Module, call: Call, weights: Mapping[str, Tensor], member: int = 0) -> Any:
        """One pass with these weights in place."""

    @abstractmethod
    def mean(self, net: nn.Module) -> dict[str, Tensor]:
        """The posterior mean of every random weight, by name."""

    @abstractmethod
    def kl(self, net: nn.Module) -> Tensor:
        """KL to the prior, summed over all random weights (mean over members): a scalar."""

    @abstractmethod
    def describe(self, name: str) -> str:
        """A few words on what the weight `name` became."""

    def notes(self) -> list[str]:
        """What a user should know about this conversion."""
        return []


def pick_member(posterior: Posterior, net: nn.Module, generator: Generator | None) -> int:
    """A member at random; no random number is spent where there is only one."""
    count = len(posterior.nets(net))
    if count == 1:
        return 0
    return int(torch.randint(count, (), generator=generator, device=generator.device if generator else None))
