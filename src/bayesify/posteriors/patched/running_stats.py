"""Running statistics of batch-norm layers, one set per component."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from bayesify import torch_internals as internals
from bayesify.posteriors.patched.assignments import Assignment
from bayesify.posteriors.patched.choices import pick
from bayesify.weights import Slot
from bayesify.weights.dotted_names import put

NAMES = ("running_mean", "running_var", "num_batches_tracked")


class RunningStats(nn.Module):
    """The sets of components 2 … K of every batch-norm layer whose unit is among `units` (of the members of an
    explicit ensemble: every one); the network's own belongs to the first."""

    def __init__(
        self, net: nn.Module, assignment: Assignment, units: Sequence[str], num_components: int
    ) -> None:
        super().__init__()
        self.others = nn.Module()
        self.slots: dict[str, list[Slot]] = {}
        self.other_sets: dict[str, Slot] = {}
        self.units: dict[str, str] = {}
        for path, module in net.named_modules():
            if not isinstance(module, internals.NormBase) or not module.track_running_stats:
                continue
            for key in NAMES:
                name = f"{path}.{key}" if path else key
                unit = assignment.unit(name)
                if unit not in units:
                    continue
                own = module._buffers[key]
                assert own is not None
                self.slots[name] = [Slot(module, "_buffers", key)]
                self.units[name] = unit
                sets = torch.stack([own.clone() for _ in range(num_components - 1)])
                self.other_sets[name] = put(self.others, name, sets)

    def pick(self, chosen: Mapping[str, int | Tensor]) -> dict[str, Tensor]:
        """The statistics to put in place: for a number the stored set itself, which the layer then updates."""
        return {name: self._at(name, chosen[unit]) for name, unit in self.units.items()}

    def keep(self, chosen: Mapping[str, int | Tensor], picked: Mapping[str, Tensor]) -> None:
        """Write back what the layers updated, where `pick` gave copies."""
        for name, unit in self.units.items():
            z = chosen[unit]
            if isinstance(z, Tensor):
                for k, stored in enumerate(self._sets(name)):
                    stored.copy_(torch.where(z.view(()) == k, picked[name], stored))

    def draw(self, z: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """For n draws: (n, channels); the counters stay as they are."""
        names = [n for n in self.units if not n.endswith("num_batches_tracked")]
        return {n: torch.stack(self._sets(n))[z[self.units[n]].flatten()] for n in names}

    def mean(self, probs: Sequence[float]) -> dict[str, Tensor]:
        """Σ_k p_k of the sets; the counters stay as they are."""
        names = [n for n in self.units if not n.endswith("num_batches_tracked")]
        return {n: sum(p * s for p, s in zip(probs, self._sets(n), strict=True)) for n in names}  # type: ignore[misc]

    def _at(self, name: str, z: int | Tensor) -> Tensor:
        sets = self._sets(name)
        return sets[z] if isinstance(z, int) else pick(z.view(()), sets)

    def _sets(self, name: str) -> list[Tensor]:
        return [self.slots[name][0].get(), *self.other_sets[name].get().unbind(0)]
