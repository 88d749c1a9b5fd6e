"""Runs side by side: one row per thing that was trained, its seeds averaged, the best of each column marked."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from bayesify.evaluation.metrics.corruption import mean_corruption_error, relative_mean_corruption_error
from bayesify.evaluation.metrics.registry import fact, header, written
from bayesify.evaluation.statistics import holm, mean, paired_t_test
from bayesify.methods import Method, method_class
from bayesify.report.tables import Cell, Column, Table
from bayesify.studies.suites import Evaluation, Outcome

LEVEL = 0.05
FEW = 5  # seeds; below it the table warns
#: metrics that are means over examples, and the arrays of one number per example
PAIRED = {"accuracy": "each_accuracy", "nll": "each_nll", "brier": "each_brier"}

#: the part of a key before the slash, in words
GROUPS = {
    "rotated_30": "rotated by 30°",
    "snr_-6": "noise at −6 dB",
    "fgsm_0.1": "FGSM 0.1",
    "pgd_0.1": "PGD 0.1",
    "pruned_50": "half pruned",
    "pruned_90": "90 % pruned",
}


@dataclass(frozen=True)
class Row:
    """One thing that was trained, with one or more seeds."""

    label: str
    runs: Sequence[Evaluation]
    class_names: Sequence[str] | None = None

    @property
    def first(self) -> Evaluation:
        """The run that stands for the row in figures of one run."""
        return self.runs[0]

    @property
    def method(self) -> type[Method]:
        """The method by which it was trained."""
        return method_class(self.first.method)

    @property
    def pictured(self) -> str:
        """The name under a figure of the first run alone; its seed too where there are several."""
        return self.label if len(self.runs) == 1 else f"{self.label}, seed {self.first.facts.get('seed')}"

    def values(self, suite: str, key: str) -> list[float]:
        """The metric of every run; empty where one lacks it."""
        found = [run.metric(suite, key) for run in self.runs]
        finite = [v for v in found if v is not None and math.isfinite(v)]
        return finite if len(finite) == len(found) else []


def metrics_of(rows: Sequence[Row], suite: str) -> list[str]:
    """The names of a suite's metrics in the first run of any row."""
    found = [row.first.outcomes[suite].metrics for row in rows if suite in row.first.outcomes]
    return list(dict.fromkeys(key for metrics in found for key in metrics))


def grouped(evaluations: Sequence[Evaluation], class_names: Sequence[str] | None = None) -> list[Row]:
    """Runs that differ in nothing but the seed are one row; equal labels of different rows get a number."""
    groups: dict[str, list[Evaluation]] = {}
    for run in evaluations:
        settings = run.facts.get("settings")
        key = json.dumps([run.method, settings], sort_keys=True) if settings is not None else run.label
        groups.setdefault(key, []).append(run)
    firsts = [(runs[0], len(runs) == 1) for runs in groups.values()]
    labels = [run.label if alone else run.facts.get("name", run.label) for run, alone in firsts]
    rows = []
    for i, (label, runs) in enumerate(zip(labels, groups.values(), strict=True)):
        number = f" ({labels[: i + 1].count(label)})" if labels.count(label) > 1 else ""
        rows.append(Row(f"{label}{number}", runs, class_names))
    return rows


def comparison(rows: Sequence[Row], suite: str, keys: Sequence[str], title: str) -> Table:
    """A table of one suite's metrics, without rows that lack the suite and columns that no row has."""
    rows = [row for row in rows if any(suite in run.outcomes for run in row.runs)]
    present = [key for key in keys if any(row.values(suite, key) for row in rows)]
    bins = {int(n) for row in rows for n in row.values(suite, "num_bins")}
    num_bins = next(iter(bins)) if len(bins) == 1 else None
    columns = [Column("run", "run")]
    body: list[list[Cell]] = [[Cell(row.label)] for row in rows]
    tests: set[str] = set()
    for key in present:
        known = fact(key)
        columns.append(Column(key, _head(key, num_bins), known.better, known.meaning))
        cells, used = column_cells(rows, suite, key)
        tests |= used
        for line, cell in zip(body, cells, strict=True):
            line.append(cell)
    marked = any(cell.best for line in body for cell in line)
    return Table(title, columns, body, _notes(rows, tests, bins, marked))


def column_cells(rows: Sequence[Row], suite: str, key: str) -> tuple[list[Cell], set[str]]:
    """The cells of one column, and which tests were made."""
    better, cells = fact(key).better, [_cell(key, row.values(suite, key)) for row in rows]
    values = {i: cell.value for i, cell in enumerate(cells) if cell.value is not None}
    if better is None or len(values) < 2:
        return cells, set()
    best = (min if better == "lower" else max)(values, key=values.__getitem__)
    others = [i for i in values if i != best]
    evidence = [_difference(rows[best], rows[i], suite, key) for i in others]
    tested = [(i, e) for i, e in zip(others, evidence, strict=True) if e is not None]
    corrected = holm([e[0] for _, e in tested])
    tied = {i for (i, _), p in zip(tested, corrected, strict=True) if p > LEVEL}
    tied |= {i for i in others if cells[i].text == cells[best].text}
    marked = [replace(cell, best=i == best, tied=i in tied) for i, cell in enumerate(cells)]
    return marked, {e[1] for _, e in tested}


