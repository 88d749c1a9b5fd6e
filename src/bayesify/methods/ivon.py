"""Natural-gradient variational inference by a variational Newton optimiser."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from bayesify.checks import Positive, Rate
from bayesify.divergences.multi_tensor import by_value
from bayesify.families import Normal
from bayesify.families.location_scale import LOG_STD_OF_NOTHING
from bayesify.methods.base import Method
from bayesify.names import check_choice
from bayesify.posteriors import SAMPLINGS, Call, Factorized
from bayesify.priors import Normal as NormalPrior
from bayesify.priors import Prior, prior
from bayesify.samplers.variational_newton import LONG, VariationalNewton
from bayesify.weights import Selection


@dataclass(frozen=True)
class IVON(Method):
    """q(w) = N(m, σ²), σ² = 1 / (λ (h + δ)), trained by natural gradients at the cost of Adam.

    `model.optimizer(lr)` is the variational Newton optimiser (`bayesify.samplers.variational_newton`: formulas),
    whose second moments are the posterior's precisions: λ = num_data / (kl_weight · temperature), and the weight decay
    δ = kl_weight / (num_data · std²) is what a prior of this std is worth, 5e-4 for 50,000 examples at 0.2.
    `loss.total` is the data term; the optimiser adds the prior, and `loss.kl` is only reported. Other optimisers would
    train without it, and are refused. lr is about ten times that of SGD with momentum 0.9; 0.1 where none is given.
    A model that was never trained has no width: its first optimiser sets that of h₀. What is not random (norm layers,
    what else `where` leaves out, a learned noise) descends with momentum at lr / h₀.

    prior:       normal, a name or `bf.prior(...)`; "fan_in" and "per_layer" give every tensor its own
    temperature: of the posterior, p(w | data)^(1/temperature): 1 is Bayes, less a cold posterior
    h0:          h₀, the curvature of the mean loss that training starts from, where σ = 1 / √(λ (h₀ + δ)). In short
                 runs the widths stay near that, and lr / h₀ is the step
    beta1:       of the gradient's average
    beta2:       of h's average; None: 1 − 1/num_steps, as long as the run (0.99999 where nobody knows its length)
    clip:        bound of every entry of a step, in units of lr; None: none
    sampling:    "draw" one set of weights per forward; "local" fresh noise for every example, which finds h from fewer
                 steps (linear and convolutional layers; others are drawn), or "flipout" likewise by signs
    """

    name = "ivon"
    about = "variational inference by natural gradients: an optimiser like Adam whose second moments are the widths"
    paper = (
        "Y. Shen, N. Daheim, B. Cong, P. Nickl, G. M. Marconi, C. Bazan, R. Yokota, I. Gurevych, D. Cremers, "
        "M. E. Khan, T. Möllenhoff: Variational Learning is Effective for Large Deep Networks. ICML 2024."
    )

    kl_weight: Positive = 1.0
    prior: str | Prior = "normal"
    temperature: Positive = 1.0
    h0: Positive = 0.5
    beta1: Rate = 0.9
    beta2: Rate | None = None
    clip: Positive | None = None
    sampling: str = "draw"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice(SAMPLINGS[:3], self.sampling, "sampling")
        if isinstance(self.prior, str):
            object.__setattr__(self, "prior", prior(self.prior))

    @property
    def optimizer_adds_kl(self) -> bool:
        return True

    def posterior(self, net: nn.Module, selection: Selection, example: Call | None) -> Factorized:
        """Of no width yet."""
        assert isinstance(self.prior, Prior)
        made = Factorized(net, selection, Normal, self.prior, sampling=self.sampling, example=example)
        for name, p in made.priors.items():
            if not isinstance(p, NormalPrior):
                raise ValueError(
                    f"prior={self.prior!r} must be normal, it is {p!r} for {name!r}: use bf.prior('normal'), or "
                    f"bf.MonteCarloVI for others"
                )
            made.random_tensor(name).log_scale.data.fill_(LOG_STD_OF_NOTHING)
        return made

    def default_lr(self, model: Any) -> float:
        return 0.1

    def optimizer(
        self, model: Any, lr: float = 0.1, num_steps: int | None = None, **options: Any
    ) -> VariationalNewton:
        """The variational Newton optimiser. num_steps: of the run, by which β₂ goes where it is None."""
        if model.num_data is None:
            raise ValueError(
                "num_data is missing: it scales the mean loss to the posterior. "
                "Give bayesify(..., num_data=len(train_set))"
            )
        betas = (self.beta1, LONG if self.beta2 is None else self.beta2)
        made = VariationalNewton(
            self.groups(model),
            lr=lr,
            num_data=model.num_data,
            betas=betas,
            h0=self.h0,
            clip=self.clip,
            **options,
        )
        self._start(made)
        self.begin(model, made, num_steps)
        return made

    def begin(self, model: Any, optimizer: Any, num_steps: int | None) -> None:
        """β₂ of a run of so many steps."""
        if self.beta2 is None and num_steps is not None:
            for group in optimizer.param_groups:
                group["betas"] = (group["betas"][0], min(1 - 1 / num_steps, LONG))

    def check_optimizer(self, optimizer: torch.optim.Optimizer, model: Any) -> None:
        """It must be the one that adds the prior."""
        if not isinstance(optimizer, VariationalNewton):
            raise ValueError(
                f"optimizer={type(optimizer).__name__} does not train the widths of {self.name!r}, whose loss is the "
                f"data term alone: leave optimizer= out (the method's own), or use bf.MonteCarloVI"
            )

    def groups(self, model: Any) -> list[dict[str, Any]]:
        """The parameters of `model` that train: random ones by their prior, with a log σ for each, then the others."""
        parts = [part for part in model.posterior.modules() if isinstance(part, Factorized)]
        priors = {(part, name): p for part in parts for name, p in part.priors.items()}
        kl_weight = float(model.kl_weight)
        num_members = len(model.posterior.nets(model.net))
        groups: list[dict[str, Any]] = []
        for p, weights in by_value(priors).items():
            means = [part.slots[name][0].get() for part, name in weights]
            log_stds = [part.random_tensor(name).log_scale for part, name in weights]
            groups.append(
                {
                    "params": [*means, *log_stds],
                    "random": True,
                    "num_data": model.num_data / (kl_weight * self.temperature),
                    "weight_decay": kl_weight / (model.num_data * p.std**2),
                    "centre": p.mean,
                    "num_members": num_members,
                }
            )
        random = {id(p) for group in groups for p in group["params"]}
        others = [p for p in model.parameters() if p.requires_grad and id(p) not in random]
        shared = {id(p) for p in model.likelihood.parameters()}
        groups.append({"params": [p for p in others if id(p) not in shared], "num_members": num_members})
        groups.append({"params": [p for p in others if id(p) in shared]})
        return [group for group in groups if group["params"]]

    @torch.no_grad()
    def _start(self, optimizer: VariationalNewton) -> None:
        """σ = 1 / √(λ (h₀ + δ)), where nothing has a width yet."""
        groups = [group for group in optimizer.param_groups if group["random"]]
        log_stds = [(group, p) for group in groups for p in group["params"][len(group["params"]) // 2 :]]
        if all((p == LOG_STD_OF_NOTHING).all() for _, p in log_stds):
            for group, p in log_stds:
                p.fill_(-0.5 * math.log(group["num_data"] * (self.h0 + group["weight_decay"])))
