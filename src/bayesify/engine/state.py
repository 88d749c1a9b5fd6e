"""Where a run stands: everything that changes while it goes on, and that a checkpoint holds."""

import math
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Generator, Tensor, nn

from bayesify import torch_internals as internals
from bayesify.checks import naming
from bayesify.engine.averaging import MovingAverage
from bayesify.engine.checkpoint import (
    STRUCTURAL,
    give_up,
    load_like,
    optimizer_state,
    remember,
    sound_checkpoints,
    write_checkpoint,
)
from bayesify.engine.history import History
from bayesify.engine.optimizers import make_optimizer, named_optimizer
from bayesify.engine.options import FitOptions
from bayesify.engine.position import batches, can_resume_inside, number_of_batches, order_generator
from bayesify.engine.randomness import random_state, restore_random_state
from bayesify.engine.resume_checks import (
    NO_FINGERPRINT,
    STREAM,
    check_same_data,
    check_same_network,
    check_same_optimizer,
    other_settings,
)
from bayesify.engine.schedules import load_schedule, make_schedule
from bayesify.files.differences import shapes_of
from bayesify.files.storage import settings_of
from bayesify.model import BayesianModule
from bayesify.objectives import KLWarmup, Loss
from bayesify.posteriors import Chain
from bayesify.posteriors.gaussian import WeightAverage
from bayesify.samplers import Sampler, SamplingWarning
from bayesify.weights.units import like_stored

ASSUMED_STEPS = 1000  # in an epoch of a loader that does not know its length
#: what a checkpoint holds of a `RunState` as it is, and the parts that have a state of their own
PLACE = ("epoch", "batch", "step", "seen", "best", "bad_epochs", "epoch_generator")
LENGTHS = ("steps", "begun", "past_steps", "past_epochs", "num_steps", "is_plain", "plain_epochs")
PARTS = ("schedule", "warmup", "ema")


