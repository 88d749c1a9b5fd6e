"""Targets with data and no closed form: logistic regression and a small network, against long Hamiltonian runs.

`references.json` holds what those runs found; `python benchmarks/sampler_references.py` makes it again from the data
and energies here.
"""

import json
from pathlib import Path

import torch
from targets import Batches, Target, data_target, design
from torch import Generator, Tensor, nn

import bayesify as bf

REFERENCES = Path(__file__).with_name("references.json")
HIDDEN, NOISE = 6, 0.2  # of the small network
PLACES = torch.tensor(
    [-2.0, -1.0, 0.0, 0.5, 1.5, 3.0]
)  # where its function is looked at, the last beyond the data


def logistic_data() -> tuple[Tensor, Tensor]:
    """300 examples of 5 correlated inputs and their labels."""
    x = design(5, 300, 20, True, seed=7)
    truth = torch.tensor([1.0, -2.0, 0.5, 0.0, 1.5], dtype=x.dtype)
    chance = torch.rand(300, generator=Generator().manual_seed(8), dtype=x.dtype)
    return x, (chance < torch.sigmoid(x @ truth - 0.5)).to(x.dtype)


def logistic_energy(weights: Tensor) -> Tensor:
    """U of w and b, (chains, 6) -> (chains,)."""
    x, y = logistic_data()
    logits = weights[:, :5] @ x.T + weights[:, 5:]
    return (nn.functional.softplus(logits) - y * logits).sum(1) + weights.square().sum(1) / 2


def curve_data() -> tuple[Tensor, Tensor]:
    """40 examples of a wave with noise, none between −0.3 and 1."""
    generator = Generator().manual_seed(9)
    x = torch.linspace(-2, 2, 40, dtype=torch.float64)
    x = torch.where(x > 0, 1 + x / 2, -0.3 + 0.85 * x)
    return x[:, None], torch.sin(2 * x)[:, None] + NOISE * torch.randn(
        40, 1, generator=generator, dtype=x.dtype
    )


def network_function(weights: Tensor, x: Tensor) -> Tensor:
    """v·tanh(u x + a) + c of weights (..., u a v c) at x: (..., places)."""
    u, a, v, c = weights.split([HIDDEN, HIDDEN, HIDDEN, 1], -1)
    hidden = torch.tanh(u[..., None, :] * x.to(u)[:, None] + a[..., None, :])  # (..., places, hidden)
    return (hidden * v[..., None, :]).sum(-1) + c


def network_energy(weights: Tensor) -> Tensor:
    """U of all weights, (chains, 3 · HIDDEN + 1) -> (chains,)."""
    x, y = curve_data()
    off = (network_function(weights, x[:, 0]) - y[:, 0]) / NOISE
    return off.square().sum(1) / 2 + weights.square().sum(1) / 2


def at_places(weights: Tensor) -> Tensor:
    """What the network says at PLACES."""
    return network_function(weights, PLACES)


def small_network() -> nn.Module:
    return nn.Sequential(nn.Linear(1, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, 1))


#: name -> energy, number of weights, what is looked at
REFERENCED = {
    "logistic": (logistic_energy, 6, lambda weights: weights),
    "network": (network_energy, 3 * HIDDEN + 1, at_places),
}


def targets() -> list[Target]:
    """Both with all data and with batches of 20."""
    found = json.loads(REFERENCES.read_text())
    known = {
        name: {
            "mean": torch.tensor(each["mean"], dtype=torch.float64),
            "var": torch.tensor(each["var"], dtype=torch.float64),
            "quantiles": {
                float(level): torch.tensor(value, dtype=torch.float64)
                for level, value in each["quantiles"].items()
            },
        }
        for name, each in found.items()
    }
    result = []
    for batch in (None, 20):
        size = "full" if batch is None else f"b{batch}"
        x, y = logistic_data()
        data = Batches(x.float(), y[:, None].long(), batch)
        likelihood = bf.likelihood("bernoulli")
        net = lambda: nn.Linear(5, 1)  # noqa: E731
        result.append(
            data_target(f"logistic {size}", batch is None, net, likelihood, data, **known["logistic"])
        )
        x, y = curve_data()
        data, likelihood = Batches(x.float(), y.float(), batch), bf.likelihood("normal", std=NOISE)
        options = {**known["network"], "coordinates": at_places}
        result.append(data_target(f"network {size}", False, small_network, likelihood, data, **options))
    return result