def _cell(key: str, values: Sequence[float]) -> Cell:
    if not values:
        return Cell("–")
    m = mean(values)
    return Cell(_shown(key, m.value, m.error), m.value, error=None if math.isnan(m.error) else m.error)


def _difference(a: Row, b: Row, suite: str, key: str) -> tuple[float, str] | None:
    """(p, what was paired) for two rows: over seeds where both have the same ones, else over test examples."""
    seeds = [{run.facts.get("seed"): run for run in row.runs} for row in (a, b)]
    shared = sorted((set(seeds[0]) & set(seeds[1])) - {None}, key=str)
    if len(shared) > 1:
        values = [[by[seed].metric(suite, key) for seed in shared] for by in seeds]
        if all(v is not None and math.isfinite(v) for side in values for v in side):
            return paired_t_test(*values).p, "seeds"  # type: ignore[arg-type]
    each = [row.first.array(suite, PAIRED.get(key, "")) for row in (a, b)]
    if each[0] is not None and each[1] is not None and len(each[0]) == len(each[1]) > 1:
        return paired_t_test(each[0], each[1]).p, "examples"
    return None


def _notes(rows: Sequence[Row], tests: set[str], bins: set[int], marked: bool) -> list[str]:
    counts = sorted({len(row.runs) for row in rows}) or [0]
    runs = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    many = counts[-1] > 1
    notes = [f"Runs in each row: {runs}" + ("; mean ± standard error." if many else ".")]
    if len(bins) > 1:
        notes.append(f"Calibration errors rest on different numbers of bins: {sorted(bins)}.")
    if tests:
        what = {
            "seeds": "runs of the same seed",
            "examples": "the same test examples (which says nothing about other seeds)",
        }
        paired = " or ".join(what[t] for t in sorted(tests))
        notes.append(
            f"Best in bold (*). ≈: not told apart from the best, paired t-test over {paired}, "
            f"p > {LEVEL} after Holm's correction."
        )
        if "seeds" in tests and counts[0] < FEW:
            notes.append(
                f"A test over fewer than {FEW} seeds says little: train more of them before you rely on it."
            )
    elif marked:
        notes.append("Best in bold (*); no test: it needs several seeds, or one number per example.")
    return notes


def _head(key: str, num_bins: int | None) -> str:
    group, slash, _ = key.rpartition("/")
    name = header(key, num_bins)
    return f"{name}, {GROUPS.get(group, group.replace('_', ' '))}" if slash else name


def _shown(key: str, value: float, error: float) -> str:
    if math.isnan(error):
        return written(key, value)
    unit = fact(key).unit
    if unit == "count":
        return f"{value:,.0f}" if error == 0 else f"{value:,.0f} ± {error:,.0f}"
    if unit == "%":
        return f"{100 * value:.2f} ± {100 * error:.2f} %"
    digits = 3 if error == 0 else min(6, max(0, 1 - math.floor(math.log10(error))))
    return f"{value:.{digits}f} ± {error:.{digits}f}"


def reference(rows: Sequence[Row]) -> Row:
    """What the others are measured against: the first row by a method that is a reference, else the first."""
    return next((row for row in rows if row.method.is_reference), rows[0])


def with_corruption_errors(rows: Sequence[Row]) -> list[Row]:
    """The rows with mCE and rmCE against the `reference` of those that have the suite corruption."""
    have = [row for row in rows if row.first.array("corruption", "accuracy") is not None]
    if not have:
        return list(rows)
    outcomes = [run.outcomes["corruption"] for run in reference(have).runs if "corruption" in run.outcomes]
    errors = np.mean([1 - outcome.arrays["accuracy"] for outcome in outcomes], 0)
    clean = float(np.mean([outcome.arrays["clean_error"] for outcome in outcomes]))

    def extended(run: Evaluation) -> Evaluation:
        outcome = run.outcomes.get("corruption")
        if outcome is None:
            return run
        own, other = (torch.from_numpy(array) for array in (1 - outcome.arrays["accuracy"], errors))
        mce = float(mean_corruption_error(own, other))
        own_clean = float(outcome.arrays["clean_error"])
        rmce = float(relative_mean_corruption_error(own, own_clean, other, clean))
        numbers = {**outcome.metrics, "mce_corruption": mce, "rmce_corruption": rmce}
        changed = Outcome(numbers, outcome.arrays)
        return replace(run, outcomes={**run.outcomes, "corruption": changed})

    return [replace(row, runs=[extended(run) for run in row.runs]) for row in rows]