class RunState:
    """Place, sums of the running epoch, history, and the state of model, optimiser and everything random.

    plain: the options of the plain network that the run begins with; `now` are those of the present part

    Made after the model was placed on its devices: the optimiser holds the parameters that are there then.
    """

    def __init__(
        self,
        model: BayesianModule,
        options: FitOptions,
        fabric: Any,
        steps: int | None,
        data: dict[str, Any],
        plain: FitOptions | None = None,
    ) -> None:
        self.model, self.fabric = model, fabric
        self.data = data  # the fingerprint of the training data
        self.steps = ASSUMED_STEPS if steps is None else steps
        self.begun = 0  # step at which the present part began
        self.past_steps = self.past_epochs = (
            0  # of this part, and of the run, while its epochs had other lengths
        )
        self.own, self.plain = options, plain
        self.plain_epochs = 0 if plain is None else plain.epochs or 0
        if plain is not None:
            make_optimizer(model, options)  # what is refused is refused now
        self.begin_part(is_plain=plain is not None)
        self.ema = MovingAverage(model, options.ema) if options.ema is not None else None
        self.history = History()
        self.epoch = self.batch = self.step = 0
        self.sums: list[Tensor] = [torch.zeros((), device=fabric.device) for _ in range(3)]
        self.seen = 0  # examples of this epoch and rank
        self.best: float | None = None
        self.bad_epochs = 0
        self.epoch_random = random_state()
        self.generator: Generator | None = None  # of the loader's order
        self.epoch_generator: Tensor | None = None

    def begin_part(self, is_plain: bool) -> None:
        """Optimiser, schedule and KL weight of the plain network's epochs, which see the data term alone, or of those
        that follow them."""
        model, own, plain = self.model, self.own, self.plain
        self.is_plain = is_plain
        self.clipped: Any = 0  # steps whose gradients clip_norm shortened
        self.warmup: KLWarmup | None = None
        if is_plain:
            assert plain is not None
            self.now, self.num_steps = plain, self._steps_to(self.plain_epochs, since=0)
            self.optimizer = named_optimizer(
                model, str(plain.optimizer), plain.lr, plain.momentum, plain.weight_decay
            )
            self.schedule = make_schedule(plain.schedule, self.optimizer, self.num_steps)
            model.kl_weight.zero_()
            return
        assert model.method.kl_weight is not None
        self.now, self.num_steps = own, self._steps_to(own.epochs or 0, since=self.plain_epochs)
        if self.plain_epochs:
            model.kl_weight.fill_(model.method.kl_weight)
        self.optimizer = make_optimizer(model, own)
        folder = None if own.folder is None else Path(own.folder) / "draws"
        trained = self.plain_epochs > 0
        model.posterior.begin(self.optimizer, self.num_steps, folder, trained)
        model.method.begin(model, self.optimizer, self.num_steps, trained)
        schedule = own.schedule or model.method.default_schedule()
        self.schedule = make_schedule(schedule, self.optimizer, self.num_steps)
        if own.kl_warmup:
            warm = max(1, round(own.kl_warmup * self.steps))
            self.warmup = KLWarmup(model, warm, end=model.method.kl_weight)

    def _steps_to(self, end: int, since: int) -> int:
        """Of a part that goes from one epoch to another."""
        return max(1, self.past_steps + self.steps * (end - max(since, self.past_epochs)))

    def turn(self) -> str | None:
        """After its plain epochs the run goes on by the method's own optimiser; what to say then. The best epoch is
        one of those that follow."""
        if not self.is_plain or self.epoch < self.plain_epochs:
            return None
        self.begun, self.past_steps = self.step, 0
        self.begin_part(is_plain=False)
        self.best, self.bad_epochs = None, 0
        return f"step {self.step}: the plain network is trained, {self.model.method.name} goes on from it"

    def _begin_as(self, state: dict[str, Any], folder: Path) -> None:
        """Be in the part of the run that a checkpoint is of. Plain epochs that were all taken stay as many in a run
        that has grown; an older bayesify took none."""
        is_plain, plain_epochs = state.get("is_plain", False), state.get("plain_epochs", 0)
        if is_plain and self.plain is None:
            raise ValueError(
                f"the run in {folder} is in its plain epochs, and this one has none: resume it with the same "
                f"plain_first= and recipe=, or choose another folder"
            )
        mine = (self.plain.epochs or 0) if is_plain and self.plain is not None else plain_epochs
        self.begun = state.get("begun", 0)
        past = state.get("past_steps", 0), state.get("past_epochs", 0)
        if self._has_other_epochs(state):
            past = state["step"] - self.begun, state["epoch"]
        if (self.is_plain, self.plain_epochs, self.past_steps, self.past_epochs) != (is_plain, mine, *past):
            self.plain_epochs = mine
            self.past_steps, self.past_epochs = past
            self.begin_part(is_plain)

    def _has_other_epochs(self, state: dict[str, Any]) -> bool:
        """Had the run a number of steps in an epoch that it has no more? An older bayesify did not say."""
        return state.get("steps", self.steps) != self.steps

    def remaining_batches(self, loader: Iterable[Any], end: int | None) -> tuple[Any, Iterator[Any]]:
        """The batches of this epoch that are left, in the order they have in a run that was never stopped; and the one
        before them, where the run goes on inside of the epoch."""
        resumed = self.batch > 0
        now = random_state() if resumed else None
        self.generator = order_generator(loader)
        if resumed:
            restore_random_state(*self.epoch_random)
        else:
            self.epoch_random = random_state()
        if self.generator is not None and self.epoch_generator is not None:
            self.generator.set_state(self.epoch_generator)
        self._keep_generator()
        iterator = batches(loader, self.epoch, self.batch - resumed, end)
        before = next(iterator, None) if resumed else None
        if now is not None:
            restore_random_state(*now)
        return before, iterator

    def add(self, loss: Loss, num_examples: int) -> Tensor:
        """Count a batch in the sums of the epoch; returns its total."""
        nll, kl, total = (part.detach().float() for part in loss)
        internals.foreach_add_(self.sums, [total, nll, kl], alpha=num_examples)
        self.seen += num_examples
        return total

    def after_step(self) -> None:
        """What follows every step of the optimiser."""
        self.step += 1
        for part in (self.schedule, self.warmup):
            if part is not None:
                part.step()
        if self.ema is not None:
            self.ema.update()

    def means(self) -> dict[str, float]:
        """Loss, nll and kl per example of the epoch, over all ranks."""
        sums = torch.stack([*self.sums, torch.tensor(float(self.seen), device=self.fabric.device)])
        if self.fabric.world_size > 1:
            sums = self.fabric.all_reduce(sums, reduce_op="sum")
        loss, nll, kl, seen = sums.tolist()
        if not seen:
            raise ValueError("train_loader is empty: it gave no batch")
        return {"loss": loss / seen, "nll": nll / seen, "kl": kl / seen}

    def is_best(self, value: float) -> bool:
        """Is this epoch's validation the best so far? Counts the epochs in a row that are not."""
        if not math.isnan(value) and (self.best is None or value < self.best):
            self.best, self.bad_epochs = value, 0
            return True
        self.bad_epochs += 1
        return False

    def end_epoch(self, row: dict[str, Any]) -> None:
        """Write down the epoch, and go on to the next."""
        self.history.append(row)
        self.epoch += 1
        self._keep_generator()
        self.begin_epoch()

    def _keep_generator(self) -> None:
        """The order of the epoch that begins follows from this."""
        self.epoch_generator = None if self.generator is None else self.generator.get_state()

    def begin_epoch(self) -> None:
        """Nothing of the epoch was seen."""
        self.batch = self.seen = 0
        for each in self.sums:
            each.zero_()

    def write(self, folder: Path, keep_last: int) -> None:
        """A checkpoint; every rank calls it, the first one writes."""
        parts = {name: getattr(self, name) for name in PARTS}
        state = {
            **{name: getattr(self, name) for name in (*PLACE, *LENGTHS)},
            "clipped": int(self.clipped),
            "data": self.data,
            "settings": settings_of(self.model),
            "sums": self._of_all_ranks([s.cpu() for s in self.sums]),
            "history": [dict(row) for row in self.history],
            "model": nn.Module.state_dict(self.model),  # in which tied weights are one
            "optimizer_kind": type(self.optimizer).__name__,
            "optimizer": self.optimizer.state_dict(),
            **{name: None if part is None else part.state_dict() for name, part in parts.items()},
            "random": self._of_all_ranks(random_state()),
            "epoch_random": self._of_all_ranks(self.epoch_random),
        }
        write_checkpoint(folder, self.step, state, keep_last, self.fabric.is_global_zero)
        self.fabric.barrier()

    def _of_all_ranks(self, mine: Any) -> list[Any]:
        if self.fabric.world_size == 1:
            return [mine]
        every: list[Any] = [None] * self.fabric.world_size
        torch.distributed.all_gather_object(every, mine)
        return every

    def read(self, folder: Path, loader: Iterable[Any], options: FitOptions) -> bool:
        """Go on from the newest sound checkpoint; is there one?"""
        said, found = [*self.history.notes], None
        for path, state in sound_checkpoints(folder):
            try:
                self._begin_as(state, folder.parent)
                other_data = self._check(state, folder.parent, options)
                with naming(folder.parent):
                    self._go_on(state, loader, other_data)
            except STRUCTURAL as error:
                give_up(path, error)
                self.history.clear()
                self.history.notes[:] = said
                continue
            remember(path, sound=True)
            found = state
            break
        places = sorted(set(self._of_all_ranks(self.step)))
        if len(places) > 1:
            raise RuntimeError(
                f"the processes read different checkpoints in {folder}, of the steps {', '.join(map(str, places))}: "
                f"the warnings say which are damaged; start again when all processes can read the same"
            )
        text = None if found is None else other_settings(found.get("settings", {}), self.model, folder.parent)
        if text is not None:
            self.history.notes.append(text)
            warnings.warn(text, stacklevel=3)
        return found is not None

    def _go_on(self, state: dict[str, Any], loader: Iterable[Any], other_data: bool) -> None:
        """Be where the checkpoint is."""
        rank = self.fabric.global_rank
        self._load(state)
        with _damage("place"):
            for i, sum_ in enumerate(self.sums):
                sum_.copy_(state["sums"][rank][i])
            for name in PLACE:
                setattr(self, name, state[name])
            self.clipped = state.get("clipped", 0)
            self.history.extend(state["history"])
        self.epoch_random = state["epoch_random"][rank]
        random = state["random"][rank]
        other_epochs = self._has_other_epochs(state)
        if other_epochs:
            text = (
                f"an epoch has {self.steps} steps and had {state['steps']} in the stored run (another batch size, "
                f"accumulate= or amount of data): schedules are laid out anew for what is left"
            )
            self.history.notes.append(text)
            if not other_data:
                warnings.warn(text, stacklevel=4)
        if self.batch and (other_data or other_epochs or not can_resume_inside(loader)):
            other = "data" if other_data else "batches" if other_epochs else None
            what = f"with other {other} a run" if other else "an iterable data set"
            self.history.notes.append(f"{what} resumes at the start of its epoch")
            self.begin_epoch()
            random = self.epoch_random
        elif self.batch > (length := number_of_batches(loader)):
            raise IndexError(f"batch {self.batch} of an epoch that has {length}")
        self.history.notes.append(f"resumed at epoch {self.epoch + 1}, step {self.step}")
        for each in (self.epoch_random, random):  # both, so that neither turns out damaged later
            with _damage("random state"):
                restore_random_state(*each)

    def _check(self, state: dict[str, Any], folder: Path, options: FitOptions) -> bool:
        """Can this run go on from that checkpoint, and are its data others? Nothing is changed yet."""
        if len(state["random"]) != self.fabric.world_size:
            raise ValueError(
                f"the run in {folder} had {len(state['random'])} processes, this one has "
                f"{self.fabric.world_size}: resume it with the same number"
            )
        nets, shapes = self.model.posterior.nets(self.model.net), shapes_of(state["model"])
        like_stored(nets, shapes, "net.")
        check_same_network(self.model, state["model"], folder)
        if not isinstance(self.optimizer, Sampler):  # they ask for more, when they go on
            check_same_optimizer(self.optimizer, state.get("optimizer_kind"), state["optimizer"], folder)
        if "data" not in state:
            self.history.notes.append(NO_FINGERPRINT)
        elif not self.data:
            self.history.notes.append(STREAM)
        other = check_same_data(state.get("data"), self.data, folder, options.data_changed)
        if other:
            self.history.notes.append(f"goes on with other data: {'; '.join(other)}")
        return bool(other)

    def _load(self, state: dict[str, Any]) -> None:
        # first what may refuse: the model of a chain goes back to its place, and forgets later draws
        asked = _settings(self.optimizer)
        with _damage("optimizer", RuntimeError):  # its ValueErrors are refusals
            self.optimizer.load_state_dict(optimizer_state(state["optimizer"], self.optimizer))
        stored = _settings(self.optimizer)
        other = [name for name, value in asked.items() if stored.get(name, value) != value]
        if other:
            here, there = (", ".join(f"{n}={of[n]!r}" for n in other) for of in (asked, stored))
            note = f"{here} asked for, but the stored run has {there} and goes on with that"
            self.history.notes.append(note)
        mine = self.model.state_dict()
        with _damage("model"):
            placed = {name: load_like(mine[name], value) for name, value in state["model"].items()}
            self.model.load_state_dict(placed)
            bad = [name for name, p in self.model.named_parameters() if not p.isfinite().all()]
            if bad:
                raise ValueError(f"{bad[0]} is not finite")
        for name in PARTS:
            part, stored_part = getattr(self, name), state[name]
            if part is None or stored_part is None:
                continue
            with _damage(name):
                if part is self.schedule:
                    jump = load_schedule(part, stored_part, state.get("num_steps"), self.num_steps)
                    self.history.notes += [] if jump is None else [jump]
                else:
                    part.load_state_dict(stored_part)


