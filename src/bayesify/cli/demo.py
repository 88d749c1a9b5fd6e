"""`bayesify demo`: handwritten digits, the plain network against an ensemble and the five systems."""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bayesify.cli.flags import NumDraws

if TYPE_CHECKING:
    from torch import Tensor

    from bayesify.data import DataSet
    from bayesify.studies.suites import Evaluation


#: label -> method; adding one is one line
COMPARED = {
    "plain network": "point",
    "deep ensemble of 5": "deep_ensemble",
    "Monte-Carlo VI": "mc_vi",
    "ensemble patching": "emp",
    "density propagation": "vdp",
    "thermostat MCMC": "atmc",
    "variance network": "variance",
}
#: those that do not suit a method are left out
SUITES = ("calibration", "ood", "corruption", "shift", "adversarial", "saliency", "kl", "variance", "chain")

#: header -> (suite, metric), short enough for 80 columns
COLUMNS = {
    "accuracy": ("calibration", "accuracy"),
    "NLL": ("calibration", "nll"),
    "ECE": ("calibration", "ece"),
    "letters\nfound": ("ood", "letters/auroc"),
    "corrupt\nNLL": ("corruption", "corrupted/nll"),
    "rotated\naccuracy": ("shift", "rotated_30/accuracy"),
}


def demo(
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the 1,150 training images.")] = 60,
    num_draws: NumDraws = 30,
    seed: Annotated[int, typer.Option(help="Seed of the weights, the order of the data and the draws.")] = 0,
    page: Annotated[Path, typer.Option(help="Where the report goes.")] = Path("bayesify-demo.html"),
) -> None:
    """Train the plain network, an ensemble and five Bayesian systems on scikit-learn's digits; compare them.

    Every method is tested on held-out digits, on 15 corruptions of them, on rotated ones, and on letters,
    which it has never seen: "letters found" is how well its uncertainty tells them from digits, as AUROC;
    50 % is chance. A page with all results and pictures is written too; open it in a browser.

    Example: bayesify demo --epochs 20
    """
    import torch
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from bayesify.cli.letters import letters
    from bayesify.cli.terminal import output, table, titled
    from bayesify.data import load
    from bayesify.report import Report
    from bayesify.studies.suites.ood import noise_like

    torch.set_num_threads(1)  # networks this small lose time to a second one
    ds = load("digits").with_validation(0.2)
    others = {"letters": letters(8), "noise": noise_like(ds.test, seed)}
    memory: dict[Any, Tensor] = {}
    found: list[Evaluation] = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        for label, method in COMPARED.items():
            task = progress.add_task(label, total=epochs + len(SUITES))
            tick = partial(progress.advance, task)
            found.append(_run(label, method, ds, others, memory, epochs, num_draws, seed, tick))
    made = table({"method": "left", **dict.fromkeys(COLUMNS, "right"), "seconds": "right"})
    made.columns[0].no_wrap = True
    for result in found:
        cells = [_cell(result, suite, key) for suite, key in COLUMNS.values()]
        made.add_row(result.label, *cells, f"{result.facts['seconds']:.1f}")
    caption = f"{epochs} epochs, {num_draws} draws; ECE in 15 bins; rotated by 30°; seconds of training"
    output().print(titled("Digits, seen and changed", made, caption))
    Report(found, "Seven ways to know what a network does not know", ds.class_names).write(page)
    output().print(f"The whole report: {page.resolve().as_uri()}", soft_wrap=True)


def _run(
    label: str,
    method: str,
    ds: "DataSet",
    others: "dict[str, Tensor]",
    memory: "dict[Any, Tensor]",
    epochs: int,
    num_draws: int,
    seed: int,
    tick: Callable[[], None],
) -> "Evaluation":
    """Train by one method and run the suites."""
    import torch

    import bayesify as bf
    from bayesify.data import Loader
    from bayesify.nets import mlp
    from bayesify.studies.suites import Evaluation, Subject, run_suites

    torch.manual_seed(seed)
    net = mlp(10, (1, 8, 8), hidden=(128,))
    model = bf.bayesify(net, method, num_data=len(ds.train))
    loader = Loader(ds.train, 64, shuffle=True, seed=seed, normalise=ds.normalisation)
    start = time.perf_counter()
    how: dict[str, Any] = {"accelerator": "cpu", "progress": False}
    bf.fit(model, loader, epochs=epochs, on_epoch=lambda *_: tick(), **how)
    seconds = time.perf_counter() - start
    subject = Subject(model, ds.test, ds.normalisation, ds.val, others, num_draws, seed=seed, memory=memory)
    outcomes = run_suites(subject, SUITES, lambda _: tick(), left_out=lambda _: None)
    facts = {
        "seed": seed,
        "parameters": sum(p.numel() for p in model.parameters()),
        "seconds": round(seconds, 2),
        "epochs": epochs,
        "data": "digits",
        "net": "64–128–10",
        "num_draws": num_draws,
    }
    return Evaluation(label, method, facts, outcomes)


def _cell(result: "Evaluation", suite: str, key: str) -> str:
    from bayesify.evaluation.metrics.registry import fact

    value = result.metric(suite, key)
    assert value is not None
    return f"{100 * value:.1f} %" if fact(key).unit == "%" else f"{value:.3f}"
