"""The normal law of the iterates that an optimiser goes through: SWAG's posterior."""

import weakref
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Generator, Tensor, nn

from bayesify.checks import NonFiniteError
from bayesify.execution import capturing
from bayesify.posteriors.base import Chunks, Posterior
from bayesify.posteriors.chain.diverged import first_not_finite
from bayesify.posteriors.gaussian.gaussian import Gaussian
from bayesify.posteriors.gaussian.iterates import FEWEST, IterateCovariance
from bayesify.posteriors.gaussian.settled_draws import SettledDraws
from bayesify.weights import Call, Selection, call_with, find_slots

#: is an iterate to be kept after so many steps of the run?
Due = Callable[[int], bool]


class WeightAverage(Gaussian):
    """q(w) = N(w̄, Σ), w̄ and Σ those of iterates that are kept while an optimiser goes on.

    The network itself is the iterate, which trains. Draws lie around w̄, and so does a pass in training mode without
    gradients: it is by such passes that batch norm learns the statistics of w̄ (`torch.optim.swa_utils.update_bn`).
    After `bf.fit` the network has w̄ for its weights.

    With `num_settled` a prediction takes that many fixed draws, each with statistics of batch norm of its own, once
    they are there (`settling`, which `bf.fit` does at its end).

    plan:  the times of a run of so many steps (None: of a run whose length nobody knows), and whether the network is
           trained already
    rank, dtype: of the covariance
    """

    is_around_net = False
    stored = True
    iterates: Any  # IterateCovariance, or None
    remedy = "call bf.fit(model, train_loader), or model.collect() in a loop of one's own"

    def __init__(
        self,
        net: nn.Module,
        selection: Selection,
        plan: Callable[[int | None, bool], Due | None],
        rank: int,
        dtype: torch.dtype | None = None,
        num_settled: int = 0,
    ) -> None:
        super().__init__(net, selection)
        self.settled = SettledDraws(net, num_settled)
        self.present: int | None = None  # the draw whose statistics are being found
        trained = {name for name, p in net.named_parameters() if p.requires_grad}
        self.moving = {name: slots for name, slots in find_slots(net).items() if name in trained}
        self.plan, self.rank, self.dtype = plan, rank, dtype
        self.due = plan(None, False)
        self.watched: list[weakref.ref[Any]] = []
        self.steps = 0
        self.forget()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "watched": []}  # nobody's optimiser steps a copy

    def forget(self) -> None:
        """No iterate is kept, and no room taken for any."""
        self.covariance = None
        self.__dict__["iterates"] = None  # not a submodule: it is one as `covariance`, once there are enough

    def run(self, net: nn.Module, call: Call, member: int = 0, kl_terms: list[Tensor] | None = None) -> Any:
        if kl_terms is None and net.training and self.averages() and not torch.is_grad_enabled():
            mean = self._now(self.iterates.means)
            weights = (
                mean if self.present is None else {k: w[0] for k, w in self._settled([self.present]).items()}
            )
            return self.run_draw(net, call, weights, member)
        return super().run(net, call, member, kl_terms)

    def num_passes(self, num_draws: int) -> int:
        return min(super().num_passes(num_draws), len(self.settled) or num_draws)

    def draw(self, member: int, n: int, generator: Generator | None = None) -> dict[str, Tensor]:
        if not self.averages():
            return super().draw(member, n, generator)
        if self.settled:
            among = torch.device("cpu") if generator is None else generator.device
            return self._settled(
                torch.randint(len(self.settled), (n,), generator=generator, device=among).tolist()
            )
        return self._fresh(n, generator)

    def stream(self, member: int, num_draws: int, chunk: int, generator: Generator | None = None) -> Chunks:
        """The first of the settled draws, where there are any."""
        if not self.settled:
            yield from super().stream(member, num_draws, chunk, generator)
            return
        most = min(num_draws, len(self.settled))
        for start in range(0, most, chunk):
            indices = range(start, min(start + chunk, most))
            yield len(indices), self._settled([*indices])

    def _settled(self, indices: list[int]) -> dict[str, Tensor]:
        """Draws by their numbers, with their statistics where they have some."""
        each = []
        for index in indices:
            weights = self._fresh(1, self.settled.generator(index))
            statistics = self.settled.at(index) if self.settled else {}
            each.append({**{name: w[0] for name, w in weights.items()}, **statistics})
        return {name: torch.stack([one[name] for one in each]) for name in each[0]}

    def _fresh(self, n: int, generator: Generator | None) -> dict[str, Tensor]:
        deviations = self.iterates.deviations(n, generator)
        means = self._now(self.iterates.means)
        drawn = {name: (self.iterates.means[name] + d).to(means[name]) for name, d in deviations.items()}
        return {name: drawn.get(name, mean.expand(n, *mean.shape)) for name, mean in means.items()}

    def run_draw(self, net: nn.Module, call: Call, weights: Mapping[str, Tensor], member: int = 0) -> Any:
        slots = {name: self.moving.get(name) or self.settled.slots[name] for name in weights}
        return call_with(net, slots, lambda names: weights, call)

    def mean(self, net: nn.Module) -> dict[str, Tensor]:
        return self._now(self.iterates.means) if self.averages() else super().mean(net)

    def begin(
        self,
        optimizer: Any = None,
        num_steps: int | None = None,
        folder: Path | None = None,
        trained: bool = False,
    ) -> None:
        """A run keeps iterates of its own."""
        if num_steps is not None:
            self.due, self.steps = self.plan(num_steps, trained), 0
            self.settled.forget()
            self._make_room()
        if optimizer is not None and not any(optimizer is seen() for seen in self.watched):
            self.watched.append(weakref.ref(optimizer))
            optimizer.register_step_post_hook(lambda *_: self.after_step())

    def after_step(self) -> None:
        """Count a step, and keep the iterate where one is due. A step that is recorded in a CUDA graph is none yet."""
        if capturing():
            return
        self.steps += 1
        if self.due is not None and self.due(self.steps):
            self.collect()

    def collect(self) -> None:
        self.check_finite()
        if self.iterates is None:
            self._make_room()
        self.iterates.add(self._weights())
        self.settled.forget()
        self._show()

    def averages(self) -> bool:
        return self.covariance is not None

    @torch.no_grad()
    def finish(self, net: nn.Module) -> None:
        if self.averages():
            for name, mean in self.iterates.means.items():
                self.moving[name][0].get().copy_(mean)

    def settling(self) -> Iterator[None]:
        if not self.averages() or not self.settled.num:
            return
        found = []
        self.settled.forget()
        try:
            for index in range(self.settled.num):
                self.present = index
                yield
                found.append(self.settled.now())
        finally:
            self.present = None
        self.settled.keep(found)

    def shift(self, net: nn.Module, name: str, by: Tensor, member: int = 0) -> bool:
        if self.iterates is not None and name in self.iterates.means:
            self.iterates.means[name] += by
        return super().shift(net, name, by, member)

    def check_finite(self) -> None:
        bad = first_not_finite(self._weights(), {})
        if bad is not None:
            raise NonFiniteError(f"{bad} is not finite after step {self.steps}: take a smaller learning rate")

    def extra_tensors(self, run: Path | None = None) -> dict[str, Tensor]:
        return self.settled.tensors()

    def make_room(self, tensors: Mapping[str, Any]) -> None:
        self._take(tensors)
        self.settled.take(tensors)

    def take_over(self, other: Posterior) -> None:
        assert isinstance(other, WeightAverage)
        super().take_over(other)
        self.settled.statistics = other.settled.statistics

    def notes(self) -> list[str]:
        count = 0 if self.iterates is None else self.iterates.count
        said = [f"mean and covariance of {count} iterates, after {self.steps} steps"]
        if self.settled:
            said.append(f"{len(self.settled)} fixed draws, each with statistics of batch norm of its own")
        return said

    def _weights(self) -> dict[str, Tensor]:
        return {name: slots[0].get().detach() for name, slots in self.moving.items()}

    def _now(self, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """In the dtype and on the device of the network."""
        return {name: w.to(self.moving[name][0].get()) for name, w in weights.items()}

    def _make_room(self) -> None:
        self.forget()  # of what was seen before
        found = IterateCovariance(self._weights(), list(self.slots), self.rank, self.dtype)
        self.__dict__["iterates"] = found

    def _show(self) -> None:
        self.covariance = self.iterates if self.iterates.count >= FEWEST else None

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        super()._apply(fn, recurse)
        if self.iterates is not None:
            self.iterates.move(fn)
        self.settled.move(fn)
        return self

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        count = [] if self.iterates is None else [self.iterates.count]
        kept = {} if self.iterates is None else self.iterates.tensors()
        mine = {"steps": torch.tensor([self.steps, *count]), **kept}
        destination.update({prefix + key: value for key, value in mine.items()})

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        mine = {k.removeprefix(prefix): v for k, v in state_dict.items() if k.startswith(prefix)}
        if "steps" in mine:
            self._take(mine)
        else:
            args[2].append(prefix + "steps")  # missing_keys

    def _take(self, tensors: Mapping[str, Any]) -> None:
        self.steps, *count = tensors["steps"].tolist()
        if not count:
            self.forget()
            return
        self._make_room()
        self.iterates.take(tensors, count[0])
        self._show()
