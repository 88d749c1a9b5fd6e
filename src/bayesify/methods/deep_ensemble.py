"""Deep ensembles: several members trained side by side."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any

import torch
from torch import nn

from bayesify.checks import Range
from bayesify.likelihoods import Likelihood
from bayesify.methods.base import Method
from bayesify.methods.point import Point
from bayesify.names import check_choice
from bayesify.objectives import DataTerm
from bayesify.posteriors import Members, Posterior
from bayesify.weights import Selection

INITS = ("fresh", "copies")


@dataclass(frozen=True, init=False)
class DeepEnsemble(Method):
    """Several networks, each by a method of their own; the loss is the mean over members.

    method:       of each member, any but an ensemble; None: `bf.Point()`
    num_members:  how many
    init:         how members start: "fresh", by every layer's `reset_parameters`; "copies" of the network, which the
                  order of the data alone takes apart. None: "fresh", or "copies" with `start="pretrained"`

    Member 0 is the network itself.
    """

    name = "deep_ensemble"
    about = "independent members, each by any method"
    paper = (
        "B. Lakshminarayanan, A. Pritzel, C. Blundell: Simple and Scalable Predictive Uncertainty Estimation using "
        "Deep Ensembles. NeurIPS 2017."
    )

    method: Method = field(default_factory=Point)
    num_members: Annotated[int, Range(least=1, most=10_000)] = 5
    init: str | None = None

    def __init__(self, method: Method | None = None, num_members: int = 5, init: str | None = None) -> None:
        method = Point() if method is None else method
        if not isinstance(method, Method):
            raise TypeError(f"method={method!r} must be a method object such as bf.Point()")
        inherited = {"where": method.where, "kl_weight": method.kl_weight}
        for key, value in {"method": method, "num_members": num_members, "init": init, **inherited}.items():
            object.__setattr__(self, key, value)
        self.__post_init__()
        if init is not None:
            check_choice(INITS, init, "init")
        if isinstance(method, DeepEnsemble):
            inner, total = f"{type(method.method).__name__}(...)", num_members * method.num_members
            raise ValueError(
                f"method=DeepEnsemble({inner}, {method.num_members}) is an ensemble itself: "
                f"use one ensemble, DeepEnsemble({inner}, {total})"
            )

    def options(self) -> dict[str, Any]:
        return {key: value for key, value in super().options().items() if key != "kl_weight"}

    def fixed_to(self, names: list[str]) -> "DeepEnsemble":
        return self._of(self.method.fixed_to(names))

    @property
    def needs_random(self) -> bool:  # type: ignore[override]
        return self.method.needs_random

    @property
    def needs_training(self) -> bool:  # type: ignore[override]
        return self.method.needs_training

    @property
    def needs_num_data(self) -> bool:
        return self.method.needs_num_data

    def _of(self, method: Method) -> "DeepEnsemble":
        return DeepEnsemble(method, self.num_members, self.init)

    def for_pretrained(self, net: nn.Module) -> "DeepEnsemble":
        return DeepEnsemble(self.method.for_pretrained(net), self.num_members, self.init or "copies")

    def for_net(self, net: nn.Module, example: Any) -> "DeepEnsemble":
        return DeepEnsemble(self.method.for_net(net, example), self.num_members, self.init or "fresh")

    def for_data(self, selection: Selection, likelihood: Likelihood, num_data: int) -> "DeepEnsemble":
        return self._of(self.method.for_data(selection, likelihood, num_data))

    def notes(self) -> list[str]:
        return self.method.notes()

    @property
    def own_optimizer(self) -> bool:
        return self.method.own_optimizer

    @property
    def optimizer_adds_kl(self) -> bool:
        return self.method.optimizer_adds_kl

    def begin(self, model: Any, optimizer: Any, num_steps: int | None, trained: bool = False) -> None:
        self.method.begin(model, optimizer, num_steps, trained)

    def default_lr(self, model: Any) -> float:
        return self.method.default_lr(model)

    def default_schedule(self) -> Callable[..., Any] | None:
        return self.method.default_schedule()

    def optimizer(self, model: nn.Module, lr: float = 1e-3, **options: Any) -> torch.optim.Optimizer:
        """The members' own kind of optimiser, over all of them."""
        return self.method.optimizer(model, lr=lr, **options)

    def check_optimizer(self, optimizer: torch.optim.Optimizer, model: Any) -> None:
        self.method.check_optimizer(optimizer, model)

    def data_term(self) -> DataTerm | None:
        return self.method.data_term()

    def select(self, net: nn.Module, example: Any) -> Selection:
        return self.method.select(net, example)

    def posterior(self, net: nn.Module, selection: Selection, example: Any) -> Members:
        fixed = self.method.fixed_to(list(selection.slots))

        def make(member: nn.Module) -> Posterior:
            own = selection if member is net else fixed.select(member, None)
            return self.method.posterior(member, own, example)

        return Members(net, self.num_members, make, fresh=self.init != "copies")