@contextmanager
def _damage(part: str, *kinds: type[Exception]) -> Iterator[None]:
    """What goes wrong in here is a checkpoint that cannot be, and no refusal."""
    try:
        yield
    except Exception as error:
        if not isinstance(error, kinds or (ValueError, RuntimeError, OverflowError)):
            raise
        raise TypeError(f"{part}: {error}") from error


def assumed(model: BayesianModule, options: FitOptions) -> str | SamplingWarning | None:
    """What to say where nobody knows how many steps an epoch has."""
    said = f"train_loader has no length: {{}} count {ASSUMED_STEPS} steps as an epoch{{}}; say how many it has with "
    parts = [part for part in model.posterior.modules() if isinstance(part, Chain | WeightAverage)]
    if any(part.plan(None, False) is None for part in parts):
        text = said.format("the times at which draws or iterates are kept", ", and perhaps none is")
        return SamplingWarning(f"{text}steps_per_epoch=, or give the method burn_in= and every= in steps")
    if options.schedule is None and not options.kl_warmup:
        return None
    return f"{said.format('schedule and warm-up', '')}steps_per_epoch="


def _settings(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """What the user chose for the first group: numbers and texts, the learning rate before its schedule."""
    group = optimizer.param_groups[0]
    chosen = {name: value for name, value in group.items() if isinstance(value, bool | int | float | str)}
    chosen["lr"] = float(group.get("initial_lr", group["lr"]))
    chosen.pop("initial_lr", None)
    return chosen
