"""Independent random tensors, one family for all: the posterior of variational methods."""

import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch import Generator, Tensor, nn

from bayesify import torch_internals as internals
from bayesify.divergences import KL, kl_of
from bayesify.divergences.multi_tensor import by_value
from bayesify.execution import compiling
from bayesify.families import Family, RandomTensor
from bayesify.families.location_scale import LOG_STD_OF_NOTHING, LocationScale
from bayesify.moments import Gains, Moments, replace
from bayesify.moments.gains import Running
from bayesify.moments.tape import Tape
from bayesify.moments.values import mean_of
from bayesify.passes.last_layer import last_layer, last_output, refusal
from bayesify.passes.layerwise import between
from bayesify.passes.local import LOCAL_KINDS, SAMPLES, Sample, UsedAgain, of_one_row, random_weights
from bayesify.passes.moments import FIRST_ORDER, batch_of, call_with_moments, carriers
from bayesify.posteriors.base import Idle, LinearLaw, Posterior
from bayesify.posteriors.prior_means import PriorMeans
from bayesify.posteriors.shared_generator import shared_generator
from bayesify.priors import Prior
from bayesify.weights import Call, Selection, Slot, Watch, call_with
from bayesify.weights.calls import REFUSAL, CheckpointGuard, caches_restored, is_sharded
from bayesify.weights.copies import buffers_of
from bayesify.weights.dotted_names import put
from bayesify.weights.observing.outside_references import stray_refusal
from bayesify.weights.observing.watch import memory
from bayesify.weights.where import kind_of

SAMPLINGS = ("draw", "local", "flipout", "moments")
ONE_DRAW = partial(kl_of, num_draws=1)  # where the pair has no closed form


