"""What the tests of the last layer's draws share: data, a model, and the output of a given law."""

from typing import Any

import torch
from torch import Tensor, nn

import bayesify as bf
from bayesify.passes.last_layer import LastOutput

FAILURE_RATE = 1e-6
X = torch.randn(6, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
Y = torch.arange(6) % 3
TARGETS = {
    "normal": torch.linspace(-1, 1, 12, dtype=torch.float64).view(6, 2),
    "bernoulli": (torch.arange(12) % 2).view(6, 2).double(),
    "heteroscedastic": torch.linspace(-1, 1, 6, dtype=torch.float64).view(6, 1),
    "categorical": torch.arange(6) % 2,
}


def network(num_outputs: int = 3) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, num_outputs)).double()


def make(
    num_draws: int, likelihood: Any = "categorical", net: nn.Module | None = None, **options: Any
) -> bf.BayesianModule:
    method = bf.MonteCarloVI(num_likelihood_draws=num_draws, init_std=0.5, **options)
    return bf.bayesify(network() if net is None else net, method, likelihood, num_data=60)


def law(model: bf.BayesianModule, x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and std of the output of a network whose last layer alone is random."""
    with torch.no_grad():
        net: Any = model.net
        features = net[:-1](x)
        weight, bias = model.posterior.distributions(["2.weight", "2.bias"]).values()  # type: ignore[operator]
        mean = features @ weight.mean.T + bias.mean
        return mean, (features.square() @ weight.variance.T + bias.variance).sqrt()


def output_of(mean: Tensor, std: Tensor, num_draws: int, seed: int = 0) -> LastOutput:
    return LastOutput((mean, std), True, num_draws, torch.Generator().manual_seed(seed))
