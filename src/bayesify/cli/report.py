"""`bayesify report`: runs side by side as tables and one HTML page."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bayesify.cli.flags import Net, Trust

if TYPE_CHECKING:
    from bayesify.studies.suites import Evaluation


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN…", help="Folders that `bayesify train` wrote.")],
    page: Annotated[Path, typer.Option(help="Where the page goes.")] = Path("report.html"),
    title: Annotated[
        str | None, typer.Option(help="Heading of the page.", show_default="data and methods")
    ] = None,
    markdown: Annotated[Path | None, typer.Option(help="Write the main table as Markdown here.")] = None,
    csv: Annotated[Path | None, typer.Option(help="Write the main table as CSV here.")] = None,
    latex: Annotated[Path | None, typer.Option(help="Write the main table as LaTeX (booktabs) here.")] = None,
    device: Annotated[str, typer.Option(help="For runs to be evaluated: auto, cpu, cuda, mps.")] = "auto",
    net: Net = None,
    trust: Trust = False,
) -> None:
    """Compare runs: a table, and one page with everything that `bayesify evaluate --suite` found.

    Runs that differ in nothing but the seed are one row, with mean ± standard error. The best of each column is
    marked, and which others cannot be told apart from it. A run that was not evaluated yet gets the suite
    calibration first. The page holds all figures and the papers to cite, and needs no network.

    Example: bayesify report runs/point runs/vdp --page report.html --latex table.tex
    """
    from bayesify.atomic import write_text
    from bayesify.cli.terminal import output
    from bayesify.report import Report

    found = [evaluation_of(run, device, net, trust) for run in runs]
    names = {tuple(e.facts.get("class_names") or ()) for e in found}
    classes = next(iter(names)) if len(names) == 1 else ()
    data = sorted({str(e.facts.get("data")) for e in found})
    shown = [replace(e, facts={k: v for k, v in e.facts.items() if k != "class_names"}) for e in found]
    heading = f"{', '.join(data)}: {len(found)} runs" if title is None else title
    made = Report(shown, heading, classes if classes else None)
    table = made.overview()
    output().print(table.terminal())
    for path, text in ((markdown, table.markdown), (csv, table.csv), (latex, table.latex)):
        if path is not None:
            write_text(path, text())
    made.write(page)
    output().print(f"The whole report: {page.resolve().as_uri()}", soft_wrap=True)


def evaluation_of(folder: Path, device: str, net: str | None = None, trust: bool = False) -> "Evaluation":
    """What is stored about a run, with its facts; evaluated first where nothing is stored."""
    from bayesify.cli.recording import recorded
    from bayesify.cli.run import Run
    from bayesify.cli.suites import run_suites_of
    from bayesify.cli.terminal import note
    from bayesify.studies.suites import read_evaluation

    run = Run.at(folder, net, trust)
    stored = read_evaluation(folder)
    if stored is None or "calibration" not in stored.outcomes:
        note(f"{folder} was not evaluated yet: suite calibration")
        known = {} if stored is None else stored.facts
        as_before = {key: known[key] for key in ("weights", "num_draws", "num_bins") if key in known}
        run_suites_of(run, ["calibration"], device=device, **as_before)
        stored = read_evaluation(folder)
        assert stored is not None
    config, summary = run.config, run.summary() or {}
    settings = {k: v for k, v in config.items() if k in ("method", "net", "data", "likelihood")}
    settings["train"] = {k: v for k, v in config["train"].items() if k != "seed"}
    facts = {
        "name": f"{config['method']['name']} {config['net']['name']}",
        "seed": config["train"]["seed"],
        "data": config["data"]["name"],
        "net": config["net"]["name"],
        "epochs": summary.get("epochs"),
        "parameters": (summary.get("parameters") or {}).get("total"),
        "seconds": summary.get("seconds"),
        "sampling": summary.get("sampling"),
        "settings": settings,
        "class_names": run.task["class_names"],
        **stored.facts,
    }
    outcomes = {**stored.outcomes, **recorded(folder)}
    return replace(stored, label=folder.name, method=config["method"]["name"], facts=facts, outcomes=outcomes)
