"""Tables and tests of what density_results.py measured."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bayesify.evaluation import statistics
from timing import table

SNR_DB = (30, 20, 15, 10, 6, 3, 0, -3, -6)
SHARES = (0.0, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98)  # of the weights, pruned
ALPHA = 0.01  # the level of the paper's tests
EXPLAINED = ("infidelity", "infidelity_scaled", "sensitivity")
Record = dict[str, Any]
MNIST_CLAIMS = (
    "paper: no accuracy differs (ANOVA p > .01); at −6 dB every Bayesian network is better than the deterministic\n"
    "one (p < .01); vdp keeps its accuracy with more than 90 % pruned; variance grows with the noise, in the same\n"
    "order for vdp and vdp++; infidelity is smallest for vdp++, sensitivity slightly smaller for the deterministic"
)
PAPER = {
    "mnist": MNIST_CLAIMS,
    "small": MNIST_CLAIMS,
    "cifar10": "paper: ResNet-18, accuracy does not differ (p > .01)",
    "vit": "paper: ViT-S/16 on ImageNet, 45 % top-1, of the regime of Beyer et al.; nothing on CIFAR-10",
}


def print_table(files: list[str], methods: dict[str, tuple[str, ...]]) -> None:
    """All records of the files, by the rows and their methods, in that order."""
    records = {(r["row"], r["method"], r["seed"]): r for f in files for r in json.loads(Path(f).read_text())}
    for name, of_row in methods.items():
        runs = {m: [r for key, r in records.items() if key[:2] == (name, m)] for m in of_row}
        present = {m: sorted(found, key=lambda r: r["seed"]) for m, found in runs.items() if found}
        if present:
            print_row(name, present)


def print_row(name: str, runs: dict[str, list[Record]]) -> None:
    rows = []
    for m, found in runs.items():
        cells = [str(statistics.mean([100 * r["accuracy"] for r in found]))]
        cells += [str(statistics.mean([r[key] for r in found])) for key in ("nll", "ece")]
        cells += [str(statistics.mean([100 * at(r["noise"], -6)[1] for r in found]))]
        cells += [f"{sum(r[key] for r in found) / len(found):.2e}" for key in EXPLAINED]
        rows.append([m, *cells, f"{sum(r['seconds'] for r in found) / len(found):.0f}"])
    header = ["", "accuracy %", "nll", "ece", "at −6 dB %", *EXPLAINED, "seconds"]
    some = next(iter(runs.values()))[0]
    kl = {r["kl_weight"] for m, found in runs.items() for r in found if m != "deterministic"}
    weight = ", ".join(f"{w:g}" for w in sorted(kl))
    table(
        f"{name}: {some['num_train']:,} examples, {some['epochs']} epochs, KL weight {weight}", rows, header
    )
    print_curves(runs)
    print_tests(runs)
    print(PAPER[name])


def at(curve: list[list[float]], place: float) -> list[float]:
    return next(point for point in curve if point[0] == place)


def average(found: list[Record], curve: str, place: float, column: int) -> float:
    return sum(at(r[curve], place)[column] for r in found) / len(found)


def print_curves(runs: dict[str, list[Record]]) -> None:
    rows = [
        [f"{m}, accuracy %", *(f"{100 * average(f, 'noise', s, 1):.2f}" for s in SNR_DB)]
        for m, f in runs.items()
    ]
    rows += [
        [f"{m}, variance", *(f"{average(f, 'noise', s, 2):.1e}" for s in SNR_DB)] for m, f in runs.items()
    ]
    table("noise", rows, ["SNR dB", *(str(s) for s in SNR_DB)])
    pruned = {m: [r for r in found if "pruning" in r] for m, found in runs.items()}
    rows = [
        [m, *(f"{100 * average(f, 'pruning', s, 1):.2f}" for s in SHARES)] for m, f in pruned.items() if f
    ]
    if rows:
        table("accuracy % against the share of weights pruned", rows, ["", *(f"{s:.0%}" for s in SHARES)])
    sized = {m: [r for r in found if len(r["pruning"][0]) > 2] for m, found in pruned.items()}
    rows = [
        [m, *(f"{average(f, 'pruning', s, 2) / 1e3:,.0f}" for s in SHARES)] for m, f in sized.items() if f
    ]
    if rows:
        table("kilobytes of the saved model", rows, ["", *(f"{s:.0%}" for s in SHARES)])


def print_tests(runs: dict[str, list[Record]]) -> None:
    """What the paper tests, at its level; methods need two runs each, pairs of the same seeds."""
    print(f"\ntests (level {ALPHA:g}):")
    several = {m: found for m, found in runs.items() if len(found) > 1}
    if len(several) > 1:
        evidence = statistics.anova(*([r["accuracy"] for r in found] for found in several.values()))
        print(f"  accuracy, ANOVA of {', '.join(several)}: {said(evidence)}")
    for m in several:
        if m != "deterministic" and "deterministic" in several:
            pairs = paired(several["deterministic"], several[m], lambda r: at(r["noise"], -6)[1])
            if len(pairs[0]) > 1:
                better = "better" if sum(pairs[1]) > sum(pairs[0]) else "worse"
                print(
                    f"  at −6 dB, {m} is {better} than deterministic: {said(statistics.paired_t_test(*pairs))}"
                )
        if all("pruning" in r for r in several[m]):
            print(f"  {m}: {most_pruned(several[m])}")
    measured = {
        m: [average(f, "noise", s, 2) for s in SNR_DB] for m, f in runs.items() if m != "deterministic"
    }
    names = list(measured)
    for m, values in measured.items():
        evidence = statistics.spearman([-s for s in SNR_DB], values)
        print(f"  variance of {m} against noise: Spearman {evidence.statistic:.3f}, p = {evidence.p:.2g}")
    for i, a in enumerate(names):
        for b in names[i + 1 :]:
            evidence = statistics.spearman(measured[a], measured[b])
            print(
                f"  variance of {a} and {b} over the noise: Spearman {evidence.statistic:.3f}, p = {evidence.p:.2g}"
            )


def most_pruned(found: list[Record]) -> str:
    """The largest share up to which no accuracy is significantly below that of all weights."""
    kept, whole = 0.0, [at(r["pruning"], 0.0)[1] for r in found]
    for share in SHARES[1:]:
        pruned = [at(r["pruning"], share)[1] for r in found]
        evidence = statistics.paired_t_test(whole, pruned)
        if evidence.statistic > 0 and evidence.p < ALPHA:
            break
        kept = share
    losses = (
        (share, 100 * (sum(whole) / len(whole) - average(found, "pruning", share, 1))) for share in SHARES
    )
    points = ", ".join(f"{loss:.2f} at {share:.0%}" for share, loss in losses if share in (0.9, 0.95))
    return (
        f"{kept:.0%} pruned without a significant loss ({len(found)} runs); lost points of accuracy: {points}"
    )


def paired(
    first_runs: list[Record], second: list[Record], value: Callable[[Record], float]
) -> tuple[list[float], list[float]]:
    """Values of runs with the same seed."""
    a, b = ({r["seed"]: value(r) for r in found} for found in (first_runs, second))
    seeds = sorted(a.keys() & b.keys())
    return [a[s] for s in seeds], [b[s] for s in seeds]


def said(evidence: statistics.Evidence) -> str:
    word = "differ" if evidence.p < ALPHA else "no difference shown"
    return f"p = {evidence.p:.2g} ({word})"
