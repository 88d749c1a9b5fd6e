"""A prior of its own for every tensor, by its name."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from bayesify.priors.base import Prior

Choice = str | Prior | Mapping[str, Any]


class PerLayer(Prior):
    """The prior of the first rule whose regular expression is found in the tensor's name, else `default`.

    rules:    {regular expression: prior}, or pairs of them; a prior is a name, `bf.prior(...)`, or plain data
              {"prior": name, "options": {...}}. Expressions are searched for: "^conv1", "bias$".
    """

    name = "per_layer"
    about = "a prior by the name of each tensor: rules={regular expression: prior}, else default"

    def __init__(
        self, rules: Mapping[str, Choice] | Sequence[Sequence[Any]] = (), default: Choice = "normal"
    ) -> None:
        pairs = rules.items() if isinstance(rules, Mapping) else rules
        self.rules = [(_pattern(expression), _prior(choice)) for expression, choice in pairs]
        self.default = _prior(default)

    def log_prob(self, value: Tensor) -> Tensor:
        raise ValueError(
            "the per_layer prior depends on the tensor's name: use prior.at(name, like).log_prob(value)"
        )

    @property
    def options(self) -> dict[str, Any]:
        """Pairs and not a mapping, so that the order of the rules survives any reader."""
        return {"rules": [[e.pattern, _data(p)] for e, p in self.rules], "default": _data(self.default)}

    def at(self, name: str, like: Tensor) -> Prior:
        chosen = next((p for expression, p in self.rules if expression.search(name)), self.default)
        return chosen.at(name, like)


def _pattern(expression: str) -> re.Pattern[str]:
    try:
        return re.compile(expression)
    except (re.error, TypeError) as error:
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
