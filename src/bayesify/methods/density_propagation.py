"""Variational density propagation (paper 3): mean and variance through every layer in one pass."""

from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

from torch import nn

from bayesify import torch_internals as internals
from bayesify.checks import NotNegative, Positive
from bayesify.families.shared_normal import SHARINGS
from bayesify.methods.base import Method, around, weight_by_size
from bayesify.names import check_choice
from bayesify.objectives import DataTerm
from bayesify.objectives.moments import LOGITS, OBJECTIVES, moments_nll
from bayesify.posteriors import Call, Factorized
from bayesify.priors import Prior, prior
from bayesify.weights import Selection
from bayesify.weights.kinds import kind_of_network

ACTIVATIONS = {"exact": ("exact",), "first_order": ()}
RESIDUALS = {"sum": (), "cross": ("cross",)}
NORMS = {"full": (), "total": ("total",), "simple": ("simple",)}
HALVES: dict[bool | str, tuple[str, ...]] = {False: (), True: ("half",), "auto": ("half_on_gpu",)}


@dataclass(frozen=True)
class DensityPropagation(Method):
    """q(w) normal; the network carries mean and variance, so one pass gives a predictive distribution.

    kl_weight:    tempering of the KL; 1 is Bayes. None: 1, less of more than 100,000 random weights (`weight_by_size`)
    covariance:   "outputs" carries a variance per activation and finds the covariance of the outputs by one adjoint
                  sweep for each of them, which sees that activations share the noise of weights; "diagonal" (VDP++)
                  the variances alone: fast, and far too small on trained deep networks; "full" (VDP) the covariance
                  of each layer, for small networks, residual sums included; refuses layers that would take too much
                  memory
    objective:    "expected" log-likelihood of the moments, or the "gaussian" density of the target under them (eq. 11)
    logits:       how "expected" treats the outputs: "probe" by one sweep from a random combination of them, which has
                  their covariance; "bound" of E log p from below, by their variances; its expansion to
                  "second_order", which lets the variance of confident answers grow; or "mean" logits alone (the
                  paper's cross-entropy), where nothing but the KL holds the last layer's variances. "auto": "probe"
                  with the covariance of the outputs, else "bound"
    var_floor:    added to the variance of class probabilities by "gaussian"; it sets where that loss is smallest
    activation:   "exact" moments of relu, leaky relu, abs, gelu, square and exp; "first_order" for all
    norm:         layer, group, instance and RMS norm: first order, divided by the "total" of both moments, which stays
                  right for large variances; "full" first order around the means; or a "simple" scaling
    variance:     one per "weight"; one per "row" (first dimension: output unit or channel); or "layer", α·mean²
    residual:     sums x + F(x): "sum" of both variances, or with the "cross" term 2 Cov(x, F(x)), which takes a
                  backward pass for each number of the sum: for small networks, not compiled
    half_variance: carry and multiply variances in bfloat16: off by 1 % or less as a rule; means keep their
                  precision. "auto": on a GPU; True also on a CPU, worth it where it has instructions for bfloat16
                  (avx512_bf16, AMX): a compiled step of ResNet-18 then takes two thirds of the time
    prior:        a name or `bf.prior(...)`; None: "normal"; "fan_in" in a network of convolutions with batch or group
                  norm and more than 100,000 random weights; N(w₀, 1) around its weights w₀ with
                  `start="pretrained"`
    init_std:     starting std as a fraction of each tensor's root mean square
    """

    name = "vdp"
    about = "density propagation: mean and variance through every layer in one pass, and how outputs vary together"
    paper = "Efficient Scaling of Bayesian Neural Networks (VDP++). Anonymous authors."
    reasons: ClassVar[dict[str, str]] = {**Method.reasons, "prior": "std 1 is too wide for so many weights"}

    kl_weight: NotNegative | None = field(default=None, kw_only=True)
    covariance: str = "outputs"
    objective: str = "expected"
    logits: str = "auto"
    var_floor: Positive = 1e-3
    activation: str = "exact"
    norm: str = "total"
    variance: str = "weight"
    residual: str = "sum"
    half_variance: bool | str = "auto"
    prior: str | Prior | None = None
    init_std: Positive = 0.05

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice(("outputs", "diagonal", "full"), self.covariance, "covariance")
        check_choice(OBJECTIVES, self.objective, "objective")
        check_choice(("auto", *LOGITS), self.logits, "logits")
        check_choice(ACTIVATIONS, self.activation, "activation")
        check_choice(NORMS, self.norm, "norm")
        check_choice(SHARINGS, self.variance, "variance")
        check_choice(RESIDUALS, self.residual, "residual")
        if self.half_variance not in HALVES:
            raise ValueError(f'half_variance={self.half_variance!r} must be "auto", True or False')
        if isinstance(self.prior, str):
            object.__setattr__(self, "prior", prior(self.prior))

    @property
    def forms(self) -> tuple[str, ...]:
        """Which forms of the moment rules to use, in order."""
        if self.covariance == "full":
            return (*(f"full_{form}" for form in ACTIVATIONS[self.activation]), "full")
        half = HALVES[self.half_variance]
        return (*RESIDUALS[self.residual], *ACTIVATIONS[self.activation], *NORMS[self.norm], *half, "")

    @property
    def _swept(self) -> bool:
        return self.covariance == "outputs" and self.residual == "sum"

    @property
    def _logits(self) -> str:
        return self.logits if self.logits != "auto" else "probe" if self._swept else "bound"

    def for_pretrained(self, net: nn.Module) -> "DensityPropagation":
        moves = SHARINGS[self.variance].moves
        return self.decided(prior=around()) if self.prior is None and moves else self

    def for_net(self, net: nn.Module, example: Any) -> "DensityPropagation":
        weight = weight_by_size(self.select(net, example))
        large = weight < 1 and kind_of_network(net) == "convolutional"
        made = self.decided(prior=prior("fan_in" if large else "normal")) if self.prior is None else self
        return made if made.kl_weight is not None else made.decided(kl_weight=weight)

    def posterior(self, net: nn.Module, selection: Selection, example: Call | None) -> Factorized:
        assert isinstance(self.prior, Prior)
        _let_compiled_code_be_cached()
        probed = self.objective == "expected" and self._logits == "probe"
        if self._swept or probed:
            internals.let_derivatives_be_traced()
        return Factorized(
            net,
            selection,
            SHARINGS[self.variance],
            self.prior,
            sampling="moments",
            init_std=self.init_std,
            forms=self.forms,
            swept=self._swept,
            probed=probed,
            example=example,
        )

    def data_term(self) -> DataTerm:
        options: dict[str, Any] = (
            {"logits": self._logits} if self.objective == "expected" else {"var_floor": self.var_floor}
        )
        return partial(moments_nll, objective=self.objective, **options)


def _let_compiled_code_be_cached() -> None:
    """ReLU and GELU have derivatives of their own, whose graphs are part of the key. Without this no compiled step
    would be found in torch's cache, and a transformer's graphs would be traced and cut anew in every process."""
    name = "autograd_cache_allow_custom_autograd_functions"
    if hasattr(internals.functorch_config, name):
        setattr(internals.functorch_config, name, True)


__all__ = ["DensityPropagation"]
