"""The face of every prior p(w)."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar

from torch import Tensor


class Prior(ABC):
    """A prior over one tensor, as a value of plain numbers. Members: `log_prob`, `options`."""

    name: ClassVar[str]

    @abstractmethod
    def log_prob(self, value: Tensor) -> Tensor:
        """log p(w), elementwise."""

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
