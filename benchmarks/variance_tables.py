"""Tables of what variance_networks.py measured."""

import json
from pathlib import Path
from typing import Any

from bayesify.evaluation import statistics
from timing import table

Row = dict[str, Any]
Figures = tuple[float | None, float | None, float | None, float | None]  # accuracy % of the three modes, ELBO
MODES = ("stochastic", "deterministic", "ensemble")
HEADER = ["", "seeds", "examples", "epochs", *MODES, "ELBO", "log α", "seconds"]
PAPER: dict[str, dict[str, Figures]] = {
    "MNIST, LeNet-5": {
        "dropout": (99.1, 99.4, 99.4, None),
        "variance": (95.9, 10.1, 99.3, None),
        "layer": (None, 11.3, 99.2, -5.9e2),
        "neuron": (None, 11.3, 99.2, -7.7e2),
        "weight": (None, 81.3, 99.2, -6.4e4),
        "additive": (None, 96.3, 99.2, -2.3e4),
        "zero_mean": (None, None, 99.2, None),
        "zero_mean_uniform": (None, None, None, None),
        "zero_mean_bernoulli": (None, None, None, None),
        "student": (None, None, 99.2, None),
        "phase": (None, None, None, None),
    },
    "CIFAR-10, VGG-like": {
        "vgg_dropout": (91.0, 93.1, 93.4, None),
        "vgg_variance": (91.3, 10.0, 93.4, None),
        "vgg_deep_ensemble": (None, None, None, None),
        "vgg_variance_ensemble": (None, None, None, None),
    },
}


def print_table(files: list[str]) -> None:
    """All rows of the files beside the paper's figures (in brackets); runs of several seeds as mean ± its error."""
    records = {(r["row"], r["seed"]): r for file in files for r in json.loads(Path(file).read_text())}
    for title, paper in PAPER.items():
        runs = {name: [r for key, r in sorted(records.items()) if key[0] == name] for name in paper}
        rows = [cells(name, found, paper[name]) for name, found in runs.items() if found]
        if rows:
            table(f"{title}: accuracy % (paper)", rows, HEADER)
    for (name, seed), record in sorted(records.items()):
        print_details(f"{name}, seed {seed}", record)


def cells(name: str, found: list[Row], figures: Figures) -> list[str]:
    """One line of the table."""
    *accuracies, elbo = figures
    modes = [
        beside(average([100 * r[mode]["accuracy"] for r in found]), paper)
        for mode, paper in zip(MODES, accuracies, strict=True)
    ]
    elbos = [r["elbo"] for r in found if "elbo" in r]
    alphas = [value for r in found for value in r.get("log_alpha", {}).values()]
    return [
        *(name, str(len(found)), f"{found[0]['num_train']:,}", str(found[0]["epochs"]), *modes),
        beside(f"{sum(elbos) / len(elbos):.2g}" if elbos else "-", elbo),
        f"{min(alphas):.1f} … {max(alphas):.1f}" if alphas else "-",
        f"{sum(r['seconds'] for r in found) / len(found):.0f}",
    ]


def average(values: list[float]) -> str:
    mean = statistics.mean(values)
    return f"{mean.value:.2f} ± {mean.error:.2f}" if len(values) > 1 else f"{mean.value:.2f}"


def beside(measured: str, paper: float | None) -> str:
    return measured if paper is None else f"{measured} ({paper:g})"


def print_details(title: str, record: Row) -> None:
    """What only some rows have: the swap, the transition, sparse ensembles, attacks."""
    if "swapped to zero mean" in record:
        print(
            f"{title}: dense layer swapped to zero mean, ensemble {100 * record['swapped to zero mean']:.2f} %"
        )
    if "transition" in record:
        print(f"{title}: {record['transition']}; bytes: {record['bytes']}")
        shares = [f"{share:.1%}" for share, _ in next(iter(record["curves"].values()))]
        lines = [
            [fill, *(f"{100 * accuracy:.2f}" for _, accuracy in curve)]
            for fill, curve in record["curves"].items()
        ]
        table(f"{title}: accuracy % against the share of weights cut (paper: 98 %)", lines, ["", *shares])
    if "attack" in record:
        steps = record["attack"][:: max(1, len(record["attack"]) // 5)]
        lines = [[key, *(f"{step[key]:.3f}" for step in steps)] for key in ("success_rate", "entropy")]
        table(f"{title}: attacked", lines, ["iteration", *(str(step["iteration"]) for step in steps)])
