"""How much gradient noise a chain has beside what it injects, by coordinates and along its widest directions.

    python benchmarks/gradient_noise.py     # a minute of one core

ATMC at temperature 1 by `bf.fit` with nothing else set, with and without the axes of layers (`samplers/axes.py`). B/D
= h V / 2 m T D in the last two fifths of the run: the mean and the largest of a coordinate, and of the six directions
that have most of it, V of second differences of the gradients, which motion hardly reaches. The directions come from
the first half of these steps, what they have from the second.
"""

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils.data import DataLoader, TensorDataset

import bayesify as bf
from bayesify.data import Loader, load
from bayesify.engine import warm_up
from digits_samplers import cnn, mlp
from timing import table

KEPT, TOP = 0.4, 6
input_moments = warm_up.input_moments


def correlated() -> TensorDataset:
    """1,000 examples of fifty features that have half of their variance in common."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(1000, 50, generator=generator) + torch.randn(1000, 1, generator=generator)
    y = x @ torch.randn(50, 1, generator=generator) + 0.3 * torch.randn(1000, 1, generator=generator)
    return TensorDataset(x, y)


def scaled(sampler: Any) -> Tensor:
    """The gradient as one vector; the mean square of its noise is B/D."""
    parts = []
    for group in sampler.param_groups:
        for p in group["params"]:
            injected = sampler.quiet(group) * group["temperature"] / sampler.share
            root = (sampler.unit(p, group) / (sampler.state[p]["mass"] * injected)).sqrt()
            parts.append((sampler.gradient(p) * root).flatten())
    return torch.cat(parts).double()


def measure(net: nn.Module, likelihood: Any, loader: Any, num_data: int, epochs: int) -> list[str]:
    """Mean and largest of the coordinates, smallest and largest of the directions."""
    model = bf.bayesify(net, bf.ThermostatMCMC(temperature=1.0), likelihood, num_data=num_data)
    seen: list[Tensor] = []
    steps = epochs * len(loader)

    def look(sampler: Any, *_: Any) -> None:
        if sampler.steps >= (1 - KEPT) * steps:
            seen.append(scaled(sampler))

    hook = register_optimizer_step_pre_hook(look)
    bf.fit(model, loader, epochs=epochs, progress=False, seed=0, compile=False)
    hook.remove()
    gradients = torch.stack(seen)
    noise = (gradients[2:] - 2 * gradients[1:-1] + gradients[:-2]) / 6**0.5
    first, second = noise[: len(noise) // 2], noise[len(noise) // 2 + 2 :]
    directions = torch.linalg.svd(first, full_matrices=False).Vh[:TOP]
    along, each = (second @ directions.T).square().mean(0), noise.square().mean(0)
    return [f"{value:.2f}" for value in (each.mean(), each.max(), along.min(), along.max())]


def main() -> None:
    """A row for every network, with and without axes."""
    warnings.simplefilter("ignore")
    digits, normal = load("digits").train, bf.likelihood("normal", std=0.3)
    cases: dict[str, tuple[Callable[[], nn.Module], Any, Any, int, int]] = {
        "50 features alike": (lambda: nn.Linear(50, 1), normal, correlated(), 20, 120),
        "digits, MLP": (mlp, "categorical", digits, 64, 30),
        "digits, CNN": (cnn, "categorical", digits, 64, 30),
    }
    rows = []
    for axes in (False, True):
        warm_up.input_moments = input_moments if axes else lambda *_: {}  # type: ignore[assignment]
        for name, (make, likelihood, data, batch, epochs) in cases.items():
            torch.manual_seed(0)
            kind = DataLoader if isinstance(data, TensorDataset) else Loader
            loader = kind(data, batch, shuffle=True)
            found = measure(make(), likelihood, loader, len(data), epochs)
            rows.append([name, "yes" if axes else "no", *found])
    table("B/D", rows, ["", "axes", "mean", "largest", f"{TOP} directions: least", "most"])


if __name__ == "__main__":
    main()
