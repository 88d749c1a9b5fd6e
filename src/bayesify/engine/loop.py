"""The loop of `bf.fit`: epochs, steps, validation. Where it stands is in `RunState`."""

import time
import warnings
from contextlib import nullcontext
from typing import Any

import torch
from torch import Generator, Tensor

from bayesify import torch_internals as internals
from bayesify.batches import first_of, inputs_of, target_of, to_device
from bayesify.checks import NonFiniteError, NonFiniteLossError
from bayesify.engine.apart import MemberGradients, apart
from bayesify.engine.averaging import SETTLING_DRAW, settle_statistics
from bayesify.engine.capture import CapturedGradients
from bayesify.engine.conclusion import Conclusion, check_conclusion
from bayesify.engine.fingerprint import fingerprint_of
from bayesify.engine.finite import FiniteCheck
from bayesify.engine.first_guess import first_guess
from bayesify.engine.folder import RunFolder
from bayesify.engine.history import History, joined
from bayesify.engine.options import FitOptions
from bayesify.engine.position import (
    agree_on_num_data,
    check_second_epoch,
    examples_per_step,
    number_of_examples,
    number_of_steps,
    share_of_rank,
)
from bayesify.engine.progress import Progress
from bayesify.engine.randomness import seed_everything, untouched
from bayesify.engine.sampling_check import check_draws
from bayesify.engine.settling import plain_options, settled
from bayesify.engine.setup import (
    compile_backend,
    compile_decision,
    compile_model,
    from_compiler,
    make_fabric,
    takes_graphs,
)
from bayesify.engine.signals import Signals
from bayesify.engine.state import ASSUMED_STEPS, RunState, assumed
from bayesify.engine.warm_up import warm_up
from bayesify.evaluation.calibrate import calibrate, calibrate_noise
from bayesify.evaluation.evaluate import evaluate
from bayesify.files.storage import save_in_run
from bayesify.model import BayesianModule
from bayesify.objectives import Loss
from bayesify.posteriors import Chain
from bayesify.posteriors.patched.running_stats import RunningStats
from bayesify.predict.calibration import quantity
from bayesify.samplers import Sampler, SamplingWarning


