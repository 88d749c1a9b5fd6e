"""The face of every prior p(w)."""

import inspect
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from torch import Tensor

from bayesify.laws import Terms


class Prior(ABC):
    """A prior over one tensor, as a value of plain numbers.

    Members, in this order: `lower`, `log_prob`, `terms`, `singularities`, `at`, `standard`, `centre`, `width`.
    Its options are the arguments of `__init__`, all with defaults, each kept as the attribute of that name. The forms
    `LocationScale` (real.py) and `Positive` (positive.py) make a prior of a law.
    """

    name: ClassVar[str]
    about: ClassVar[str] = ""  # one line for `bayesify show priors`; else the first of the docstring
    #: entries are independent (else log_prob has one value per draw of the whole tensor)
    independent: ClassVar[bool] = True
    #: why no family of this library has a finite KL to this prior; "" where some have
    refusal: ClassVar[str] = ""
    #: the lower end of the support: −inf for the whole line, 0 for positive priors
    lower: float = -math.inf
    #: it is another for every entry: `standard` is the density, of (w − centre) / width
    relative: bool = False
    #: it is that only where the weights of a network are known
    needs_net: bool = False
    #: its width is found with the posterior
    is_empirical: bool = False
    #: numbers that are exponents, which compiled code must take as constants
    constants: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def log_prob(self, value: Tensor) -> Tensor:
        """log p(w), elementwise, −inf outside the support; of `value` as a whole where entries are not independent."""

    def tensor_log_prob(self, value: Tensor, ndim: int) -> Tensor:
        """log p of whole tensors of `ndim` dimensions: (*draws, *shape) → (*draws)."""
        return self.log_prob(value).flatten(value.dim() - ndim).sum(-1) if ndim else self.log_prob(value)

    def terms(self) -> Terms | None:
        """log p as a sum of features of w; None where it is no such sum."""
        return None

    def singularities(self) -> Sequence[complex] | None:
        """Where log p is not analytic in the upper half of the complex plane, for priors without `terms`; None where
        that is not known. The Taylor estimator converges inside them."""
        return None

    @property
    def standard(self) -> "Prior":
        """The density of (w − centre) / width, the same for all entries: this one where there are neither."""
        return self

    def centre(self, name: str, weight: Tensor) -> Tensor | None:
        """Where it lies at every entry of a weight; None where the density says so itself."""
        return None

    def width(self, name: str, weight: Tensor) -> Tensor | None:
        """How wide it is at every entry of a weight; None where the density says so itself."""
        return None

    @property
    def options(self) -> dict[str, Any]:
        """The numbers that make this prior again, as plain data: `bf.prior(name, **options)`."""
        return {name: getattr(self, name) for name in option_names(type(self))}

    def at(self, name: str, like: Tensor) -> "Prior":
        """The prior of one tensor of a network: this one, unless it depends on the tensor's name or shape."""
        return self

    def __setattr__(self, name: str, value: Any) -> None:
        """Keeps the `constants` as texts: torch.compile takes a text as a constant, but a number that differs between
        two models as a symbol, and powers with a symbol as exponent do not trace."""
        if name in self.constants:
            name, value = f"_{name}", repr(float(value))
        super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        text = self.__dict__.get(f"_{name}")
        if not isinstance(text, str):
            raise AttributeError(f"the {self.name} prior has no attribute {name!r}")
        return float(text)

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(f'{k}={v!r}' for k, v in self.options.items())})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Prior) and (self.name, self.options) == (other.name, other.options)

    def __hash__(self) -> int:
        return hash((self.name, json.dumps(self.options, sort_keys=True)))


def option_names(prior: type[Prior]) -> list[str]:
    """The options of a prior: the arguments that it is made from."""
    return list(inspect.signature(prior).parameters)


def check_options(prior: type[Prior], options: Mapping[str, Any]) -> None:
    """Refuse options that the prior does not have."""
    accepted = option_names(prior)
    for name, value in options.items():
        if name not in accepted:
            choices = f"choose from {', '.join(accepted)}" if accepted else "it has none"
            raise TypeError(f"{name}={value!r}: the {prior.name} prior has no such option; {choices}")


def number(name: str, value: Any) -> float:
    """`value` as a finite number, or an error that names the option."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"prior {name}={value!r} must be a number, e.g. {name}=1.0")
    if not math.isfinite(value):
        raise ValueError(f"prior {name}={value!r} must be finite, e.g. {name}=1.0")
    return float(value)


def positive(name: str, value: Any) -> float:
    """`value` as a positive finite number, or an error that names the option."""
    if isinstance(value, int | float) and not 0 < value < math.inf:
        raise ValueError(f"prior {name}={value!r} must be positive and finite, e.g. {name}=1.0")
    return number(name, value)


def share(name: str, value: Any) -> float:
    """`value` as a number from 0 to 1, or an error that names the option."""
    if not 0 <= number(name, value) <= 1:
        raise ValueError(f"prior {name}={value!r} must lie in 0 to 1, e.g. {name}=1.0")
    return float(value)


def whole(name: str, value: Any) -> float:
    """`value` as a positive whole number, or an error that names the option."""
    if positive(name, value) != int(value):
        raise ValueError(f"prior {name}={value!r} must be a whole number: round it, or use the gamma prior")
    return float(value)
