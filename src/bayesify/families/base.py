"""The face of every family q(w), and the module that holds one family's free parameters."""

import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Generator, Tensor, nn

from bayesify.laws import Feature, Law
from bayesify.laws.features import Sums


class Start(NamedTuple):
    """What a family needs beside the centre. `free` trains. `fixed` does not: a tensor in it depends on the weights
    the family was started from, becomes a buffer and is saved; a number comes from the options alone.
    """

    free: dict[str, Tensor]
    fixed: Mapping[str, Tensor | float] = {}


class Family(ABC):
    """A distribution over one tensor, as a value: built from tensors, holds no state, changes nothing.

    w = W(θ, ξ): parameters θ carry gradients, the base noise ξ does not. The forms of W are abstract classes of this
    room (location_scale.py, scale.py, zero_mean.py, log_location_scale.py); a family is a form and a law of ξ. The
    forms give `init`, `transform`, `log_prob`, `mean`, `variance`, `neg_entropy`; all that concerns ξ is the law's.
    """

    name: ClassVar[str]
    about: ClassVar[str] = ""  # one line for `bayesify show families`; else the first of the docstring
    #: where w lies: "real", "positive" or "above_one" (the last two up to the constant sign of each weight)
    support: ClassVar[str] = "real"
    #: entries are independent (else log_prob has one value per draw of the whole tensor)
    independent: ClassVar[bool] = True
    #: entries are independent and normal, so that a linear map of them is normal (local pass)
    gaussian: ClassVar[bool] = False
    #: entries are independent and symmetric about their mean (flipout)
    symmetric: ClassVar[bool] = False
    #: another centre moves it as it is, and changes nothing else
    moves: ClassVar[bool] = False
    #: the mean is zero whatever the parameters are, so that passes leave its product out
    zero_mean: ClassVar[bool] = False
    #: coordinates of the form (loc, scale) that are the same number for all weights, and so no parameters
    constants: ClassVar[Mapping[str, float]] = {}

    #: of the base noise ξ
    law: Law
    #: the network's own parameter
    centre: Tensor

    @abstractmethod
    def __init__(self, centre: Tensor, **parameters: Any) -> None:
        """From the centre (the network's own parameter) and the entries of `init`."""

    @classmethod
    @abstractmethod
    def init(cls, like: Tensor, **options: Any) -> Start:
        """Free and fixed parameters beside the centre, for a tensor of pretrained weights `like`."""

    def noise(self, sample_shape: tuple[int, ...] = (), generator: Generator | None = None) -> Tensor:
        """Base noise ξ, which carries no gradient: (*sample_shape, *shape)."""
        return self.law.sample((*sample_shape, *self.shape), self.centre, generator)

    def noise_log_prob(self, noise: Tensor) -> Tensor:
        """log q₀(ξ), elementwise; of the whole tensor where entries are not independent."""
        return self.law.log_prob(noise)

    def noise_neg_entropy(self) -> float | Tensor:
        """E log q₀(ξ) of one entry; of the whole tensor where entries are not independent."""
        return self.law.neg_entropy()

    def expectation(self, feature: Feature) -> float | Tensor | None:
        """E t(ξ) of one entry; inf where E |t(ξ)| is infinite, None where there is no closed form."""
        return self.law.expectation(feature)

    def sums(self, features: Sequence[Feature], n: int, generator: Generator | None = None) -> Sums:
        """One exact joint draw of Σᵢ t(ξᵢ) over n draws, each of the tensor's shape, at a cost that does not depend
        on n; None where no such draw is known for these features together."""
        return self.law.sums(features, n, self.centre, generator)

    @property
    def shape(self) -> torch.Size:
        """That of the tensor."""
        return self.centre.shape

    @property
    def sign(self) -> Tensor | None:
        """The constant ±1 of each weight for families of magnitudes; None for families on the whole line."""
        return None

    @abstractmethod
    def transform(self, noise: Tensor) -> Tensor:
        """w = W(θ, ξ), with gradients to θ."""

    @abstractmethod
    def log_prob(self, value: Tensor) -> Tensor:
        """log q(w), elementwise (one value per draw where entries are not independent)."""

    @property
    @abstractmethod
    def mean(self) -> Tensor:
        """E w, elementwise."""

    @property
    @abstractmethod
    def variance(self) -> Tensor:
        """Var w, elementwise."""

    @abstractmethod
    def neg_entropy(self) -> Tensor:
        """E log q(w), summed over the tensor, exact, with gradients: a scalar."""

    def rsample(self, n: int | None = None, generator: Generator | None = None) -> Tensor:
        """`n` draws (n, *shape), or one draw (*shape) without `n`."""
        return self.transform(self.noise(() if n is None else (n,), generator))

    @classmethod
    def rsample_all(cls, qs: Sequence[Any], generator: Generator | None = None) -> list[Tensor]:
        """One draw of each of many tensors; families override it where that can be done in fewer kernels."""
        return [q.rsample(generator=generator) for q in qs]


