"""An evaluation in the folder of a run: numbers in evaluation.json, arrays in evaluation.npz."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from bayesify.atomic import plain_json, read_json, sealed_json, write_atomically, write_json
from bayesify.checks import Range, check_content, fits
from bayesify.data.files import read_arrays
from bayesify.studies.suites.subject import Outcome

FORMAT = 1
NUMBERS, ARRAYS = "evaluation.json", "evaluation.npz"
#: what evaluation.json says
WRITTEN = {
    "bayesify_evaluation?": int,
    "facts": dict,
    "metrics": {"*": Mapping[str, float | None]},
    "arrays?": list[str],
}


@dataclass(frozen=True)
class Evaluation:
    """What is known about one run: a name for tables, its method, facts and what the suites found."""

    label: str
    method: str
    facts: dict[str, Any] = field(default_factory=dict)  # seed, parameters, seconds, data, net, …
    outcomes: dict[str, Outcome] = field(default_factory=dict)

    def metric(self, suite: str, key: str) -> float | None:
        """A number, or None where the suite was not run or does not give it."""
        outcome = self.outcomes.get(suite)
        return None if outcome is None else outcome.metrics.get(key)

    def array(self, suite: str, key: str) -> np.ndarray | None:
        """An array, or None."""
        outcome = self.outcomes.get(suite)
        return None if outcome is None else outcome.arrays.get(key)


def write_evaluation(folder: Path, facts: Mapping[str, Any], outcomes: Mapping[str, Outcome]) -> None:
    """Store outcomes beside those of other suites already there, if they were made with the same facts."""
    before = read_evaluation(folder)
    kept = before.outcomes if before is not None and before.facts == plain_json(facts) else {}
    merged = {**kept, **outcomes}
    arrays = {f"{name}.{key}": a for name, outcome in merged.items() for key, a in outcome.arrays.items()}
    content = {
        "bayesify_evaluation": FORMAT,
        "facts": facts,
        "metrics": {name: outcome.metrics for name, outcome in merged.items()},
        "arrays": sorted(arrays),
    }
    write_atomically(folder / ARRAYS, lambda partial: _save(partial, arrays))
    write_json(folder / NUMBERS, sealed_json(content))


def read_evaluation(folder: Path) -> Evaluation | None:
    """The evaluation in a folder, or None where there is none."""
    path = folder / NUMBERS
    if not path.exists():
        return None
    content = read_json(path)
    written = content.get("bayesify_evaluation") if isinstance(content, dict) else None
    if fits(written, Annotated[int, Range(above=FORMAT)]):
        raise ValueError(f"{path} was written by a newer bayesify: upgrade bayesify")
    check_content(content, WRITTEN, path)
    arrays: dict[str, dict[str, np.ndarray]] = {name: {} for name in content["metrics"]}
    stored = read_arrays(folder / ARRAYS)
    if sorted(stored) != content.get("arrays", sorted(stored)):  # files of 0.1 do not list them
        raise ValueError(
            f"{folder / ARRAYS} is damaged: it lacks arrays, or has others; evaluate the run again"
        )
    for key, array in stored.items():
        suite, _, name = key.partition(".")
        if suite in arrays:
            arrays[suite][name] = array
    outcomes = {
        name: Outcome({k: math.nan if v is None else v for k, v in numbers.items()}, arrays[name])
        for name, numbers in content["metrics"].items()
    }
    return Evaluation(str(folder), "", content["facts"], outcomes)


def _save(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    with path.open("wb") as file:
        np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
