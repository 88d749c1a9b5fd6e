"""The options of training, each declared here and nowhere else.

To add one: a field here, its name in the signature of `bf.fit` where people call it from Python (a test says so when
it is missing), and the code that uses it. Flag, help, config.json, --resume, checks and documentation follow.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from torch.optim import Optimizer

from bayesify.engine.optimizers import OPTIMIZERS
from bayesify.engine.sampling_check import ACTIONS
from bayesify.engine.schedules import SCHEDULES
from bayesify.engine.schema import OptionTable, option
from bayesify.model import BayesianModule
from bayesify.recipes import RECIPES

HOW, VALIDATION, WHERE, FILES = "How to train", "Validation", "Where to run", "Files"


@dataclass(frozen=True, kw_only=True)
class TrainingOptions(OptionTable):
    """How a network is trained, as plain data: `bf.fit`, the command line and config.json have these."""

    epochs: int | None = option(
        HOW, "Passes over the training data.", None, least=1, by_default="as many as the recipe says"
    )
    recipe: str | None = option(
        HOW,
        "How the method is trained where nothing else is said: optimiser, its settings, schedule, warm-up. An option "
        "that is given wins, and lr alone is that of the bare optimiser.",
        "auto",
        choices=RECIPES,
        by_default="by the kind of the network; None, or the name none: the bare optimiser",
    )
    seed: int | None = option(
        HOW,
        "Seed of the weights, the order of the data and the draws.",
        None,
        least=0,
        by_default="random numbers go on from where they are",
    )
    optimizer: str | None = option(
        HOW, "Optimiser.", None, choices=OPTIMIZERS, by_default="the recipe's, or the method's own"
    )
    lr: float | None = option(
        HOW,
        "Learning rate.",
        None,
        above=0,
        by_default="the recipe's; of the bare optimiser 0.001, or the sampler's own",
    )
    momentum: float | None = option(
        HOW, "Nesterov's momentum of SGD.", None, least=0, below=1, by_default="the recipe's, or none"
    )
    weight_decay: float | None = option(
        HOW,
        "Decay of the weights that have no prior, in units of lr as in torch.",
        None,
        least=0,
        by_default="the recipe's, or none",
    )
    schedule: str | Callable[..., Any] | None = option(
        HOW,
        "Course of the learning rate.",
        None,
        choices=SCHEDULES,
        by_default="the recipe's; without one constant, or the method's cycle",
    )
    num_draws: int = option(HOW, "Draws of the weights averaged in each loss.", 1, least=1)
    kl_warmup: float | None = option(
        HOW,
        "Epochs over which the KL weight rises from 0.",
        None,
        least=0,
        by_default="the recipe's, or none",
    )
    frozen_norm: float | None = option(
        HOW,
        "Share of the run, at its end, in which the statistics of batch norm stand still.",
        None,
        least=0,
        below=1,
        by_default="the recipe's, or none",
    )
    plain_first: float | None = option(
        HOW,
        "Share of the run, at its start, in which the network is trained by the plain one's recipe, on the data term "
        "alone. The method's own optimiser, or the one that is given, goes on from there.",
        None,
        least=0,
        below=1,
        by_default="the recipe's, of samplers of a cold posterior, or none",
    )
    accumulate: int = option(HOW, "Batches whose gradients are averaged in one step.", 1, least=1)
    clip_norm: float | None = option(
        HOW, "Largest norm of the gradient.", None, above=0, by_default="the recipe's, or no limit"
    )
    ema: float | None = option(
        HOW,
        "Decay of a moving average of the parameters, e.g. 0.999: validation uses it, and it becomes the model.",
        None,
        above=0,
        below=1,
        by_default="off",
    )
    on_bad_sampling: str = option(
        HOW,
        "What to do where the check of a sampler finds that its draws are not those of the posterior "
        "(`bf.SamplingWarning`).",
        "warn",
        choices=ACTIONS,
    )
    val_draws: int = option(VALIDATION, "Draws averaged in validation and test.", 20, least=1)
    patience: int | None = option(
        VALIDATION,
        "Stop after this many epochs without a better validation.",
        None,
        least=1,
        by_default="never",
    )
    calibrate: bool | None = option(
        VALIDATION,
        "At the end fit the temperature of the classes, or the scale of the predicted variance, on the validation "
        "data (`bf.calibrate`).",
        None,
        by_default="of a regression whose noise is learned",
    )
    accelerator: str = option(WHERE, "Kind of device: auto, cpu, cuda or mps.", "auto")
    devices: int | str | list[int] = option(
        WHERE, "How many devices on each machine, or auto for all of them.", 1
    )
    num_nodes: int = option(WHERE, "How many machines.", 1, least=1)
    strategy: str = option(WHERE, "Over several devices: ddp, fsdp or auto.", "auto")
    precision: str = option(WHERE, "Of the numbers: 32-true, bf16-mixed, bf16-true or 64-true.", "32-true")
    compile: bool | Literal["auto"] = option(
        WHERE,
        "Compile the network with torch.compile.",
        "auto",
        by_default="on a GPU, when the run is long enough to pay for it",
    )
    checkpoint_every: int | None = option(
        FILES,
        "Steps between checkpoints, beside the one after each epoch.",
        None,
        least=1,
        by_default="after each epoch only",
    )
    keep_last: int = option(
        FILES, "Newest checkpoints to keep; an older one is deleted after the next was written.", 2, least=1
    )
    tensorboard: bool = option(FILES, "Write TensorBoard files as well.", False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.precision in ("16-mixed", "16", "16-true"):
            raise ValueError(
                f"{self.prefix}precision={self.precision!r} needs loss scaling: use 'bf16-mixed' instead"
            )


@dataclass(frozen=True, kw_only=True)
class FitOptions(TrainingOptions):
    """All that `bf.fit` takes beside model and loaders: functions, and the folder of this one call, too."""

    optimizer: str | Optimizer | Callable[[Any], Optimizer] | None = option(  # type: ignore[assignment]
        HOW,
        "An optimiser, its name, or a function of the parameters that makes one; for the last two the recipe has no "
        "part in the run.",
        None,
        choices=OPTIMIZERS,
        by_default="the recipe's, or the method's own, `model.optimizer(lr)`",
    )
    steps_per_epoch: int | None = option(
        HOW,
        "For a loader without a length: optimiser steps after which its epoch ends (the next one iterates the "
        "loader anew), so that schedule, warm-up and progress bar know where they stand.",
        None,
        least=1,
        by_default="the loader's own number",
    )
    on_epoch: Callable[[BayesianModule, int], dict[str, Any] | None] | None = option(
        VALIDATION,
        "Called as on_epoch(model, epoch) after each epoch, on every process; the numbers it returns join the "
        "epoch's row.",
        None,
    )
    folder: str | Path | None = option(
        FILES, "Where the files of the run go, see above.", None, by_default="nothing is written"
    )
    resume: bool = option(
        FILES,
        "Go on with a run that was stopped in the folder, bit for bit, also with more epochs (schedules are then "
        "laid out anew, which a note says).",
        True,
    )
    data_changed: bool = option(
        FILES,
        "Go on with a stored run although the data are others. A fingerprint of them is in every checkpoint, and "
        "without this other data are refused.",
        False,
    )
    progress: bool = option(FILES, "Show a progress bar, or a line for each epoch.", True)
