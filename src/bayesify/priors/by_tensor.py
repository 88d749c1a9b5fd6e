"""Priors that give every tensor of a network a prior of its own, by its name or shape."""

import math
import re
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from bayesify.names import check_quick
from bayesify.priors.base import Prior, positive, share
from bayesify.priors.joint import Direction, GroupLaplace
from bayesify.priors.real import Normal

Choice = str | Prior | Mapping[str, Any]


class ByTensor(Prior):
    """A rule for the prior of a tensor; it has no density itself."""

    def log_prob(self, value: Tensor) -> Tensor:
        """An error that says what to ask instead."""
        raise ValueError(
            f"the {self.name} prior depends on the tensor's name and shape: "
            f"use prior.at(name, like).log_prob(value)"
        )

    @abstractmethod
    def at(self, name: str, like: Tensor) -> Prior:
        """The prior of the tensor called `name`, of the shape of `like`."""


class FanIn(ByTensor):
    """N(0, gain²/fan_in) for every tensor of two or more dimensions, fan_in = entries of one output (shape[1:]).

    gain:     std of a tensor times √fan_in
    bias_std: the std for tensors of fewer dimensions (biases, norms), whose fan-in is not in their shape.
    """

    name = "fan_in"

    def __init__(self, gain: float = 1.0, bias_std: float = 1.0) -> None:
        self.gain = positive("gain", gain)
        self.bias_std = positive("bias_std", bias_std)

    def at(self, name: str, like: Tensor) -> Prior:
        """N(0, gain²/fan_in), or N(0, bias_std²)."""
        if like.dim() < 2:
            return Normal(std=self.bias_std)
        return Normal(std=self.gain / math.sqrt(math.prod(like.shape[1:])))


class WeightNorm(ByTensor):
    """Of ResNet++: the direction prior on `….direction`, group-Laplace on `….scale`, normal on the rest.

    Paper 4, section 5, which says nothing of biases. The density of the scales is taken in the scales themselves.

    scale:    b of the group-Laplace prior on the scales
    bias_std: of the normal prior on everything else
    flat:     of the direction prior: 0 as in the paper, 1 for directions of length 1
    """

    name = "weight_norm"

    def __init__(self, scale: float = 5.0, bias_std: float = 1.0, flat: float = 0.0) -> None:
        self.scale = positive("scale", scale)
        self.bias_std = positive("bias_std", bias_std)
        self.flat = share("flat", flat)

    def at(self, name: str, like: Tensor) -> Prior:
        """By the last part of the name."""
        kind = name.rpartition(".")[2]
        if kind == "direction":
            return Direction(self.flat)
        return GroupLaplace(self.scale) if kind == "scale" else Normal(std=self.bias_std)


class PerLayer(ByTensor):
    """The prior of the first rule whose regular expression is found in the tensor's name, else `default`.

    rules:    {regular expression: prior}, or pairs of them; a prior is a name, `bf.prior(...)`, or plain data
              {"prior": name, "options": {...}}. Expressions are searched for: "^conv1", "bias$".
    default:  the prior of tensors that no rule finds
    """

    name = "per_layer"

    def __init__(
        self, rules: Mapping[str, Choice] | Sequence[Sequence[Any]] = (), default: Choice = "normal"
    ) -> None:
        pairs = rules.items() if isinstance(rules, Mapping) else rules
        self.rules = [(_pattern(expression), _prior(choice)) for expression, choice in pairs]
        self.default = _prior(default)

    @property
    def options(self) -> dict[str, Any]:
        """Pairs and not a mapping, so that the order of the rules survives any reader."""
        return {"rules": [[e.pattern, _data(p)] for e, p in self.rules], "default": _data(self.default)}

    def at(self, name: str, like: Tensor) -> Prior:
        """That of the first rule found in the name."""
        chosen = next((p for expression, p in self.rules if expression.search(name)), self.default)
        return chosen.at(name, like)


def _pattern(expression: str) -> re.Pattern[str]:
    try:
        check_quick(expression)
        return re.compile(expression)
    except (re.error, TypeError, OverflowError, RecursionError) as error:
        raise ValueError(
            f"prior rules: {expression!r} is no regular expression ({error}); e.g. 'bias$'"
        ) from None


def _prior(choice: Choice) -> Prior:
    from bayesify.priors import prior  # the registry lists this class

    if isinstance(choice, Prior):
        return choice
    if isinstance(choice, str):
        return prior(choice)
    if isinstance(choice, Mapping) and "prior" in choice and set(choice) <= {"prior", "options"}:
        return prior(choice["prior"], **choice.get("options", {}))
    raise TypeError(
        f"prior {choice!r} must be a name, bf.prior(...), or {{'prior': name, 'options': {{...}}}}"
    )


def _data(prior: Prior) -> dict[str, Any]:
    return {"prior": prior.name, "options": prior.options}
