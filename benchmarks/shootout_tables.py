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
    keys = [k for k in runs[0].arrays if k != "target" and not k.startswith("ood/")]
    arrays = {
        k: torch.stack([run.logs(k) for run in runs]).logsumexp(0).sub(np.log(len(runs))).numpy()
        for k in keys
    }
    seconds = sum(run.about["seconds"] for run in runs)
    return Stored(runs[0].about | {"seconds": seconds}, {"target": runs[0].arrays["target"], **arrays})


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


def ensembles_of(runs: list[Stored], kind: str) -> list[float]:
    """Calibrated NLL of ensembles of 1, 2, … runs: means over all choices of so many."""
    result = []
    for size in range(1, len(runs) + 1):
        each = [averaged(list(some)) for some in combinations(runs, size)]
        result.append(float(np.mean([calibrated_nll(e.logs(kind), e.target) for e in each])))
    return result


PERCENT = ("accuracy", "ece", "c-acc")


def print_tables(folders: list[str], only: str | None = None) -> None:
    """A table without views and one with them."""
    found = read(folders)
    if only is not None:
        found = {row: [r for r in runs if f"{row}_{r.about['seed']}" == only] for row, runs in found.items()}
        found = {row: runs for row, runs in found.items() if runs}
    for kind in ("clean", "views"):
        plain = found.get("point", [])
        sizes = ensembles_of(plain, kind) if len(plain) > 1 else []
        names = [*figures(next(iter(found.values()))[0], kind)]
        rows = [cells(row, runs, kind, names, sizes) for row, runs in found.items()]
        for size in range(2, len(plain) + 1):
            some = [averaged(list(each)) for each in list(combinations(plain, size))[:5]]
            rows.append(cells(f"ensemble of {size} runs", some, kind, names, sizes))
        header = ["row", "runs", *names, "seconds", *(["worth"] if sizes else [])]
        table("without views" if kind == "clean" else "a view for every draw", rows, header)


def cells(row: str, runs: list[Stored], kind: str, names: list[str], sizes: list[float]) -> list[str]:
    """The means over runs, and how many networks they are worth."""
    each = [figures(run, kind) for run in runs]
    means = {name: float(np.mean([f[name] for f in each])) for name in names if name in each[0]}
    texts = [f"{means[n]:.2f}" if n in PERCENT else f"{means[n]:.4f}" if n in means else "" for n in names]
    seconds = sum(run.about["seconds"] for run in runs) / len(runs)
    worths = [f"{worth(means['cal. nll'], sizes):.2f}"] if sizes else []
    return [row, str(len(runs)), *texts, f"{seconds:.0f}", *worths]
