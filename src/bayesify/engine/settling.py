"""What a run leaves to the recipe, filled in."""

from dataclasses import replace
from typing import Any

from bayesify.engine.options import FitOptions
from bayesify.engine.optimizers import USUAL_LR
from bayesify.engine.position import number_of_examples
from bayesify.model import BayesianModule
from bayesify.recipes import KINDS, NONE, OWN, Recipe, kind_of_network, recipe


def settled(
    options: FitOptions, model: BayesianModule, loader: Any, steps: int | None, processes: int = 1
) -> tuple[FitOptions, str | None]:
    """The options with all that was left to the recipe, and the line that says so; None where it has no part.

    steps: of an epoch; None: nobody knows
    """
    kind = options.recipe if options.recipe in KINDS else kind_of_network(model.net)
    found = recipe(kind, model.method)
    if options.epochs is None:
        options = replace(options, epochs=found.epochs_for(steps))
    if is_bare(options):
        return options, None
    mine = _left_out(options, found, _batch_size(loader, options.accumulate * processes))
    options = replace(options, **mine)
    return options, f"recipe {kind} ({KINDS[kind]}): {_words(options, mine)}"


def is_bare(options: FitOptions) -> bool:
    """Does the recipe have no part in the run? A learning rate alone is that of the bare optimiser."""
    if options.recipe in (None, NONE) or not isinstance(options.optimizer, str | None):
        return True
    more = (options.optimizer, options.weight_decay, options.momentum)
    return options.recipe == "auto" and options.lr is not None and more == (None, None, None)


def _left_out(options: FitOptions, found: Recipe, batch_size: float | None) -> dict[str, Any]:
    name = options.optimizer or (None if found.optimizer == OWN else found.optimizer)
    same = options.optimizer in (None, found.optimizer)
    assert options.epochs is not None
    filled = {
        "optimizer": name,
        "lr": found.lr_for(batch_size) if same else USUAL_LR[str(name)],
        "momentum": found.momentum if same else None,
        "weight_decay": found.weight_decay,
        "schedule": found.schedule,
        "kl_warmup": None if found.kl_warmup is None else found.kl_warmup * options.epochs,
        "frozen_norm": found.frozen_norm,
        "clip_norm": found.clip_norm,
    }
    return {
        key: value for key, value in filled.items() if getattr(options, key) is None and value is not None
    }


def _words(options: FitOptions, mine: dict[str, Any]) -> str:
    """What the recipe chose: "sgd, lr 0.1, momentum 0.9, onecycle over 20 epochs"."""
    said = [str(mine.pop("optimizer", options.optimizer or "the method's own optimiser"))]
    schedule = mine.pop("schedule", None)
    said += [f"{name.replace('_', ' ')} {value:.3g}" for name, value in mine.items() if value]
    return ", ".join(
        [
            *said,
            f"{options.epochs} epochs" if schedule is None else f"{schedule} over {options.epochs} epochs",
        ]
    )


def _batch_size(loader: Any, times: int) -> float | None:
    """Examples in a step of the optimiser; None: nobody knows."""
    size = getattr(loader, "batch_size", None)
    if size is None and hasattr(loader, "__len__") and len(loader):
        found = number_of_examples(loader)
        size = None if found is None else found / len(loader)
    return None if size is None else size * times
