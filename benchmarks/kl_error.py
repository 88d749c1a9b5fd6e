"""The error of the Monte-Carlo KL against the number of draws, for several variances (paper 1, Fig. 2 left).

    python benchmarks/kl_error.py kl_error.png
    python benchmarks/kl_error.py kl_error.png --draws 1 10 100 --repeats 200

One weight, q = N(½, σ²), p = N(0, 1). The slope of log |error| in log M is −½ for every σ.
"""

import argparse
import math

import matplotlib
import torch

import bayesify as bf
from bayesify.families import FAMILIES
from timing import table

matplotlib.use("Agg")

import matplotlib.pyplot as plt


def errors(std: float, num_draws: int, repeats: int) -> torch.Tensor:
    """|KL̂ − KL| of `repeats` estimates."""
    q = FAMILIES["normal"](torch.tensor([0.5]).double(), log_scale=torch.tensor([math.log(std)]).double())
    p = bf.prior("normal")
    estimates = torch.stack([bf.kl(q, p, "repar", num_draws) for _ in range(repeats)])
    return (estimates - bf.kl(q, p, "exact")).abs()


def slope(numbers: list[int], values: list[float]) -> float:
    """Of log value in log number, by least squares."""
    x = torch.tensor(numbers, dtype=torch.float64).log()
    y = torch.tensor(values, dtype=torch.float64).log()
    return float(((x - x.mean()) * (y - y.mean())).sum() / (x - x.mean()).square().sum())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("path", help="file of the figure (png, pdf, svg)")
    parser.add_argument("--stds", type=float, nargs="+", default=[0.1, 0.5, 1.0, 2.0, 5.0])
    parser.add_argument("--draws", type=int, nargs="+", default=[1, 3, 10, 30, 100, 300, 1000, 3000, 10_000])
    parser.add_argument("--repeats", type=int, default=500, help="estimates per point")
    a = parser.parse_args()
    torch.manual_seed(0)
    figure, axes = plt.subplots(figsize=(5, 4))
    rows = []
    for std in a.stds:
        samples = [errors(std, m, a.repeats) for m in a.draws]
        means = [float(sample.mean()) for sample in samples]
        rows.append([f"σ = {std:g}", *(f"{mean:.2e}" for mean in means), f"{slope(a.draws, means):.3f}"])
        axes.loglog(a.draws, means, marker="o", label=f"σ = {std:g}")
        low, high = ([float(s.quantile(x)) for s in samples] for x in (0.25, 0.75))
        axes.fill_between(a.draws, low, high, alpha=0.15)
    axes.set(xlabel="number of draws M", ylabel="|estimate − exact|", title="Error of the Monte-Carlo KL")
    axes.legend()
    figure.tight_layout()
    figure.savefig(a.path, dpi=150)
    table(
        f"mean |error| of {a.repeats} estimates ({a.path})",
        rows,
        ["", *(f"M = {m}" for m in a.draws), "slope"],
    )


if __name__ == "__main__":
    main()
