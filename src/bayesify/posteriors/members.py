"""Several networks at once: every member has its own weights and its own posterior."""

import copy
import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import Generator, Tensor, nn

from bayesify.posteriors.base import Call, Posterior


class Members(Posterior):
    """A mixture of `num_members` posteriors of equal weight.

    Member 0 is the network itself. The others are copies, re-initialised by every layer's own
    `reset_parameters`; what has no such method starts as a copy, and `notes` names it.
    """

    def __init__(self, net: nn.Module, num_members: int, make: Any) -> None:
        super().__init__()
        self.copies = nn.ModuleList(copy.deepcopy(net) for _ in range(num_members - 1))
        self.kept: list[str] = []
        for member in self.copies:
            self.kept = reinitialize(member)
        if self.kept:
            warnings.warn(
                f"DeepEnsemble: members start from the same values in {', '.join(self.kept)}: "
                f"their layers have no reset_parameters"
            )
        self.posteriors = nn.ModuleList(make(member) for member in [net, *self.copies])
        self.sampling = self._of(0).sampling
        self.deterministic = all(p.deterministic for p in self.posteriors)

    def nets(self, net: nn.Module) -> list[nn.Module]:
        return [net, *self.copies]

    def run(self, net: nn.Module, call: Call, member: int = 0, kl_terms: list[Tensor] | None = None) -> Any:
        return self._of(member).run(self.nets(net)[member], call, kl_terms=kl_terms)

    def draw(self, member: int, n: int, generator: Generator | None = None) -> dict[str, Tensor]:
        return self._of(member).draw(0, n, generator)

    def run_draw(self, net: nn.Module, call: Call, weights: Mapping[str, Tensor], member: int = 0) -> Any:
        return self._of(member).run_draw(self.nets(net)[member], call, weights)

    def mean(self, net: nn.Module) -> dict[str, Tensor]:
        """The plain average of the members' weights (members sit in different modes: rarely a good network)."""
        nets = self.nets(net)
        means = [
            {**dict(member.named_parameters()), **self._of(i).mean(member)} for i, member in enumerate(nets)
        ]
        return {name: torch.stack([m[name] for m in means]).mean(0) for name in means[0]}

    def kl(self, net: nn.Module) -> Tensor:
        return torch.stack([self._of(i).kl(m) for i, m in enumerate(self.nets(net))]).mean()

    def describe(self, name: str) -> str:
        return f"{1 + len(self.copies)} members, {self._of(0).describe(name)}"

    def notes(self) -> list[str]:
        kept = [f"members start from the same values in {', '.join(self.kept)}"] if self.kept else []
        return kept + self._of(0).notes()

    def _of(self, member: int) -> Posterior:
        return self.posteriors[member]  # type: ignore[return-value]


def reinitialize(net: nn.Module) -> list[str]:
    """Call `reset_parameters` of every layer; returns the trainable parameters that none of them covers."""
    kept = []
    for path, module in net.named_modules():
        reset = getattr(module, "reset_parameters", None) or getattr(module, "_reset_parameters", None)
        if callable(reset):
            reset()
        elif not _parent_resets(net, path):
            own = [name for name, p in module.named_parameters(recurse=False) if p.requires_grad]
            kept += [f"{path}.{name}" if path else name for name in own]
    return kept


def _parent_resets(net: nn.Module, path: str) -> bool:
    """MultiheadAttention resets its children itself; parametrized layers keep their originals in a child."""
    return ".parametrizations" not in path and isinstance(
        net.get_submodule(path.rpartition(".")[0]), nn.MultiheadAttention
    )