class RandomTensor(nn.Module):
    """One random tensor: a family and its free parameters.

    Inside a network the centre is the network's own Parameter, handed in with `at(centre)`; on its own
    (`bf.family(...)`) the module owns its centre as `centre` and behaves like the family itself: attributes that the
    module does not have (`rsample`, `log_prob`, `mean`, `scale`, ...) are those of the distribution.
    """

    def __init__(self, family: type[Family], like: Tensor, own_centre: bool, **options: Any) -> None:
        super().__init__()
        self.family = family
        self.centre = nn.Parameter(like.detach().clone()) if own_centre else None
        check_options(family, options)
        start = family.init(like.detach(), **options)
        for name, parameter in start.free.items():
            self.register_parameter(name, nn.Parameter(parameter))
        self.texts = {n: repr(float(v)) for n, v in start.fixed.items() if not isinstance(v, Tensor)}
        for name, value in start.fixed.items():
            if isinstance(value, Tensor):
                self.register_buffer(name, value)
        self.complete = True

    def __getattr__(self, name: str) -> Any:
        """An attribute of the distribution, where the module owns its centre."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            own = self.__dict__.get("complete") and self._parameters.get("centre") is not None
            if name.startswith("_") or not own:
                raise
        return getattr(self.distribution(), name)

    @property
    def numbers(self) -> dict[str, float]:
        """The fixed numbers. They are kept as texts: torch.compile takes a text as a constant, but a number that
        differs between two models as a symbol, which special functions do not survive."""
        return {name: float(text) for name, text in self.texts.items()}

    def at(self, centre: Tensor) -> Family:
        """The distribution around `centre`."""
        free = {name: value for name, value in self._parameters.items() if name != "centre"}
        return self.family(centre, **free, **self._buffers, **self.numbers)

    def distribution(self) -> Family:
        """The distribution around the module's own centre."""
        if self.centre is None:
            raise ValueError("this random tensor has its centre in a network: use .at(centre)")
        return self.at(self.centre)

    def extra_repr(self) -> str:
        """The family's name, for `print`."""
        return self.family.name


def check_options(family: type[Family], options: Mapping[str, Any]) -> None:
    """Refuse options that the family's `init` does not have."""
    accepted = list(inspect.signature(family.init).parameters)[1:]  # without `like`
    for name, value in options.items():
        if name not in accepted:
            raise TypeError(
                f"{name}={value!r}: the {family.name} family has no such option; choose from {', '.join(accepted)}"
            )


def positive(name: str, value: Any) -> float:
    """`value` as a positive finite number, or an error that names the option."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name}={value!r} must be a number, e.g. {name}=1.0")
    if not 0 < value < math.inf:
        raise ValueError(f"{name}={value!r} must be positive and finite, e.g. {name}=1.0")
    return float(value)
