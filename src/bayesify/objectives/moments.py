"""What the moments of a network's output say about a target: the data term of density propagation.

`expected`: E log p(y | z) over z ~ N(mean, var), entries independent. Exact for regression. For classes and labels it
has no closed form: a lower bound, an expansion to second order, or the cross-entropy of the mean (`logits=`). Other
likelihoods estimate it by draws of z.
`gaussian`: log of the normal density of y under the moments themselves (paper 3, eq. 11 corrected):
−½ Σ_k [log 2πσ_k² + (y_k − μ_k)²/σ_k²], with its ½ restored.
Both are the likelihood's own: `Likelihood.expected_log_prob` and `gaussian_log_prob`.
"""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from bayesify.likelihoods import Likelihood
from bayesify.likelihoods.shapes import weighted_nll
from bayesify.moments import certain, replace
from bayesify.names import lookup

LOGITS = ("bound", "second_order", "mean")


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
    target = likelihood.check(mean, target, values)
    log_prob = lookup(OBJECTIVES, objective, "objective")(likelihood, output, target, **options)
    return weighted_nll(log_prob, sample_weight)


def expected(likelihood: Likelihood, output: Any, target: Tensor, logits: str = "bound") -> Tensor:
    """E log p(y | z), per example: (batch,)."""
    return likelihood.expected_log_prob(output, target, logits)


def gaussian(likelihood: Likelihood, output: Any, target: Tensor, var_floor: float = 1e-3) -> Tensor:
    """log N(y; mean, var), per example; classes have `var_floor` added to their variance: (batch,)."""
    return likelihood.gaussian_log_prob(output, target, var_floor)


OBJECTIVES: dict[str, Callable[..., Tensor]] = {"expected": expected, "gaussian": gaussian}
