"""bayesify(): one line makes a network Bayesian."""

from collections.abc import Callable, Iterable
from dataclasses import fields
from typing import Any

from torch import nn
from torch.nn.parameter import is_lazy

from bayesify import torch_internals as internals
from bayesify.batches import beside
from bayesify.checks import check_fields, check_num_data
from bayesify.likelihoods import Likelihood, check_likelihood
from bayesify.methods import DeepEnsemble, Method
from bayesify.methods import method as make_method
from bayesify.model.bayesian_module import MODELS, PRETRAINED, SCRATCH, STARTS, BayesianModule
from bayesify.model.labelled import class_for, likelihood_for, takes_labels
from bayesify.names import check_choice
from bayesify.priors import prior
from bayesify.weights import Selection, as_call
from bayesify.weights.kinds import KINDS, kind_of_network


def bayesify(
    net: nn.Module,
    method: Method | str,
    likelihood: Likelihood | str = "categorical",
    num_data: int | None = None,
    *,
    output: Callable[[Any], Any] | None = None,
    example: Any = None,
    start: str = SCRATCH,
) -> BayesianModule:
    """Make `net` Bayesian by `method`. The network itself is wrapped, not copied.

    method:      an object such as `bf.MonteCarloVI()`, or a name ("mc_vi")
    likelihood:  a name (`bf.likelihoods.LIKELIHOODS`: "categorical", "normal", "poisson", …) or an object, perhaps of
                 a class of your own (`bf.likelihoods.Likelihood`)
    num_data:    number of training examples, which scales the KL; `bf.fit` fills it in
    output:      picks the prediction out of what the network returns, where that is neither a tensor
                 nor has `.logits`
    example:     one input; run once to see the order of the layers and how often each is used
    start:       "scratch", or "pretrained": the network is trained already, on this task or on another one. What the
                 method leaves open then goes by its weights (a prior around them, narrow widths), and the recipe of
                 `bf.fit` takes small steps

    >>> model = bf.bayesify(net, bf.MonteCarloVI(), num_data=len(train_set))
    >>> loss = model.loss(x, y)
    >>> loss.total.backward()
    """
    if isinstance(method, str):
        method = make_method(method)
    if not isinstance(method, Method):
        raise TypeError(f"method={method!r} must be a method object (bf.MonteCarloVI()) or a name ('mc_vi')")
    if isinstance(likelihood, str):
        likelihood = likelihood_for(net, likelihood)
    check_fields(method)
    check_likelihood(likelihood)
    check_choice(STARTS, start, "start")
    if output is not None and not callable(output):
        raise TypeError(
            f"output={output!r} must be a function of what the network returns, e.g. lambda out: out[0]"
        )
    _check_network(net, [model.net for model in MODELS])
    if num_data is not None:
        check_num_data(num_data)
        num_data = int(num_data)
    call = None if example is None else as_call(beside(net, example))
    seen = None if call is None else (call.args, call.kwargs, output)
    asked, method = method, method.for_pretrained(net) if start == PRETRAINED else method
    method = method.for_net(net, seen)
    selection = method.select(net, seen)
    if not selection.random and method.needs_random:
        raise ValueError(f"where={method.where} selects no parameter of this network: {_why_none(selection)}")
    posterior = method.posterior(net, selection, call)
    made = class_for(net) if takes_labels(net) else BayesianModule
    model = made(net, method, posterior, likelihood, selection, num_data, output)
    model.start = start
    model.chosen = _chosen(asked, method, net)
    return model


#: what is chosen for most networks, and not worth a word
USUAL = [
    ("kl_weight", 1.0),
    ("prior", prior("normal")),
    ("spread", 0.1),
    ("init_std", 0.25),
    ("init", "fresh"),
]


def _chosen(asked: Method, method: Method, net: nn.Module) -> str:
    """What a method decided by the network, in words; "" for nothing."""
    while isinstance(asked, DeepEnsemble) and isinstance(method, DeepEnsemble):
        asked, method = asked.method, method.method
    names = [f.name for f in fields(asked) if getattr(asked, f.name) is not getattr(method, f.name)]
    made = {name: getattr(method, name) for name in names}
    said = ", ".join(f"{name}={_short(value)}" for name, value in made.items() if (name, value) not in USUAL)
    if not said:
        return ""
    unusual = [name for name, value in made.items() if (name, value) not in USUAL and name in method.reasons]
    why = "; ".join(f"{name}: {method.reasons[name]}" for name in unusual)
    return f"chosen for this network ({KINDS[kind_of_network(net)]}): {said}{f' ({why})' if why else ''}"


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


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


def _check_network(net: Any, wrapped: Iterable[nn.Module]) -> None:
    """`net` can be made Bayesian: a module, initialised, on one device, not wrapped already."""
    if not isinstance(net, nn.Module):
        raise TypeError(f"net={type(net).__name__} must be an nn.Module")
    if isinstance(net, internals.ScriptModule):
        raise TypeError(
            "net is a TorchScript module, whose parameters cannot be swapped: give the original module"
        )
    # others may be shared, as nn.ReLU() is
    mine = {m for m in net.modules() if any(True for _ in m.parameters())}
    for other in wrapped:
        if net is other or not mine.isdisjoint(other.modules()):
            raise ValueError(
                "net (or a part of it) is already bayesified: use the model you have, or copy.deepcopy(net)"
            )
    devices: dict[str, str] = {}
    for name, parameter in net.named_parameters():
        if is_lazy(parameter):
            raise ValueError(
                f"parameter {name!r} is not initialised yet (a lazy module): run one batch first"
            )
        devices.setdefault(str(parameter.device), name)
    if len(devices) > 1:
        where = ", ".join(f"{name} on {device}" for device, name in devices.items())
        raise ValueError(f"net is spread over several devices ({where}): move it to one with net.to(device)")
