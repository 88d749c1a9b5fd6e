"""A joint normal law of the random weights, around those of the network."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Generator, Tensor, nn

from bayesify.passes.jacobian import linear_draw
from bayesify.posteriors.base import LinearLaw, Posterior, Says
from bayesify.posteriors.gaussian.covariance import Covariance
from bayesify.posteriors.point import PointMass
from bayesify.priors import Prior
from bayesify.weights import Call, Selection, call_with


class Gaussian(Posterior):
    """q(w) = N(ŵ, Σ): ŵ are the network's own weights, Σ is found once they are trained.

    While it trains it is the plain network: `kl` is −log p(ŵ) where there is a prior, else 0. Until Σ is found
    a prediction is that of the plain network, and says so.
    """

    remedy = "call bf.fit(model, train_loader)"

    def __init__(self, net: nn.Module, selection: Selection, prior: Prior | None = None) -> None:
        super().__init__()
        self.slots = selection.slots
        self.point = PointMass(net, selection, prior)
        self.covariance: Covariance | None = None

    def run(self, net: nn.Module, call: Call, member: int = 0, kl_terms: list[Tensor] | None = None) -> Any:
        """The plain network in training, or for a loss; else one draw."""
        if net.training or kl_terms is not None or self.covariance is None:
            return self.point.run(net, call, member, kl_terms)
        drawn = self.draw(member, 1, call.generator)
        return self.run_draw(net, call, {name: value[0] for name, value in drawn.items()}, member)

    def num_passes(self, num_draws: int) -> int:
        return 1 if self.covariance is None else num_draws

    def draw(self, member: int, n: int, generator: Generator | None = None) -> dict[str, Tensor]:
        now = self._centre()
        if self.covariance is None:
            return {name: w.expand(n, *w.shape) for name, w in now.items()}
        return {name: now[name] + d for name, d in self.covariance.deviations(n, generator).items()}

    def run_draw(self, net: nn.Module, call: Call, weights: Mapping[str, Tensor], member: int = 0) -> Any:
        if self.linearised:
            now = self._centre()
            moves = {name: weights[name] - w for name, w in now.items()}
            return linear_draw(net, self.slots, now, moves, call, lambda output: output)
        return call_with(net, self.slots, lambda names: {name: weights[name] for name in names}, call)

    def mean(self, net: nn.Module) -> dict[str, Tensor]:
        return {name: w.clone() for name, w in self._centre().items()}

    def kl(self, net: nn.Module) -> Tensor:
        return self.point.kl(net)

    def undecayed(self, net: nn.Module) -> Iterator[Tensor]:
        return self.point.undecayed(net)

    def linear_law(self, net: nn.Module, member: int = 0) -> LinearLaw:
        if self.covariance is None:
            now = self.mean(net)
            nothing = {name: torch.zeros_like(w) for name, w in now.items()}
            return LinearLaw(
                self.slots,
                now,
                lambda j: (found := next(iter(j.values()))).new_zeros(
                    len(found), found.shape[1], found.shape[1]
                ),
                lambda n, generator: {name: w.expand(n, *w.shape) for name, w in nothing.items()},
            )
        found = self.covariance
        return LinearLaw(self.slots, self.mean(net), found.of_outputs, found.deviations, found.factored)

    def caution(self, says: Says | None = None) -> str | Warning | None:
        if self.covariance is not None:
            return None
        return (
            f"the posterior has no covariance yet: predictions are those of the plain network. {self.remedy}"
        )

    def _centre(self) -> dict[str, Tensor]:
        """The network's own weights."""
        return {name: slots[0].get().detach() for name, slots in self.slots.items()}

    def describe(self, name: str) -> str:
        return "normal, not fitted yet" if self.covariance is None else self.covariance.describe(name)
