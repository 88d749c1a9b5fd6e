"""bf.fit: train any model of any method, on any device, and be able to stop and go on at any time."""

import math
import time
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Generator, Tensor

from bayesify.batches import inputs_of, target_of, to_device
from bayesify.checks import check_num_data
from bayesify.engine.averaging import MovingAverage
from bayesify.engine.checkpoint import load_like, optimizer_state, read_newest, write_checkpoint
from bayesify.engine.finite import FiniteCheck, NonFiniteError, raise_if_not_finite
from bayesify.engine.folder import RunFolder
from bayesify.engine.history import History
from bayesify.engine.position import batches, can_resume_inside, number_of_batches, number_of_examples
from bayesify.engine.progress import Progress
from bayesify.engine.randomness import random_state, restore_random_state, seed_everything
from bayesify.engine.schedules import check_length, make_schedule
from bayesify.engine.setup import compile_decision, compile_model, make_fabric
from bayesify.engine.signals import Signals
from bayesify.evaluation import evaluate
from bayesify.module import BayesianModule
from bayesify.objectives import KLWarmup, Loss
from bayesify.storage import save

Parts = tuple[Tensor, Tensor, Tensor]  # sums over an epoch of loss, nll and kl


def fit(
    model: BayesianModule,
    train_loader: Iterable[Any],
    val_loader: Iterable[Any] | None = None,
    *,
    epochs: int,
    lr: float = 1e-3,
    optimizer: torch.optim.Optimizer | Callable[[Any], torch.optim.Optimizer] | None = None,
    schedule: str | Callable[..., Any] | None = None,
    num_draws: int = 1,
    kl_warmup: float = 0.0,
    accumulate: int = 1,
    clip_norm: float | None = None,
    ema: float | None = None,
    patience: int | None = None,
    val_draws: int = 20,
    folder: str | Path | None = None,
    resume: bool = True,
    checkpoint_every: int | None = None,
    keep_last: int = 2,
    accelerator: str = "auto",
    devices: int | str = 1,
    num_nodes: int = 1,
    strategy: str = "auto",
    precision: str = "32-true",
    compile: bool | str = "auto",
    tensorboard: bool = False,
    seed: int | None = None,
    progress: bool = True,
) -> History:
    """Train `model`; returns one row per epoch.

    optimizer:  an optimiser, or a function of the parameters that makes one; else `model.optimizer(lr)`
    schedule:   "cosine", "linear", "onecycle", or a function (optimizer, num_steps) -> scheduler
    kl_warmup:  epochs over which the KL weight rises from 0
    accumulate: batches whose gradients are averaged in one step
    ema:        decay of a moving average of the parameters, used for validation and left in the model
    patience:   stop when validation has not improved for this many epochs
    folder:     where the files of the run go, see below; with `resume` a run that was stopped there goes
                on bit for bit, also with more epochs (but "onecycle" cannot grow)
    checkpoint_every:  steps between checkpoints (one is always written after each epoch)
    keep_last:  newest checkpoints to keep; an older one is deleted after the next was written
    strategy:   "auto", "ddp" or "fsdp" for several devices or nodes
    precision:  "32-true", "bf16-mixed", "bf16-true" or "64-true"
    compile:    True, False or "auto": on an accelerator when the run is long enough to pay for it

    The folder holds checkpoints/step-*.safetensors (the last `keep_last`, each enough to go on from; one
    that turns out damaged is named and the one before it is used), metrics.csv (the history),
    model.safetensors (the model after the last epoch, written once at the end; the average with `ema`)
    and, with a val_loader, best.safetensors (the model after the epoch with the smallest validation nll so
    far, replaced whenever that falls). Every file is written beside its name and moved there, so a reader
    never sees half of one. The model in memory is that of the last epoch: load best.safetensors for the
    other. One run owns the folder at a time; a second one is refused.
    """
    loop = _Loop(model, train_loader, val_loader, dict(locals()))
    with loop.folder, Signals() as signals, loop.progress:
        return loop.run(signals)


