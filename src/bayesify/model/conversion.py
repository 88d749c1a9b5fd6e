"""bayesify(): one line makes a network Bayesian."""

from collections.abc import Callable
from typing import Any

from torch import nn

from bayesify.batches import as_arguments, beside
from bayesify.checks import check_network, check_not_negative, check_num_data
from bayesify.likelihoods import Likelihood, check_likelihood
from bayesify.likelihoods import likelihood as make_likelihood
from bayesify.methods import Method
from bayesify.methods import method as make_method
from bayesify.model.bayesian_module import MODELS, BayesianModule
from bayesify.posteriors import Call
from bayesify.weights import Selection


def bayesify(
    net: nn.Module,
    method: Method | str,
    likelihood: Likelihood | str = "categorical",
    num_data: int | None = None,
    *,
    output: Callable[[Any], Any] | None = None,
    example: Any = None,
) -> BayesianModule:
    """Make `net` Bayesian by `method`. The network itself is wrapped, not copied.

    method:      an object such as `bf.MonteCarloVI()`, or a name ("mc_vi")
    likelihood:  a name ("categorical", "bernoulli", "normal", "heteroscedastic", "student_t", "poisson") or an object,
                 perhaps of a class of your own (`bf.likelihoods.Likelihood`)
    num_data:    number of training examples, which scales the KL; `bf.fit` fills it in
    output:      picks the prediction out of what the network returns, where that is neither a tensor
                 nor has `.logits`
    example:     one input; run once to see the order of the layers and how often each is used

    >>> model = bf.bayesify(net, bf.MonteCarloVI(), num_data=len(train_set))
    >>> loss = model.loss(x, y)
    >>> loss.total.backward()
    """
    if isinstance(method, str):
        method = make_method(method)
    if not isinstance(method, Method):
        raise TypeError(f"method={method!r} must be a method object (bf.MonteCarloVI()) or a name ('mc_vi')")
    if isinstance(likelihood, str):
        likelihood = make_likelihood(likelihood)
    check_not_negative(method.kl_weight, "kl_weight")
    check_likelihood(likelihood)
    check_network(net, [model.net for model in MODELS])
    if num_data is not None:
        check_num_data(num_data)
    arguments = None if example is None else as_arguments(beside(net, example), {})
    selection = method.select(net, None if arguments is None else (*arguments, output))
    if not selection.random and method.needs_random:
        raise ValueError(f"where={method.where} selects no parameter of this network: {_why_none(selection)}")
    call = None if arguments is None else Call(*arguments)
    posterior = method.posterior(net, selection, call)
    return BayesianModule(net, method, posterior, likelihood, selection, num_data, output)


def _why_none(selection: Selection) -> str:
    """Why nothing became random, and what could."""
    if not selection.weights:
        return "it has none"
    outside = [w for w in selection.weights if w.reason.startswith("not in where")]
    reasons = sorted({w.reason for w in selection.weights} - {w.reason for w in outside})
    if outside:
        kinds = sorted({w.kind for w in outside})
        named = [kind for kind in kinds if kind in ("conv", "linear", "norm")]
        remedy = " | ".join(f"bf.where.{kind}" for kind in named) or "bf.where.all"
        reasons.append(f"its trained parameters are in {', '.join(kinds)} layers; choose with where={remedy}")
    elif any("requires_grad" in reason for reason in reasons):
        reasons.append("unfreeze what shall be random with requires_grad_(True)")
    return "; ".join(reasons)