class Factorized(Posterior):
    """q(w) = Π_j q_j(w_j) over the random tensors of a network.

    The centre of q_j is the network's own parameter; everything else of q_j is a parameter here, under
    `q.<name of the parameter>`. `sampling` names the pass that evaluates the network; for a loss the last layer has
    `num_likelihood_draws` draws in it.

    divergence: (a q_j, its prior) -> the KL of all tensors like it, decided once
    example:    a call by which to learn how often the network uses each tensor, before the first one
    """

    def __init__(
        self,
        net: nn.Module,
        selection: Selection,
        family: type[Family],
        prior: Prior,
        sampling: str = "draw",
        divergence: Callable[[Family, Prior], KL] = ONE_DRAW,
        same_draws: bool = False,
        num_likelihood_draws: int = 1,
        forms: tuple[str, ...] = FIRST_ORDER,
        swept: bool = False,
        probed: bool = False,
        example: Call | None = None,
        **family_options: Any,
    ) -> None:
        super().__init__()
        self.family = family
        self.prior = prior
        self.sampling = sampling
        self.same_draws = same_draws
        self.num_likelihood_draws = num_likelihood_draws
        self.forms = forms
        self.swept, self.probed = swept, probed
        self.gains: Gains | None = None  # of the variances of one pass, in eval mode
        self.layouts: dict[Any, Any] = {}  # where activations have their examples, for the sweep
        self.unseen: dict[str, None] = {}  # operations into which the sweep does not follow weights
        self.slots = selection.slots
        self.q = nn.Module()
        self.leaves = {name: self._leaf(name, **family_options) for name in self.slots}
        once = [w.name for w in selection.random if not w.aliases]
        self.local = frozenset(n for n in once if kind_of(self.slots[n][0].module) in LOCAL_KINDS)
        self.linear = frozenset(n for n in self.local if kind_of(self.slots[n][0].module) == "linear")
        self.repeated: frozenset[str] = frozenset()  # used more than once in a forward, found by watching
        self.unused: tuple[str, ...] = ()
        self.last_used = ""  # the last random tensor in a forward
        self.watched = False  # the network was seen running: `repeated` and `unused` are known
        # modes (train, eval) in which a call with draws was watched
        self.verified: frozenset[bool] = frozenset()
        self.observing = False
        distributions = self.distributions(list(self.slots))
        self.priors = {name: prior.at(name, q.mean) for name, q in distributions.items()}
        self.prior_means = PriorMeans(self.priors, self.slots)
        self.empirical = frozenset(name for name, p in self.priors.items() if p.is_empirical)
        self._check_places(family, distributions)
        alike = by_value({name: p.standard for name, p in self.priors.items()}).items()
        self.kls = [(names, divergence(distributions[names[0]], p)) for p, names in alike]
        self.guard = CheckpointGuard()
        self.guard.watch(net, list(self.slots))
        if example is not None:
            self.observe(net, example)

    def run(self, net: nn.Module, call: Call, member: int = 0, kl_terms: list[Tensor] | None = None) -> Any:
        if self.same_draws and call.generator is None:
            call = call._replace(generator=shared_generator(next(self.parameters()).device))

        def values(names: list[str]) -> Mapping[str, Any]:
            distributions = self.distributions(names)
            if kl_terms is not None:
                kl_terms.append(self._kl(distributions))
            if self.sampling == "moments":
                return carriers(distributions, self.forms, tape)
            return random_weights(distributions, samples, call.generator)

        eager = not compiling()
        many = call.for_loss and self.num_likelihood_draws > 1
        if eager and (self.sampling != "draw" or many) and not self.watched and not is_sharded(net):
            self.observe(net, call)
        samples = self._samples(net, many)
        collected = 0 if kl_terms is None else len(kl_terms)
        tape = self._tape(net, call)
        moments = partial(call_with_moments, forms=self.forms, tape=tape)
        function = moments if self.sampling == "moments" else call_with
        retry = eager and bool(samples)
        buffers = [buffer.clone() for buffer in net.buffers()] if retry and net.training else []
        try:
            return self._called(function, net, values, call)
        except UsedAgain as again:
            if not retry:
                raise
            for buffer, old in zip(net.buffers(), buffers, strict=net.training):
                buffer.copy_(old)  # batch norm's statistics move once per step, however often it is tried
            self.repeated |= {again.name}
            if kl_terms is not None:
                del kl_terms[collected:]  # of this member only
            return self.run(net, call, member, kl_terms)

    def _tape(self, net: nn.Module, call: Call) -> Tape | Running | None:
        """For the sweep: of a loss where the data term asks for it, else of a network in eval mode; or its gains."""
        if self.gains is not None and net.training and call.for_loss and torch.is_grad_enabled():
            self._drop_gains()
        wanted = self.probed if call.for_loss else self.swept and not net.training and self.gains is None
        if not wanted:
            return None if self.gains is None or net.training else self.gains.running()
        half = "half" in self.forms or ("half_on_gpu" in self.forms and next(net.parameters()).is_cuda)
        return Tape(batch_of(call), self.layouts, torch.is_grad_enabled(), half, self.unseen)

    def _drop_gains(self) -> None:
        self.gains = None
        if not compiling():
            warnings.warn(
                "training goes on: the gains that were fitted to the posterior before are dropped; afterwards call "
                "bf.moments.fit_gains(model, loader) again",
                stacklevel=2,
            )

    def draw(
        self,
        member: int,
        n: int,
        generator: Generator | None = None,
        left_out: frozenset[str] = frozenset(),
    ) -> dict[str, Tensor]:
        drawn = self.distributions([name for name in self.slots if name not in left_out])
        return {name: q.rsample(n, generator) for name, q in drawn.items()}

    def run_draw(self, net: nn.Module, call: Call, weights: Mapping[str, Tensor], member: int = 0) -> Any:
        def values(names: list[str]) -> Mapping[str, Any]:
            drawn = {name: weights[name] for name in names if name in weights}
            if len(drawn) == len(names):
                return drawn
            rest = self.distributions([name for name in names if name not in weights])
            return drawn | random_weights(rest, dict.fromkeys(rest, of_one_row), None)

        return self._called(call_with, net, values, call)

    def by_output(self, call: Call, member: int = 0) -> frozenset[str]:
        """Of one example: normal weights of linear layers that are used once. Their output is normal, with
        independent entries, and a draw of it takes as many random numbers as there are outputs."""
        if call.generator is not None or self.whole_draws or not self.watched or batch_of(call) > 1:
            return frozenset()
        names = self.linear - self.repeated
        if not self.family.gaussian or torch.is_grad_enabled():
            return frozenset()
        return frozenset(name for name in names if self.slots[name][0].get().device.type == "cpu")

    def mean(self, net: nn.Module) -> dict[str, Tensor]:
        return {name: q.mean for name, q in self.distributions(list(self.slots)).items()}

    def kl(self, net: nn.Module) -> Tensor:
        return self._kl(self.distributions(list(self.slots)))

    def undecayed(self, net: nn.Module) -> Iterator[Tensor]:
        yield from self.parameters()
        yield from (slots[0].get() for slots in self.slots.values())

    def linear_law(self, net: nn.Module, member: int = 0) -> LinearLaw:
        if not self.family.gaussian or self.family.zero_mean:
            why = "has no mean to linearise at" if self.family.gaussian else "is not normal"
            raise TypeError(
                f"mode='linearised' needs a normal law of the weights around their mean, and family "
                f"{self.family.name!r} {why}: use mode='ensemble'"
            )
        mean = {name: w.detach() for name, w in self.mean(net).items()}
        found = self.distributions(list(self.slots))

        def of_outputs(jacobian: Mapping[str, Any]) -> Tensor:
            each = [between(j, found[name].variance.detach()) for name, j in jacobian.items()]
            return torch.stack(each).sum(0)

        def deviations(n: int, generator: Generator | None) -> dict[str, Tensor]:
            return {name: draws - mean[name] for name, draws in self.draw(0, n, generator).items()}

        return LinearLaw(self.slots, mean, of_outputs, deviations, factored=True)

    def shift(self, net: nn.Module, name: str, by: Tensor, member: int = 0) -> bool:
        """Families without a location stay where they are."""
        if name not in self.slots:
            return super().shift(net, name, by)
        parameter = self.slots[name][0].get()
        before, mean = parameter.clone(), self.distributions([name])[name].mean.clone()
        parameter.add_(by)
        moves = torch.allclose(self.distributions([name])[name].mean - mean, by, rtol=1e-3)
        if not moves:
            parameter.copy_(before)
        return moves

    def idle_entries(self) -> list[Idle]:
        """The log std of pruned weights."""
        leaves = (self.random_tensor(name)._parameters.get("log_scale") for name in self.slots)
        found = [(log_std, log_std == LOG_STD_OF_NOTHING) for log_std in leaves if log_std is not None]
        return [Idle(log_std, gone, LOG_STD_OF_NOTHING) for log_std, gone in found]

    def plain_data(self) -> Any:
        return None if self.gains is None else self.gains.plain()

    def take_plain_data(self, data: Any) -> None:
        self.gains = None if data is None else Gains.from_plain(data)

    def describe(self, name: str) -> str:
        if self.sampling in ("local", "flipout") and name not in self.local - self.repeated:
            return f"{self.family.name} (draw)"
        return f"{self.family.name} ({self.sampling})"

    def notes(self) -> list[str]:
        said = dict.fromkeys(("local", "flipout"), "used more than once in a forward, so drawn once: ")
        if not self.swept:
            said["moments"] = "used more than once, taken as independent uses: "
        notes = []
        if self.unseen:
            notes.append(f"noise of weights taken as independent in every entry: {', '.join(self.unseen)}")
        if self.repeated and self.sampling in said:
            notes.append(said[self.sampling] + ", ".join(sorted(self.repeated)))
        if self.unused:
            notes.append(f"not used by the network in its first call: {', '.join(self.unused)}")
        if self.gains is not None:
            notes.append(str(self.gains))
        if self.empirical:
            notes.append(f"std of the prior by empirical Bayes: {self._widths_found()}")
        return notes

    @torch.no_grad()
    def _widths_found(self) -> str:
        found = []
        for name, q in self.distributions([name for name in self.slots if name in self.empirical]).items():
            centred = self.leaves[name].get().at(self.prior_means.difference(name, q.centre))
            found.append(f"{name} {self._best_width(centred):.3g}")
        return ", ".join(found)

    def distributions(self, names: list[str]) -> dict[str, Family]:
        """q_j around the network's present parameters."""
        return {name: self.leaves[name].get().at(self._centre(name)) for name in names}

    def random_tensor(self, name: str) -> RandomTensor:
        """What belongs to q of one weight beside its centre."""
        return self.leaves[name].get()

    def _leaf(self, name: str, **options: Any) -> Slot:
        centre = self.slots[name][0].get()
        return put(self.q, name, RandomTensor(self.family, centre, own_centre=False, **options))

    def _centre(self, name: str) -> Tensor:
        centre = self.slots[name][0].get()
        return centre.clone() if self.observing else centre  # our uses must not look like the network's

    def observe(self, net: nn.Module, call: Call) -> None:
        """Run the network once as it is and note which weights it uses, and how often.

        Nothing of it stays: buffers and random state are put back.
        """
        tracked = {name: slots[0].get() for name, slots in self.slots.items()}
        put_back = buffers_of(net)
        devices = list({t.device for t in tracked.values() if t.is_cuda})
        watch = Watch(tracked, boundary=__file__)
        caches = caches_restored(self.slots.values())
        with warnings.catch_warnings(), torch.random.fork_rng(devices), torch.no_grad(), watch, caches:
            warnings.simplefilter("ignore")  # the real call will warn
            net(*replace(call.args, Moments, mean_of), **replace(dict(call.kwargs), Moments, mean_of))
        put_back()
        self._learn(watch)

    def _verified_run(self, function: Any, net: nn.Module, values: Any, call: Call) -> Any:
        """The first call, observed: it must not use a parameter that has a random value in its place."""
        watch = Watch({}, boundary=__file__)

        def remember(names: list[str]) -> Mapping[str, Any]:
            drawn = values(names)
            watch.names = {id(tensor): name for name, tensor in drawn.items()}
            watch.replaced = [(memory(self.slots[name][0].get()), name) for name in names]
            return drawn

        self.observing = True
        try:
            with watch:
                output = function(net, self.slots, remember, call, self.guard)
        finally:
            self.observing = False
        if watch.strays:
            raise RuntimeError(stray_refusal(watch.strays[0]))
        if not self.watched:
            self._learn(watch)
        self.verified |= {net.training}
        return output

    @internals.whole_or_eager
    def _learn(self, watch: Watch) -> None:
        if watch.checkpointed:
            raise RuntimeError(f"{REFUSAL}. Found at weight {watch.checkpointed[0]!r}")
        self.repeated = frozenset(name for name, count in watch.counts.items() if count > 1)
        self.unused = tuple(name for name in self.slots if name not in watch.counts)
        self.last_used = watch.uses[-1] if watch.uses else ""
        self.watched = True

    def _samples(self, net: nn.Module, many: bool) -> dict[str, Sample]:
        """How the outputs of layers are sampled, by weight; weights that are not here are drawn."""
        once = [name for name in self.slots if name in self.local and name not in self.repeated]
        samples = dict.fromkeys(once, SAMPLES[self.sampling]) if self.sampling in SAMPLES else {}
        if many:
            num = self.num_likelihood_draws
            if is_sharded(net):
                raise ValueError(refusal(num, "the network is sharded (FSDP2)", "train it with DDP"))
            last = last_layer(self.slots, self.last_used, once, num)
            samples.update(dict.fromkeys(last, partial(last_output, num_draws=num)))
        return samples

    def _kl(self, distributions: Mapping[str, Family]) -> Tensor:
        parts = []
        for names, kl in self.kls:
            present = [self._to_prior(name, distributions[name]) for name in names if name in distributions]
            if present:
                parts.append(kl(present))
        return parts[0] if len(parts) == 1 else torch.stack(parts).sum()

    def _to_prior(self, name: str, q: Family) -> Family:
        """What the KL compares with the standard of the prior: q itself, or that of (w − centre) / width."""
        if name in self.prior_means.places:
            q = self.leaves[name].get().at(self.prior_means.difference(name, q.centre))
        width = self._best_width(q) if name in self.empirical else self.prior_means.width(name)
        return q if width is None else q.in_units_of(width)  # type: ignore[attr-defined]

    @staticmethod
    def _best_width(q: Family) -> Tensor:
        """Of a normal prior around 0 for a whole tensor, where ∂KL/∂s = 0: s² = mean E w²."""
        return (q.variance + q.mean.square()).mean().sqrt().detach()

    def _check_places(self, family: type[Family], distributions: Mapping[str, Family]) -> None:
        """Can the family follow its priors?"""
        if self.prior_means.places and not family.moves:
            raise ValueError(
                f"prior mean='net' is for families that move with their mean, and {family.name!r} does not: use "
                f"bf.prior('normal', mean=0.0), or family='normal'"
            )
        for name in (*self.empirical, *self.prior_means.width_of):
            if not isinstance(distributions[name], LocationScale):
                raise ValueError(
                    f"prior std={self.priors[name].options['std']!r} of {name!r} is for families w = loc + scale ξ, "
                    f"and {family.name!r} is none: give it a number, or use family='normal'"
                )

    def _called(self, function: Any, net: nn.Module, values: Any, call: Call) -> Any:
        if not compiling() and net.training not in self.verified and not is_sharded(net):
            return self._verified_run(function, net, values, call)
        return function(net, self.slots, values, call, self.guard)
