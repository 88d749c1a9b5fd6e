"""`bayesify show data PATH`: what was found in data of one's own, and how it is read."""

from collections.abc import Sequence

import torch

from bayesify.cli.build import full_data, load_data
from bayesify.cli.settings import from_assignments
from bayesify.cli.terminal import counted, facts_table, output, rows_table
from bayesify.data import DataSet
from bayesify.data.columns import Column


def show_data(name: str, assignments: Sequence[str]) -> None:
    """Load the data as `bayesify train` would, and describe them."""
    table = full_data({"name": name, **from_assignments(assignments).get("data", {})})
    ds = load_data(table)
    console = output()
    rows = [("read as", table["name"]), ("task", _task(ds)), ("inputs", _inputs(ds))]
    rows += [(part, counted(len(split), "example")) for part, split in ds.parts().items()]
    if ds.class_names is None:
        y = ds.train.targets
        names = ds.encoding.targets if ds.encoding else [f"target {i}" for i in range(ds.num_outputs)]
        rows += [(f"{each}", _numbers(y[:, i])) for i, each in enumerate(names)]
    console.print(facts_table(str(name), rows))
    if ds.class_names is not None:
        counts = torch.bincount(ds.train.targets, minlength=ds.num_outputs).tolist()
        pairs = zip(ds.class_names, (f"{n:,}" for n in counts), strict=True)
        columns = {"class": "left", "train": "right"}
        console.print(rows_table(f"{ds.num_outputs} classes", columns, pairs))
    if ds.encoding is not None:
        heads = {"column": "left", "what": "left", "numbers": "right"}
        lines = ((c.name, _what(c), str(len(c.numbers))) for c in ds.encoding.columns)
        console.print(rows_table(counted(len(ds.encoding.columns), "column"), heads, lines))


def _task(ds: DataSet) -> str:
    if ds.encoding is None:
        return ds.task
    other = "regression" if ds.task == "classification" else "classification"
    return (
        f"{ds.task} of {', '.join(ds.encoding.targets)}; else --set data.task={other} or data.target=COLUMN"
    )


def _inputs(ds: DataSet) -> str:
    shape = " × ".join(map(str, ds.input_shape))
    return f"{shape}, {str(ds.test.inputs.dtype).removeprefix('torch.')}"


def _numbers(y: torch.Tensor) -> str:
    return f"{float(y.min()):g} to {float(y.max()):g}, mean {float(y.mean()):.4g}, std {float(y.std()):.4g}"


def _what(column: Column) -> str:
    if column.categories is None:
        return "numbers" + (f"; missing ones are {column.fill:g}" if column.flag else "")
    shown = ", ".join(column.categories[:5]) + (" …" if len(column.categories) > 5 else "")
    return f"{len(column.categories)} categories: {shown}"
