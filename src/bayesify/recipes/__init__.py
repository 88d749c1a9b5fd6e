"""How a method wants to be trained: a file for each kind of network, with a table for each method that differs."""

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from typing import Any

from bayesify.methods import DeepEnsemble, Method
from bayesify.weights.kinds import KINDS

NONE = "none"
RECIPES = {"auto": "by the kind of the network", NONE: "the bare optimiser", **KINDS}
OWN = "own"  # the method's optimiser, `model.optimizer(lr)`
OF_SGD, OF_NAMED = ("momentum",), ("momentum", "weight_decay")  # settings that other optimisers do not take


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What a file says of one method; without one, what the engine does by itself."""

    optimizer: str = OWN
    lr: float | None = None  # of batches of `batch_size`
    batch_size: int = 128
    momentum: float | None = None
    weight_decay: float | None = None
    schedule: str | None = None
    kl_warmup: float | None = None  # share of the run
    frozen_norm: float | None = None  # share of the run
    plain_first: float | None = None  # share of the run
    clip_norm: float | None = None
    epochs: int = 30  # where none are given; more where these are fewer steps than
    least_steps: int = 2000
    most_epochs: int | None = None  # that least_steps may ask for: few examples are learnt by heart
    #: of a network that is trained already: shares of `lr`, of `epochs` and `least_steps`, and of `plain_first`
    pretrained: Mapping[str, float] = field(default_factory=lambda: {"lr": 1.0, "run": 1.0})

    def lr_for(self, batch_size: float | None) -> float | None:
        """The noise of SGD goes with lr / batch, that of Adam with lr / √batch. Larger batches do not raise it."""
        if self.lr is None or batch_size is None:
            return self.lr
        return self.lr * min(batch_size / self.batch_size, 1.0) ** (1.0 if self.optimizer == "sgd" else 0.5)

    def epochs_for(self, steps: int | None) -> int:
        """For epochs of so many steps; None: nobody knows."""
        if steps is None:
            return self.epochs
        asked = math.ceil(self.least_steps / steps)
        return max(self.epochs, asked if self.most_epochs is None else min(asked, self.most_epochs))

    def small_steps(self) -> "Recipe":
        """The same for a network that is trained already."""
        share, run = self.pretrained["lr"], self.pretrained["run"]
        return replace(
            self,
            lr=None if self.lr is None else self.lr * share,
            epochs=math.ceil(self.epochs * run),
            least_steps=math.ceil(self.least_steps * run),
            plain_first=self.plain_first and self.plain_first * self.pretrained.get("plain_first", 1.0),
            most_epochs=None if self.most_epochs is None else math.ceil(self.most_epochs * run),
        )


@cache
def tables(kind: str) -> dict[str, dict[str, Any]]:
    """What the file of a kind holds."""
    return tomllib.loads((files(__name__) / f"{kind}.toml").read_text(encoding="utf-8"))


def recipe(kind: str, method: Method) -> Recipe:
    """That of a method for networks of a kind. A method whose optimiser is its own keeps it where no table of its own
    names one, and one that a file does not know is trained as all are."""
    while isinstance(method, DeepEnsemble):
        method = method.method
    found, own = tables(kind), tables(kind).get(method.recipe, {})
    if method.own_optimizer and "optimizer" not in own:
        return Recipe(**own)
    optimizer = own.get("optimizer", found["all"]["optimizer"])
    foreign = {"sgd": (), OWN: OF_NAMED}.get(optimizer, OF_SGD)
    common = {key: value for key, value in found["all"].items() if key not in foreign}
    return Recipe(**{**common, **own})
