"""The face of every method: data that assembles family, prior, pass and optimiser."""

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self

import torch
from torch import nn

from bayesify.checks import NotNegative, check_fields
from bayesify.likelihoods import Likelihood
from bayesify.objectives import DataTerm
from bayesify.posteriors import Posterior
from bayesify.priors import Prior, prior
from bayesify.weights import Selection, select, where
from bayesify.weights.where import Where, check_where

MOST_AT_FULL_WEIGHT = 100_000  # random weights whose KL counts in full, where no `kl_weight` is given
LAST = "random convolutions cost accuracy, the output layer none"  # docs/results/shootout.md


@dataclass(frozen=True, kw_only=True)
class Method(ABC):
    """How a network becomes Bayesian. A method holds plain data and changes nothing.

    where:     which parameters are random
    kl_weight: tempering of the KL; 1 is Bayes

    Defaults of None are those that depend on the network, or on the amount of data: `bayesify` asks `for_net` for the
    former, and the model asks `for_data` for the latter once it knows how many examples there are.

    Fields are held to their annotations, which have the ranges of numbers (`bayesify.checks`): a `__post_init__` of
    your own calls this one.

    Members, in this order: `needs_num_data`, `own_optimizer`, `optimizer_adds_kl`, `recipe`, `for_pretrained`,
    `for_net`, `for_data`, `notes`, `posterior`, `data_term`, `default_lr`, `default_schedule`, `optimizer`, `begin`,
    `check_optimizer`, `select`, `fixed_to`, `options`, `report_sections`.
    """

    name: ClassVar[str]
    about: ClassVar[str]  # one line for `bayesify show methods`
    paper: ClassVar[str] = ""  # what a report says to cite
    needs_random: ClassVar[bool] = True  # a `where` that selects nothing is an error
    needs_training: ClassVar[bool] = True  # else `bf.fit` without `epochs` trains nothing
    is_reference: ClassVar[bool] = False  # reports measure other methods against it
    #: why `for_net` decides a field as it does where it is no matter of course, for `summary()`
    reasons: ClassVar[dict[str, str]] = {"kl_weight": "the KL of so many weights would outweigh the data"}

    where: Where | None = ~where.norm
    kl_weight: NotNegative | None = 1.0

    def __post_init__(self) -> None:
        if self.where is not None:
            check_where(self.where)
        check_fields(self)

    @property
    def needs_num_data(self) -> bool:
        """Does the loss need the number of training examples?"""
        return True

    @property
    def own_optimizer(self) -> bool:
        """Is it trained by an optimiser of its own, which a recipe does not replace?"""
        return type(self).optimizer is not Method.optimizer

    @property
    def optimizer_adds_kl(self) -> bool:
        """Does its optimiser add what the KL asks for, so that the loss is the data term alone?"""
        return False

    @property
    def recipe(self) -> str:
        """The table of the recipes that is of it."""
        return self.name

    def for_pretrained(self, net: nn.Module) -> Self:
        """The same method with what it leaves open decided for a network that is trained already."""
        return self

    def for_net(self, net: nn.Module, example: Any) -> Self:
        """The same method with what it leaves open decided for this network."""
        return self if self.kl_weight is not None else self.decided(kl_weight=1.0)

    def for_data(self, selection: Selection, likelihood: Likelihood, num_data: int) -> Self:
        """The same method with what it leaves open decided for so many examples."""
        return self

    def notes(self) -> list[str]:
        """By what its posterior differs from Bayes', in words."""
        return [] if self.kl_weight in (None, 1.0) else [f"kl_weight {self.kl_weight:.3g}"]

    def decided(self, **changes: Any) -> Self:
        """The same method with fields that were None; what is checked is not checked, or warned of, again."""
        made = copy.copy(self)
        for name, value in changes.items():
            object.__setattr__(made, name, value)
        return made

    @abstractmethod
    def posterior(self, net: nn.Module, selection: Selection, example: Any) -> Posterior:
        """The posterior over the selected weights of `net`."""

    def data_term(self) -> DataTerm | None:
        """What takes the place of the likelihood's own `nll` in the loss, where something does."""
        return None

    def default_lr(self, model: Any) -> float:
        """The learning rate where none is given."""
        return 1e-3

    def default_schedule(self) -> Callable[..., Any] | None:
        """The course of the learning rate where none is given."""
        return None

    def optimizer(self, model: nn.Module, lr: float = 1e-3, **options: Any) -> torch.optim.Optimizer:
        """The default optimiser: Adam over everything that trains."""
        parameters = [p for p in model.parameters() if p.requires_grad]
        if parameters and all(p.is_cuda for p in parameters):
            options.setdefault("fused", True)
        return torch.optim.Adam(parameters, lr=lr, **options)

    def begin(  # noqa: B027
        self, model: Any, optimizer: Any, num_steps: int | None, trained: bool = False
    ) -> None:
        """A run of `num_steps` steps of the method's own optimiser is about to start, perhaps from a network that is
        trained already."""

    def check_optimizer(self, optimizer: torch.optim.Optimizer, model: Any) -> None:  # noqa: B027
        """Raise where training by an optimiser of the user's would not be this method."""

    def select(self, net: nn.Module, example: Any) -> Selection:
        """Which parameters of `net` are random."""
        assert self.where is not None
        return select(net, self.where, example)

    def fixed_to(self, names: list[str]) -> "Method":
        """The same method with exactly these parameters random (as stored in a file)."""
        return replace(self, where=where.named(frozenset(names)))

    def options(self) -> dict[str, Any]:
        """Plain data that makes this method again, `where` left out."""
        result = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "where"}
        return {key: _plain(value) for key, value in result.items()}

    @classmethod
    def report_sections(cls, rows: Sequence[Any]) -> Sequence[Any]:
        """Chapters of a report on its rows by this method: `bayesify.report.Section`s, beside those of the suites."""
        return ()


def weight_by_size(selection: Selection) -> float:
    """min(1, (10⁵ / D)^⅔) for D random weights: the KL of many more weights than there are data, each of which learns
    next to nothing, would outweigh the likelihood. The exponent comes from few runs: 0.043 for ResNet-18, where 0.05
    was tried (docs/results/shootout.md)."""
    return min(1.0, (MOST_AT_FULL_WEIGHT / max(sum(w.numel for w in selection.random), 1)) ** (2 / 3))


def around() -> Prior:
    """N(w₀, 1) around the weights w₀ of a trained network: as wide as from scratch. One as narrow as the weights are
    large holds back a network that has to learn something else."""
    return prior("normal", mean="net")


def _plain(value: Any) -> Any:
    if isinstance(value, Prior):
        return {"prior": value.name, "options": value.options}
    if isinstance(value, Method):
        return {"method": value.name, "options": value.options()}
    return value
