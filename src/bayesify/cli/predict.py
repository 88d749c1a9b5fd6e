"""`bayesify predict`: what a trained model says about your own files, and how sure it is."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bayesify.cli.flags import Best, Device, Net, NumDraws, RunFolder, Trust

if TYPE_CHECKING:
    import bayesify as bf


def predict(
    run: RunFolder,
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE",
            help="Images (png, jpg …), .npy and .npz arrays of one example or a batch, tables with the columns of "
            "the training data, or folders of such files. Images are scaled to the network's input.",
        ),
    ],
    num_draws: NumDraws = 20,
    batch_size: Annotated[int, typer.Option(min=1, help="Examples at a time.")] = 128,
    device: Device = "auto",
    best: Best = False,
    net: Net = None,
    trust: Trust = False,
    json: Annotated[Path | None, typer.Option(help="Write everything, with probabilities, here.")] = None,
    csv: Annotated[Path | None, typer.Option(help="Write the printed columns here.")] = None,
) -> None:
    """Predict your own images, arrays or tables, each with how far to trust it.

    Classes: the label, its probability (confidence), the uncertainty in nats (entropy) and the part of it
    that more data could remove (epistemic). Numbers: mean ± std in original units.

    Example: bayesify predict runs/first digit.png batch.npy --num-draws 50 --csv predictions.csv
    """
    from torch import Generator

    from bayesify.atomic import write_json, write_rows
    from bayesify.cli.build import choose_device
    from bayesify.cli.errors import FAILED
    from bayesify.cli.input_scale import other_scale
    from bayesify.cli.inputs import files_in, read_examples
    from bayesify.cli.run import Run
    from bayesify.cli.terminal import counted, note, output, rows_table
    from bayesify.cli.units import OriginalUnits
    from bayesify.predict.nonfinite import counted_from

    trained, torch_device = Run.at(run, net, trust), choose_device(device)
    model = OriginalUnits(trained.model("best" if best else "last", torch_device), trained.normalisation)
    rows: list[dict[str, Any]] = []
    scale = trained.task.get("scale")  # runs of older versions have none
    strange: list[str] = []
    unreadable = 0
    for path in [each for given in files for each in files_in(given)]:
        mine: list[dict[str, Any]] = []
        generator = Generator(torch_device).manual_seed(0)  # a file has the same answer beside any others
        try:
            examples = read_examples(path, trained.task, trained.config["data"])
            for number, batch in enumerate(examples.split(batch_size)):
                x = trained.normalisation.inputs(batch).to(torch_device)
                with counted_from(number * batch_size):
                    prediction = model.predict(x, num_draws, generator=generator)
                for i, row in _rows(prediction, trained.task["class_names"]):
                    mine.append({"file": str(path), "index": number * batch_size + i, **row})
        except (ValueError, OSError, ImportError) as error:
            note(f"error: {path}: {error}", "red")
            unreadable += 1
            continue
        rows += mine
        found = None if scale is None else other_scale(examples, scale)
        strange += [] if found is None else [f"{path}: {found}"]
    if rows:
        title = f"{counted(len(rows), 'prediction')}, {counted(num_draws, 'draw')} each"
        cells = [_cells(row) for row in rows]
        columns = {key: "left" if key in ("file", "label") else "right" for key in cells[0]}
        output().print(rows_table(title, columns, (tuple(row.values()) for row in cells)))
    if strange:
        more = f" (so in {len(strange)} files)" if len(strange) > 1 else ""
        note(f"warning: {strange[0]}{more}", "yellow")
    if json is not None:
        write_json(json, rows)
    if csv is not None:
        write_rows(csv, [{key: value for key, value in row.items() if key != "probs"} for row in rows])
    if unreadable:
        raise typer.Exit(FAILED)


def _rows(prediction: "bf.Predictive", class_names: list[str] | None) -> Iterator[tuple[int, dict[str, Any]]]:
    """(example, its prediction as plain numbers); one for each target of a regression."""
    p = prediction.to("cpu")
    for i in range(len(p)):
        if class_names is not None:
            numbers = {key: float(getattr(p, key)[i]) for key in ("confidence", "entropy", "epistemic")}
            label, probs = class_names[int(p.label[i])], p.probs[i].reshape(-1).tolist()
            yield i, {"label": label, **numbers, "probs": probs}
            continue
        parts = (p.mean[i], p.std[i], p.aleatoric[i].sqrt(), p.epistemic[i].sqrt())
        columns = zip(("mean", "std", "noise_std", "epistemic_std"), parts, strict=True)
        lists = {key: part.reshape(-1).tolist() for key, part in columns}
        for t in range(len(lists["mean"])):
            which = {"target": t} if len(lists["mean"]) > 1 else {}
            yield i, {**which, **{key: values[t] for key, values in lists.items()}}


def _cells(row: dict[str, Any]) -> dict[str, str]:
    """A row as a person reads it."""
    where: dict[str, str] = {key: str(row[key]) for key in ("file", "index", "label", "target") if key in row}
    if "label" in row:
        nats = {key: f"{row[key]:.3f}" for key in ("entropy", "epistemic")}
        return {**where, "confidence": f"{100 * row['confidence']:.1f} %", **nats}
    return {
        **where,
        "mean ± std": f"{row['mean']:.4g} ± {row['std']:.2g}",
        "noise std": f"{row['noise_std']:.2g}",
        "epistemic std": f"{row['epistemic_std']:.2g}",
    }
