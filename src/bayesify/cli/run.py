"""A run folder, read back: its configuration, its model, its data."""

import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import bayesify as bf
from bayesify.atomic import read_json, read_text
from bayesify.checks import NotNegative, NotNegativeCount, check_content, naming
from bayesify.cli.build import build_net, full_data, full_net, load_data, sketched, with_validation
from bayesify.cli.record import CONFIG, SUMMARY, normalisation_of, read_config
from bayesify.cli.trust import check_trust
from bayesify.data import DataSet, Loader, Normalisation, Split, resolve
from bayesify.data.columns import Encoding
from bayesify.data.table import coded
from bayesify.files.storage import check_network
from bayesify.names import lookup
from bayesify.nets import is_outside

METRICS = "metrics.csv"
#: what summary.json says, as far as it is read
WRITTEN: dict[str, Any] = {
    "test": Mapping[str, float | str | None],
    "num_draws": NotNegativeCount,
    "seconds": NotNegative | None,
    "epochs?": NotNegativeCount | None,
    "parameters?": Mapping[str, NotNegativeCount] | None,
    "sampling?": str | None,
    "notes": list[str],
}
WEIGHTS = {"last": "model.safetensors", "best": "best.safetensors"}


@dataclass(frozen=True)
class Run:
    """One folder that `bayesify train` wrote. Opening it runs nothing that its files name."""

    folder: Path
    config: dict[str, Any]
    net: str | None = None  # --net: the factory of a network of one's own
    trust: bool = False  # --trust: the factory that the folder names

    @classmethod
    def at(cls, folder: Path, net: str | None = None, trust: bool = False) -> "Run":
        """The run in `folder`; a ValueError says what is wrong with any other."""
        return cls(folder, read_config(folder), net, trust)

    @property
    def task(self) -> dict[str, Any]:
        """What the network's inputs and outputs mean, see `task_of`."""
        return self.config["task"]

    @property
    def normalisation(self) -> Normalisation:
        """Of the training data."""
        return normalisation_of(self.task)

    def model(self, weights: str = "last", device: torch.device | str = "cpu") -> bf.BayesianModule:
        """The trained model: of the last epoch, or of the epoch with the best validation."""
        path = self.folder / WEIGHTS[weights]
        if not path.exists():
            other = "it had no validation part" if weights == "best" else "finish it with train --resume"
            raise ValueError(f"{path} is not there: the run is not finished, or {other}")
        with naming(self.folder / CONFIG, IndexError):
            of = (full_net(self._net()), self.task["num_outputs"], tuple(self.task["input_shape"]))
            if (sketch := sketched(*of)) is not None:
                check_network(path, sketch)
            net = build_net(*of)
        return bf.load(path, net, map_location=device)

    def _net(self) -> dict[str, Any]:
        """The table of the network, with the factory that the command line names."""
        table, file = self.config["net"], self.folder / CONFIG
        check_trust({"net": table}, file, {"net": {"name": self.net}}, self.trust, self.modules)
        if self.net is None or self.net == table["name"]:
            return table
        if not is_outside(table["name"]):
            raise ValueError(f"--net {self.net}: {file} is of the network {table['name']!r}; leave --net out")
        return {**table, "name": self.net}

    @property
    def modules(self) -> str | None:
        """The folder that code from outside was found from."""
        return self.config.get("modules_from")

    @property
    def encoding(self) -> Encoding | None:
        """Of a table, how its rows became inputs."""
        found = self.task.get("encoding")
        return None if found is None else Encoding.of(found, self.task["class_names"])

    def data(self, name: str | None = None, root: str | None = None, **options: Any) -> DataSet:
        """The data the run was trained on, or another set of the same shape, with a validation part."""
        # a run that is opened fetches nothing, except by --set data.download=true
        stored = {key: value for key, value in self.config["data"].items() if key != "download"}
        if name is None:
            check_trust({"data": stored}, self.folder / CONFIG, {}, self.trust, self.modules)
        elif self.encoding is not None and not options:  # another table, coded as that of the run
            key, path = resolve(name, root) or (None, None)
            if key == "table" and path is not None:
                return coded(Path(path), self.encoding)
        if root is None and not Path(stored.get("root") or ".").exists():
            stored["root"] = None  # moved since: perhaps the variable BAYESIFY_DATA knows
        table = {"name": name, "root": stored.get("root")} if name and name != stored["name"] else stored
        table |= {"root": table.get("root") if root is None else root, **options}
        with naming(self.folder / CONFIG):
            ds = load_data(full_data(table))
            self._check(ds)
        return with_validation(ds, self.config["train"]["val_fraction"]) if len(ds.train) else ds

    def _check(self, ds: DataSet) -> None:
        """Another data set must look like the one the network was made for."""
        task = self.task
        for what, mine, theirs in (
            ("task", task["kind"], ds.task),
            ("input shape", tuple(task["input_shape"]), ds.input_shape),
            ("number of outputs", task.get("num_targets"), ds.num_outputs),
            ("columns", self.encoding, ds.encoding),
        ):
            if mine != theirs:
                raise ValueError(f"data={ds.name!r} has {what} {theirs}, the run in {self.folder} has {mine}")

    def loader(self, split: Split, batch_size: int | None, device: torch.device | str) -> Loader:
        """Batches of a split, normalised as in training."""
        if batch_size is None:
            batch_size = self.config["train"]["batch_size"]
        return Loader(split, batch_size, device=device, normalise=self.normalisation)

    def summary(self) -> dict[str, Any] | None:
        """The test metrics and what else came out; None while the run is not finished."""
        path = self.folder / SUMMARY
        if not path.exists():
            return None
        content = read_json(path)
        check_content(content, WRITTEN, path)
        return content

    def last_metrics(self) -> dict[str, str] | None:
        """The last row of metrics.csv; of a member's while its ensemble is not finished."""
        for path in (self.folder / METRICS, *sorted(self.folder.glob(f"member-*/{METRICS}"))):
            if path.exists():
                rows = _rows(path)
                return rows[-1] if rows else None
        return None

    def history(self) -> bf.History:
        """metrics.csv as numbers."""
        rows = _rows(self.folder / METRICS)
        return bf.History([{k: _number(v) for k, v in row.items() if v != ""} for row in rows])


def _rows(path: Path) -> list[dict[str, str]]:
    try:
        rows = list(csv.DictReader(io.StringIO(read_text(path), newline="")))
    except csv.Error as error:
        raise ValueError(f"{path} is damaged: {error}") from None
    if any(None in row or None in row.values() for row in rows):
        raise ValueError(f"{path} is damaged: its rows are not as long as its header")
    return rows


def _number(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text


def split_of(ds: DataSet, name: str) -> Split:
    """The part called "train", "val" or "test"."""
    part = lookup({"train": ds.train, "val": ds.val, "test": ds.test}, name, "split")
    if part is None or len(part) == 0:
        raise ValueError(f"data={ds.name!r} has no {name} part here")
    return part
