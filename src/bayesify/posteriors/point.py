"""No randomness: the network as it is, with an optional prior (maximum a posteriori)."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Generator, Tensor, nn

from bayesify.posteriors.base import Posterior
from bayesify.posteriors.chain.energy import Energy
from bayesify.posteriors.prior_means import PriorMeans
from bayesify.priors import Prior
from bayesify.weights import Call, Selection


class PointMass(Posterior):
    """q(w) = δ(w − ŵ). With a prior, `kl` is −log p(ŵ) over the selected weights; without, 0."""

    deterministic = True
    zero: Tensor

    def __init__(self, net: nn.Module, selection: Selection, prior: Prior | None = None) -> None:
        super().__init__()
        self.slots = {} if prior is None else selection.slots
        self.priors = {} if prior is None else {n: prior.at(n, s[0].get()) for n, s in self.slots.items()}
        self.prior_means = PriorMeans(self.priors, self.slots)
        self.energy = Energy(self.priors, self.slots, self.prior_means)
        self.register_buffer("zero", torch.zeros(()), persistent=False)

    def run(self, net: nn.Module, call: Call, member: int = 0, kl_terms: list[Tensor] | None = None) -> Any:
        if kl_terms is not None and self.priors:
            kl, output = self.energy.run(net, call)
            kl_terms.append(kl)
            return output
        if kl_terms is not None:
            kl_terms.append(self.zero)
        return net(*call.args, **call.kwargs)

    def draw(self, member: int, n: int, generator: Generator | None = None) -> dict[str, Tensor]:
        return {}

    def run_draw(self, net: nn.Module, call: Call, weights: Mapping[str, Tensor], member: int = 0) -> Any:
        return net(*call.args, **call.kwargs)

    def mean(self, net: nn.Module) -> dict[str, Tensor]:
        return {}

    def kl(self, net: nn.Module) -> Tensor:
        return self.energy.now() if self.priors else self.zero

    def undecayed(self, net: nn.Module) -> Iterator[Tensor]:
        return (slots[0].get() for slots in self.slots.values())

    def describe(self, name: str) -> str:
        return "point"
