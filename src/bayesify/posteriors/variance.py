"""The posterior of variance networks: independent random tensors that remember where a layer's outputs are."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from bayesify.families import Family, RandomTensor
from bayesify.posteriors.factorized import Factorized, _get, _put
from bayesify.priors import Prior
from bayesify.weights import Selection

Divergence = Callable[[list[Any], Any], Tensor]


class VarianceFactorized(Factorized):
    """q(w) = Π_j q_j(w_j). Predictions average over local passes, as training does.

    options_of:  options of the family that depend on the layer of a weight
    divergence:  Σ_j KL(q_j ‖ p) of many tensors in place of the exact one
    """

    def __init__(
        self,
        net: nn.Module,
        selection: Selection,
        family: type[Family],
        prior: Prior,
        options_of: Callable[[nn.Module], Mapping[str, Any]],
        divergence: Divergence | None = None,
        **options: Any,
    ) -> None:
        super().__init__(net, selection, family, prior, **options)
        self.divergence = divergence
        self.predicts_by_pass = self.sampling == "local"
        own = {key: value for key, value in options.items() if key not in ("sampling", "same_draws")}
        for name, slots in self.slots.items():
            special = options_of(slots[0].module)
            if special:
                leaf = RandomTensor(family, slots[0].get(), own_centre=False, **{**own, **special})
                _put(self.q, name, leaf)

    def random_tensor(self, name: str) -> RandomTensor:
        """What belongs to q of one weight beside its centre."""
        return _get(self.q, name)

    def _kl(self, distributions: Mapping[str, Family]) -> Tensor:
        if self.divergence is None:
            return super()._kl(distributions)
        parts = []
        for prior, names in self.priors:
            present = [distributions[name] for name in names if name in distributions]
            if present:
                parts.append(self.divergence(present, prior))
        return torch.stack(parts).sum()
