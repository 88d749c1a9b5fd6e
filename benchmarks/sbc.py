"""Simulation-based calibration (Talts et al. 2018): is a parameter that the prior drew ranked evenly among the draws
of its posterior?

    python benchmarks/sbc.py                                 # 400 simulations of each method, 10 minutes of one core
    python benchmarks/sbc.py --methods atmc sgnht --out sbc.png
    python benchmarks/sbc.py --together 1 --simulations 100  # a network for every simulation

w ~ N(0, 1) of three weights, 40 examples y = w·x + N(0, 0.5²) with correlated inputs x, batches of 20, the
noise known to the model. The model is fitted, and the true w₁ and w·x* are ranked among its draws. Where these
are the posterior's, ranks are uniform: "p" is that of χ² over ten bins. ∪: too narrow; ∩: too wide. "50 %" and
"90 %" say how many central intervals of the draws hold the truth. A network of many independent regressions
makes many simulations at the price of one. Samplers have their defaults and must pass (p > 0.001); the others
are trained by Adam at 0.01 with a cosine. The exit code is 1 where a sampler does not.
"""

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import torch
from scipy import stats
from torch import Generator, Tensor, nn

import bayesify as bf
from timing import table

DIMS, NUM, BATCH, NOISE, BINS = 3, 40, 20, 0.5, 10
SAMPLERS = ("atmc", "sgnht", "sghmc", "sgld", "psgld")
OTHERS = {
    "mc_vi": lambda: bf.MonteCarloVI(),
    "vdp": lambda: bf.DensityPropagation(covariance="diagonal"),
    "emp": lambda: bf.EnsemblePatching(where=bf.where.all),
    "ecmp": lambda: bf.EnsemblePatching(assignment="element", where=bf.where.all),
}
QUANTITIES = ("weight", "prediction")


class Regressions(nn.Module):
    """y_s = w_s · x_s of many simulations: (batch, simulations, dims) -> (batch, simulations)."""

    def __init__(self, together: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(together, DIMS))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.weight, std=DIMS**-0.5)

    def forward(self, x: Tensor) -> Tensor:
        return (x * self.weight).sum(-1)


class Simulations:
    """Weights from the prior and data from those; iterating gives the batches of an epoch in a new order."""

    def __init__(self, together: int, seed: int) -> None:
        self.generator = Generator().manual_seed(seed)
        mixing = torch.tensor([[1.0, 0.0, 0.0], [0.8, 0.6, 0.0], [0.0, 0.0, 1.0]])
        self.truth = torch.randn(together, DIMS, generator=self.generator)
        self.x = torch.randn(NUM, together, DIMS, generator=self.generator) @ mixing.T
        noise = NOISE * torch.randn(NUM, together, generator=self.generator)
        self.y = (self.x * self.truth).sum(-1) + noise
        self.asked = torch.stack([torch.tensor([1.0, 0.0, 0.0]), torch.tensor([1.0, -0.5, 0.5])])[:, None]

    def __len__(self) -> int:
        return NUM // BATCH

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for chosen in torch.randperm(NUM, generator=self.generator).split(BATCH):
            yield self.x[chosen], self.y[chosen]

    def levels(self, model: bf.BayesianModule, num_draws: int) -> Tensor:
        """Where the truth stands among the draws, between 0 and 1: (quantities, simulations)."""
        asked = self.asked.expand(-1, len(self.truth), -1)
        draws = model.predict(asked, num_draws, keep_samples=True).samples  # (draws, quantities, simulations)
        below = (draws < (asked * self.truth).sum(-1)).sum(0)
        chance = torch.rand(
            below.shape, generator=self.generator
        )  # ranks are whole: spread evenly within each
        return (below + chance) / (len(draws) + 1)


class Calibration(NamedTuple):
    """Of one method: the levels of the truth, and how long it took."""

    levels: Tensor  # (quantities, simulations)
    seconds: float

    def counts(self, quantity: int) -> Tensor:
        return torch.histc(self.levels[quantity], BINS, 0, 1)

    def p_value(self, quantity: int) -> float:
        return float(stats.chisquare(self.counts(quantity).numpy()).pvalue)

    def p_text(self, quantity: int) -> str:
        return f"{self.p_value(quantity):.2g}" if self.p_value(quantity) > 1e-30 else "< 1e-30"

    def coverage(self, quantity: int, mass: float) -> float:
        return float(((self.levels[quantity] - 0.5).abs() < mass / 2).float().mean())


def calibration(name: str, simulations: int, together: int, steps: int, seed: int) -> Calibration:
    """Fit `simulations` simulations, so many in one network."""
    start, levels = time.perf_counter(), []
    for group in range(-(-simulations // together)):
        data = Simulations(together, seed + group)
        torch.manual_seed(seed + group)
        sampling = name in SAMPLERS
        method = bf.ThermostatMCMC(sampler=name) if sampling else OTHERS[name]()
        model = bf.bayesify(Regressions(together), method, bf.likelihood("normal", std=NOISE), num_data=NUM)
        options = {} if sampling else {"lr": 0.01, "schedule": "cosine"}
        bf.fit(model, data, epochs=steps // len(data), progress=False, seed=seed + group, **options)
        levels.append(data.levels(model, 20 if sampling else 199))
    return Calibration(torch.cat(levels, 1), time.perf_counter() - start)


def figure(found: dict[str, Calibration], path: Path) -> None:
    """Rank histograms with the band that 99 % of the bars of a right method lie in."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    rows, columns = len(QUANTITIES), len(found)
    fig, axes = plt.subplots(rows, columns, figsize=(2.2 * columns, 2 * rows), sharex=True, squeeze=False)
    for j, (name, each) in enumerate(found.items()):
        low, high = stats.binom.interval(0.99, each.levels.shape[1], 1 / BINS)
        for i, quantity in enumerate(QUANTITIES):
            ax = axes[i][j]
            ax.axhspan(low, high, color="0.85", lw=0)
            ax.bar(torch.arange(BINS) / BINS, each.counts(i), 1 / BINS, align="edge", ec="white", lw=0.5)
            ax.set_title(f"{name}: {quantity}\np {each.p_text(i)}", fontsize=8)
            ax.tick_params(labelsize=7)
    fig.supxlabel("rank of the truth among the draws", fontsize=8)
    fig.tight_layout()
    fig.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--methods", nargs="+", default=[*SAMPLERS, *OTHERS], choices=[*SAMPLERS, *OTHERS])
    parser.add_argument("--simulations", type=int, default=400)
    parser.add_argument("--together", type=int, default=100)
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="a PNG of the rank histograms")
    args = parser.parse_args()
    found, rows = {}, []
    for name in args.methods:
        found[name] = each = calibration(name, args.simulations, args.together, args.steps, args.seed)
        for i, quantity in enumerate(QUANTITIES):
            covered = [f"{100 * each.coverage(i, mass):.0f}" for mass in (0.5, 0.9)]
            counts = " ".join(f"{n:.0f}" for n in each.counts(i))
            rows.append([name, quantity, each.p_text(i), *covered, counts, f"{each.seconds:.0f}"])
            print(" | ".join(rows[-1]), flush=True)
    table(
        f"{len(each.levels[0])} simulations",
        rows,
        ["method", "of", "p", "50 %", "90 %", "ranks in ten bins", "s"],
    )
    if args.out:
        figure(found, args.out)
    checked = [each.p_value(i) for name, each in found.items() if name in SAMPLERS for i in range(2)]
    sys.exit(any(p <= 0.001 for p in checked))


if __name__ == "__main__":
    main()
