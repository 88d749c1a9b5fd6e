"""What the moments of a network's output say about a target: the data term of density propagation.

`expected`: E log p(y | z) over z ~ N(mean, var), entries independent. Exact for regression. For classes and labels it
has no closed form: a lower bound, an expansion to second order, or the cross-entropy of the mean (`logits=`).
`gaussian`: log of the normal density of y under the moments themselves (paper 3, eq. 11 corrected).
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from bayesify.likelihoods import Bernoulli, Categorical, Heteroscedastic, Likelihood, Normal
from bayesify.likelihoods.base import sum_over_example, weighted_nll
from bayesify.moments import Gaussian, Moments
from bayesify.moments.rules.softmax import softmax_var
from bayesify.names import lookup


def moments_nll(
    likelihood: Likelihood,
    output: Any,
    target: Tensor,
    sample_weight: Tensor | None = None,
    values: bool = True,
    objective: str = "expected",
    **options: Any,
) -> Tensor:
    """Mean negative `objective` per example; `output` holds moments, or a tuple of them (two heads)."""
    output = tuple(output) if type(output) in (tuple, list) else output
    mean = tuple(head.mean for head in output) if type(output) is tuple else output.mean
    target = likelihood.check(mean, target, values)
    log_prob = lookup(OBJECTIVES, objective, "objective")(likelihood, output, target, **options)
    return weighted_nll(log_prob, sample_weight)


# -- expected log-likelihood ------------------------------------------------------------------------------


LOGITS = ("bound", "second_order", "mean")


def expected(likelihood: Likelihood, output: Any, target: Tensor, logits: str = "bound") -> Tensor:
    """E log p(y | z), per example: (batch,)."""
    if isinstance(likelihood, Normal):
        penalty = output.var / (2 * likelihood.std.square())
        return likelihood.log_prob(output.mean, target) - sum_over_example(penalty)
    if isinstance(likelihood, Heteroscedastic):
        mean, log_var = heads(output)
        # E (y − m)² e^{−l} = ((y − E m)² + Var m) e^{−E l + Var l/2}
        precision = (0.5 * log_var.var - log_var.mean).exp()
        squared = ((target - mean.mean).square() + mean.var) * precision
        return -0.5 * sum_over_example(squared + log_var.mean + math.log(2 * math.pi))
    if isinstance(likelihood, Bernoulli):
        return _expected_labels(likelihood, output, target, logits)
    assert isinstance(likelihood, Categorical)
    if logits == "bound" and not target.is_floating_point():
        return likelihood.log_prob(cautious_logits(output, target, likelihood), target)
    log_prob = likelihood.log_prob(output.mean, target)
    if logits == "mean":
        return log_prob
    return log_prob - sum_over_example(_counted(likelihood, target) * curvature(output, likelihood.class_dim))


def cautious_logits(output: Moments | Gaussian, target: Tensor, likelihood: Categorical) -> Tensor:
    """Logits whose cross-entropy bounds the expected one from above (Jensen, over the differences to the target's):

    −E log p(y) = E log Σ_k e^{z_k − z_y} ≤ log(1 + Σ_{k≠y} e^{m_k − m_y + (s_k + s_y)/2}): m_k + s_k/2, m_y − s_y/2.
    With full covariance s_k + s_y is Var(z_k − z_y).
    """
    dim = likelihood.class_dim
    valid = target.masked_fill(target == likelihood.ignore_index, 0)
    index = valid.unsqueeze(dim if dim >= 0 else dim + output.mean.dim())
    if isinstance(output, Gaussian):
        column = output.cov.gather(2, index[:, None].expand(-1, output.cov.shape[1], 1))[:, :, 0]
        return output.mean + 0.5 * (
            output.var - 2 * column
        )  # at y: −s_y/2; elsewhere less by it: s_k/2 − cov
    half = 0.5 * output.var
    return output.mean + half - torch.zeros_like(half).scatter(dim, index, 2 * half.gather(dim, index))


def _expected_labels(likelihood: Bernoulli, output: Moments, target: Tensor, logits: str) -> Tensor:
    """Each label by itself; the bound is −E log p(1) ≤ log(1 + e^{−m + s/2}), and likewise for 0 with m + s/2."""
    if logits == "bound":
        half = 0.5 * output.var
        yes = torch.nn.functional.logsigmoid(output.mean - half)
        no = torch.nn.functional.logsigmoid(-output.mean - half)
        return sum_over_example(target * yes + (1 - target) * no)
    log_prob = likelihood.log_prob(output.mean, target)
    if logits == "mean":
        return log_prob
    p = output.mean.sigmoid()
    return log_prob - sum_over_example(0.5 * p * (1 - p) * output.var)


def curvature(output: Moments | Gaussian, class_dim: int) -> Tensor:
    """E log Σ exp z − log Σ exp E z to second order: ½ Σ_k p_k(1 − p_k) Var z_k, or ½ tr(J Cov z)."""
    p = output.mean.softmax(class_dim)
    if isinstance(output, Gaussian):
        quadratic = torch.einsum("bi,bij,bj->b", p, output.cov, p)
        return 0.5 * ((p * output.var).sum(1) - quadratic)
    return 0.5 * (p * (1 - p) * output.var).sum(class_dim)


def _counted(likelihood: Categorical, target: Tensor) -> Tensor:
    """How much each position counts: class weights, and 0 for ignored ones."""
    if target.is_floating_point():
        weight = likelihood.class_weight
        soft = target.movedim(likelihood.class_dim, -1)
        return soft.sum(-1) if weight is None else soft @ weight.to(soft.dtype)
    valid = target != likelihood.ignore_index
    if likelihood.class_weight is None:
        return valid.to(torch.get_default_dtype())
    return valid * likelihood.class_weight[target.masked_fill(~valid, 0)]


def heads(output: Any) -> tuple[Moments, Moments]:
    """(mean, log-variance) of a heteroscedastic network, both with moments."""
    if isinstance(output, Moments):
        (m, l), (m_var, l_var) = output.mean.chunk(2, -1), output.var.chunk(2, -1)
        return Moments(m, m_var), Moments(l, l_var)
    mean, log_var = output
    return mean, log_var


# -- normal density of the moments ------------------------------------------------------------------------


def gaussian(likelihood: Likelihood, output: Any, target: Tensor, var_floor: float = 1e-3) -> Tensor:
    """log N(y; mean, var), per example: −½ Σ_k [log 2πσ_k² + (y_k − μ_k)²/σ_k²] (eq. 11 with its ½ restored).

    Regression: σ² = Var z + noise variance. Classes: y is one-hot, μ and σ² are the moments of softmax(z), and
    σ² has `var_floor` added: without a floor the density of a certain and right answer is unbounded.
    """
    if isinstance(likelihood, Normal):
        return _normal(output.mean, output.var + likelihood.std.square(), target)
    if isinstance(likelihood, Heteroscedastic):
        mean, log_var = heads(output)
        return _normal(mean.mean, mean.var + (log_var.mean + 0.5 * log_var.var).exp(), target)
    if isinstance(likelihood, Bernoulli):
        p = output.mean.sigmoid()
        return _normal(p, (p * (1 - p)).square() * output.var + var_floor, target)
    assert isinstance(likelihood, Categorical)
    if target.dim() > 1 and not target.is_floating_point():
        raise ValueError(
            f"objective='gaussian' takes one class per example, the target has shape {tuple(target.shape)}: "
            f"use objective='expected'"
        )
    p = output.mean.softmax(likelihood.class_dim)
    hard = not target.is_floating_point()
    y = torch.nn.functional.one_hot(target, p.shape[-1]).to(p.dtype) if hard else target
    if isinstance(output, Gaussian):
        return _normal_full(p, output.cov, y, var_floor)
    return _normal(p, softmax_var(p, output.var, likelihood.class_dim) + var_floor, y)


def _normal(mean: Tensor, var: Tensor, target: Tensor) -> Tensor:
    return -0.5 * sum_over_example((2 * math.pi * var).log() + (target - mean).square() / var)


def _normal_full(p: Tensor, cov: Tensor, target: Tensor, var_floor: float) -> Tensor:
    """log N(y; p, J Σ Jᵀ + floor I), J = diag p − ppᵀ."""
    jacobian = p.diag_embed() - p[:, :, None] * p[:, None, :]
    cov = jacobian @ cov @ jacobian.mT + var_floor * torch.eye(p.shape[1], dtype=p.dtype, device=p.device)
    return torch.distributions.MultivariateNormal(p, cov, validate_args=False).log_prob(target)


OBJECTIVES: dict[str, Callable[..., Tensor]] = {"expected": expected, "gaussian": gaussian}
