"""κ of every weight: its variance times the curvature of the loss at the mean network (paper 5, eq. 16).

    κ_ij = | σ²_ij ∂²L/∂W²_ij |,     L = −Σ_n log p(y_n | x_n, W) at W = E W, summed over the data

Where κ is small the loss is nearly linear in the weight over its spread, and the weight may be replaced by its mean.
For a dense layer b = W a the second derivative is Σ_n a²_ni ∂²ℓ_n/∂b²_nj: curvatures of the outputs are enough.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor, nn

from bayesify.batches import inputs_of, target_of, to_device
from bayesify.checks import Count, checked
from bayesify.laws.noise import random_signs
from bayesify.model import BayesianModule
from bayesify.names import check_choice
from bayesify.studies.diagnostics.dense_curvature import closed_form_of
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
