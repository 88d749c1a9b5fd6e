"""The face of every prior p(w)."""

import math
from abc import ABC, abstractmethod
from typing import Any, ClassVar, NamedTuple

from torch import Tensor

from bayesify.features import Feature


class Terms(NamedTuple):
    """log p(w) = constant + Σ coefficient · feature(w)."""

    constant: float
    coefficients: dict[Feature, float]


class Prior(ABC):
    """A prior over one tensor, as a value of plain numbers. Members, in this order: `log_prob`, `terms`, `options`."""

    name: ClassVar[str]
    about: ClassVar[str]  # one line for `bayesify show priors`
    #: entries are independent (else log_prob has one value per draw of the whole tensor)
    independent: ClassVar[bool] = True

    @property
    def lower(self) -> float:
        """The lower end of the support: −inf for the whole line, 0 for positive priors."""
        return -math.inf

    @abstractmethod
    def log_prob(self, value: Tensor) -> Tensor:
        """log p(w), elementwise."""

    def terms(self) -> Terms | None:
        """log p as a sum of features of w; None where it is no such sum."""
        return None

    @property
    @abstractmethod
    def options(self) -> dict[str, Any]:
        """The numbers that make this prior again, as plain data: `bf.prior(name, **options)`."""

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(f'{k}={v!r}' for k, v in self.options.items())})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Prior) and (self.name, self.options) == (other.name, other.options)

    def __hash__(self) -> int:
        return hash((self.name, tuple(sorted(self.options.items()))))
