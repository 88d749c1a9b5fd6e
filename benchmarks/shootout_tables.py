"""Tables of what shootout.py measured, from the log probabilities that its runs wrote."""

import json
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bayesify.evaluation.calibrate import best_temperature
from bayesify.evaluation.metrics import ClassificationTally
from bayesify.evaluation.metrics.registry import measured
from timing import table

KINDS = {"clean": "without views", "views": "a view for every draw"}
PLAIN = "point"
PERCENT = ("accuracy", "ece", "c-acc")
ABOUT = (
    "row",
    "changes",
    "seed",
    "epochs",
    "num_train",
    "num_draws",
    "seconds",
    "parameters",
    "notes",
    "default",
    "moments",
)


@dataclass(frozen=True)
class Stored:
    """One run, or the average of several."""

    about: dict[str, Any]
    arrays: dict[str, np.ndarray]

    @property
    def target(self) -> Tensor:
        return torch.from_numpy(self.arrays["target"].astype(np.int64))

    def logs(self, key: str) -> Tensor:
        return torch.from_numpy(self.arrays[key].astype(np.float64)).log_softmax(1)


def read(folders: list[str]) -> dict[str, list[Stored]]:
    """row -> its runs, by seed."""
    found: dict[str, list[Stored]] = {}
    for path in sorted(p for folder in folders for p in Path(folder).glob("*.npz")):
        with np.load(path) as file:
            arrays = {key: file[key] for key in file.files}
        about = json.loads(str(arrays.pop("about")))
        found.setdefault(about["row"], []).append(Stored(about, arrays))
    return found


def averaged(runs: list[Stored]) -> Stored:
    """The deep ensemble of several runs: the mean of their probabilities."""
    arrays = {
        k: torch.stack([run.logs(k) for run in runs]).logsumexp(0).sub(np.log(len(runs))).numpy()
        for k in runs[0].arrays
        if k != "target" and not k.startswith("ood/")
    }
    return Stored(runs[0].about, {"target": runs[0].arrays["target"], **arrays})


def nll(logs: Tensor, target: Tensor) -> float:
    return float(torch.nn.functional.nll_loss(logs, target))


def calibrated_nll(logs: Tensor, target: Tensor) -> float:
    """Each half by the temperature of the other (Ashukha et al. 2020)."""
    halves = torch.arange(len(target)) % 2 == 0
    parts = []
    for part in (halves, ~halves):
        t = best_temperature(logs[~part], target[~part])
        parts.append(nll((logs[part] / t).log_softmax(1), target[part]) * float(part.double().mean()))
    return sum(parts)


def figures(run: Stored, kind: str) -> dict[str, float]:
    """All figures of a run, with views of its own for each draw or without ("views", "clean")."""
    logs, target = run.logs(kind), run.target
    tally = ClassificationTally(15)
    tally.add(logs.exp(), target)
    found = tally.metrics()
    result = {
        "accuracy": 100 * found["accuracy"],
        "nll": found["nll"],
        "cal. nll": calibrated_nll(logs, target),
        "ece": 100 * found["ece"],
        "brier": found["brier"],
        "aurc": found["aurc"],
    }
    shifted = "corrupted/" if kind == "clean" else "corrupted_views/"
    names = [k for k in run.arrays if k.startswith(shifted)]
    if names:
        few = target[: len(run.arrays[names[0]])]
        result["c-nll"] = float(np.mean([nll(run.logs(k), few) for k in names]))
        result["c-acc"] = float(
            np.mean([100 * (run.logs(k).argmax(1) == few).double().mean() for k in names])
        )
    if kind == "clean":
        entropy = -(logs.exp() * logs).sum(1)
        for key in ("cifar100", "noise"):
            if f"ood/{key}" in run.arrays:
                outside = torch.from_numpy(run.arrays[f"ood/{key}"].astype(np.float64))
                result[f"auroc {key}"] = measured("auroc", entropy, outside)
    return result


def worth(value: float, ensembles: list[float]) -> float:
    """How many independently trained networks have this calibrated NLL, by interpolation; beyond the ends by the
    nearest slope."""
    for size in range(1, len(ensembles)):
        here, there = ensembles[size - 1], ensembles[size]
        if value >= there or size == len(ensembles) - 1:
            return size + (here - value) / max(here - there, 1e-9)
    return float("nan")


def collected(folders: list[str], before: dict[str, Any] | None = None) -> dict[str, Any]:
    """Every run's figures as plain data, beside those of `before`; ensembles of the plain runs, by their size."""
    runs = {f"{each['row']} {each['seed']}": each for each in (before or {}).get("runs", [])}
    found = read(folders)
    for row, stored in found.items():
        for run in stored:
            about = {key: run.about[key] for key in ABOUT if key in run.about}
            each = {kind: figures(run, kind) for kind in KINDS}
            runs[f"{row} {about['seed']}"] = {**about, **each}
    result = {"runs": [runs[key] for key in sorted(runs)], "ensembles": (before or {}).get("ensembles", {})}
    plain = found.get(PLAIN, [])
    if len(plain) > len(result["ensembles"].get("seeds", [])):
        each = {kind: ensembles_of(plain, kind) for kind in KINDS}
        result["ensembles"] = {"seeds": [run.about["seed"] for run in plain], **each}
    return result


