"""The face of every family q(w), and the module that holds one family's free parameters."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Generator, Tensor, nn

from bayesify.features import Feature


class Start(NamedTuple):
    """What a family needs beside the centre. `free` trains. `fixed` does not: a tensor in it depends on the weights
    the family was started from, becomes a buffer and is saved; a number comes from the options alone.
    """

    free: dict[str, Tensor]
    fixed: Mapping[str, Tensor | float] = {}


class Family(ABC):
    """A distribution over one tensor, as a value: built from tensors, holds no state, changes nothing.

    w = W(θ, ξ): parameters θ carry gradients, the base noise ξ does not. Three forms of W are abstract classes of this
    room (location_scale.py, scale.py, log_location_scale.py); a family is a form and a law of ξ.
    Members, in this order in every file of this room: `init`, `noise`, `noise_log_prob`, `noise_neg_entropy`,
    `expectation`, `sums`; the forms give `transform`, `log_prob`, `mean`, `variance`, `neg_entropy`.
    """

    name: ClassVar[str]
    about: ClassVar[str]  # one line for `bayesify show families`
    #: where w lies: "real", "positive" or "above_one" (the last two up to the constant sign of each weight)
    support: ClassVar[str] = "real"
    #: entries are independent (else log_prob has one value per draw of the whole tensor)
    independent: ClassVar[bool] = True
    #: entries are independent and normal, so that a linear map of them is normal (local pass)
    gaussian: ClassVar[bool] = False
    #: entries are independent and symmetric about their mean (flipout)
    symmetric: ClassVar[bool] = False

    @abstractmethod
    def __init__(self, centre: Tensor, **parameters: Any) -> None:
        """From the centre (the network's own parameter) and the entries of `init`."""

    @classmethod
    @abstractmethod
    def init(cls, like: Tensor, **options: Any) -> Start:
        """Free and fixed parameters beside the centre, for a tensor of pretrained weights `like`."""

    @abstractmethod
    def noise(self, sample_shape: tuple[int, ...] = (), generator: Generator | None = None) -> Tensor:
        """Base noise ξ, which carries no gradient: (*sample_shape, *shape)."""

    @abstractmethod
    def noise_log_prob(self, noise: Tensor) -> Tensor:
        """log q₀(ξ), elementwise; of the whole tensor where entries are not independent."""

    @abstractmethod
    def noise_neg_entropy(self) -> float | Tensor:
        """E log q₀(ξ) of one entry; of the whole tensor where entries are not independent."""

    def expectation(self, feature: Feature) -> float | Tensor | None:
        """E t(ξ) of one entry; inf where it is infinite, None where there is no closed form."""
        return None

    def sums(
        self, features: Sequence[Feature], n: int, generator: Generator | None = None
    ) -> list[Tensor] | None:
        """One exact joint draw of Σᵢ t(ξᵢ) over n draws, each of the tensor's shape, at a cost that does not depend
        on n; None where no such draw is known for these features together."""
        return None

    @property
    @abstractmethod
    def shape(self) -> torch.Size: ...

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
    def mean(self) -> Tensor: ...

    @property
    @abstractmethod
    def variance(self) -> Tensor: ...

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

    Inside a network the centre is the network's own Parameter, handed in with `at(centre)`; on its
    own (`bf.family(...)`) the module owns its centre as `loc` and behaves like the family itself.
    """

    def __init__(self, family: type[Family], like: Tensor, own_centre: bool, **options: Any) -> None:
        super().__init__()
        self.family = family
        self.loc = nn.Parameter(like.detach().clone()) if own_centre else None
        start = family.init(like.detach(), **options)
        for name, parameter in start.free.items():
            self.register_parameter(name, nn.Parameter(parameter))
        self.numbers = {name: value for name, value in start.fixed.items() if not isinstance(value, Tensor)}
        for name, value in start.fixed.items():
            if isinstance(value, Tensor):
                self.register_buffer(name, value)

    def at(self, centre: Tensor) -> Family:
        """The distribution around `centre`."""
        free = {name: value for name, value in self._parameters.items() if name != "loc"}
        return self.family(centre, **free, **self._buffers, **self.numbers)

    def distribution(self) -> Family:
        """The distribution around the module's own centre."""
        if self.loc is None:
            raise ValueError("this random tensor has its centre in a network: use .at(centre)")
        return self.at(self.loc)

    def rsample(self, n: int | None = None, generator: Generator | None = None) -> Tensor:
        return self.distribution().rsample(n, generator)

    def log_prob(self, value: Tensor) -> Tensor:
        return self.distribution().log_prob(value)

    @property
    def mean(self) -> Tensor:
        return self.distribution().mean

    @property
    def variance(self) -> Tensor:
        return self.distribution().variance

    def extra_repr(self) -> str:
        return self.family.name


def standard_normals(likes: Sequence[Tensor], generator: Generator | None) -> list[Tensor]:
    """N(0, 1) noise for many tensors: one kernel, cut into views.

    With a generator each tensor is drawn by itself, so that the numbers do not depend on which tensors are
    drawn together.
    """
    first = likes[0]
    if generator is not None or any(t.dtype != first.dtype or t.device != first.device for t in likes):
        return [standard_normal(tuple(t.shape), t, generator) for t in likes]
    sizes = [-(-t.numel() // 4) * 4 for t in likes]  # views start at multiples of four numbers: aligned reads
    flat = torch.randn(sum(sizes), dtype=first.dtype, device=first.device)
    parts = flat.split(sizes)
    return [part[: t.numel()].view(t.shape) for part, t in zip(parts, likes, strict=True)]


def standard_normal(shape: tuple[int, ...], like: Tensor, generator: Generator | None) -> Tensor:
    """N(0, 1) noise of the dtype and device of `like`; drawn where the generator lives."""
    if generator is None:
        return torch.randn(shape, dtype=like.dtype, device=like.device)
    noise = torch.randn(shape, dtype=like.dtype, device=generator.device, generator=generator)
    return noise.to(like.device)


def inside_functorch() -> bool:
    """Are we inside torch.func (vmap, grad), which has no rules for multi-tensor kernels?"""
    return not torch.compiler.is_compiling() and torch._C._functorch.peek_interpreter_stack() is not None
