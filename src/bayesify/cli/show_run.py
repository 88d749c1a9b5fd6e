"""`bayesify show RUN`: configuration, last metrics and summary of a run folder."""

from pathlib import Path

from rich.console import Group

from bayesify.cli.dry_run import options_line
from bayesify.cli.run import Run
from bayesify.cli.terminal import counted, facts_table, metrics_table, number, output, rows_table


def show_run(folder: Path) -> None:
    """Print what `bayesify train` left in `folder`."""
    run = Run.at(folder)
    console = output()
    console.print(_configuration(run))
    last = run.last_metrics()
    if last is None:
        console.print("No epoch is finished yet.")
    else:
        rows = [(name, _shown(name, value)) for name, value in last.items() if value != ""]
        console.print(rows_table("Last epoch (metrics.csv)", {"quantity": "left", "value": "right"}, rows))
    summary = run.summary()
    if summary is None:
        console.print(f"Not finished; go on with: bayesify train --resume --folder {folder}")
        return
    caption = f"{counted(summary['num_draws'], 'draw')}, {summary['seconds']:.1f} s of training"
    console.print(metrics_table("Test (summary.json)", summary["test"], caption))
    if summary.get("sampling"):
        console.print(f"warning: {summary['sampling']}", style="yellow", markup=False)
    for text in summary["notes"]:
        console.print(f"note: {text}", markup=False)


def _configuration(run: Run) -> Group:
    config, task = run.config, run.task
    train = config["train"]
    rows = [
        ("method", options_line(config["method"])),
        ("network", options_line(config["net"])),
        ("data", options_line(config["data"])),
        ("likelihood", options_line(config["likelihood"])),
        ("examples", f"{task['num_train']:,} train, {task['num_val']:,} val, {task['num_test']:,} test"),
        ("training", ", ".join(f"{key}={value}" for key, value in train.items() if value is not None)),
        ("device", config.get("device", "unknown")),
        ("versions", ", ".join(f"{key} {value}" for key, value in config["versions"].items())),
    ]
    return facts_table(f"Run {run.folder}", rows)


def _shown(name: str, value: str) -> str:
    try:
        return number(name, float(value)) if name not in ("epoch", "step") else value
    except ValueError:
        return value
