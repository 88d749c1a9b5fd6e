"""A chain of draws: the posterior of the sampling methods."""

import json
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Generator, Tensor, nn

from bayesify import torch_internals as internals
from bayesify.checks import NonFiniteError
from bayesify.execution import can_read_values, capturing
from bayesify.posteriors.base import Chunks, Posterior, Says
from bayesify.posteriors.chain.diverged import diverged, first_not_finite
from bayesify.posteriors.chain.draw_store import ALONE, REMEDY, DrawKey, DrawStore
from bayesify.posteriors.chain.energy import Energy
from bayesify.posteriors.chain.running_moments import RunningMoments
from bayesify.posteriors.chain.stored_draws import StoredDraws
from bayesify.posteriors.prior_means import PriorMeans
from bayesify.priors import Prior
from bayesify.samplers import Sampler, SamplingWarning
from bayesify.samplers.agreement import judge
from bayesify.samplers.check import WINDOW, Watch, is_stationary
from bayesify.samplers.findings import FEWEST, REMARKS, drift
from bayesify.weights import Call, Selection, Slot, call_with, find_slots
from bayesify.weights.observing.input_moments import input_moments

#: is a draw due after so many steps of the run?
Due = Callable[[int], bool]
KEEPS = ("draws", "moments")
UNSURE = {"short", "few"}  # kinds of findings that say that nobody can tell


