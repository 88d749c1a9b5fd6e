"""bf.fit: train any model of any method, on any device, and be able to stop and go on at any time."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch

from bayesify.checks import NonFiniteError
from bayesify.engine.history import History
from bayesify.engine.loop import Loop
from bayesify.engine.options import Options
from bayesify.engine.signals import Signals
from bayesify.model import BayesianModule


def fit(
    model: BayesianModule,
    train_loader: Iterable[Any],
    val_loader: Iterable[Any] | None = None,
    *,
    epochs: int,
    lr: float | None = None,
    optimizer: torch.optim.Optimizer | Callable[[Any], torch.optim.Optimizer] | None = None,
    schedule: str | Callable[..., Any] | None = None,
    steps_per_epoch: int | None = None,
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
    on_epoch: Callable[[BayesianModule, int], dict[str, Any] | None] | None = None,
    tensorboard: bool = False,
    seed: int | None = None,
    progress: bool = True,
) -> History:
    """Train `model`; returns one row per epoch.

    lr:         None: 1e-3, but for some samplers (see `bf.ThermostatMCMC`)
    optimizer:  an optimiser, or a function of the parameters that makes one; else `model.optimizer(lr)`
    schedule:   "cosine", "linear", "onecycle", or a function (optimizer, num_steps) -> scheduler; None: constant, or
                the cycles of `bf.ThermostatMCMC(cycle=)`
    steps_per_epoch:  for a loader without a length: optimiser steps after which its epoch ends (the next
                one iterates the loader anew), so that schedule, warm-up and progress bar know where they stand
    kl_warmup:  epochs over which the KL weight rises from 0
    accumulate: batches whose gradients are averaged in one step
    ema:        decay of a moving average of the parameters, used for validation and left in the model
    patience:   stop when validation has not improved for this many epochs
    folder:     where the files of the run go, see below; with `resume` a run that was stopped there goes
                on bit for bit, also with more epochs ("cosine" and "linear" are then laid out anew, which
                a note says; "onecycle" cannot grow)
    checkpoint_every:  steps between checkpoints (one is always written after each epoch)
    keep_last:  newest checkpoints to keep; an older one is deleted after the next was written
    strategy:   "auto", "ddp" or "fsdp" for several devices or nodes
    precision:  "32-true", "bf16-mixed", "bf16-true" or "64-true"
    on_epoch:   called as on_epoch(model, epoch) after each epoch, on every process; the numbers it returns join the
                epoch's row
    compile:    True, False or "auto": on an accelerator when the run is long enough to pay for it

    The model stays on the device it was trained on. `model.predict` and the other functions of bayesify take inputs
    from any device; for `model(x)` bring them together, model.to(x.device).

    The folder holds checkpoints/step-*.safetensors (the last `keep_last`, each enough to go on from; one
    that turns out damaged is named and the one before it is used), metrics.csv (the history),
    model.safetensors (the model after the last epoch, written once at the end; the average with `ema`)
    and, with a val_loader, best.safetensors (the model after the epoch with the smallest validation nll so
    far, replaced whenever that falls). Every file is written beside its name and moved there, so a reader
    never sees half of one. The model in memory is that of the last epoch: load best.safetensors for the
    other. One run owns the folder at a time; a second one is refused.
    """
    loop = Loop(model, train_loader, val_loader, Options(locals()))
    with loop.folder, Signals() as signals, loop.progress:
        return loop.run(signals)


__all__ = ["NonFiniteError", "fit"]
