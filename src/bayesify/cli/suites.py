"""Suites of a run, as `bayesify evaluate --suite` and reports ask for them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bayesify.atomic import write_json, write_rows
from bayesify.cli.build import choose_device, full_data, load_data
from bayesify.cli.run import Run
from bayesify.cli.terminal import metrics_table, note, output
from bayesify.cli.units import OriginalUnits
from bayesify.names import lookup
from bayesify.studies.suites import SUITES, Outcome, Subject, run_suites, write_evaluation


def names_of(text: str) -> list[str]:
    """The suites of "a,b", each looked up."""
    if text.strip() == "all":
        return list(SUITES)
    names = [part.strip() for part in text.split(",") if part.strip()]
    for name in names:
        lookup(SUITES, name, "--suite")
    return names


def run_suites_of(
    run: Run,
    names: Sequence[str],
    ood: Sequence[str] = (),
    weights: str = "last",
    num_draws: int = 20,
    num_bins: int = 15,
    batch_size: int | None = None,
    device: str = "auto",
    root: str | None = None,
    options: dict[str, dict[str, Any]] | None = None,
) -> dict[str, Outcome]:
    """Run suites on the test part of a run and store what they found in its folder."""
    torch_device = choose_device(device)
    ds = run.data(None, root, **(options or {}).get("data", {}))
    others = {name: _others(run, name, root) for name in ood}
    model = OriginalUnits(run.model(weights, torch_device), run.normalisation)
    size = run.config["train"]["batch_size"] if batch_size is None else batch_size
    subject = Subject(model, ds.test, run.normalisation, ds.val, others, num_draws, num_bins, size)
    begun, left_out = lambda name: note(f"suite {name} …"), lambda why: note(f"left out: {why}", "yellow")
    outcomes = run_suites(subject, names, begun, left_out)
    facts = {"weights": weights, "num_draws": num_draws, "num_bins": num_bins}
    write_evaluation(run.folder, facts, outcomes)
    return outcomes


def _others(run: Run, name: str, root: str | None) -> Any:
    """The test inputs of another data set; its classes do not matter, the shape does."""
    table = {"name": name, "root": run.config["data"].get("root") if root is None else root}
    inputs = load_data(full_data(table)).test.inputs
    wanted, given = tuple(run.task["input_shape"]), tuple(inputs.shape[1:])
    if wanted != given:
        raise ValueError(f"--ood {name} has input shape {given}, the run in {run.folder} has {wanted}")
    return inputs


def show(
    run: Path, outcomes: dict[str, Outcome], num_draws: int, json: Path | None, csv: Path | None
) -> None:
    """Print what suites found, and write it where it was asked for."""
    for name, outcome in outcomes.items():
        output().print(metrics_table(f"Suite {name}", outcome.metrics, f"{run}, {num_draws} draws"))
    output().print(f"Stored in {run}; compare runs with: bayesify report {run} …", soft_wrap=True)
    metrics = {name: outcome.metrics for name, outcome in outcomes.items()}
    if json is not None:
        write_json(json, {"run": str(run), "num_draws": num_draws, "suites": metrics})
    if csv is not None:
        rows = [
            {"run": str(run), "num_draws": num_draws, "suite": name, "metric": key, "value": value}
            for name, numbers in metrics.items()
            for key, value in numbers.items()
        ]
        write_rows(csv, rows)
