"""`bayesify evaluate`: the metrics of a trained model on a part of a data set, and whole suites of them."""

from pathlib import Path
from typing import Annotated, Any

import typer

from bayesify.cli.flags import Best, Device, Net, NumDraws, RunFolder, Trust


def evaluate(
    run: RunFolder,
    suite: Annotated[
        str | None,
        typer.Option(
            help="Suites, joined by commas, see `bayesify show suites`; or all. One that does not suit the "
            "run is left out. Results stay in RUN for `bayesify report`.",
            show_default="the metrics alone",
        ),
    ] = None,
    ood: Annotated[
        list[str] | None,
        typer.Option(
            metavar="DATA", help="Data set of another kind, for the suite ood.", show_default="uniform noise"
        ),
    ] = None,
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
    num_draws: NumDraws = 20,
    mode: Annotated[
        str,
        typer.Option(
            help="How the model predicts: ensemble, stochastic (one draw), deterministic (weights at their means) or "
            "linearised (around the mean of normal weights, without draws of them)."
        ),
    ] = "ensemble",
    augment: Annotated[
        bool | None,
        typer.Option(
            "--augment/--no-augment",
            help="Every draw sees its own crop and flip, at two thirds of the strength in training.",
            show_default="where training cropped and flipped and draws are averaged anyway",
        ),
    ] = None,
    num_bins: Annotated[int, typer.Option(min=1, help="Bins of confidence in ece and mce.")] = 15,
    batch_size: Annotated[
        int | None, typer.Option(min=1, help="Examples at a time.", show_default="as in training")
    ] = None,
    device: Device = "auto",
    best: Best = False,
    net: Net = None,
    trust: Trust = False,
    predictions: Annotated[
        Path | None, typer.Option(help="Write every prediction to this file, .npz or .csv.")
    ] = None,
    json: Annotated[Path | None, typer.Option(help="Write the metrics to this file.")] = None,
    csv: Annotated[Path | None, typer.Option(help="Write the metrics to this file, one row.")] = None,
) -> None:
    """Measure a trained model: accuracy, calibration and uncertainty, or error in original units.

    Another data set of the same shape shows how the model behaves on what it was not trained for. Suites go
    further: inputs of another kind, corruptions, attacks, saliency, pruning, and what is special to a method.

    Example: bayesify evaluate runs/first --suite calibration,ood,corruption --num-draws 50
    """
    from bayesify.atomic import write_json, write_rows
    from bayesify.cli.build import choose_device
    from bayesify.cli.run import Run, split_of
    from bayesify.cli.settings import from_assignments
    from bayesify.cli.terminal import counted, metrics_table, note, output
    from bayesify.cli.units import OriginalTargets, OriginalUnits
    from bayesify.cli.units import evaluate as measure
    from bayesify.files.predictions import write_predictions
    from bayesify.predict.prediction import shares

    trained, weights = Run.at(run, net, trust), "best" if best else "last"
    options = from_assignments(set_ or [])
    if set(options) - {"data"}:
        raise ValueError(f"--set {next(iter(set(options) - {'data'}))}.…: only data options can be set here")
    root = None if data_root is None else str(data_root)
    if suite is not None:
        if augment:
            raise ValueError(
                "--augment is for the metrics: suites predict as the model does by itself; leave out --suite"
            )
        if mode != "ensemble":
            raise ValueError(f"--mode {mode} is for the metrics: suites predict as the model does by itself")
        if data is not None or split != "test" or predictions is not None:
            raise ValueError(
                "--suite takes the run's own test part: leave out --data, --split and --predictions"
            )
        from bayesify.cli import suites

        how = (weights, num_draws, num_bins, batch_size, device, root)
        outcomes = suites.run_suites_of(trained, suites.names_of(suite), ood or [], *how, options)
        suites.show(run, outcomes, num_draws, json, csv)
        return
    if ood:
        raise ValueError("--ood is for the suite ood: give --suite ood")
    torch_device = choose_device(device)
    model = trained.model(weights, torch_device)
    ds = trained.data(data, root, **options.get("data", {}))
    loader = trained.loader(split_of(ds, split), batch_size, torch_device)
    views = _views(model, ds, trained.normalisation, augment if mode == "ensemble" else bool(augment))
    seen_as: dict[str, Any] = {"augment": views, "mode": mode}
    metrics = measure(model, loader, trained.normalisation, num_draws, num_bins, **seen_as)
    asked = {"run": str(run), "weights": weights, "data": ds.name, "split": split, "num_draws": num_draws}
    facts: dict[str, Any] = {**asked, "augment": views is not None, "mode": mode}
    members, each = shares(model, num_draws, views)
    caption = f"{run}, {weights} model, {counted(members * each, 'draw')}"
    output().print(metrics_table(f"{ds.name}, {split} part", metrics, caption))
    if predictions is not None:
        from torch import Generator

        seen: Any = OriginalUnits(model, trained.normalisation, **seen_as)
        batches = OriginalTargets(loader, trained.normalisation)
        generator = Generator(torch_device).manual_seed(0)
        count = write_predictions(seen, batches, predictions, num_draws, generator)
        note(f"{count:,} predictions in {predictions}")
    if json is not None:
        write_json(json, {**facts, "metrics": metrics})
    if csv is not None:
        write_rows(csv, [{**facts, **metrics}])


def _views(model: Any, ds: Any, normalisation: Any, augment: bool | None) -> Any:
    """What every draw sees: where nothing was said what the model does by itself, else the data set's own views of its
    inputs, as the network gets them, or None."""
    from dataclasses import replace

    if not augment:
        return model.own_views() if augment is None else None
    found = replace(ds, normalisation=normalisation).views()
    if found is None:
        raise ValueError(f"--augment: the data set {ds.name!r} has no augmentation; leave it out")
    return found
