"""What the moments of a network's output say about a target: the data term of density propagation.

`expected`: E log p(y | z) over z ~ N(mean, var), entries independent. Exact for regression. For classes and labels it
has no closed form: a lower bound, an expansion to second order, or the cross-entropy of the mean (`logits=`). Other
likelihoods estimate it by draws of z.
`gaussian`: log of the normal density of y under the moments themselves (paper 3, eq. 11 corrected):
−½ Σ_k [log 2πσ_k² + (y_k − μ_k)²/σ_k²], with its ½ restored.
Both are the likelihood's own: `Likelihood.expected_log_prob` and `gaussian_log_prob`.
"""

from typing import Any

import torch
from torch import Tensor

from bayesify.likelihoods import Likelihood
from bayesify.likelihoods.shapes import weighted_nll
from bayesify.moments import Moments, certain, holds, replace
from bayesify.moments.layouts import Unknown
from bayesify.moments.sweep import gram, tell_once

LOGITS = ("bound", "second_order", "mean", "probe")
OBJECTIVES = {"expected": "expected_log_prob", "gaussian": "gaussian_log_prob"}  # methods of the likelihood


def moments_nll(
    likelihood: Likelihood,
    output: Any,
    target: Tensor,
    sample_weight: Tensor | None = None,
    values: bool = True,
    objective: str = "expected",
    **options: Any,
) -> Tensor:
    """Mean negative `objective` per example; `output` holds moments, or a tuple of them (two heads); what is not
    random has no variance."""
    output = replace(output, Tensor, certain)
    output = tuple(output) if type(output) in (tuple, list) else output
    mean = tuple(head.mean for head in output) if type(output) is tuple else output.mean
    target = likelihood.matched(mean, target, values)
    log_prob = None
    if options.get("logits") == "probe":
        if holds(output, Moments, lambda moments: moments.trace is not None):
            log_prob = probed(likelihood, output, target)
        options["logits"] = "bound"
    if log_prob is None:
        log_prob = getattr(likelihood, OBJECTIVES[objective])(output, target, **options)
    return weighted_nll(log_prob, sample_weight, values)


def probed(likelihood: Likelihood, output: Any, target: Tensor) -> Tensor | None:
    """E log p(y | z) with the covariance of the sweep: first order about one pass, unbiased over random signs.

    None, with a warning, where the sweep cannot tell examples apart.
    """
    log_prob, u, held = likelihood.probe(output, target)
    heads = zip(output, u, strict=True) if type(output) is tuple else [(output, u)]
    try:
        found = [gram(head, seeds)[:, 0, 0] for head, seeds in heads if head.trace is not None]
    except Unknown as unknown:
        tell_once(output, unknown)
        return None
    return log_prob + held - torch.stack(found).sum(0)
