"""What the tests of components share: a model whose weights show their assignment, and the test of a law."""

from typing import Any

import torch
from scipy import stats
from torch import Tensor, nn

import bayesify as bf

FAILURE_RATE = 1e-6


def make(net: nn.Module | None = None, **options: Any) -> bf.BayesianModule:
    options = {"where": bf.where.all, "num_components": 3, **options}
    net = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)) if net is None else net
    model = bf.bayesify(net, bf.EnsemblePatching(**options), num_data=10)
    with torch.no_grad():  # component k of every tensor is k + 1 everywhere: a weight shows its assignment
        for name in model.posterior.patches:
            model.net.get_parameter(name).fill_(1.0)
            if not model.posterior.assignment.zero:
                for k, other in enumerate(model.get_parameter(f"posterior.components.{name}")):
                    other.fill_(k + 2.0)
    return model


def drawn(model: bf.BayesianModule, n: int, seed: int = 0) -> dict[str, Tensor]:
    """n draws of every weight as assignments 0 … K − 1."""
    weights = model.posterior.draw(0, n, torch.Generator().manual_seed(seed))
    return {name: (w.detach() - 1).round().long() for name, w in weights.items()}


def assert_law(z: Tensor, probs: list[float]) -> None:
    """Pearson's chi-square of the counts against their multinomial law."""
    counts = torch.bincount(z.flatten(), minlength=len(probs)).double()
    expected = torch.tensor(probs, dtype=torch.float64) * z.numel()
    statistic = ((counts - expected).square() / expected).sum().item()
    assert statistic < stats.chi2.isf(FAILURE_RATE, len(probs) - 1), counts
