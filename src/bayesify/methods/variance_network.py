"""Variance networks: what was learned is in the variances of the weights (paper 5)."""

import warnings
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import torch
from torch import nn

from bayesify.checks import NotNegative, Positive
from bayesify.divergences.variance import APPROXIMATIONS, AT_ZERO_MEAN, approximate
from bayesify.families.base import Family
from bayesify.families.variance import SHARINGS, Additive, Multiplicative, ZeroMeanNormal
from bayesify.families.zero_mean import ZeroMeanBernoulli, ZeroMeanUniform
from bayesify.methods.base import LAST, Method, weight_by_size
from bayesify.names import check_choice, lookup
from bayesify.posteriors import Call
from bayesify.posteriors.variance import VarianceFactorized
from bayesify.priors import LogUniform, Prior, StudentT, prior
from bayesify.weights import Selection, select, where
from bayesify.weights.kinds import kind_of_network
from bayesify.weights.where import Where

PARAMETERIZATIONS: dict[str, type[Family]] = {
    "layer": Multiplicative,
    "neuron": Multiplicative,
    "weight": Multiplicative,
    "additive": Additive,
    "zero_mean": ZeroMeanNormal,
}
NOISES: dict[str, type[Family]] = {
    "normal": ZeroMeanNormal,
    "uniform": ZeroMeanUniform,
    "bernoulli": ZeroMeanBernoulli,
}
LOG_UNIFORM = prior("log_uniform", log_constant=AT_ZERO_MEAN)  # the KL is 0 at α = ∞
KLS = ("exact", *APPROXIMATIONS)
BIASES = where.matching(r"(^|[._])bias$")
LAYERS = where.linear | where.conv
UNBOUNDED = {  # why there is no bound on α
    "additive": "σ is a parameter of its own, and where σ² ≤ μ² binds a weight could not change its sign",
    "zero_mean": "σ²/μ² is infinite",
}
LOG_ALPHA_BETAS = (0.9, 0.95)  # of Adam


