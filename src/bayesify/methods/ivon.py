"""Natural-gradient variational inference by a variational Newton optimiser."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from bayesify.checks import Positive, Rate
from bayesify.divergences.multi_tensor import by_value
from bayesify.families import Normal
from bayesify.families.location_scale import root_mean_square
from bayesify.methods.base import Method, around
from bayesify.names import check_choice
from bayesify.posteriors import SAMPLINGS, Call, Factorized
from bayesify.priors import Normal as NormalPrior
from bayesify.priors import Prior, prior
from bayesify.samplers.variational_newton import LONG, VariationalNewton
from bayesify.weights import Selection
from bayesify.weights.kinds import is_linear_model, kind_of_network

WIDE, NARROW = 0.25, 0.05  # starting widths of networks from scratch, and of those that are trained already
MOVE, NOISE_MOVE = 0.02, 0.05  # bounds of a step before lr: of a weight, of a learned noise's logarithm


@dataclass(frozen=True)
class IVON(Method):
    """q(w) = N(m, σ²), σ² = 1 / (λ (h + δ)), trained by natural gradients at the cost of Adam.

    `model.optimizer(lr)` is the variational Newton optimiser (`bayesify.samplers.variational_newton`: formulas), whose
    second moments are the posterior's precisions: λ = num_data / (kl_weight · temperature), and the weight decay
    δ = kl_weight / (num_data · std²) is what a prior of this std is worth, 5e-4 for 50,000 examples at 0.2.
    `loss.total` is the data term; the optimiser adds the prior, and `loss.kl` is only reported. Other optimisers would
    train without it, and are refused. What is not random (norm layers, what else `where` leaves out, a learned noise)
    descends with momentum. lr is that of the first steps, which are those of SGD with an average of the gradients as
    momentum: ten times the lr of SGD with their sum, momentum=0.9. 1 where none is given.

    prior:       normal, a name or `bf.prior(...)`; "fan_in" and "per_layer" give every tensor its own. None: of std
                 0.2 in a network of convolutions with batch or group norm, whose decay sets its steps; else 1.
                 N(w₀, 1) around the network's weights w₀ with `start="pretrained"`
    temperature: of the posterior, p(w | data)^(1/temperature): 1 is Bayes, less a cold posterior
    init_std:    starting std, the same for all weights, as a fraction of their root mean square, times √temperature.
                 In short runs it sets the noise. None: 0.25, or 0.05 with `start="pretrained"`
    beta1:       of the gradient's average
    beta2:       of h's average; None: 1 − 1/num_steps, as long as the run (0.99999 where nobody knows its length)
    clip:        bound of every entry of a step, in units of lr. None: 0.02, without which regressions with little
                 noise fly off; none in networks of convolutions with norm layers, and of one linear layer
    sampling:    "draw" one set of weights per forward; "local" fresh noise for every example, which finds h from fewer
                 steps (linear and convolutional layers; others are drawn), or "flipout" likewise by signs
    """

    name = "ivon"
    about = "variational inference by natural gradients: an optimiser like Adam whose second moments are the widths"
    paper = (
        "Y. Shen, N. Daheim, B. Cong, P. Nickl, G. M. Marconi, C. Bazan, R. Yokota, I. Gurevych, D. Cremers, "
        "M. E. Khan, T. Möllenhoff: Variational Learning is Effective for Large Deep Networks. ICML 2024."
    )
    reasons: ClassVar[dict[str, str]] = {"prior": "its weight decay is then that of plain networks"}

    kl_weight: Positive = 1.0
    prior: str | Prior | None = None
    temperature: Positive = 1.0
    init_std: Positive | None = None
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

    def for_pretrained(self, net: nn.Module) -> "IVON":
        made = self if self.prior is not None else self.decided(prior=around())
        return made if made.init_std is not None else made.decided(init_std=NARROW)

    def for_net(self, net: nn.Module, example: Any) -> "IVON":
        std = 0.2 if kind_of_network(net) == "convolutional" else 1.0
        made = self if self.prior is not None else self.decided(prior=prior("normal", std=std))
        if made.clip is None and kind_of_network(net) != "convolutional" and not is_linear_model(net):
            made = made.decided(clip=MOVE)
        return made if made.init_std is not None else made.decided(init_std=WIDE)

    def posterior(self, net: nn.Module, selection: Selection, example: Call | None) -> Factorized:
        assert isinstance(self.prior, Prior) and self.init_std is not None
        weights = torch.cat([slots[0].get().detach().flatten() for slots in selection.slots.values()])
        std = self.init_std * root_mean_square(weights) * math.sqrt(self.temperature)
        made = Factorized(net, selection, Normal, self.prior, sampling=self.sampling, example=example)
        for name, p in made.priors.items():
            if not isinstance(p, NormalPrior):
                raise ValueError(
                    f"prior={self.prior!r} must be normal, it is {p!r} for {name!r}: use bf.prior('normal'), or "
                    f"bf.MonteCarloVI for others"
                )
            if p.is_empirical or made.prior_means.width(name) is not None:
                raise ValueError(
                    f"prior std={p.options['std']!r} of {name!r} must be a number: it is the decay of the whole "
                    f"tensor. Give one, or use bf.MonteCarloVI"
                )
            made.random_tensor(name).log_scale.data.fill_(math.log(std))
        return made

    def default_lr(self, model: Any) -> float:
        return 1.0

    def optimizer(
        self, model: Any, lr: float = 1.0, num_steps: int | None = None, **options: Any
    ) -> VariationalNewton:
        """The variational Newton optimiser. num_steps: of the run, by which β₂ goes where it is None."""
        if model.num_data is None:
            raise ValueError(
                "num_data is missing: it scales the mean loss to the posterior. "
                "Give bayesify(..., num_data=len(train_set))"
            )
        settings = {
            "num_data": self.effective_num_data(model),
            "betas": (self.beta1, LONG),
            "clip": self.clip,
        }
        made = VariationalNewton(self.groups(model), lr=lr, **{**settings, **options})
        for part in _parts(model):
            for name, slots in part.slots.items():
                centre = part.prior_means.of(name, weight := slots[0].get())
                if centre is not None:
                    made.state[weight]["centre"] = centre
        if self.beta2 is not None:
            self._remember(made, self.beta2)
        self.begin(model, made, num_steps)
        return made

    def begin(self, model: Any, optimizer: Any, num_steps: int | None, trained: bool = False) -> None:
        """β₂ of a run of so many steps."""
        if self.beta2 is None and num_steps is not None:
            self._remember(optimizer, min(1 - 1 / num_steps, LONG))

    def check_optimizer(self, optimizer: torch.optim.Optimizer, model: Any) -> None:
        """It must be the one that adds the prior."""
        if not isinstance(optimizer, VariationalNewton):
            raise ValueError(
                f"optimizer={type(optimizer).__name__} does not train the widths of {self.name!r}, whose loss is the "
                f"data term alone: leave optimizer= out (the method's own), or use bf.MonteCarloVI"
            )

    def effective_num_data(self, model: Any) -> float:
        """λ = num_data / (kl_weight · temperature)."""
        return model.num_data / (float(model.kl_weight) * self.temperature)

    def groups(self, model: Any) -> list[dict[str, Any]]:
        """The parameters of `model` that train: random ones by their prior, with a log σ for each, then the others."""
        priors = {(part, name): p.standard for part in _parts(model) for name, p in part.priors.items()}
        pairs = {
            p: [(part.slots[name][0].get(), part.random_tensor(name).log_scale) for part, name in weights]
            for p, weights in by_value(priors).items()
        }
        random = {id(each) for some in pairs.values() for pair in some for each in pair}
        others = [p for p in model.parameters() if p.requires_grad and id(p) not in random]
        shared = {id(p) for p in model.likelihood.parameters()}
        num_members = len(model.posterior.nets(model.net))
        h0 = _mean_precision([s for some in pairs.values() for _, s in some]) / self.effective_num_data(model)
        groups: list[dict[str, Any]] = [
            {
                "params": [each for column in zip(*some, strict=True) for each in column],  # all m, all log σ
                "random": True,
                "weight_decay": float(model.kl_weight) / (model.num_data * p.std**2),
                "centre": p.loc,
                "h0": h0,
                "num_members": num_members,
            }
            for p, some in pairs.items()
        ]
        groups.append({"params": [p for p in others if id(p) not in shared], "num_members": num_members})
        # of a noise level's logarithm the gradient is 1 − r²/σ², as large as residuals are
        groups.append({"params": [p for p in others if id(p) in shared], "clip": NOISE_MOVE})
        return [group for group in groups if group["params"]]

    @staticmethod
    def _remember(optimizer: VariationalNewton, beta2: float) -> None:
        for group in optimizer.param_groups:
            group["betas"] = (group["betas"][0], beta2)


def _parts(model: Any) -> list[Factorized]:
    return [part for part in model.posterior.modules() if isinstance(part, Factorized)]


def _mean_precision(log_stds: list[Tensor]) -> Tensor:
    """The geometric mean of 1/σ²."""
    sums = [log_std.detach().double().sum() for log_std in log_stds]
    total = torch.stack([s.full_tensor() if hasattr(s, "full_tensor") else s for s in sums]).sum()
    return (-2 * total / sum(log_std.numel() for log_std in log_stds)).exp().cpu()
