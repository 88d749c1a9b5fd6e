"""KL of the families of variance networks to the log-uniform and the Student prior (paper 5, corrected).

With u = c²/(2s²) = 1/(2α) and K(u) = 2 ∫₀^{√u} D (log_uniform.py), K(0) = 0:

    log-uniform, exact       K(u);  0 for every zero-mean layer
    log-uniform, sigmoid     k₁ − k₁ sigmoid(k₂ + k₃ log α) + ½ log(1 + 1/α)          (10), sign corrected
    automatic relevance      ½ log(1 + 1/α): a normal prior of the best variance for each weight
    log-uniform, stochastic  −½ log α + ½ log(1 + √α ε)² − E log |ε|                  (9)
    Student, exact           ν log s + ½ (ν + 1)(log 2 + E log |t − z|²) + const, z = (|c| + i√ν)/(√2 s), t ~ N(0, ½)

each per weight, plus the constant of the prior. α shared by many weights costs one evaluation.
"""

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from bayesify import priors
from bayesify.divergences.exact import closed_form
from bayesify.divergences.faddeeva import log_distance
from bayesify.divergences.log_uniform import kl_to_log_uniform
from bayesify.divergences.multi_tensor import KL, one_by_one
from bayesify.families.variance import Additive, Multiplicative, VarianceNormal, ZeroMeanNormal, wide
from bayesify.families.zero_mean import ZeroMean, ZeroMeanBernoulli, ZeroMeanUniform
from bayesify.laws.features import log
from bayesify.laws.real import LOG_MEAN, log_norm

#: KL of N(0, s²) to p(w) = 1/|w|, for every s: the constant that makes K(0) = 0
AT_ZERO_MEAN = -0.5 * math.log(2 * math.pi * math.e) + LOG_MEAN
K1, K2, K3 = 0.63576, 1.87320, 1.48695
LARGEST = 1e30  # u beyond it overflows in float32


@closed_form(Multiplicative, priors.LogUniform)
@closed_form(Additive, priors.LogUniform)
def variance_log_uniform(q: VarianceNormal, p: priors.LogUniform) -> Tensor:
    """Σ K(u), u = (mean/std)²/2."""
    u = 0.5 * (q.ratio * q.mean_gate).square().clamp_max(LARGEST)
    return _total(q, kl_to_log_uniform(u)) + constant(q, p)


@closed_form(ZeroMeanNormal, priors.LogUniform)
def zero_mean_log_uniform(q: ZeroMeanNormal, p: priors.LogUniform) -> Tensor:
    """The same for every σ (App. C)."""
    return q.centre.new_zeros((), dtype=torch.float32) + constant(q, p)


@closed_form(ZeroMeanUniform, priors.LogUniform)
@closed_form(ZeroMeanBernoulli, priors.LogUniform)
def zero_mean_noise_log_uniform(q: ZeroMean, p: priors.LogUniform) -> Tensor:
    """E log q₀(ξ) + E log |ξ| for each weight, whatever its scale."""
    expected = q.expectation(log(1))
    assert isinstance(expected, float)
    each = q.noise_neg_entropy() + expected - p.log_constant
    return q.centre.new_zeros((), dtype=torch.float32) + each * q.shape.numel()


@closed_form(Multiplicative, priors.StudentT)
@closed_form(Additive, priors.StudentT)
@closed_form(ZeroMeanNormal, priors.StudentT)
def variance_student(q: VarianceNormal, p: priors.StudentT) -> Tensor:
    """Exact, (25) with ε outside the root. At ν → 0 its gradients are those of the log-uniform prior."""
    if p.loc:
        raise ValueError(f"the KL of the {q.name} family needs a Student prior with loc=0, not loc={p.loc!r}")
    df = p.df
    tiny = 1e-30  # a std below it counts as that
    std = (q.spread.abs() / p.scale).clamp_min(tiny)
    x = (q.ratio * q.mean_gate).clamp_max(math.sqrt(LARGEST)) / math.sqrt(2)
    y = (math.sqrt(df / 2) / std).clamp_max(math.sqrt(LARGEST))
    each = df * std.log() + 0.5 * (df + 1) * log_distance(x, y)
    rest = 0.5 * (df + 1) * (math.log(2) - math.log(df)) - 0.5 * math.log(2 * math.pi * math.e) - log_norm(df)
    return (each * wide(q.noise_gate)).sum() + rest * _count(q)


def sigmoid(q: VarianceNormal, p: priors.LogUniform) -> Tensor:
    """Molchanov et al.'s approximation of K, within .0095 of it; 0 at α = ∞."""
    precision = (q.ratio * q.mean_gate).square().clamp(1 / LARGEST, LARGEST)  # 1/α
    kl = K1 - K1 * torch.sigmoid(K2 - K3 * precision.log()) + 0.5 * precision.log1p()
    return _total(q, kl) + constant(q, p)


def ard(q: VarianceNormal, p: priors.LogUniform) -> Tensor:
    """KL to N(0, c² + s²), the normal prior of the variance that makes it least; the published code's other choice."""
    precision = (q.ratio * q.mean_gate).square().clamp_max(LARGEST)
    return _total(q, 0.5 * precision.log1p())


def stochastic(q: VarianceNormal, p: priors.LogUniform) -> Tensor:
    """One draw for each weight of (9). Its gradient has no finite mean: for comparison only."""
    ratio = (q.ratio * q.mean_gate).expand(q.shape)
    kl = (ratio + torch.randn_like(ratio)).abs().clamp_min(1e-30).log() - LOG_MEAN
    return _total(q, kl) + constant(q, p)


#: `kl=` of variance networks beside "exact"
APPROXIMATIONS: dict[str, Callable[[VarianceNormal, priors.LogUniform], Tensor]] = {
    "sigmoid": sigmoid,
    "ard": ard,
    "stochastic": stochastic,
}


def approximate(name: str, q: VarianceNormal, p: priors.LogUniform) -> KL:
    """Σ_j of one of the approximations over tensors like `q`."""
    return partial(one_by_one, APPROXIMATIONS[name], (p,))


def constant(q: VarianceNormal, p: priors.LogUniform) -> float | Tensor:
    """What the constant of the improper prior adds; nothing for log_constant = AT_ZERO_MEAN."""
    return _count(q) * (AT_ZERO_MEAN - p.log_constant)


def _total(q: VarianceNormal, kl: Tensor) -> Tensor:
    """The sum over all weights; `kl` has one value for those that share α. Weights without noise have none."""
    if q.noise_gate.dim() == 0:
        return kl.sum() * (q.shape.numel() // kl.numel()) * q.noise_gate
    return (kl * q.noise_gate).sum()


def _count(q: VarianceNormal) -> float | Tensor:
    """How many weights are random."""
    gate = wide(q.noise_gate)
    return gate * q.shape.numel() if gate.dim() == 0 else gate.sum()
