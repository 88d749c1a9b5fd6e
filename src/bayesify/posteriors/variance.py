"""The posterior of variance networks: independent random tensors that remember where a layer's outputs are."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from bayesify.families import Family
from bayesify.posteriors.base import Idle
from bayesify.posteriors.factorized import Factorized
from bayesify.priors import Prior
from bayesify.weights import Selection

GATES = ("noise_gate", "mean_gate")  # of families/variance.py


class VarianceFactorized(Factorized):
    """q(w) = Π_j q_j(w_j). Predictions average over local passes, as training does.

    options_of:  options of the family that depend on the layer of a weight
    """

    def __init__(
        self,
        net: nn.Module,
        selection: Selection,
        family: type[Family],
        prior: Prior,
        options_of: Callable[[nn.Module], Mapping[str, Any]],
        **options: Any,
    ) -> None:
        super().__init__(net, selection, family, prior, **options)
        self.predicts_by_pass = self.sampling == "local"
        not_of_family = ("sampling", "same_draws", "divergence", "example")
        own = {key: value for key, value in options.items() if key not in not_of_family}
        for name, slots in self.slots.items():
            special = options_of(slots[0].module)
            if special:
                self.leaves[name] = self._leaf(name, **{**own, **special})

    def idle_entries(self) -> list[Idle]:
        found = super().idle_entries()
        for name, slots in self.slots.items():
            leaf = self.random_tensor(name)
            noise, mean = (leaf._buffers.get(gate) for gate in GATES)
            if noise is None or mean is None or not noise.dim():
                continue
            silent = noise == 0
            gone = silent if self.family.zero_mean else silent & (mean == 0)
            own = [p for p in leaf.parameters() if p.shape == noise.shape]
            found += [Idle(noise, silent), Idle(mean, mean == 0), Idle(slots[0].get(), gone)]
            found += [Idle(parameter, silent) for parameter in own]
        return found

    def make_room(self, tensors: Mapping[str, Any]) -> None:
        """Gates are one number, or one for each weight of a sparse ensemble."""
        for name in self.slots:
            buffers = self.random_tensor(name)._buffers
            for gate in GATES:
                old, stored = buffers.get(gate), tensors.get(f"q.{name}.{gate}")
                if old is not None and stored is not None and stored.shape in (old.shape, self._shape(name)):
                    buffers[gate] = stored.to(old, copy=True)

    def _shape(self, name: str) -> torch.Size:
        return self.slots[name][0].get().shape
