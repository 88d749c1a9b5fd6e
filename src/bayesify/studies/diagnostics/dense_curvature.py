"""The exact curvature of a dense layer with a linear head behind it (paper 5, eq. 16; corrected and generalised)."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from bayesify.likelihoods import Likelihood
from bayesify.weights import as_arguments
from bayesify.weights.observing.watch import layer_of

Activation = Callable[[Tensor], Tensor]


def dense_curvature(
    inputs: Tensor,
    outputs: Tensor,
    target: Tensor,
    head_weight: Tensor,
    head_bias: Tensor | None = None,
    activation: Activation = nn.functional.softplus,
    gain: Tensor | None = None,
    shift: Tensor | None = None,
) -> Tensor:
    """∂²L/∂W²_ji of L = −Σ_n log softmax(V f(t_n) + c)[y_n], t = gain ∘ b + shift, b = W a: (outputs, inputs).

        Σ_n a²_ni g²_j [ f″(t_nj) (Vᵀ(p − y))_nj + f′(t_nj)² ((V∘V)ᵀp − (Vᵀp)²)_nj ]

    inputs a (batch, inputs), outputs b (batch, outputs), target (batch,) class indices, head V (classes, outputs).
    """
    g = torch.ones_like(outputs[0]) if gain is None else gain
    t = outputs * g if shift is None else outputs * g + shift
    value, first, second = _derivatives(activation, t)
    logits = nn.functional.linear(value, head_weight, head_bias)
    p = logits.softmax(-1)  # (batch, classes)
    error = p - nn.functional.one_hot(target, p.shape[-1]).to(p.dtype)
    slope = error @ head_weight  # (batch, outputs)
    spread = p @ head_weight.square() - (p @ head_weight).square()
    curvature = g.square() * (second * slope + first.square() * spread)
    return curvature.T @ inputs.square()


def _derivatives(f: Activation, t: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """f, f′ and f″ elementwise."""
    with torch.enable_grad():
        t = t.detach().requires_grad_(True)
        value = f(t)
        (first,) = torch.autograd.grad(value.sum(), t, create_graph=True)  # the identity's has no graph
        second = torch.zeros_like(t)
        if first.requires_grad:
            found = torch.autograd.grad(first.sum(), t, allow_unused=True)[0]
            second = second if found is None else found
    return value.detach(), first.detach(), second.detach()


def closed_form_of(
    net: nn.Module, name: str, likelihood: Likelihood
) -> Callable[[Any, Tensor], Tensor | None] | None:
    """The curvature of weight `name` as a function of (x, y), where the network ends in one nn.Sequential with

        Linear [BatchNorm1d] [activation] [Dropout] Linear

    and `name` is the first one's weight; None for other networks. `net` is in eval mode. The function returns None
    where the network turns out to do more than that.
    """
    path, _, key = layer_of(name).rpartition(".")
    parent = net.get_submodule(path)
    layer = parent._modules.get(key)
    if not likelihood.is_softmax or not isinstance(parent, nn.Sequential) or type(layer) is not nn.Linear:
        return None
    names = list(parent._modules)
    tail = [parent._modules[n] for n in names[names.index(key) + 1 :]]
    tail = [m for m in tail if not isinstance(m, nn.Dropout | nn.Identity)]
    norm = tail.pop(0) if tail and isinstance(tail[0], nn.BatchNorm1d) else None
    activation = tail.pop(0) if len(tail) == 2 and _is_elementwise(tail[0]) else None
    if len(tail) != 1 or type(tail[0]) is not nn.Linear:
        return None
    head = tail[0]
    f = nn.Identity() if activation is None else activation

    @torch.no_grad()
    def curvature(x: Any, y: Tensor) -> Tensor | None:
        calls: list[tuple[Tensor, Tensor]] = []

        def note(module: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
            calls.append((args[0], output))

        handles = [module.register_forward_hook(note) for module in (layer, head)]
        try:
            args, kwargs = as_arguments(x)
            output = net(*args, **kwargs)
        finally:
            for handle in handles:
                handle.remove()
        if len(calls) != 2 or calls[1][1] is not output or calls[0][0].dim() != 2:
            return None
        gain, shift = (None, None) if norm is None else _affine(norm)
        return dense_curvature(*calls[0], y, head.weight, head.bias, f, gain, shift)

    return curvature


def _affine(norm: nn.Module) -> tuple[Tensor, Tensor]:
    """Batch norm in eval mode as gain ∘ b + shift."""
    assert isinstance(norm, nn.BatchNorm1d) and norm.running_mean is not None and norm.running_var is not None
    gain = (norm.running_var + norm.eps).rsqrt()
    if not norm.affine:
        return gain, -norm.running_mean * gain
    gain = gain * norm.weight
    return gain, -norm.running_mean * gain + norm.bias


def _is_elementwise(module: nn.Module | None) -> bool:
    """Does it hold no parameters, and keep every entry apart?"""
    from bayesify.nets.parts import ACTIVATIONS  # here: few programs need the room of networks

    return isinstance(module, tuple(ACTIVATIONS.values()))
