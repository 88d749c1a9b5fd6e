"""What a run leaves to the recipe, filled in."""

from dataclasses import replace
from typing import Any, TypeVar

from bayesify import torch_internals as internals
from bayesify.engine.optimizers import USUAL_LR
from bayesify.engine.options import TrainingOptions
from bayesify.engine.position import number_of_examples
from bayesify.methods import Method, Point
from bayesify.model import BayesianModule
from bayesify.model.bayesian_module import PRETRAINED
from bayesify.recipes import NONE, OWN, Recipe, recipe
from bayesify.weights.kinds import KINDS, kind_of_network

#: what the plain network's recipe decides whatever is said of the rest of the run
OF_PLAIN = ("optimizer", "lr", "momentum", "weight_decay", "schedule", "kl_warmup")
Options = TypeVar("Options", bound=TrainingOptions)


def settled(
    options: Options,
    model: BayesianModule,
    loader: Any,
    steps: int | None,
    processes: int = 1,
    trains: bool = False,
) -> tuple[Options, str | None]:
    """The options with all that was left to the recipe, and the line that says so; None where it has no part. What is
    settled stays as it is when it is settled again.

    steps:   of an epoch; None: nobody knows
    trains:  the network is trained by as many epochs as the recipe says where none are given, also where the method
             needs no training
    """
    if options.epochs is None and not (trains or model.method.needs_training):
        return replace(options, recipe=NONE), None
    kind = options.recipe if options.recipe in KINDS else kind_of_network(model.net)
    found = _recipe(str(kind), model.method, model)
    bare = is_bare(options)
    epochs = found.epochs_for(steps) if options.epochs is None else options.epochs
    options = replace(options, epochs=epochs, recipe=NONE if bare else kind)
    chosen: dict[str, Any] = {}
    if not bare:
        wanted = _wanted(options, model, found, _batch_size(loader, options.accumulate * processes))
        options = replace(options, **{k: v for k, v in wanted.items() if getattr(options, k) is None})
        chosen = {k: v for k, v in wanted.items() if v is not None and getattr(options, k) == v}
    plain = plain_options(options, model, loader, processes)
    if bare and plain is None:
        return options, None
    first = 0 if plain is None or plain.epochs is None else plain.epochs
    said = ", ".join(_words(chosen, epochs - first))
    if first:
        said = f"{', '.join(_words(vars(plain), first))} as a plain network, then {said}"
    trained = ", trained already" if model.start == PRETRAINED else ""
    return options, f"recipe {kind} ({KINDS[str(kind)]}{trained}): {said}"


def _recipe(kind: str, method: Method, model: BayesianModule) -> Recipe:
    """That of a method for the network of `model`, from scratch or not."""
    found = recipe(kind, method)
    return found.small_steps() if model.start == PRETRAINED else found


def is_bare(options: TrainingOptions) -> bool:
    """Does the recipe have no part in the run? A learning rate alone is that of the bare optimiser."""
    if options.recipe in (None, NONE) or not isinstance(options.optimizer, str | None):
        return True
    more = (options.optimizer, options.weight_decay, options.momentum)
    return options.recipe == "auto" and options.lr is not None and more == (None, None, None)


def _wanted(
    options: TrainingOptions, model: BayesianModule, found: Recipe, batch_size: float | None
) -> dict[str, Any]:
    """What the recipe says to each option; None: nothing."""
    own = None if found.optimizer == OWN else found.optimizer
    name = options.optimizer or own
    assert options.epochs is not None
    normed = any(isinstance(module, internals.BatchNorm) for module in model.modules())
    return {
        "optimizer": name,
        "lr": found.lr_for(batch_size) if name == own else USUAL_LR[str(name)],
        "momentum": found.momentum if name == own else None,
        "weight_decay": found.weight_decay,
        "clip_norm": found.clip_norm,
        "kl_warmup": None if found.kl_warmup is None else found.kl_warmup * options.epochs,
        "plain_first": found.plain_first,
        "frozen_norm": found.frozen_norm if normed else None,
        "schedule": found.schedule,
    }


def plain_options(options: Options, model: BayesianModule, loader: Any, processes: int = 1) -> Options | None:
    """How the plain network is trained in the first epochs of a run with these settled options, and in how many; None
    where there are none. At least one epoch is left for what follows."""
    if options.epochs is None:
        return None
    epochs = min(round((options.plain_first or 0.0) * options.epochs), options.epochs - 1)
    if epochs < 1:
        return None
    kind = options.recipe if options.recipe in KINDS else kind_of_network(model.net)
    left_open: dict[str, Any] = dict.fromkeys(OF_PLAIN)
    options = replace(options, epochs=epochs, **left_open)
    batch_size = _batch_size(loader, options.accumulate * processes)
    wanted = _wanted(options, model, _recipe(str(kind), Point(), model), batch_size)
    return replace(options, **{k: v for k, v in wanted.items() if getattr(options, k) is None})


def _words(chosen: dict[str, Any], epochs: int) -> list[str]:
    """What the recipe chose: ["sgd", "lr 0.1", "momentum 0.9", "onecycle over 20 epochs"]."""
    said = [chosen.get("optimizer", "the method's own optimiser")]
    for name in ("lr", "momentum", "weight_decay", "clip_norm"):
        said += [f"{name.replace('_', ' ')} {chosen[name]:.3g}"] if chosen.get(name) else []
    if chosen.get("kl_warmup"):
        said.append(f"KL warm-up over {chosen['kl_warmup']:.3g} epochs")
    if chosen.get("frozen_norm"):
        said.append(f"batch-norm statistics at rest in the last {100 * chosen['frozen_norm']:.0f} %")
    return [*said, f"{chosen.get('schedule', 'constant')} over {epochs} epochs"]


def _batch_size(loader: Any, times: int) -> float | None:
    """Examples in a step of the optimiser; None: nobody knows."""
    size = getattr(loader, "batch_size", None)
    if size is None and hasattr(loader, "__len__") and len(loader):
        found = number_of_examples(loader)
        size = None if found is None else found / len(loader)
    return None if size is None else size * times