def ensembles_of(runs: list[Stored], kind: str) -> list[dict[str, float]]:
    """Figures of ensembles of 1, 2, … runs: means over all choices of so many."""
    result = []
    for size in range(1, len(runs) + 1):
        each = [figures(averaged(list(some)), kind) for some in combinations(runs, size)]
        result.append({name: float(np.mean([f[name] for f in each])) for name in each[0]})
    return result


def lines(data: dict[str, Any], kind: str) -> list[tuple[str, list[dict[str, Any]], dict[str, float]]]:
    """(row, its runs, the means of their figures) of every row, then the ensembles of plain runs."""
    rows: dict[str, list[dict[str, Any]]] = {}
    for run in data["runs"]:
        rows.setdefault(run["row"], []).append(run)
    found = [(row, runs, means([run[kind] for run in runs])) for row, runs in rows.items()]
    sizes = data["ensembles"].get(kind, [])[1:]
    return found + [(f"{i} plain runs averaged", [], each) for i, each in enumerate(sizes, 2)]


def means(some: list[dict[str, float]]) -> dict[str, float]:
    return {name: float(np.mean([each[name] for each in some])) for name in some[0]}


def print_tables(data: dict[str, Any]) -> None:
    """A table without views and one with them."""
    for kind, title in KINDS.items():
        sizes = [each["cal. nll"] for each in data["ensembles"].get(kind, [])]
        rows, names = lines(data, kind), [*data["runs"][0][kind]]
        header = ["row", "runs", *names, "seconds", *(["worth"] if sizes[1:] else [])]
        body = []
        for row, runs, mean in rows:
            seconds = f"{np.mean([run['seconds'] for run in runs]):.0f}" if runs else ""
            value = [f"{worth(mean['cal. nll'], sizes):.2f}"] if sizes[1:] else []
            body.append([row, str(len(runs)), *(shown(mean, n) for n in names), seconds, *value])
        table(title, body, header)


def shown(mean: dict[str, float], name: str) -> str:
    return "" if name not in mean else f"{mean[name]:.2f}" if name in PERCENT else f"{mean[name]:.4f}"


COLUMNS = {
    "accuracy": "accuracy %",
    "nll": "NLL",
    "cal. nll": "calibrated",
    "ece": "ECE %",
    "brier": "Brier",
    "aurc": "AURC",
    "c-nll": "NLL, 15 corruptions",
    "c-acc": "accuracy % there",
    "auroc cifar100": "AUROC, CIFAR-100",
}


def put_tables(page: Path, data: dict[str, Any]) -> None:
    """The tables of a page, between <!-- shootout KIND --> and <!-- end -->.

    KIND is "clean", "views", or "default": each row as its method predicts by itself, * with views.
    """
    text = page.read_text(encoding="utf-8")
    for kind in (*KINDS, "default"):
        before, mark, rest = text.partition(f"<!-- shootout {kind} -->\n")
        if mark:
            text = before + mark + markdown(data, kind) + "<!-- end -->" + rest.partition("<!-- end -->")[2]
    page.write_text(text, encoding="utf-8")


def markdown(data: dict[str, Any], kind: str) -> str:
    """One table: mean ± standard deviation over seeds, where there are several."""
    names = [n for n in COLUMNS if n in data["runs"][0]["clean"]]
    header = ["", *(COLUMNS[n] for n in names), "seeds", "worth, networks"]
    rows = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    tables = {k: lines(data, k) for k in KINDS}
    for i, (row, runs, _) in enumerate(tables["clean"]):
        used = kind if kind in KINDS else runs[0].get("default", "clean") if runs else "clean"
        mean = tables[used][i][2]
        sizes = [each["cal. nll"] for each in data["ensembles"].get(used, [])]
        label = row + (" *" if kind == "default" and used == "views" else "")
        texts = [spread([run[used] for run in runs] or [mean], n) for n in names]
        rows.append(
            f"| {label} | {' | '.join(texts)} | {len(runs) or ''} | {worth(mean['cal. nll'], sizes):.1f} |"
        )
    return "\n".join(rows) + "\n"


def spread(some: list[dict[str, float]], name: str) -> str:
    """ "92.8 ± 0.1"."""
    values = [each[name] for each in some if name in each]
    if not values:
        return ""
    digits = {"accuracy": 1, "c-acc": 1, "ece": 1, "brier": 4, "aurc": 4}.get(name, 3)
    mean = f"{np.mean(values):.{digits}f}"
    return mean if len(values) == 1 else f"{mean} ± {np.std(values, ddof=1):.{digits}f}"
