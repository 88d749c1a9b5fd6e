"""Every patched tensor chosen among K components: the general ensemble family of paper 2 (eq. 1)."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Generator, Tensor, nn

from bayesify.posteriors.base import Chunks, Posterior, check_index
from bayesify.posteriors.patched.assignments import Assignment
from bayesify.posteriors.patched.choices import Assigned, assign, flat_for, patch_of, weights_for
from bayesify.posteriors.patched.kl import ComponentsKL, Held
from bayesify.posteriors.patched.mixing import Mixing
from bayesify.posteriors.patched.multi_tensor import flatten
from bayesify.posteriors.patched.running_stats import RunningStats
from bayesify.posteriors.patched.starting_values import start_components
from bayesify.posteriors.patched.weight_norm import scales_of
from bayesify.posteriors.shared_generator import shared_generator
from bayesify.weights import Call, Selection, call_with, find_slots
from bayesify.weights.calls import CheckpointGuard
from bayesify.weights.dotted_names import put
from bayesify.weights.observing.watch import layer_of

PER_EXAMPLE_KINDS = ("norm", "linear", "conv")  # layers that can take a choice per example


class Components(Posterior):
    """W = Σ_k 1[Z = k] ∘ (M_k + σ ε_k), Z by `assignment`, with probabilities `probs`.

    M_1 is the network's own parameter; the other centroids of `bn1.weight` are one parameter here,
    `components.bn1.weight` of shape (K − 1, *shape). Where a component is fixed at zero (dropout), the only
    centroid is M_1 = W / p_1, W the network's parameter, so that the draws have mean W, as in torch.
    The other trained parameters are shared: deterministic, or N(M, shared_std²) (eq. 3). Of a weight-normalised layer
    whose direction is dropped, the scale takes the same choices (`weight_scales.py`).
    """

    is_around_net = False

    def __init__(
        self,
        net: nn.Module,
        selection: Selection,
        assignment: Assignment,
        probs: Sequence[float],
        kl: ComponentsKL,
        *,
        learn_mixing: bool = False,
        temperature: float = 0.5,
        std: float = 0.0,
        learn_std: bool = False,
        shared_std: float = 0.0,
        init: str = "copies",
        spread: float = 0.1,
        gamma: float | None = None,
        own_stats: bool = False,
        per_example: bool = False,
        same_draws: bool = False,
        remarks: Sequence[str] = (),
    ) -> None:
        super().__init__()
        self.assignment, self.probs, self.divergence = assignment, tuple(probs), kl
        self.std, self.learn_std, self.shared_std = std, learn_std, shared_std
        self.per_example, self.same_draws = per_example, same_draws
        self.stored = assignment.name == "member"  # predictions take the members in turn
        self.predicts_by_pass = assignment.zero and per_example  # as dropout layers that stay on
        self.penalty, self.remarks = kl.l2 is not None, list(remarks)
        self.patches = {name: patch_of(name, slots[0], assignment) for name, slots in selection.slots.items()}
        self.slots = {**selection.slots}
        trained = {n for n, p in net.named_parameters() if p.requires_grad and p.is_floating_point()}
        shared = {n: s for n, s in find_slots(net).items() if n in trained and n not in self.patches}
        self.shared = frozenset(shared)
        self.slots |= shared
        self.scales = {v: g for v, g in scales_of(net).items() if assignment.zero and v in self.patches}
        self.slots |= {n: s for n, s in find_slots(net).items() if n in self.scales.values()}
        units = {patch.unit: math.prod(patch.z_shape) for patch in self.patches.values()}
        self.mixing = Mixing(units, probs, learn_mixing, temperature)
        self.components, self.log_std = nn.Module(), nn.Module()
        others = 0 if assignment.zero else len(probs) - 1
        self.others = {
            name: put(self.components, name, nn.Parameter(start))
            for name, start in start_components(selection, others, init, spread, gamma).items()
        }
        self.log_stds = {
            name: put(self.log_std, name, nn.Parameter(torch.tensor(math.log(std))))
            for name in (self.patches if learn_std else ())
        }
        self.flat = None if assignment.zero or learn_mixing else flatten(self)
        self.stats = RunningStats(net, assignment, list(units), len(probs)) if own_stats else None
        self.slots |= self.stats.slots if self.stats is not None else {}
        kinds = {w.name: w.kind for w in selection.random if not w.aliases}
        able = {n for n, kind in kinds.items() if kind in PER_EXAMPLE_KINDS and n not in self.scales}
        self.by_example = frozenset(able if per_example else ())
        self.guard = CheckpointGuard()
        self.guard.watch(net, list(self.patches))

    def run(self, net: nn.Module, call: Call, member: int = 0, kl_terms: list[Tensor] | None = None) -> Any:
        if self.same_draws and call.generator is None:
            call = call._replace(generator=shared_generator(self.device))
        chosen = assign(self, call)
        stats = {} if self.stats is None else self.stats.pick(chosen.by_unit)

        def values(names: list[str]) -> Mapping[str, Any]:
            held = self.held(names)
            flat, row = flat_for(self, held, chosen), None
            if kl_terms is not None:
                kl, held, row = self.divergence.carried(self, held, flat)
                kl_terms.append(kl)
            elif flat is not None:
                row = flat.join(*held)
            weights = weights_for(self, held, chosen, row, call.generator)
            return weights | {name: stats[name] for name in names if name in stats}

        output = call_with(net, self.slots, values, call, self.guard)
        if self.stats is not None:
            self.stats.keep(chosen.by_unit, stats)
        return output

    def num_passes(self, num_draws: int) -> int:
        """The members of an explicit ensemble come equally often, and once where they have no width."""
        count = len(self.probs)
        if not self.stored or self.mixing.learned or len(set(self.probs)) > 1:
            return num_draws
        narrow = self.std == 0 and self.shared_std == 0
        return count if narrow else count * -(-num_draws // count)

    def draw(self, member: int, n: int, generator: Generator | None = None) -> dict[str, Tensor]:
        return self._drawn(self.mixing.draw(self.device, n, generator), generator)

    def stream(self, member: int, num_draws: int, chunk: int, generator: Generator | None = None) -> Chunks:
        """The draws of a prediction; the members of an explicit ensemble come evenly."""
        z = self.mixing.draw(self.device, num_draws, generator, self.stored)  # (draws, assignments)
        for part in z.split(chunk):
            yield len(part), self._drawn(part, generator)

    def run_draw(self, net: nn.Module, call: Call, weights: Mapping[str, Tensor], member: int = 0) -> Any:
        def values(names: list[str]) -> Mapping[str, Any]:
            return {name: weights[name] for name in names if name in weights}

        return call_with(net, self.slots, values, call, self.guard)

    def mean(self, net: nn.Module) -> dict[str, Tensor]:
        """Σ_k p_k M_k."""
        means: dict[str, Any] = {}
        held = self.held(list(self.slots))
        for name, patch in self.patches.items():
            centroids = self.centroids(name, held)
            probs = self.mixing.probs(patch.unit, centroids[0])
            means[name] = sum(probs[k] * m for k, m in enumerate(centroids) if m is not None)
        return means if self.stats is None else means | self.stats.mean(self.probs)

    def kl(self, net: nn.Module) -> Tensor:
        return self.divergence(self, self.held(list(self.slots)))

    def undecayed(self, net: nn.Module) -> Iterator[Tensor]:
        yield from self.mixing.parameters()
        yield from self.log_std.parameters()
        if self.divergence.is_on:
            yield from (*net.parameters(), *self.components.parameters())

    def seldom(self, net: nn.Module) -> dict[Tensor, float]:
        """The components, of which a step takes one; a member's other weights would go too far."""
        if self.assignment.zero or self.assignment.name == "member":
            return {}
        own = [self.slots[name][0].get() for name in self.patches]
        return dict.fromkeys([*own, *self.components.parameters()], 1 / len(self.probs))

    def member(self, net: nn.Module, index: Any = 0) -> tuple[int, dict[str, Tensor]]:
        if self.assignment.zero:
            raise TypeError(f"assignment={self.assignment.name!r} has no numbered members: use model.draw()")
        layers = {name: "" if self.assignment.name == "member" else layer_of(name) for name in self.patches}
        chosen = _member_indices(index, list(dict.fromkeys(layers.values())), len(self.probs))
        held = self.held(list(self.slots))
        weights = {name: self.centroids(name, held)[chosen[layer]] for name, layer in layers.items()}
        return 0, weights if self.stats is None else weights | self.stats.pick(chosen)

    def fold(self, net: nn.Module) -> dict[str, Tensor]:
        return self.mean(net)

    def shift(self, net: nn.Module, name: str, by: Tensor, member: int = 0) -> bool:
        """All components of a patched tensor move."""
        if name in self.patches and not self.assignment.zero:
            self.others[name].get().add_(by)
        return super().shift(net, name, by)

    def describe(self, name: str) -> str:
        how = "kept or zero" if self.assignment.zero else f"{len(self.probs)} components"
        return f"{how}, by {self.assignment.name}{' and example' if name in self.by_example else ''}"

    def notes(self) -> list[str]:
        count = sum(self.mixing.sizes.values())
        size = f"{len(self.probs)}^{count:,} ≈ 10^{count * math.log10(len(self.probs)):,.1f}"
        notes = [f"effective ensemble size {size}"]
        if self.assignment.rows:
            each = "for every example by itself" if self.by_example else "for a whole batch"
            notes.append(
                f"input units (channels of convolutions) of {len(self.patches)} weights are dropped with probability "
                f"{self.probs[1]:g}, {each}"
            )
        if self.shared_std and self.shared:
            notes.append(f"the other {len(self.shared)} trained tensors are N(w, {self.shared_std:g}²)")
        return notes + self.remarks

    def held(self, names: Sequence[str]) -> Held:
        """The network's own parameters `names` and, of the patched ones, the other centroids."""
        own = {n: self.slots[n][0].get() for n in names if n in self.patches or n in self.shared}
        patched = [] if self.assignment.zero else [n for n in own if n in self.patches]
        return Held(own, {n: self.others[n].get() for n in patched})

    def centroids(self, name: str, held: Held) -> list[Any]:
        """M_1 … M_K; None stands for the component fixed at zero."""
        own = held.own[name]
        if not self.assignment.zero:
            return [own, *held.others[name].unbind(0)]
        learned, unit = self.mixing.learned, self.patches[name].unit
        return [own / (self.mixing.probs(unit, own)[0] if learned else self.probs[0]), None]

    def role(self, name: str) -> str:
        """patched or shared, weight or bias: which prior precision a tensor has."""
        kind = "bias" if "bias" in name.rpartition(".")[2] else "weight"
        return f"{'patched' if name in self.patches else 'shared'}_{kind}"

    def std_of(self, name: str) -> float | Tensor:
        """σ of a patched tensor's components."""
        return self.log_stds[name].get().exp() if self.learn_std else self.std

    @property
    def device(self) -> torch.device:
        """Where the patched tensors are."""
        return self.slots[next(iter(self.patches))][0].get().device

    def _drawn(self, z: Tensor, generator: Generator | None) -> dict[str, Tensor]:
        """The weights of n draws with the assignments z (n, assignments): (n, *shape) each."""
        chosen = Assigned(self.mixing.by_unit(z), z)
        held = self.held(list(self.slots))
        flat = flat_for(self, held, chosen)
        row = None if flat is None else flat.join(*held)
        drawn = weights_for(self, held, chosen, row, generator, len(z))
        random = {*self.patches, *self.scales.values()}
        drawn = {name: w for name, w in drawn.items() if name in random or self.shared_std}
        return drawn if self.stats is None else drawn | self.stats.draw(self.mixing.by_unit(z))


def _member_indices(index: Any, layers: list[str], num_components: int) -> dict[str, int]:
    """layer -> component from one number for all, a sequence of one each, or a mapping (0 where left out)."""
    if isinstance(index, Mapping):
        unknown = sorted(set(index) - set(layers))
        if unknown:
            raise ValueError(f"member: {unknown[0]!r} is not patched; patched are {', '.join(layers)}")
        chosen = {layer: index.get(layer, 0) for layer in layers}
    elif isinstance(index, Sequence):
        if len(index) != len(layers):
            raise ValueError(
                f"member: {len(index)} indices for the {len(layers)} patched {', '.join(layers)}"
            )
        chosen = dict(zip(layers, index, strict=True))
    else:
        chosen = dict.fromkeys(layers, index)
    for value in chosen.values():
        check_index(value, num_components)
    return chosen