class _Loop:
    """One call of `fit`."""

    def __init__(self, model: BayesianModule, train: Any, val: Any, options: dict[str, Any]) -> None:
        self.model, self.train, self.val = model, train, val
        self.o = _Options(options)
        if self.o.seed is not None:
            seed_everything(self.o.seed)
        self.fabric = make_fabric(
            self.o.accelerator, self.o.devices, self.o.num_nodes, self.o.strategy, self.o.precision
        )
        rank, size = self.fabric.global_rank, self.fabric.world_size
        if self.o.seed is not None:
            seed_everything(self.o.seed, rank)
        if hasattr(train, "world_size") and hasattr(train, "rank"):
            train.rank, train.world_size = rank, size
        elif size > 1:
            wrapped = self.fabric.setup_dataloaders(train, move_to_device=False)
            self.train = getattr(wrapped, "_dataloader", wrapped)  # the wrapper counts epochs by itself
        if model.num_data is None:
            model.num_data = number_of_examples(train)
        if model.num_data is not None:
            check_num_data(model.num_data)
        num_batches = number_of_batches(self.train)
        if num_batches == 0:
            raise ValueError("train_loader is empty: it gives no batch (drop_last with too few examples?)")
        self.steps_per_epoch = None if num_batches is None else math.ceil(num_batches / self.o.accumulate)
        self.history = History()
        self.folder = RunFolder(self.o.folder, self.o.resume, self.fabric.is_global_zero)
        self.progress = Progress(
            self.o.epochs, self.steps_per_epoch, self.o.progress and self.fabric.is_global_zero
        )
        self._prepare()

    def _prepare(self) -> None:
        o, num_steps = self.o, (self.steps_per_epoch or 1000) * self.o.epochs
        compiled, reason = compile_decision(o.compile, self.model, self.fabric.device, num_steps)
        self.history.notes.append(reason)
        # one process at a precision without loss scaling needs none of Fabric's wrappers, which cost time
        self.direct = self.fabric.world_size == 1 and o.precision in ("32-true", "bf16-mixed")
        if self.direct:
            self.fabric.to_device(self.model)
        self.module = compile_model(self.model, self.fabric) if compiled else self.model
        if not self.direct:
            self.module = self.fabric.setup_module(self.module, move_to_device=True)
        made = o.optimizer
        if made is None:
            made = self.model.optimizer(lr=o.lr)
        elif not isinstance(made, torch.optim.Optimizer):
            made = made(self.model.parameters())
        self.raw_optimizer = made
        self.optimizer = made if self.direct else self.fabric.setup_optimizers(made)
        self.schedule = make_schedule(o.schedule, made, num_steps)
        self.warmup = None
        if o.kl_warmup > 0:
            warm = max(1, round(o.kl_warmup * (self.steps_per_epoch or 1000)))
            self.warmup = KLWarmup(self.model, warm, end=self.model.method.kl_weight)
        self.ema = MovingAverage(self.model, o.ema) if o.ema is not None else None
        self.finite = FiniteCheck(self.model, made, self.fabric)
        self.epoch = self.batch = self.step = 0
        self.sums: list[Tensor] = [torch.zeros((), device=self.fabric.device) for _ in range(3)]
        self.seen = 0
        self.best: float | None = None
        self.bad_epochs = 0
        self.epoch_random = random_state()
        self.epoch_generator: Tensor | None = None

    def run(self, signals: Signals) -> History:
        self._resume()
        writer = self.folder.tensorboard(self.o.tensorboard)
        for note in self.history.notes:
            self.progress.note(note)
        while self.epoch < self.o.epochs and not self._patience_is_over():
            self._epoch(signals)
            row = self._row()
            self.history.append(row)
            self.progress.epoch(row)
            self.epoch, self.batch, self.seen = self.epoch + 1, 0, 0
            [s.zero_() for s in self.sums]
            self.folder.write_history(self.history)
            if writer is not None:
                [writer.add_scalar(k, v, self.step) for k, v in row.items() if isinstance(v, int | float)]
            self._checkpoint(epoch_ended=True)
            self._leave_if_asked(signals)
        if writer is not None:
            writer.close()
        if self.ema is not None:
            self.ema.finish()
        if self.warmup is not None:  # a warm-up longer than the run must not weaken the next one
            self.model.kl_weight.fill_(self.warmup.end)
        if self.folder.path is not None:
            save(self.model, self.folder.path / "model.safetensors")
        self.fabric.barrier()
        return self.history

    def _epoch(self, signals: Signals) -> None:
        """Train to the end of the epoch from wherever it stands."""
        self.model.train()
        resumed = self.batch > 0
        now = random_state() if resumed else None
        generator = getattr(self.train, "generator", None)  # a DataLoader's own
        if resumed:
            restore_random_state(*self.epoch_random)
            if generator is not None and self.epoch_generator is not None:
                generator.set_state(self.epoch_generator)
        else:
            self.epoch_random = random_state()
            self.epoch_generator = None if generator is None else generator.get_state()
        iterator = batches(self.train, self.epoch, self.batch)
        if now is not None:
            restore_random_state(*now)
        self.started, self.seen_before = time.perf_counter(), self.seen
        group: list[Any] = []
        for batch in iterator:
            group.append(batch)
            self.batch += 1
            if len(group) == self.o.accumulate:
                self._step(group)
                group = []
                if self.o.checkpoint_every and self.step % self.o.checkpoint_every == 0:
                    self._checkpoint()
                self._leave_if_asked(signals)
        if group:
            self._step(group)
        self.finite.read()

    def _step(self, group: list[Any]) -> None:
        """One optimiser step from the gradients of a group of batches."""
        self.optimizer.zero_grad()
        total = None
        for i, batch in enumerate(group):
            batch = to_device(batch, self.fabric.device)
            x, y = inputs_of(batch), target_of(batch)
            loss = self._forward_backward(x, y, len(group), last=i == len(group) - 1)
            parts = [part.detach().float() for part in loss]
            torch._foreach_add_(self.sums, [parts[2], parts[0], parts[1]], alpha=len(y))
            self.seen += len(y)
            total = parts[2] if total is None else total + parts[2]
        assert total is not None
        self.finite.before_step(total)
        if self.o.clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.o.clip_norm)
        self.optimizer.step()
        self.step += 1
        if self.schedule is not None:
            self.schedule.step()
        if self.warmup is not None:
            self.warmup.step()
        if self.ema is not None:
            self.ema.update()
        if self.progress.due():
            self._show()

    def _forward_backward(self, x: Any, y: Tensor, parts: int, last: bool) -> Loss:
        if self.direct:
            with self.fabric.autocast():
                loss = self._loss(x, y)
            (loss.total / parts).backward()
            return loss
        with self.fabric.no_backward_sync(self.module, enabled=not last):
            loss = self._loss(x, y)
            self.fabric.backward(loss.total / parts)
        return loss

    def _loss(self, x: Any, y: Tensor) -> Loss:
        try:
            return self.module(x, target=y, num_draws=self.o.num_draws)
        except ValueError as error:
            raise_if_not_finite(error)
            raise

    def _show(self) -> None:
        loss, nll, kl = (s.item() / max(self.seen, 1) for s in self.sums)
        rate = (self.seen - self.seen_before) / (time.perf_counter() - self.started)
        numbers = {"loss": loss, "nll": nll, "kl": kl}
        if self.history and self.history[-1].get("val_accuracy") is not None:
            numbers["accuracy"] = self.history[-1]["val_accuracy"]
        self.progress.step(self.epoch, self.step, {**numbers, "examples/s": rate * self.fabric.world_size})

    def _row(self) -> dict[str, Any]:
        seconds = time.perf_counter() - self.started
        sums = torch.stack([*self.sums, torch.tensor(float(self.seen), device=self.fabric.device)])
        if self.fabric.world_size > 1:
            sums = self.fabric.all_reduce(sums, reduce_op="sum")
        loss, nll, kl, seen = sums.tolist()
        if not seen:
            raise ValueError("train_loader is empty: it gave no batch")
        row: dict[str, Any] = {
            "epoch": self.epoch + 1,
            "step": self.step,
            "loss": loss / seen,
            "nll": nll / seen,
            "kl": kl / seen,
            "lr": self.raw_optimizer.param_groups[0]["lr"],
            "kl_weight": self.model.kl_weight.item(),
        }
        if self.val is not None:
            generator = Generator(self.fabric.device).manual_seed(
                self.epoch
            )  # training's draws stay as they are
            with self.ema.in_place() if self.ema is not None else nullcontext():
                metrics = evaluate(self.model, self.val, self.o.val_draws, generator=generator)
                self._note_best(metrics)
            row |= {f"val_{key}": value for key, value in metrics.items() if key != "num_data"}
        timing = (self.seen - self.seen_before) * self.fabric.world_size / seconds
        return {**row, "examples_per_second": timing, "seconds": seconds}

    def _note_best(self, metrics: dict[str, float]) -> None:
        value = metrics["nll"]
        if self.best is None or value < self.best:
            self.best, self.bad_epochs = value, 0
            if self.folder.path is not None:
                save(self.model, self.folder.path / "best.safetensors")
        else:
            self.bad_epochs += 1

    def _patience_is_over(self) -> bool:
        if self.o.patience is None or self.bad_epochs < self.o.patience:
            return False
        self.history.notes.append(f"stopped early: no better validation nll for {self.o.patience} epochs")
        return True

    def _leave_if_asked(self, signals: Signals) -> None:
        asked = signals.received is not None
        if self.fabric.world_size > 1:  # all ranks or none; asking costs a synchronisation
            if self.batch and self.step % 10:
                return
            flag = torch.tensor(float(asked), device=self.fabric.device)
            asked = bool(self.fabric.all_reduce(flag, reduce_op="max"))
        if asked:
            self._checkpoint()
            self.progress.note(f"stopped at epoch {self.epoch + 1}, step {self.step}")
            signals.leave()

    def _checkpoint(self, epoch_ended: bool = False) -> None:
        if self.folder.path is None:
            return
        self.finite.read()
        state = {
            "epoch": self.epoch,
            "batch": self.batch,
            "step": self.step,
            "seen": self.seen,
            "best": self.best,
            "bad_epochs": self.bad_epochs,
            "sums": self._of_all_ranks([s.cpu() for s in self.sums]),
            "history": [dict(row) for row in self.history],
            "model": self.model.state_dict(),
            "optimizer": self.raw_optimizer.state_dict(),
            "schedule": None if self.schedule is None else self.schedule.state_dict(),
            "warmup": None if self.warmup is None else self.warmup.state_dict(),
            "ema": None if self.ema is None else self.ema.state_dict(),
            "random": self._of_all_ranks(random_state()),
            "epoch_random": self._of_all_ranks(self.epoch_random),
            "epoch_generator": self.epoch_generator,
        }
        write_checkpoint(
            self.folder.checkpoints, self.step, state, self.o.keep_last, self.fabric.is_global_zero
        )
        self.fabric.barrier()

    def _of_all_ranks(self, mine: Any) -> list[Any]:
        if self.fabric.world_size == 1:
            return [mine]
        every: list[Any] = [None] * self.fabric.world_size
        torch.distributed.all_gather_object(every, mine)
        return every

    def _resume(self) -> None:
        state = read_newest(self.folder.checkpoints) if self.folder.path is not None else None
        if state is None:
            return
        if len(state["random"]) != self.fabric.world_size:
            raise ValueError(
                f"the run in {self.folder.path} had {len(state['random'])} processes, this one has "
                f"{self.fabric.world_size}: resume it with the same number"
            )
        check_length(self.schedule, state["schedule"], self.o.epochs, str(self.folder.path))
        mine = self.model.state_dict()
        self.model.load_state_dict(
            {name: load_like(mine[name], value) for name, value in state["model"].items()}
        )
        self.raw_optimizer.load_state_dict(optimizer_state(state["optimizer"], self.raw_optimizer))
        for part, stored in ((self.schedule, "schedule"), (self.warmup, "warmup"), (self.ema, "ema")):
            if part is not None and state[stored] is not None:
                part.load_state_dict(state[stored])
        for sum_, value in zip(self.sums, state["sums"][self.fabric.global_rank], strict=True):
            sum_.copy_(value)
        self.epoch, self.batch, self.step = state["epoch"], state["batch"], state["step"]
        self.seen, self.best, self.bad_epochs = state["seen"], state["best"], state["bad_epochs"]
        self.history.extend(state["history"])
        self.epoch_random = state["epoch_random"][self.fabric.global_rank]
        self.epoch_generator = state["epoch_generator"]
        random = state["random"][self.fabric.global_rank]
        if self.batch and not can_resume_inside(self.train):
            self.history.notes.append("an iterable data set resumes at the start of its epoch")
            self.batch = self.seen = 0
            [s.zero_() for s in self.sums]
            random = self.epoch_random
        self.history.notes.append(f"resumed at epoch {self.epoch + 1}, step {self.step}")
        restore_random_state(*random)


class _Options:
    """The options of `fit`, checked."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.__dict__.update(options)
        for name in ("epochs", "num_draws", "accumulate", "keep_last", "val_draws"):
            value = options[name]
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{name}={value!r} must be a whole number of at least 1")
        for name in ("checkpoint_every", "patience"):
            if options[name] is not None and options[name] < 1:
                raise ValueError(f"{name}={options[name]!r} must be at least 1")
        if options["patience"] is not None and options["val_loader"] is None:
            raise ValueError(f"patience={options['patience']!r} needs a val_loader to watch")
        if str(options["precision"]) in ("16-mixed", "16", "16-true"):
            raise ValueError(
                f"precision={options['precision']!r} needs loss scaling: use 'bf16-mixed' instead"
            )
        if options["kl_warmup"] < 0:
            raise ValueError(f"kl_warmup={options['kl_warmup']!r} must not be negative (epochs)")

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)


__all__ = ["NonFiniteError", "fit"]
