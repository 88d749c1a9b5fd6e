"""Ensemble model patching and the general ensemble family (paper 2)."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import torch
from torch import nn

from bayesify.checks import Count, NotNegative, NotNegativeCount, Positive, Range, Share
from bayesify.methods.base import Method
from bayesify.methods.coordinate_descent import CoordinateDescent
from bayesify.names import check_choice, lookup
from bayesify.posteriors import ASSIGNMENTS, Components
from bayesify.posteriors.patched.kl import KL_FORMS, ROLES, ComponentsKL
from bayesify.posteriors.patched.starting_values import INITS
from bayesify.posteriors.patched.weight_norm import scales_of
from bayesify.weights import Selection, where
from bayesify.weights.where import Candidate, Where, kind_of

#: which parameters each assignment makes random when `where` is left out
WHERE: dict[str, Where] = {
    "layer": where.norm | where.output,
    "element": where.norm | where.output,
    "dropout": where.linear | where.conv,
    "dropconnect": where.linear | where.conv,
    "member": where.all,
}


APART, NEAR = 0.1, 0.03  # spread from scratch, and around a network that is trained already
_SCALE = "the scale of a weight-normalised layer, whose weights are dropped by its direction"


@dataclass(frozen=True)
class EnsemblePatching(Method):
    """Patched tensors are chosen among components in every forward; all components train together.

    assignment:       "layer" (EMP), "element" (ECMP), "member" (an explicit ensemble); "dropout" and "dropconnect"
                      have one component and zero, and drop with probability `drop_prob`
    num_components:   K (dropout and dropconnect: always 2)
    drop_prob:        of dropout and dropconnect
    mixing:           "uniform", K probabilities, or "learned" (straight-through Gumbel gradient)
    temperature:      of that gradient
    std, learn_std:   width of every component; 0 is the limit of a narrow one
    shared_std:       width of the unpatched weights (eq. 3); 0 leaves them deterministic
    prior_precision:  τ of the normal prior: a number, or one for each of patched_weight, patched_bias,
                      shared_weight and shared_bias (the paper's is 1)
    l2:               λ in place of τ p_k / (2 num_data), in the same forms (C.1): a penalty on the mean loss. With
                      neither of the two there is none (l2=0), and the weights are held by the weight decay of their
                      training; but where `kl`, `learn_std` or learned mixing ask for the KL, the prior has τ = 1
    kl:               "l2" Σ (τ p_k / 2) ‖M_k‖²; "full" with constant and entropy; "auto" what of these has a
                      gradient; "monte_carlo" the true mixture
    num_kl_draws:     draws of "monte_carlo"
    init, spread, gamma: how components start ("copies" of the network, `spread` × rms apart; "fresh" by
                      reset_parameters), and a value that norm scales start from. spread=None: 0.1, or 0.03 with
                      `start="pretrained"`
    running_stats:    batch-norm statistics: "shared", or one set per "component", which is the default of members and
                      can be had for layers
    per_example:      a choice for every example of a batch (norm, linear and conv layers; others: one per batch)
    same_draws:       every process of a distributed run makes the same choices (else each its own)
    coordinate_steps: > 0 trains shared and patched parameters in turn, that many steps each (C.2), by the method's own
                      optimiser
    where:            norm | output for layers and elements, linear | conv for dropout, all for members
    """

    name = "emp"
    about = "K components trained together: each patched layer (emp) or weight (ecmp) is chosen among them"
    paper = (
        "O. Chang, Y. Yao, D. Williams-King, H. Lipson: Ensemble Model Patching: A Parameter-Efficient Variational "
        "Bayesian Neural Network. 2019."
    )

    num_components: Annotated[int, Range(least=2, most=10_000)] = 5
    assignment: str = "layer"
    mixing: str | Sequence[float] = "uniform"
    temperature: Positive = 0.5
    drop_prob: Share = 0.1
    std: NotNegative = 0.0
    learn_std: bool = False
    shared_std: NotNegative = 0.0
    prior_precision: NotNegative | Mapping[str, NotNegative] | None = None
    l2: NotNegative | Mapping[str, NotNegative] | None = None
    kl: str = "auto"
    num_kl_draws: Count = 100
    init: str = "copies"
    spread: NotNegative | None = None
    gamma: float | None = None
    running_stats: str | None = None
    per_example: bool = False
    same_draws: bool = False
    coordinate_steps: NotNegativeCount = 0
    where: Where = field(default=None, kw_only=True)  # type: ignore[assignment]  # filled in from WHERE

    def __post_init__(self) -> None:
        lookup(ASSIGNMENTS, self.assignment, "assignment")
        if self.where is None:
            object.__setattr__(self, "where", WHERE[self.assignment])
        if isinstance(self.mixing, Sequence) and not isinstance(self.mixing, str):
            object.__setattr__(self, "mixing", tuple(self.mixing))
        self._choose_penalty()
        if self.running_stats is None:
            explicit = self.assignment == "member" and not self.per_example and self.mixing != "learned"
            object.__setattr__(self, "running_stats", "component" if explicit else "shared")
        self._check_numbers()
        self._check_mixing()
        self._check_choices()

    @property
    def needs_num_data(self) -> bool:
        return self.l2 is None

    @property
    def own_optimizer(self) -> bool:
        return self.coordinate_steps > 0

    def for_pretrained(self, net: nn.Module) -> "EnsemblePatching":
        return self if self.spread is not None else self.decided(spread=NEAR)

    def for_net(self, net: nn.Module, example: Any) -> "EnsemblePatching":
        return self if self.spread is not None else self.decided(spread=APART)

    def posterior(self, net: nn.Module, selection: Selection, example: Any) -> Components:
        assert self.prior_precision is not None
        precision = _by_role(self.prior_precision, "prior_precision")
        l2 = None if self.l2 is None else _by_role(self.l2, "l2")
        return Components(
            net,
            selection,
            ASSIGNMENTS[self.assignment],
            self._probs(),
            ComponentsKL(self.kl, precision, l2, self.num_kl_draws),
            learn_mixing=self.mixing == "learned",
            temperature=self.temperature,
            std=self.std,
            learn_std=self.learn_std,
            shared_std=self.shared_std,
            init=self.init,
            spread=APART if self.spread is None else self.spread,
            gamma=self.gamma,
            own_stats=self.running_stats == "component",
            per_example=self.per_example,
            same_draws=self.same_draws,
            remarks=self._remarks(net),
        )

    def optimizer(self, model: nn.Module, lr: float = 1e-3, **options: Any) -> torch.optim.Optimizer:
        if self.coordinate_steps == 0:
            return super().optimizer(model, lr, **options)
        patched = set(model.posterior.parameters())  # type: ignore[union-attr]
        patched |= {model.net.get_parameter(n) for n in model.posterior.patches}  # type: ignore
        shared = [p for p in model.parameters() if p.requires_grad and p not in patched]
        groups = [shared, [p for p in patched if p.requires_grad]]
        return CoordinateDescent(groups, self.coordinate_steps, lr=lr, **options)

    def check_optimizer(self, optimizer: torch.optim.Optimizer, model: Any) -> None:
        if self.coordinate_steps and not isinstance(optimizer, CoordinateDescent):
            raise ValueError(
                f"optimizer={type(optimizer).__name__} would train all parameters at once, but "
                f"coordinate_steps={self.coordinate_steps} asks for turns: leave optimizer= out, or coordinate_steps="
            )

    def select(self, net: nn.Module, example: Any) -> Selection:
        selection = super().select(net, example)
        assignment = ASSIGNMENTS[self.assignment]
        scales = set(scales_of(net).values()) if assignment.zero else set()
        weights = tuple(
            replace(w, random=False, reason=reason)
            if w.random and (reason := _SCALE if w.name in scales else assignment.refusal(w.name, w.shape))
            else w
            for w in selection.weights
        )
        bare = self._without_parameters(net)
        if bare and not any(w.random for w in weights):
            raise ValueError(
                f"where={self.where} names norm layers without parameters ({', '.join(bare)}): nothing to patch. "
                f"Make them with affine=True (elementwise_affine=True), or choose other layers with where="
            )
        slots = {w.name: selection.slots[w.name] for w in weights if w.random}
        return replace(selection, weights=weights, slots=slots)

    def _choose_penalty(self) -> None:
        """The prior or, where nothing asks for one, a penalty of 0."""
        if self.prior_precision is not None:
            return
        asks = self.kl != "auto" or self.learn_std or self.mixing == "learned"
        if self.l2 is None and not asks:
            object.__setattr__(self, "l2", 0.0)
        object.__setattr__(self, "prior_precision", 1.0)

    def _probs(self) -> tuple[float, ...]:
        if ASSIGNMENTS[self.assignment].zero:
            return (1 - self.drop_prob, self.drop_prob)
        if isinstance(self.mixing, str):
            return (1 / self.num_components,) * self.num_components
        return tuple(self.mixing)

    def _without_parameters(self, net: nn.Module) -> list[str]:
        """Norm layers in `where` that have neither weight nor bias."""
        norms = [(path, module) for path, module in net.named_modules() if kind_of(module) == "norm"]
        bare = [path for path, module in norms if next(module.parameters(), None) is None]
        return [path for path in bare if self.where(Candidate(f"{path}.weight", "norm"))]

    def _remarks(self, net: nn.Module) -> list[str]:
        bare = self._without_parameters(net)
        return [f"norm layers without parameters, nothing to patch: {', '.join(bare)}"] if bare else []

    def _check_numbers(self) -> None:
        if self.num_components == 1 and self.num_components is not True:
            raise ValueError("num_components=1 must be at least 2; for one component use bf.Point()")
        super().__post_init__()
        _by_role(self.prior_precision or 0.0, "prior_precision")
        _by_role(0.0 if self.l2 is None else self.l2, "l2")

    def _check_mixing(self) -> None:
        if isinstance(self.mixing, str):
            if self.mixing not in ("uniform", "learned"):
                raise ValueError(
                    f"mixing={self.mixing!r} must be 'uniform', 'learned' or {self.num_components} probabilities"
                )
            return
        if ASSIGNMENTS[self.assignment].zero:
            raise ValueError(
                f"mixing={self.mixing!r}: assignment={self.assignment!r} takes drop_prob= in place of probabilities"
            )
        given = self.mixing if isinstance(self.mixing, tuple) else ()
        if len(given) != self.num_components or not all(isinstance(p, int | float) and p > 0 for p in given):
            raise ValueError(
                f"mixing={self.mixing!r} must hold num_components={self.num_components} positive numbers that sum to "
                f"one, e.g. {(1 / self.num_components,) * self.num_components}"
            )
        if not math.isclose(math.fsum(self.mixing), 1, abs_tol=1e-6):
            raise ValueError(f"mixing={self.mixing!r} must sum to one, not to {math.fsum(self.mixing):g}")

    def _check_choices(self) -> None:
        choices = {"kl": KL_FORMS, "init": INITS, "running_stats": ("shared", "component")}
        for key, allowed in choices.items():
            check_choice(allowed, getattr(self, key), key)
        varies = self.learn_std or self.mixing == "learned"
        if (self.kl in ("full", "monte_carlo") or self.learn_std) and self.std == 0:
            raise ValueError(
                f"kl={self.kl!r}, learn_std={self.learn_std!r}: the KL of a component of width 0 is infinite; "
                f"give std= a positive number, for example 1e-3"
            )
        if varies and (self.kl == "l2" or self.l2 is not None):
            raise ValueError(
                "kl='l2' and l2= leave out terms that depend on what learn_std and mixing='learned' train: "
                "use kl='auto' and prior_precision="
            )
        one_choice = ASSIGNMENTS[self.assignment].scalar and not self.per_example and self.mixing != "learned"
        if self.running_stats == "component" and not one_choice:
            raise ValueError(
                "running_stats='component' needs one choice for each layer and batch: assignment='layer' or 'member', "
                "per_example=False and fixed mixing; else use running_stats='shared'"
            )
        if self.per_example and self.mixing == "learned":
            raise ValueError("mixing='learned' is for one choice per batch: use per_example=False")


def _by_role(value: float | Mapping[str, float], argument: str) -> dict[str, float]:
    """One number for each of ROLES."""
    given = dict(value) if isinstance(value, Mapping) else dict.fromkeys(ROLES, value)
    missing, unknown = [r for r in ROLES if r not in given], [r for r in given if r not in ROLES]
    if missing or unknown:
        raise ValueError(f"{argument}={value!r} must be a number, or a dict with {', '.join(ROLES)}")
    return given
