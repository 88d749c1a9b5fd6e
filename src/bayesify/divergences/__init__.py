"""KL(q ‖ p) by several estimators behind one function. Adding one: a file here and a line in ESTIMATORS."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Generator, Tensor

from bayesify.checks import check_positive_whole, check_value
from bayesify.divergences.exact import closed_form_of, exact
from bayesify.divergences.log_uniform import kl_to_log_uniform
from bayesify.divergences.multi_tensor import KL, MULTI_TENSOR, one_by_one
from bayesify.divergences.parameterization import distribution_of, of_feature, of_kl, of_prior, prior_of
from bayesify.divergences.repar import repar
from bayesify.divergences.statistics import Draws
from bayesify.divergences.stream import direct, stream
from bayesify.divergences.support import (
    best_estimator,
    check_finite,
    check_method,
    check_pair,
    condition,
    support,
)
from bayesify.divergences.taylor import check_taylor, taylor
from bayesify.execution import can_read_values
from bayesify.families import Family, LocationScale, RandomTensor
from bayesify.names import lookup
from bayesify.priors import Prior


def auto(q: Family, p: Prior, draws: Draws) -> Tensor:
    """The best that the pair has: exact, else repar, else stream."""
    return ESTIMATORS[best_estimator(q, p)](q, p, draws)


ESTIMATORS: dict[str, Callable[..., Tensor]] = {
    "auto": auto,
    "exact": exact,
    "repar": repar,
    "stream": stream,
    "taylor": taylor,
    "direct": direct,
}


def kl(
    q: Family | RandomTensor,
    p: Prior,
    estimator: str = "auto",
    num_draws: int = 1000,
    generator: Generator | None = None,
    noise: Tensor | None = None,
    **options: Any,
) -> Tensor:
    """KL(q ‖ p) summed over all entries of the tensor: a scalar with gradients.

    estimator:
        exact   no draws: every statistic is replaced by its expectation, or a closed form of the pair
        repar   `num_draws` draws through the parameterization tuple; graph and memory do not depend on their number,
                and neither does the time where the family draws the statistics at once
        stream  `num_draws` draws of any differentiable log-density; memory does not depend on their number
        taylor  `repar` with a polynomial in place of log p; options `order` (4) and `about` ("mean" or a number)
        direct  the plain estimator, whose graph grows with `num_draws`
        auto    exact where it exists, else repar, else stream
    noise: base noise (num_draws, *shape) to use instead of fresh draws; then E log q is the mean over it, too, and
        repar, stream and direct agree.
    """
    if not isinstance(p, Prior):
        raise TypeError(f"p={p!r} must be a prior, e.g. bf.prior('normal')")
    if p.needs_net:
        raise ValueError(
            f"p={p!r} lies around the weights of a network: `model.kl()` has them; here give the prior a mean"
        )
    if generator is not None and not isinstance(generator, Generator):
        check_value("generator", generator, Generator | None)
    distribution, p = _standard(distribution_of(q), p)
    p = prior_of(distribution, p)
    function = lookup(ESTIMATORS, estimator, "estimator")
    check_options(estimator, options)
    check_num_draws(num_draws)
    check_pair(distribution, p, estimator)
    if can_read_values():
        check_finite([distribution], p)
    if noise is not None:
        num_draws = _check_noise(noise, distribution)
    return function(distribution, p, Draws(num_draws, generator, noise), **options)


def _standard(q: Family, p: Prior) -> tuple[Family, Prior]:
    """q in units of a prior that is another for every entry, and what that then is. The KL is the same."""
    if not p.relative:
        return q, p
    if not isinstance(q, LocationScale):
        raise ValueError(
            f"p={p!r} is for families w = loc + scale ξ, and {q.name!r} is none: give it numbers for mean and std"
        )
    centre, width = p.centre("q", q.loc), p.width("q", q.loc)
    one, zero = torch.ones_like(q.loc), torch.zeros_like(q.loc)
    return q.in_units_of(one if width is None else width, zero if centre is None else centre), p.standard


def kl_of(
    q: Family,
    p: Prior,
    estimator: str = "auto",
    num_draws: int = 1000,
    generator: Generator | None = None,
    **options: Any,
) -> KL:
    """Σ_j KL(q_j ‖ p) over many tensors like `q`, in few kernels where the pair has such a form: a function of them
    that runs at every step and decides nothing again."""
    check_num_draws(num_draws)
    check_pair(q, p, estimator)
    name = best_estimator(q, p) if estimator == "auto" else estimator
    draws = Draws(num_draws, generator)
    closed = closed_form_of(q, p) if name == "exact" else None
    found: KL
    if (name, type(q), type(p)) in MULTI_TENSOR:
        found = partial(MULTI_TENSOR[name, type(q), type(p)], p=p, draws=draws)
    elif closed is not None:
        found = partial(one_by_one, closed, (p,))
    else:
        found = partial(one_by_one, lookup(ESTIMATORS, name, "estimator"), (p, draws), **options)
    return found if condition(q, p) is None else partial(_while_finite, found, p)


def _while_finite(found: KL, p: Prior, qs: Sequence[Family]) -> Tensor:
    """Of a pair whose KL is infinite for some parameters."""
    if can_read_values():
        check_finite(qs, p)
    return found(qs)


def check_num_draws(num_draws: int, argument: str = "num_draws") -> None:
    """Refuse what is no positive whole number of draws."""
    check_positive_whole(num_draws, argument, f", e.g. {argument}=1000")


def check_options(estimator: str, options: Mapping[str, Any]) -> None:
    """Only `taylor` has options, `order` and `about`."""
    known = ("order", "about") if estimator == "taylor" else ()
    for name, value in options.items():
        if name not in known:
            choices = f"choose from {', '.join(known)}" if known else "it has none"
            raise ValueError(f"{name}={value!r}: the estimator {estimator!r} has no such option; {choices}")
    if estimator == "taylor":
        check_taylor(**options)


def _check_noise(noise: Tensor, q: Family) -> int:
    if noise.shape[1:] != q.shape or noise.shape[0] == 0:
        raise ValueError(
            f"noise has shape {tuple(noise.shape)}, it must be (num_draws, *shape) with shape {tuple(q.shape)}"
        )
    return noise.shape[0]


__all__ = [
    "ESTIMATORS",
    "KL",
    "check_method",
    "check_num_draws",
    "check_options",
    "kl",
    "kl_of",
    "kl_to_log_uniform",
    "of_feature",
    "of_kl",
    "of_prior",
    "support",
]