@dataclass(frozen=True)
class VarianceNetwork(Method):
    """q(w) = N(μ, α μ²) with a log-uniform prior, trained by the ELBO through local reparameterization.

    parameterization: where α is shared: "layer" (17), "neuron" (18), "weight" (19); "additive" has a σ of its own
               for each weight (20); "zero_mean" has σ alone (12), the network's own parameter being ±σ
    where:     which layers; None: the last one in a network of convolutions with batch or group norm, whose other
               weights fit better without noise, else every linear and convolutional one (for "zero_mean" always these
               but the last, whose outputs would be mere noise). Their biases stay deterministic unless biases=True
    kl_weight: tempering of the KL; 1 is Bayes. None: 1, less of more than 100,000 random weights (`weight_by_size`)
    prior:     "log_uniform", or a Student prior; the paper's is bf.prior("student_t", df=1e-16)
    kl:        "exact"; "sigmoid", a known approximation (10); "ard", that to a normal prior whose variance is fitted
               for each weight; "stochastic", one draw a weight (9), a baseline whose
               gradient has no finite mean
    init_log_alpha: where log α starts (σ² = α·mean square for "additive")
    min_log_alpha, max_log_alpha: its bounds; max_log_alpha=0 is variational dropout (Kingma et al. 2015). "additive"
               and "zero_mean" have none
    log_alpha_lr: the learning rate of log α as a multiple of that of the other parameters
    noise:     of zero-mean weights: "normal", "uniform" or "bernoulli" (±σ)
    abs_after: put |·| in place of the activation behind each random layer, which keeps a zero-mean layer from
               losing half of its outputs (appendix D). Where that is no module of the same nn.Sequential, |·| comes
               right behind the layer, by a forward hook: a ReLU then changes nothing, a norm sees |y|
    biases:    make the biases of these layers random, too
    sampling:  "local": fresh noise for each example; "draw": one set of weights for a batch
    same_draws: every process of a distributed run draws the same weights (else each its own)
    """

    name = "variance"
    about = "variance network: noise as large as the weights, or larger; what was learned is in the variances"
    paper = (
        "K. Neklyudov, D. Molchanov, A. Ashukha, D. Vetrov: Variance Networks: When Expectation Does Not Meet Your "
        "Expectations. ICLR 2019."
    )
    reasons: ClassVar[dict[str, str]] = {**Method.reasons, "where": LAST}

    where: Where | None = field(default=None, kw_only=True)
    kl_weight: NotNegative | None = field(default=None, kw_only=True)
    parameterization: str = "layer"
    prior: str | Prior = LOG_UNIFORM
    kl: str = "exact"
    init_log_alpha: float = -5.0
    min_log_alpha: float = -20.0
    max_log_alpha: float = 20.0
    log_alpha_lr: Positive = 1.0
    noise: str = "normal"
    abs_after: bool = False
    biases: bool = False
    sampling: str = "local"
    same_draws: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        lookup(PARAMETERIZATIONS, self.parameterization, "parameterization")
        lookup(NOISES, self.noise, "noise")
        check_choice(KLS, self.kl, "kl")
        check_choice(("local", "draw"), self.sampling, "sampling")
        if self.parameterization == "zero_mean" and self.where is None:
            object.__setattr__(self, "where", LAYERS & ~where.output)
        if isinstance(self.prior, str):
            made = LOG_UNIFORM if self.prior == LOG_UNIFORM.name else prior(self.prior)
            object.__setattr__(self, "prior", made)
        if not isinstance(self.prior, LogUniform | StudentT):
            raise ValueError(f"prior={self.prior!r} does not fit: use 'log_uniform' or 'student_t'")
        if self.noise != "normal" and self.parameterization != "zero_mean":
            raise ValueError(f"noise={self.noise!r} needs parameterization='zero_mean'")
        if not isinstance(self.prior, LogUniform) and (self.kl != "exact" or self.noise != "normal"):
            raise ValueError(f"kl={self.kl!r} with noise={self.noise!r} needs prior='log_uniform'")
        inside = self.min_log_alpha <= self.init_log_alpha <= self.max_log_alpha
        if self.parameterization in SHARINGS and not inside:
            raise ValueError(
                f"init_log_alpha={self.init_log_alpha!r} must lie between min_log_alpha={self.min_log_alpha!r} and "
                f"max_log_alpha={self.max_log_alpha!r}"
            )
        if self.parameterization not in SHARINGS and (self.min_log_alpha, self.max_log_alpha) != (-20, 20):
            raise ValueError(
                f"min_log_alpha and max_log_alpha bound the α of {', '.join(SHARINGS)}; "
                f"parameterization={self.parameterization!r} has none: {UNBOUNDED[self.parameterization]}. "
                f"Leave them out, or use parameterization='weight'"
            )
        if self.kl == "stochastic":
            warnings.warn(
                "kl='stochastic': the gradient of this estimator has no finite mean; it is kept for comparison, "
                "use kl='exact'"
            )

    @property
    def family(self) -> type[Family]:
        kind = PARAMETERIZATIONS[self.parameterization]
        return NOISES[self.noise] if kind is ZeroMeanNormal else kind

    def for_net(self, net: nn.Module, example: Any) -> "VarianceNetwork":
        usual = LAYERS & where.output if kind_of_network(net) == "convolutional" else LAYERS
        made = self.decided(where=usual) if self.where is None else self
        if made.kl_weight is not None:
            return made
        return made.decided(kl_weight=weight_by_size(made.select(net, example)))

    def posterior(self, net: nn.Module, selection: Selection, example: Call | None) -> VarianceFactorized:
        assert isinstance(self.prior, Prior)
        if self.abs_after:
            from bayesify.nets.rectifiers import put_abs_after

            put_abs_after(net, [w.name for w in selection.random])
        options: dict[str, Any] = {}
        if self.parameterization in SHARINGS:
            bounds = {"min_log_alpha": self.min_log_alpha, "max_log_alpha": self.max_log_alpha}
            options = {"init_log_alpha": self.init_log_alpha, "per": self.parameterization, **bounds}
        elif self.parameterization == "additive":
            options = {"init_log_alpha": self.init_log_alpha}
        sampling = "flipout" if self.sampling == "local" and self.noise != "normal" else self.sampling
        if self.kl != "exact":
            options["divergence"] = partial(approximate, self.kl)
        return VarianceFactorized(
            net,
            selection,
            self.family,
            self.prior,
            outputs_of if self.parameterization == "neuron" else lambda module: {},
            sampling=sampling,
            same_draws=self.same_draws,
            example=example,
            **options,
        )

    def optimizer(self, model: nn.Module, lr: float = 1e-3, **options: Any) -> torch.optim.Optimizer:
        """Adam; log α has a learning rate and, unless `betas` are given, a memory of its own.

        Its gradient falls as 1/α. Adam divides by what it remembers, so that over the 1,000 steps of the usual β₂ the
        first gradients would hold log α back.
        """
        named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
        alphas = [p for name, p in named if name.endswith(".log_alpha")]
        if not alphas:
            return super().optimizer(model, lr, **options)
        others = [p for name, p in named if not name.endswith(".log_alpha")]
        betas = options.get("betas", LOG_ALPHA_BETAS)
        groups = [
            {"params": others, "lr": lr},
            {"params": alphas, "lr": lr * self.log_alpha_lr, "betas": betas},
        ]
        if all(p.is_cuda for _, p in named):
            options.setdefault("fused", True)
        return torch.optim.Adam([group for group in groups if group["params"]], **options)

    def select(self, net: nn.Module, example: Any) -> Selection:
        chosen = LAYERS if self.where is None else self.where
        return select(net, chosen if self.biases else chosen & ~BIASES, example)


def outputs_of(module: nn.Module) -> dict[str, int]:
    """Where a layer keeps its outputs, if not in the first dimension of its weight."""
    if isinstance(module, nn.ConvTranspose1d | nn.ConvTranspose2d | nn.ConvTranspose3d):
        return {"output_dim": 1, "groups": module.groups}
    return {"output_dim": 1} if type(module).__name__ == "Conv1D" else {}


#: the same object with other bounds
VariationalDropout = partial(VarianceNetwork, max_log_alpha=0.0)  # Kingma et al. 2015: α ≤ 1
SparseVariationalDropout = partial(VarianceNetwork, parameterization="additive")  # Molchanov et al. 2017