class Chain(Posterior):
    """q(w) = 1/S Σ_s δ(w − w_s): S stored draws. The network itself is where the chain is now.

    A draw holds every parameter that trains, and the running statistics of batch norm. `kl` is −log p(w) of
    the present weights, so that the loss is −log posterior / num_data.

    plan:  the sample times of a run of so many steps (None: of a run whose length nobody knows), and whether the
           network is trained already
    keep:  "draws", or "moments": the running mean and variance of every weight only
    dtype: of the stored draws; None: the parameters' own
    """

    is_around_net = False
    stored = True

    def __init__(
        self,
        net: nn.Module,
        selection: Selection,
        prior: Prior,
        plan: Callable[[int | None, bool], Due | None],
        keep: str = "draws",
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.slots = selection.slots
        self.priors = {name: prior.at(name, slots[0].get()) for name, slots in self.slots.items()}
        self.prior_means = PriorMeans(self.priors, self.slots)
        self.energy = Energy(self.priors, self.slots, self.prior_means)
        self.moving = _moving(net)
        self.plan = plan
        self.due = plan(None, False)
        self.watch = Watch(self.due)
        self.findings: dict[str, str] = {}  # of checks of the sampler, by their kind
        self.told: dict[str, str] = {}  # those that no prediction is warned of
        self.unjudged = False  # draws came since somebody compared them
        self.start = self.steps = 0  # the step at which this run began, and the present one
        now = self._now()
        self.store: DrawStore = StoredDraws(now, dtype) if keep == "draws" else RunningMoments(now)
        # the last training call, of a network with batch norm
        self.last: tuple[nn.Module, Call] | None = None
        self.watched: list[weakref.ref[Any]] = []
        self.batch_norm = _batch_norm_note(net)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "watched": [], "last": None}  # nobody's optimiser steps a copy

    def run(self, net: nn.Module, call: Call, member: int = 0, kl_terms: list[Tensor] | None = None) -> Any:
        if kl_terms is None:
            return net(*call.args, **call.kwargs)
        if can_read_values():
            self._look_at_inputs(net, call)
            self.last = (net, call) if self.batch_norm else None
        kl, output = self.energy.run(net, call)
        kl_terms.append(kl)
        return output

    def _look_at_inputs(self, net: nn.Module, call: Call) -> None:
        """In a loop of one's own nobody else sees them: a sampler that has not begun is given their means. Several
        processes have different ones."""
        for sampler in self._samplers() if _alone() else ():
            if sampler.warm is not None and sampler.warm.watches(sampler):
                with torch.random.fork_rng({p.device for p in net.parameters() if p.is_cuda}):
                    sampler.axes.add(sampler, input_moments(net, call.args, call.kwargs))

    def num_passes(self, num_draws: int) -> int:
        """One where nothing is kept yet, and not more than the stored draws."""
        most = num_draws if len(self.store) and not isinstance(self.store, StoredDraws) else len(self.store)
        return min(num_draws, max(most, 1))

    def draw(self, member: int, n: int, generator: Generator | None = None) -> dict[str, Tensor]:
        return self._fitting(self.store.draw(n, generator))

    def stream(self, member: int, num_draws: int, chunk: int, generator: Generator | None = None) -> Chunks:
        """The stored draws, read as they are needed; before the first one, the weights as they are now."""
        now = self._now()
        if not len(self.store):
            yield 1, {name: w[None] for name, w in now.items()}
            return
        yield from self.store.stream(num_draws, chunk, generator, now)

    def run_draw(self, net: nn.Module, call: Call, weights: Mapping[str, Tensor], member: int = 0) -> Any:
        return call_with(net, self.moving, lambda names: weights, call)

    def mean(self, net: nn.Module) -> dict[str, Tensor]:
        return self._fitting(self.store.mean())

    def kl(self, net: nn.Module) -> Tensor:
        return self.energy.now()

    def begin(
        self,
        optimizer: Any = None,
        num_steps: int | None = None,
        folder: Path | None = None,
        trained: bool = False,
    ) -> None:
        if num_steps is not None:
            self.start, self.due = self.steps, self.plan(num_steps, trained)
            self.watch = Watch(self.due, num_steps)
        if folder is not None:
            self.store.move_to(folder)
        if optimizer is not None and not any(optimizer is seen() for seen in self.watched):
            self.watched.append(weakref.ref(optimizer))
            optimizer.register_step_pre_hook(lambda *_: self.before_step())
            optimizer.register_step_post_hook(lambda *_: self.after_step())

    def collect(self) -> None:
        self.check_finite()
        if not self.watch.windows:  # nobody said when the first draw is kept: check a little later
            self.watch.add(self.steps - self.start + WINDOW, WINDOW)
        with nullcontext() if self.last is None else _fresh_statistics(*self.last):
            self.store.add(DrawKey(0, self.steps), self._now())
        self.unjudged = _alone()

    def check_finite(self) -> None:
        bad = first_not_finite(self._now(), self._momenta())
        if bad is not None:
            raise NonFiniteError(self._diverged(f"{bad} is not finite", self.steps))

    def diverged(self, trouble: str, ago: int = 0) -> str | None:
        """Before the first step nothing can have diverged."""
        return self._diverged(trouble, self.steps - ago) if self.steps else None

    def caution(self, says: Says | None = None) -> str | Warning | None:
        if len(self.store):
            self._judge(says)
            return SamplingWarning(_unlike(self.findings)) if self.findings else None
        text = (
            f"the chain has no draws yet, after {self.steps} steps: predictions are those of its present weights, a "
            f"point and not the posterior. For an average over draws {REMEDY}"
        )
        return SamplingWarning(text) if self.findings else text

    def _judge(self, says: Says | None) -> None:
        """Draws of a loop of one's own, whose end nobody tells: has their log prior settled, and is what they predict
        worth some independent draws? The latter once it is asked for."""
        samplers = self._samplers()
        if not self.unjudged or not isinstance(self.store, StoredDraws) or len(self.store) < FEWEST:
            return
        self.unjudged = says is None
        if samplers and all(map(is_stationary, samplers)):
            for kind in ("drift", "few"):
                self.findings.pop(kind, None)
            self.findings |= drift(torch.tensor(self.log_priors()[:1], dtype=torch.float64), "log prior")
            if says is not None:
                said = [says(w).flatten().cpu() for key, w in self.each() if key.chain == 0]
                values = torch.stack(said)[None]
                if values.isfinite().all() and (values != values[:, :1]).any():
                    self.findings |= judge(values)

    def log_priors(self) -> list[list[float]]:
        """Of every stored draw, chain by chain. Networks begin small, and grow for long after their predictions seem
        to have settled."""
        chains: dict[int, list[float]] = {}
        for key, weights in self.each():
            # half precision would round the sum to a few values
            wide = {name: w.to(torch.promote_types(w.dtype, torch.float32)) for name, w in weights.items()}
            energy = float(self.energy({name: wide[name] for name in self.slots}))
            chains.setdefault(key.chain, []).append(-energy)
        return [*chains.values()]

    def _diverged(self, trouble: str, steps: int) -> str:
        return diverged(trouble, steps, self._now(), self._momenta(), len(self.store))

    def before_step(self) -> None:
        """Look at the sampler, where a check is near."""
        for sampler in [] if capturing() else self._samplers():
            self.watch.before(self.steps - self.start + 1, sampler, self._random())

    def after_step(self) -> None:
        """Count a step of the sampler, check it, and keep a draw, each where it is due. A step that is recorded in a
        CUDA graph is none yet."""
        if capturing():
            return
        self.steps += 1
        for sampler in self._samplers():
            self.report(self.watch.after(self.steps - self.start, sampler, self._random()))
        if self.due is not None and self.due(self.steps - self.start):
            self.collect()

    def report(self, found: Mapping[str, str]) -> None:
        """Remember what a check found, by its kind, and warn of what is new."""
        self.told |= {kind: text for kind, text in found.items() if kind in REMARKS}
        new = {kind: text for kind, text in found.items() if kind not in self.findings.keys() | REMARKS}
        self.findings |= new
        if new:
            warnings.warn(SamplingWarning(_unlike(new)), stacklevel=2)

    def describe(self, name: str) -> str:
        return f"chain, prior {self.priors[name]!r}"

    def notes(self) -> list[str]:
        alone = [ALONE] * (len(self.store) > 0 and self.store.num_chains == 1)
        drawn = f"{len(self.store)} draws after {self.steps} steps"
        return [drawn, *alone, *self.batch_norm, *self.asides()]

    def asides(self) -> list[str]:
        return [*self.told.values()]

    @property
    def num_draws(self) -> int:
        """How many draws are stored."""
        return len(self.store)

    def each(self) -> Iterator[tuple[DrawKey, dict[str, Tensor]]]:
        """Every stored draw and its key, read as it is needed."""
        if not isinstance(self.store, StoredDraws):
            raise TypeError("keep='moments' holds no draws: use keep='draws'")
        for key, weights in self.store.each():
            yield key, self._fitting(weights)

    def variance(self) -> dict[str, Tensor]:
        """The variance of every weight over the draws (divisor: their number)."""
        return self._fitting(self.store.variance())

    def add_folder(self, folder: str | Path) -> int:
        """Add the draws in the folder of another run of this network, as further chains; returns their number."""
        if not isinstance(self.store, StoredDraws):
            raise TypeError("keep='moments' holds no draws that others could be added to: use keep='draws'")
        return self.store.adopt(Path(folder))

    def extra_tensors(self, run: Path | None = None) -> dict[str, Tensor]:
        """The draws: a file of `bf.save` holds them, a checkpoint and the files of a run do not."""
        return {} if self.references(run) else self.store.tensors(whole=True)

    def references(self, run: Path | None) -> dict[str, Any]:
        found = None if run is None or not isinstance(self.store, StoredDraws) else self.store.reference(run)
        return {} if found is None else {"draws": found}

    def make_room(self, tensors: Mapping[str, Any]) -> None:
        self._take(tensors)

    def take_over(self, other: Posterior) -> None:
        assert isinstance(other, Chain)
        self.start, self.steps = other.start, other.steps
        self.findings, self.told = other.findings, other.told
        self.store = other.store
        self.prior_means.load_state_dict(other.prior_means.state_dict())

    def _now(self) -> dict[str, Tensor]:
        return {name: slots[0].get().detach() for name, slots in self.moving.items()}

    def _momenta(self) -> dict[str, Tensor]:
        """Of the samplers that move this chain, by the names of the weights; none for those without momentum."""
        moving = ((name, slots[0].get()) for name, slots in self.moving.items())
        states = ((name, each.state.get(weight, {})) for name, weight in moving for each in self._samplers())
        return {name: state["momentum"] for name, state in states if "momentum" in state}

    def _samplers(self) -> list[Sampler]:
        """Those that move this chain."""
        return [each for seen in self.watched if isinstance(each := seen(), Sampler)]

    def _random(self) -> dict[str, Tensor]:
        """The parameters that are sampled."""
        return {name: slots[0].get() for name, slots in self.slots.items()}

    def _fitting(self, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """In the dtype and on the device of the network."""
        return {name: w.to(self.moving[name][0].get()) for name, w in weights.items()}

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        found = {**self.findings, **self.told}
        told = json.dumps(found).encode() if found else b""  # text as numbers: a state is of tensors
        steps = torch.tensor([self.start, self.steps, *told])
        mine = {"steps": steps, **self.store.tensors(whole=False)}
        destination.update({prefix + key: value for key, value in mine.items()})

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        mine = {k.removeprefix(prefix): v for k, v in state_dict.items() if k.startswith(prefix)}
        mine = {k: v for k, v in mine.items() if not k.startswith("prior_means.")}  # which loads itself
        if "steps" in mine:
            self._take(mine)
        else:
            args[2].append(prefix + "steps")  # missing_keys

    def _take(self, tensors: Mapping[str, Any]) -> None:
        self.start, self.steps, *told = tensors["steps"].tolist()
        found = json.loads(bytes(told)) if told else {}
        self.told = {kind: found.pop(kind) for kind in REMARKS & found.keys()}
        self.findings = found
        self.store.take(tensors)


def _alone() -> bool:
    """Is it the only process of its program?"""
    return not (torch.distributed.is_available() and torch.distributed.is_initialized())


def _unlike(findings: Mapping[str, str]) -> str:
    verb = "may not be" if findings.keys() <= UNSURE else "are not"
    return f"the draws {verb} those of the posterior: {'; '.join(findings.values())}"


def _moving(net: nn.Module) -> dict[str, list[Slot]]:
    """The slots of everything that changes while a chain runs."""
    trained = {name for name, p in net.named_parameters() if p.requires_grad}
    slots = {name: found for name, found in find_slots(net).items() if name in trained}
    for path, module in net.named_modules():
        if isinstance(module, internals.NormBase) and module.track_running_stats:
            for key in ("running_mean", "running_var"):
                slots[f"{path}.{key}" if path else key] = [Slot(module, "_buffers", key)]
    return slots


@contextmanager
@torch.no_grad()
def _fresh_statistics(net: nn.Module, call: Call) -> Iterator[None]:
    """Inside, the running statistics of batch norm are those of one call by the weights as they are: an average over
    the last steps lags behind weights that jump at each one."""
    norms = [m for m in net.modules() if isinstance(m, internals.BatchNorm)]
    norms = [m for m in norms if m.training and m.track_running_stats]
    before = [(m.momentum, {name: buffer.clone() for name, buffer in m.named_buffers()}) for m in norms]
    devices = {buffer.device for _, buffers in before for buffer in buffers.values() if buffer.is_cuda}
    try:
        for m in norms:
            m.momentum = 1.0
        with torch.random.fork_rng([*devices]):
            net(*call.args, **call.kwargs)
        yield
    finally:
        for m, (momentum, buffers) in zip(norms, before, strict=True):
            m.momentum = momentum
            for name, buffer in m.named_buffers():
                buffer.copy_(buffers[name])


def _batch_norm_note(net: nn.Module) -> list[str]:
    if not any(isinstance(m, internals.BatchNorm) for m in net.modules()):
        return []
    note = (
        "batch norm: in training the output for an example depends on the rest of its batch, so the mini-batch "
        "gradient is that of no fixed posterior, and the sampler's noise comes on top of that of the batch "
        "statistics. The draws are biased; those of a network without it (nets 'resnetpp20' …) or with group "
        "norm are not"
    )
    warnings.warn(note, stacklevel=2)
    return [note]