class Loop:
    """One call of `fit`."""

    def __init__(self, model: BayesianModule, train: Any, val: Any, options: FitOptions) -> None:
        self.model, self.val = model, val
        o = options
        if o.seed is not None:
            seed_everything(o.seed)
        self.fabric = make_fabric(o.accelerator, o.devices, o.num_nodes, o.strategy, o.precision)
        if o.seed is not None:
            seed_everything(o.seed, self.fabric.global_rank)
        check_conclusion(model, val, self.fabric.world_size)
        self.train = share_of_rank(train, self.fabric, o.seed)
        from bayesify.data import Loader  # a room that is loaded where it is needed

        if isinstance(train, Loader):
            model.augment = train.views()
        agree_on_num_data(model, number_of_examples(train))
        steps = number_of_steps(self.train, o.accumulate, o.steps_per_epoch)
        o, chosen = settled(o, model, train, steps, self.fabric.world_size)
        self.o, self.epochs = o, o.epochs or 0  # None of a method that needs no training
        passes = self.epochs + model.posterior.concludes
        if o.steps_per_epoch is None:  # else it may go on from one to the next
            check_second_epoch(train, "train_loader", passes + model.posterior.concludes)
        check_second_epoch(
            val, "val_loader", passes + model.posterior.concludes
        )  # which goes through both often
        self.folder = RunFolder(o.folder, o.resume, self.fabric.is_global_zero)
        self.folder.check()
        self.progress = Progress(self.epochs, steps, o.progress and self.fabric.is_global_zero)
        reason = self._place(steps)
        data = {} if o.folder is None else fingerprint_of(train)
        plain = plain_options(o, model, train, self.fabric.world_size)
        self.state = RunState(model, o, self.fabric, steps, data, plain)
        self.batches, shared = apart(self.train, model)
        said = (reason, chosen, shared, *model.method.notes())
        self.state.history.notes += [text for text in said if text is not None]
        self.assumed = assumed(model, o) if steps is None else None
        if self.assumed is not None:
            self.state.history.notes.append(str(self.assumed))
        self.steps = steps
        self._attach()
        self.inputs: Any = None  # of the last batch
        self.trouble: Exception | None = None  # with its draws, raised when the files are written

    def _attach(self) -> None:
        """Go on by the optimiser of the present part of the run."""
        made = self.state.optimizer
        self.optimizer = made if self.direct else self.fabric.setup_optimizers(made)
        self.finite = FiniteCheck(self.model, made, self.fabric)
        is_own = self.model.method.own_optimizer and not self.state.is_plain
        self.gradients = MemberGradients(self.model, made, is_own)
        self.per_step = examples_per_step(self.train, self.steps) if isinstance(made, Sampler) else None

    def _place(self, steps: int | None) -> str:
        """The model on its devices and compiled, where that pays; returns the reason."""
        num_steps = (ASSUMED_STEPS if steps is None else steps) * self.epochs
        compiled, reason = compile_decision(self.o.compile, self.model, self.fabric.device, num_steps)
        # one process at a precision without loss scaling needs none of Fabric's wrappers, which cost time
        self.direct = self.fabric.world_size == 1 and self.o.precision in ("32-true", "bf16-mixed")
        if self.direct:
            self.model.to(self.fabric.device)  # `fabric.to_device` leaves it where it is under "fsdp"
        self.backend = compile_backend(self.o.compile, self.model)
        recorded = self.direct and takes_graphs(self.fabric) and self.o.accumulate == 1
        if compiled and self.backend == "eager" and not recorded:
            compiled, reason = (
                False,
                "compile: off (it takes minutes with a sweep; compile=True switches it on)",
            )
        self.unchecked = compiled  # compiled code has no checks that read values
        self.untried = compiled and self.direct and self.o.compile == "auto"
        self.captured: CapturedGradients | None = None
        self.module: Any = self.model
        if compiled and recorded:
            self.captured = CapturedGradients(self.model, self.fabric.device, self.backend)
            self.module = self.captured.compiled
        elif compiled:
            self.module = self._compiled()
        if not self.direct:
            self.module = self.fabric.setup_module(self.module, move_to_device=True)
        return reason

    def _compiled(self) -> Any:
        """What runs where a step is not recorded."""
        return self.model if self.backend == "eager" else compile_model(self.model, self.fabric)

    def run(self, signals: Signals) -> History:
        """From where the run stands to its last epoch, or until a signal or the patience ends it."""
        state = self.state
        if isinstance(self.assumed, SamplingWarning):
            warnings.warn(self.assumed, stacklevel=3)
        found = False
        if self.folder.path is not None:
            found = state.read(self.folder.checkpoints, self.train, self.o)
            self._attach()
            (self.folder.reached_a_checkpoint if found else self.folder.begin)()
        if found:
            self.model.likelihood.from_data = False
        else:
            self._first_guess()
        writer = self.folder.tensorboard(self.o.tensorboard)
        for note in state.history.notes:
            self.progress.note(note)
        while state.epoch < self.epochs and not self._patience_is_over():
            turned = state.turn()
            if turned is not None:
                self._attach()
                self._note(turned)
            self._epoch(signals)
            row = self._row()
            self.progress.epoch(row)
            state.end_epoch(row)
            self.folder.write_history(state.history)
            if writer is not None:
                [writer.add_scalar(k, v, state.step) for k, v in row.items() if isinstance(v, int | float)]
            self._check_draws()  # before the checkpoint: a run that is killed after it has nothing to check them with
            self._checkpoint()
            self._leave_if_asked(signals)
        if writer is not None:
            writer.close()
        self._finish()
        return state.history

    def _first_guess(self) -> None:
        """A run that begins may start the noise of a regression from the data."""
        said = first_guess(self.model, self.train, self.fabric, self.epochs > 0)
        if said is not None:
            self.state.history.notes.append(said)
        if self.state.ema is not None:
            self.state.ema.begin()

    def _finish(self) -> None:
        """Leave the model as it shall be used, and write it. Files know what was found, also where that is raised."""
        state = self.state
        caution = self.model.posterior.caution()
        if isinstance(caution, SamplingWarning):
            state.history.notes.append(str(caution))
        state.history.notes += self.model.posterior.asides()
        if state.ema is not None:
            state.ema.finish()
        posterior = self.model.posterior
        posterior.finish(self.model.net)
        own = any(isinstance(part, RunningStats) for part in posterior.modules())
        if (state.ema is not None or own or posterior.averages()) and not self.o.frozen_norm:
            self._settle(state.epoch - 1)  # as in the last validation
        if state.warmup is not None:  # a warm-up longer than the run must not weaken the next one
            self.model.kl_weight.fill_(state.warmup.end)
        if self.model.posterior.concludes:
            self._conclude()
        if self.o.calibrate or (self.o.calibrate is None and self.val is not None):
            self._calibrate()
        if self.folder.path is not None:
            save_in_run(self.model, self.folder.path / "model.safetensors")
        self.fabric.barrier()
        if self.trouble is not None:
            raise self.trouble

    def _conclude(self) -> None:
        """What a posterior finds in the trained network, by one more pass over the data."""
        end = None if self.o.steps_per_epoch is None else self.o.steps_per_epoch * self.o.accumulate
        data = (self.train, self.val, self.state.epoch, end, self.o.val_draws)
        for text in Conclusion(self.model, *data).found():
            self._note(text)

    def _calibrate(self) -> None:
        """Fit the number that predictions are calibrated by, the same one whenever a run is finished again."""
        generator = Generator(self.fabric.device).manual_seed(self.state.epoch)
        fit = calibrate if self.o.calibrate else calibrate_noise
        with self.model.uncautioned():
            value = fit(self.model, self.val, self.o.val_draws, generator)
        if value is not None:
            self._note(f"calibrated on the validation data: {quantity(self.model.likelihood)} {value:.4g}")

    def _settle(self, epoch: int) -> None:
        """Statistics of batch norm: those of every draw that has its own, and then those that stay in the network."""
        for _ in self.model.posterior.settling():
            settle_statistics(self.model, self.train, epoch, self.fabric, SETTLING_DRAW)
        settle_statistics(self.model, self.train, epoch, self.fabric)

    def _check_draws(self) -> None:
        """After the last epoch: has a chain settled, do several agree?"""
        state = self.state
        if state.epoch < self.epochs and not self._patience_is_over():
            return
        if self.inputs is not None and self.fabric.is_global_zero:
            seen = (self.inputs, state.history, int(state.clipped))
            try:
                check_draws(self.model, state.optimizer, *seen, steady=state.schedule is None)
            except Exception as error:
                self.trouble = error

    def _epoch(self, signals: Signals) -> None:
        """Train to the end of the epoch from wherever it stands."""
        state = self.state
        self.model.calibration = self.model.conformal = None  # they were fitted to other weights
        self.model.train()
        self._freeze_norm()
        end = None if self.o.steps_per_epoch is None else self.o.steps_per_epoch * self.o.accumulate
        before, iterator = state.remaining_batches(self.batches, end)
        if (
            before is not None
        ):  # a run that was killed after its last batch has no other for the check of its draws
            self.inputs = inputs_of(to_device(first_of(before), self.fabric.device))
        self.started, self.seen_before = time.perf_counter(), state.seen
        group: list[Any] = []
        for batch in iterator:
            group.append(batch)
            state.batch += 1
            if len(group) == self.o.accumulate:
                self._step(group)
                group = []
                if self.o.checkpoint_every and state.step % self.o.checkpoint_every == 0:
                    self._checkpoint()
                self._leave_if_asked(signals)
        if group:
            self._step(group)
        self.finite.read()
        if end is not None and state.batch < end:
            self._note(
                f"train_loader ended after {state.batch} batches: steps_per_epoch={self.o.steps_per_epoch} "
                f"is too large for it, and the schedule does not reach its end"
            )

    def _freeze_norm(self) -> None:
        """In the last part of the run, by epochs, batch norm takes the statistics that it has."""
        if self._norm_is_frozen():
            for module in self.model.modules():
                if isinstance(module, internals.BatchNorm):
                    module.eval()

    def _norm_is_frozen(self) -> bool:
        return self.epochs - self.state.epoch <= (self.o.frozen_norm or 0.0) * self.epochs

    def _step(self, group: list[Any]) -> None:
        """One optimiser step from the gradients of a group of batches."""
        total = None
        begins = warm_up(self.model, self.state.optimizer, group[0], self.fabric)
        if begins is not None:
            self._note(f"step {self.state.step}: {begins}")
        for i, batch in enumerate(group):
            batch = to_device(batch, self.fabric.device, next(self.model.parameters()).dtype)
            x, y = inputs_of(batch), target_of(batch)
            self.inputs, size = first_of(x), len(first_of(y))
            if self.unchecked:
                self._check(x, y)
            loss = self._captured(x, y)
            if loss is None:
                if self.untried:
                    self._try(x, y)
                if i == 0:
                    self.optimizer.zero_grad()
                loss = self._forward_backward(x, y, len(group), last=i == len(group) - 1)
            this = self.state.add(loss, size)
            total = this if total is None else total + this
        assert total is not None
        self.finite.before_step(total)
        self.gradients.of_shared()
        limit = self.state.now.clip_norm
        if limit is not None:
            self.state.clipped = self.state.clipped + self.gradients.clip(limit)
        self.optimizer.step()
        self.state.after_step()
        if self.progress.due():
            self._show()

    def _check(self, x: Any, y: Tensor) -> None:
        """The first batch of a compiled run through the model as it is, with all its checks; no trace is left."""
        self.unchecked = False
        with untouched(self.model), torch.no_grad(), self.fabric.autocast():
            self.model(x, target=y)

    def _try(self, x: Any, y: Tensor) -> None:
        """The first step through a compiler that nobody asked for; where that fails, the run goes on without it."""
        self.untried = False
        try:
            with untouched(self.model):
                self._forward_backward(x, y, parts=1, last=True)
        except Exception as error:
            if not from_compiler(error):
                raise
            self._note(f"compile: off (torch's compiler failed: {str(error).strip().splitlines()[0]})")
            self.module = self.model

    def _captured(self, x: Any, y: Tensor) -> Loss | None:
        """The loss, and the gradients in the parameters, by a CUDA graph; None where there is none for this batch."""
        if self.captured is None:
            return None
        loss = self.captured(lambda x, y: self._forward_backward(x, y, parts=1, last=True), x, y)
        if self.captured.refusal is not None:
            self._note(f"compile: the step does not run as one CUDA graph ({self.captured.refusal})")
            self.captured, self.module = None, self._compiled()
        return loss

    def _forward_backward(self, x: Any, y: Tensor, parts: int, last: bool) -> Loss:
        if self.direct:
            with self.fabric.autocast():
                loss = self._loss(x, y)
            self._part(loss, len(first_of(y)), parts).backward()
            return Loss(*(part.detach() for part in loss))
        with self.fabric.no_backward_sync(self.module, enabled=not last):
            loss = self._loss(x, y)
            self.fabric.backward(self._part(loss, len(first_of(y)), parts))
        return loss

    def _part(self, loss: Loss, num_examples: int, parts: int) -> Tensor:
        """What a batch adds to the loss of its step, of so many batches: the mean, as everywhere in torch. For a
        sampler every example counts alike in an epoch, those of a short last batch or group of batches too."""
        if self.per_step is None or num_examples * parts == self.per_step:
            return loss.total * self.gradients.times / parts
        return loss.nll * (num_examples / self.per_step) + (loss.total - loss.nll) / parts

    def _loss(self, x: Any, y: Tensor) -> Loss:
        try:
            return self.module(x, target=y, num_draws=self.o.num_draws)
        except NonFiniteLossError as error:  # found by the model itself, which says where it comes from
            raise NonFiniteError(str(error)) from error
        except ValueError as error:
            if "more than 1 value per channel" not in str(error):
                raise
            raise ValueError(
                f"batch norm cannot be trained by a batch of one example, as batch {self.state.batch} of train_loader "
                f"is: give it drop_last=True, or another batch_size ({error})"
            ) from error

    def _show(self) -> None:
        state = self.state
        loss, nll, kl = (s.item() / max(state.seen, 1) for s in state.sums)
        rate = (state.seen - self.seen_before) / (time.perf_counter() - self.started)
        numbers = {"loss": loss, "nll": nll, "kl": kl}
        if state.history and state.history[-1].get("val_accuracy") is not None:
            numbers["accuracy"] = state.history[-1]["val_accuracy"]
        self.progress.step(state.epoch, state.step, {**numbers, "examples/s": rate * self.fabric.world_size})

    def _row(self) -> dict[str, Any]:
        """The history's row of the epoch that ended."""
        state = self.state
        seconds = time.perf_counter() - self.started
        row: dict[str, Any] = {
            "epoch": state.epoch + 1,
            "step": state.step,
            **state.means(),
            "lr": state.optimizer.param_groups[0]["lr"],
            "kl_weight": self.model.kl_weight.item(),
        }
        if self.val is not None:
            row |= self._validate()
        timing = (state.seen - self.seen_before) * self.fabric.world_size / seconds
        more = None if self.o.on_epoch is None else self.o.on_epoch(self.model, state.epoch + 1)
        return joined(row, {} if more is None else more, {"examples_per_second": timing, "seconds": seconds})

    def _validate(self) -> dict[str, float]:
        """The metrics on the validation data; the best model so far is saved."""
        state = self.state
        # training's draws stay as they are
        generator = Generator(self.fabric.device).manual_seed(state.epoch)
        with state.ema.in_place() if state.ema is not None else nullcontext(), self.model.uncautioned():
            averages = state.ema is not None or self.model.posterior.averages()
            if averages and not self._norm_is_frozen():
                self._settle(state.epoch)
            metrics = evaluate(self.model, self.val, self.o.val_draws, generator=generator, augment=None)
            if state.is_best(metrics["nll"]) and self.folder.path is not None:
                save_in_run(self.model, self.folder.path / "best.safetensors")
        return {f"val_{key}": value for key, value in metrics.items() if key != "num_data"}

    def _patience_is_over(self) -> bool:
        if any(isinstance(part, Chain) and not len(part.store) for part in self.model.posterior.modules()):
            self.state.bad_epochs = 0  # its burn-in is no part of what predicts
        if self.o.patience is None or self.state.bad_epochs < self.o.patience or self.state.is_plain:
            return False
        self._note(f"stopped early: no better validation nll for {self.o.patience} epochs")
        return True

    def _note(self, text: str) -> None:
        """Say something once, on the screen and in the history."""
        if text not in self.state.history.notes:
            self.state.history.notes.append(text)
            self.progress.note(text)

    def _leave_if_asked(self, signals: Signals) -> None:
        asked = signals.received is not None
        if self.fabric.world_size > 1:  # all ranks or none; asking costs a synchronisation
            if self.state.batch and self.state.step % 10:
                return
            flag = torch.tensor(float(asked), device=self.fabric.device)
            asked = bool(self.fabric.all_reduce(flag, reduce_op="max"))
        if asked:
            self._checkpoint()
            self.progress.note(f"stopped at epoch {self.state.epoch + 1}, step {self.state.step}")
            signals.leave()

    def _checkpoint(self) -> None:
        if self.folder.path is None:
            return
        self.finite.read()  # a checkpoint never holds a bad step
        self.state.write(self.folder.checkpoints, self.o.keep_last)
        self.folder.reached_a_checkpoint()
