"""`bayesify evaluate`: the metrics of a trained model on a part of a data set."""

from pathlib import Path
from typing import Annotated

import typer


def evaluate(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder that `bayesify train` wrote.")],
    data: Annotated[
        str | None,
        typer.Option(help="Another data set of the same shape.", show_default="the run's own"),
    ] = None,
    data_root: Annotated[
        Path | None, typer.Option(help="Folder that holds the data.", show_default="as in training")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="data.OPTION=VALUE", help="An option of the data set."),
    ] = None,
    split: Annotated[str, typer.Option(help="Part of the data: test, val or train.")] = "test",
    num_draws: Annotated[int, typer.Option(min=1, help="Draws averaged in each prediction.")] = 20,
    num_bins: Annotated[int, typer.Option(min=1, help="Bins of confidence in ece and mce.")] = 15,
    batch_size: Annotated[
        int | None, typer.Option(min=1, help="Examples at a time.", show_default="as in training")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, mps.")] = "auto",
    best: Annotated[
        bool,
        typer.Option("--best/--last", help="The model of the best validation, or of the last epoch."),
    ] = False,
    json: Annotated[Path | None, typer.Option(help="Write the metrics to this file.")] = None,
    csv: Annotated[Path | None, typer.Option(help="Write the metrics to this file, one row.")] = None,
) -> None:
    """Measure a trained model: accuracy, calibration and uncertainty, or error in original units.

    Another data set of the same shape shows how the model behaves on what it was not trained for.

    Example: bayesify evaluate runs/first --split val --num-draws 50 --json metrics.json
    """
    from bayesify.cli.build import choose_device
    from bayesify.cli.record import write_json, write_rows
    from bayesify.cli.run import Run, split_of
    from bayesify.cli.settings import from_assignments
    from bayesify.cli.terminal import metrics_table, output
    from bayesify.cli.units import evaluate as measure

    trained, place = Run.at(run), choose_device(device)
    options = from_assignments(set_ or [])
    if set(options) - {"data"}:
        raise ValueError(f"--set {next(iter(set(options) - {'data'}))}.…: only data options can be set here")
    weights = "best" if best else "last"
    model = trained.model(weights, place)
    root = None if data_root is None else str(data_root)
    ds = trained.data(data, root, **options.get("data", {}))
    loader = trained.loader(split_of(ds, split), batch_size, place)
    metrics = measure(model, loader, trained.normalisation, num_draws, num_bins)
    facts = {"run": str(run), "weights": weights, "data": ds.name, "split": split, "num_draws": num_draws}
    output().print(
        metrics_table(f"{ds.name}, {split} part", metrics, f"{run}, {weights} model, {num_draws} draws")
    )
    if json is not None:
        write_json(json, {**facts, "metrics": metrics})
    if csv is not None:
        write_rows(csv, [{**facts, **metrics}])
