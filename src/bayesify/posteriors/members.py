"""Several networks at once: every member has its own weights and its own posterior."""

import copy
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Generator, Tensor, nn

from bayesify.checks import NonFiniteError
from bayesify.posteriors.base import Chunks, Idle, LinearLaw, Posterior, Says, TrainingData, check_index
from bayesify.posteriors.chain.draw_store import ALONE
from bayesify.weights import Call, find_slots
from bayesify.weights.copies import copy_of
from bayesify.weights.observing.outside_references import RefuseStrays, referenced_outside


class Members(Posterior):
    """A mixture of `num_members` posteriors of equal weight.

    Member 0 is the network itself. The others are copies, re-initialised by every layer's own
    `reset_parameters` if they shall be `fresh`; what has no such method starts as a copy, and `notes` names it.
    """

    is_around_net = False

    def __init__(self, net: nn.Module, num_members: int, make: Any, fresh: bool = True) -> None:
        super().__init__()
        # a copied network may still reach these there
        self.referenced_outside = referenced_outside(find_slots(net))
        self.copies = nn.ModuleList(copy_of(net) for _ in range(num_members - 1))
        self.not_reset: list[str] = []
        for member in self.copies if fresh else ():
            self.not_reset = reinitialize(member)
        if self.not_reset:
            warnings.warn(
                f"DeepEnsemble: members start from the same values in {', '.join(self.not_reset)}: "
                f"their layers have no reset_parameters"
            )
        self.posteriors = nn.ModuleList(make(member) for member in [net, *self.copies])
        names = ("sampling", "stored", "predicts_by_pass", "penalty")
        for name in (*names, "concludes", "needs_validation", "finds_noise"):
            setattr(self, name, getattr(self._of(0), name))
        self.deterministic = all(p.deterministic for p in self.posteriors)

    def nets(self, net: nn.Module) -> list[nn.Module]:
        return [net, *self.copies]

    def run(self, net: nn.Module, call: Call, member: int = 0, kl_terms: list[Tensor] | None = None) -> Any:
        with self._alone(net, member):
            return self._of(member).run(self.nets(net)[member], call, kl_terms=kl_terms)

    def num_passes(self, num_draws: int) -> int:
        return max(self._of(member).num_passes(num_draws) for member in range(len(self.posteriors)))

    def draw(
        self, member: int, n: int, generator: Generator | None = None, **options: Any
    ) -> dict[str, Tensor]:
        return self._of(member).draw(0, n, generator, **options)

    def stream(self, member: int, num_draws: int, chunk: int, generator: Generator | None = None) -> Chunks:
        return self._of(member).stream(0, num_draws, chunk, generator)

    def run_draw(self, net: nn.Module, call: Call, weights: Mapping[str, Tensor], member: int = 0) -> Any:
        with self._alone(net, member):
            return self._of(member).run_draw(self.nets(net)[member], call, weights)

    def by_output(self, call: Call, member: int = 0) -> frozenset[str]:
        return self._of(member).by_output(call)

    def _alone(self, net: nn.Module, member: int) -> Any:
        """A copy must not use member 0's parameters: `deepcopy` does not copy what a closure holds."""
        if not member or not self.referenced_outside:
            return nullcontext()
        parameters = dict(net.named_parameters())
        return RefuseStrays((name, parameters[name]) for name in self.referenced_outside)

    def mean(self, net: nn.Module) -> dict[str, Tensor]:
        """The plain average of the members' weights (members sit in different modes: rarely a good network)."""
        nets = self.nets(net)
        means = [{**dict(m.named_parameters()), **self._of(i).mean(m)} for i, m in enumerate(nets)]
        return {name: torch.stack([m[name] for m in means]).mean(0) for name in means[0]}

    def kl(self, net: nn.Module) -> Tensor:
        return torch.stack([self._of(i).kl(m) for i, m in enumerate(self.nets(net))]).mean()

    def undecayed(self, net: nn.Module) -> Iterator[Tensor]:
        for i, member in enumerate(self.nets(net)):
            yield from self._of(i).undecayed(member)

    def seldom(self, net: nn.Module) -> dict[Tensor, float]:
        parts = [self._of(i).seldom(member) for i, member in enumerate(self.nets(net))]
        return {p: share for part in parts for p, share in part.items()}

    def member(self, net: nn.Module, index: Any = 0) -> tuple[int, dict[str, Tensor]]:
        nets = self.nets(net)
        check_index(index, len(nets))
        return index, self._of(index).mean(nets[index])

    @property
    def linearised(self) -> bool:  # type: ignore[override]
        return self._of(0).linearised

    def linear_law(self, net: nn.Module, member: int = 0) -> LinearLaw:
        return self._of(member).linear_law(self.nets(net)[member])

    def install(self, net: nn.Module, weights: Mapping[str, Tensor]) -> nn.Module:
        return self._of(0).install(net, weights)

    def begin(
        self,
        optimizer: Any = None,
        num_steps: int | None = None,
        folder: Path | None = None,
        trained: bool = False,
    ) -> None:
        for i in range(len(self.posteriors)):
            own = None if folder is None else folder / f"member-{i}"
            self._of(i).begin(optimizer, num_steps, own, trained)

    def collect(self) -> None:
        for i in range(len(self.posteriors)):
            self._of(i).collect()

    def conclude(self, net: nn.Module, data: TrainingData) -> list[str]:
        """Every member by itself; a noise that they find is pooled."""
        said, own = [], [copy.deepcopy(data.likelihood) for _ in self.posteriors]
        for i, member in enumerate(self.nets(net)):
            found = self._of(i).conclude(member, data._replace(likelihood=own[i], num_members=len(own)))
            said += [f"member {i}: {text}" for text in found]
        data.likelihood.load_state_dict(own[0].pooled(own[1:]).state_dict())
        return said

    def averages(self) -> bool:
        return any(self._of(i).averages() for i in range(len(self.posteriors)))

    def settling(self) -> Iterator[None]:
        together = (self._of(i).settling() for i in range(len(self.posteriors)))
        yield from (None for _ in zip(*together, strict=True))

    def finish(self, net: nn.Module) -> None:
        for i, member in enumerate(self.nets(net)):
            self._of(i).finish(member)

    def shift(self, net: nn.Module, name: str, by: Tensor, member: int = 0) -> bool:
        return self._of(member).shift(net, name, by)

    def check_finite(self) -> None:
        for i in range(len(self.posteriors)):
            self._of(i).check_finite()

    def diverged(self, trouble: str, ago: int = 0) -> str | None:
        """Of the member whose own state is not finite; the first one's where all are."""
        for i in range(len(self.posteriors)):
            try:
                self._of(i).check_finite()
            except NonFiniteError:
                return self._of(i).diverged(f"{trouble}, in member {i},", ago)
        return self._of(0).diverged(trouble, ago)

    def caution(self, says: Says | None = None) -> str | Warning | None:
        """Of the first member that has one."""
        found = (self._of(i).caution() for i in range(len(self.posteriors)))
        return next((text for text in found if text is not None), None)

    def extra_tensors(self, run: Path | None = None) -> dict[str, Tensor]:
        return self._prefixed(self._of(i).extra_tensors(run) for i in range(len(self.posteriors)))

    def references(self, run: Path | None) -> dict[str, Any]:
        return self._prefixed(self._of(i).references(run) for i in range(len(self.posteriors)))

    def idle_entries(self) -> list[Idle]:
        return [entry for i in range(len(self.posteriors)) for entry in self._of(i).idle_entries()]

    def make_room(self, tensors: Mapping[str, Any]) -> None:
        for i in range(len(self.posteriors)):
            prefix = f"posteriors.{i}."
            own = {name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)}
            self._of(i).make_room(own)

    def plain_data(self) -> Any:
        return [self._of(i).plain_data() for i in range(len(self.posteriors))]

    def take_plain_data(self, data: Any) -> None:
        for i, each in zip(range(len(self.posteriors)), data or [], strict=data is not None):
            self._of(i).take_plain_data(each)

    def describe(self, name: str) -> str:
        return f"{1 + len(self.copies)} members, {self._of(0).describe(name)}"

    def notes(self) -> list[str]:
        own = [note for note in self._of(0).notes() if note != ALONE]  # a chain is not the only one here
        if not self.not_reset:
            return own
        return [f"members start from the same values in {', '.join(self.not_reset)}", *own]

    def asides(self) -> list[str]:
        """Of the first member that has some: all are trained alike."""
        return next(filter(None, (self._of(i).asides() for i in range(len(self.posteriors)))), [])

    @staticmethod
    def _prefixed(parts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
        """What members have, under their keys in this module."""
        return {f"posteriors.{i}.{key}": value for i, part in enumerate(parts) for key, value in part.items()}

    def _of(self, member: int) -> Posterior:
        return self.posteriors[member]  # type: ignore[return-value]


def reinitialize(net: nn.Module) -> list[str]:
    """Call `reset_parameters` of every layer; returns the trainable parameters that none of them covers."""
    missed = []
    for path, module in net.named_modules():
        reset = getattr(module, "reset_parameters", None) or getattr(module, "_reset_parameters", None)
        if callable(reset):
            reset()
        elif not _parent_resets(net, path):
            own = [name for name, p in module.named_parameters(recurse=False) if p.requires_grad]
            missed += [f"{path}.{name}" if path else name for name in own]
    return missed


def _parent_resets(net: nn.Module, path: str) -> bool:
    """MultiheadAttention resets its children itself; parametrized layers keep their originals in a child."""
    parent = net.get_submodule(path.rpartition(".")[0])
    return ".parametrizations" not in path and isinstance(parent, nn.MultiheadAttention)
