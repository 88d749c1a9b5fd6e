"""κ of every weight: its variance times the curvature of the loss at the mean network (paper 5, eq. 16).

    κ_ij = | σ²_ij ∂²L/∂W²_ij |,     L = −Σ_n log p(y_n | x_n, W) at W = E W, summed over the data

Where κ is small the loss is nearly linear in the weight over its spread, and the weight may be replaced by its mean.
For a dense layer b = W a the second derivative is Σ_n a²_ni ∂²ℓ_n/∂b²_nj: curvatures of the outputs are enough. With a
linear head behind it they have a closed form, `dense_curvature`.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor, nn

from bayesify.batches import inputs_of, target_of, to_device
from bayesify.checks import Count, checked
from bayesify.laws.noise import random_signs
from bayesify.likelihoods import Likelihood
from bayesify.model import BayesianModule
from bayesify.names import check_choice
from bayesify.studies.diagnostics.variance import variance_posterior
from bayesify.weights import as_arguments
from bayesify.weights.observing.watch import layer_of

WAYS = ("auto", "exact", "hutchinson")


@checked
def kappa(
    model: BayesianModule,
    loader: Iterable[Any],
    names: Sequence[str] | None = None,
    way: str = "auto",
    num_probes: Count = 8,
    generator: Generator | None = None,
) -> dict[str, Tensor]:
    """κ of the weights in `names` (all random ones without it), by name, each of the weight's shape.

    way:  "exact": the Hessian's diagonal. Of a dense layer with a linear head behind it in closed form; of another
          dense layer one product with the Hessian for each output; of other layers one for each weight, for small ones
          "hutchinson": its unbiased estimate E v∘Hv with `num_probes` random ±1 vectors v for each batch
          "auto": the closed form where there is one, else "hutchinson"
    """
    check_choice(WAYS, way, "way")
    posterior = variance_posterior(model)
    chosen = list(posterior.slots) if names is None else list(names)
    for name in chosen:
        if name not in posterior.slots:
            raise ValueError(f"names: {name!r} is no random weight; there are {', '.join(posterior.slots)}")
    net = model.mean_net().eval()
    device = next(model.parameters()).device
    diagonals: dict[str, Tensor] = {}
    for batch in loader:
        x, y = to_device(inputs_of(batch), device), to_device(target_of(batch), device)
        for name in chosen:
            part = _Batch(model, net, name, x, y, num_probes, generator).diagonal(way)
            diagonals[name] = diagonals[name] + part if name in diagonals else part
    if not diagonals:
        raise ValueError("the loader is empty: κ is a sum over data")
    with torch.no_grad():
        variances = {name: q.variance for name, q in posterior.distributions(chosen).items()}
        return {name: (variances[name] * diagonals[name]).abs() for name in chosen}


@dataclass
class _Batch:
    """The curvature of one weight's loss on one batch."""

    model: BayesianModule
    net: nn.Module
    name: str
    x: Any
    y: Tensor
    num_probes: int
    generator: Generator | None

    def diagonal(self, way: str) -> Tensor:
        """∂²L/∂W² of every entry of the weight, by this way."""
        closed = closed_form_of(self.net, self.name, self.model.likelihood) if way != "hutchinson" else None
        found = None if closed is None else closed(self.x, self.y)
        if found is not None:
            return found
        layer, weight = self.net.get_submodule(layer_of(self.name)), self.net.get_parameter(self.name)
        if isinstance(layer, nn.Linear) and self.name.endswith("weight"):
            found = self._of_dense_layer(layer, exact=way == "exact")
        if found is not None:
            return found
        gradient = self._gradient([weight])
        return self._exact(gradient, weight) if way == "exact" else self._average(gradient, weight)

    def _of_dense_layer(self, layer: nn.Linear, exact: bool) -> Tensor | None:
        """Σ over rows n of a²_ni ∂²L/∂b²_nj, where outputs b of different examples do not meet in L; else None."""
        inputs: list[Tensor] = []
        shifts: list[Tensor] = []

        def add_shift(module: nn.Module, args: tuple[Any, ...], output: Tensor) -> Tensor:
            inputs.append(args[0].detach())
            shifts.append(torch.zeros_like(output, requires_grad=True))
            return output + shifts[-1]

        handle = layer.register_forward_hook(add_shift)
        try:
            gradient = self._gradient(shifts)
        finally:
            handle.remove()
        if len(shifts) != 1 or inputs[0].dim() != 2:  # used several times, or at positions that meet in L
            return None
        shift = shifts[0]
        second = torch.zeros_like(shift)  # (batch, outputs)
        if exact:
            for j in range(shift.shape[1]):
                probe = torch.zeros_like(shift)
                probe[:, j] = 1.0
                second[:, j] = self._product(gradient, shift, probe)[:, j]
        else:
            second = self._average(gradient, shift)
        return second.T @ inputs[0].square()  # (outputs, inputs)

    def _exact(self, gradient: Tensor, weight: Tensor) -> Tensor:
        diagonal = torch.zeros_like(weight).flatten()
        for i in range(weight.numel()):
            probe = torch.zeros_like(diagonal)
            probe[i] = 1.0
            diagonal[i] = self._product(gradient, weight, probe.view_as(weight)).flatten()[i]
        return diagonal.view_as(weight)

    def _gradient(self, at: list[Tensor]) -> Tensor:
        """∂L/∂at[0], with a graph; hooks may fill `at` during the forward."""
        args, kwargs = as_arguments(self.x)
        output = self.model.pick(self.net(*args, **kwargs))
        loss = self.model.likelihood.nll(output, self.y, values=False) * len(self.y)
        (gradient,) = torch.autograd.grad(loss, at[:1], create_graph=True)
        return gradient

    def _average(self, gradient: Tensor, at: Tensor) -> Tensor:
        total = torch.zeros_like(at)
        for _ in range(self.num_probes):
            probe = random_signs(tuple(at.shape), at, self.generator)
            total += probe * self._product(gradient, at, probe)
        return total / self.num_probes

    def _product(self, gradient: Tensor, at: Tensor, probe: Tensor) -> Tensor:
        """The Hessian times `probe`; zero where the gradient does not depend on the point (ReLU before a sum)."""
        if not gradient.requires_grad:
            return torch.zeros_like(at)
        (product,) = torch.autograd.grad(gradient, at, probe, retain_graph=True, allow_unused=True)
        return torch.zeros_like(at) if product is None else product.detach()


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
