"""Long Hamiltonian runs of the targets that have no closed form: writes tests/samplers/references.json.

    python benchmarks/sampler_references.py          # 10 minutes of one core

Many chains in float64, leapfrog with a random number of steps, accepted by Metropolis: exact, and independent of
bayesify's samplers. The step is set in the first half of the burn-in for an acceptance of 0.8. Printed: acceptance,
the largest R-hat and the smallest effective sample size.
"""

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

import bayesify as bf

SAMPLERS = Path(__file__).parents[1] / "tests" / "samplers"
sys.path.insert(0, str(SAMPLERS))
from data_posteriors import REFERENCED, REFERENCES  # noqa: E402

LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)


def gradient(energy: Callable[[Tensor], Tensor], weights: Tensor) -> tuple[Tensor, Tensor]:
    """U and ∇U of every chain."""
    weights = weights.detach().requires_grad_()
    values = energy(weights)
    (slope,) = torch.autograd.grad(values.sum(), weights)
    return values.detach(), slope


def hamiltonian(
    energy: Callable[[Tensor], Tensor], dims: int, look: Callable[[Tensor], Tensor], chains: int, draws: int
) -> tuple[Tensor, float]:
    """`draws` draws of every chain after as many of burn-in: (chains, draws, looked at); and the acceptance."""
    torch.manual_seed(0)
    weights = torch.randn(chains, dims, dtype=torch.float64)
    value, slope = gradient(energy, weights)
    step, accepted, kept = 0.05, [], []
    for i in range(2 * draws):
        momentum = torch.randn_like(weights)
        before = value + momentum.square().sum(1) / 2
        new, new_value, new_slope = weights, value, slope
        for _ in range(int(torch.randint(10, 31, ()))):
            momentum = momentum - step / 2 * new_slope
            new = new + step * momentum
            new_value, new_slope = gradient(energy, new)
            momentum = momentum - step / 2 * new_slope
        chance = (before - new_value - momentum.square().sum(1) / 2).exp().clamp_max(1).nan_to_num(0)
        taken = (torch.rand(chains) < chance)[:, None]
        weights, slope = torch.where(taken, new, weights), torch.where(taken, new_slope, slope)
        value = torch.where(taken[:, 0], new_value, value)
        if i < draws // 2:
            step *= 1.03 if chance.mean() > 0.8 else 0.95
        if i >= draws:
            accepted.append(float(chance.mean()))
            kept.append(look(weights))
    return torch.stack(kept, 1), sum(accepted) / len(accepted)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--chains", type=int, default=200)
    parser.add_argument("--draws", type=int, default=1000)
    args = parser.parse_args()
    found = {}
    for name, (energy, dims, look) in REFERENCED.items():
        values, acceptance = hamiltonian(energy, dims, look, args.chains, args.draws)
        rhat, ess = bf.diagnostics.rhat(values).max(), bf.diagnostics.ess(values).min()
        print(f"{name}: acceptance {acceptance:.2f}, R-hat at most {rhat:.4f}, ESS at least {ess:.0f}")
        flat = values.flatten(0, 1)
        quantiles = torch.quantile(flat, torch.tensor(LEVELS, dtype=flat.dtype), 0)
        found[name] = {
            "mean": [round(v, 5) for v in flat.mean(0).tolist()],
            "var": [round(v, 6) for v in flat.var(0).tolist()],
            "quantiles": {
                level: [round(v, 4) for v in row]
                for level, row in zip(LEVELS, quantiles.tolist(), strict=True)
            },
        }
    REFERENCES.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
