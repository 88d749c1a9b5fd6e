"""What shall run, from three sources: a file, then the flags, then --set. Later ones win."""

import math
import os
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from bayesify.atomic import read_json, read_text
from bayesify.checks import Count, NotNegativeCount, Positive, check_content
from bayesify.cli.options import TrainTable
from bayesify.cli.where_text import parse_where
from bayesify.names import check_choice
from bayesify.recipes import NONE

Tables = dict[str, dict[str, Any]]

#: the tables of a configuration: how to train, and names and options of what is trained
TABLES = ("train", "method", "net", "data", "likelihood")
MOST_NUMBERS = 2**28  # of one example: an image of 89 million pixels in colours
_SHOWN = {"method": "methods", "net": "nets", "data": "data"}


@dataclass(frozen=True)
class Settings:
    """A complete request: every table but [train] has a name."""

    train: TrainTable
    method: dict[str, Any]
    net: dict[str, Any]
    data: dict[str, Any]
    likelihood: dict[str, Any]

    @classmethod
    def of(cls, tables: Tables) -> "Settings":
        """From tables; what is missing is named."""
        for key, listed in _SHOWN.items():
            name = tables.get(key, {}).get("name")
            if not isinstance(name, str):
                raise ValueError(
                    f"--{key} is missing: `bayesify show {listed}` lists the choices "
                    f'(in a --config file: [{key}] name = "…")'
                )
        rest = {key: tables.get(key, {}) for key in TABLES if key != "train"}
        return cls(TrainTable.of(tables.get("train", {})), **rest)

    def tables(self) -> Tables:
        """As config.json holds them."""
        return {"train": asdict(self.train), **{key: getattr(self, key) for key in TABLES if key != "train"}}


def from_file(path: Path) -> Tables:
    """The tables of a .toml or .json file; a run's own config.json works too."""
    try:
        content = tomllib.loads(read_text(path)) if path.suffix == ".toml" else read_json(path)
    except OSError as error:
        raise ValueError(f"--config {path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:  # of either parser
        raise ValueError(f"--config {path} is not valid {path.suffix or 'JSON'}: {error}") from None
    if not isinstance(content, dict):
        raise ValueError(f"--config {path} must hold the tables {', '.join(TABLES)}")
    if "bayesify_run" in content:
        check_tables(content, path)
        return tables_of_run(content)
    for key, value in content.items():
        check_choice(TABLES, key, f"--config {path}: table")
        if not isinstance(value, dict):
            raise ValueError(f"--config {path}: {key} must be a table, [{key}] with name = value lines")
    return content


def tables_of_run(config: Mapping[str, Any]) -> Tables:
    """The tables in the config.json of a run. An option newer than the run has its default; but runs had no recipe
    before there were any."""
    return {key: config[key] for key in TABLES} | {"train": {"recipe": NONE, **config["train"]}}


#: what config.json of a run says, as far as it is read; older runs have less
Numbers = list[float]
CONFIG: dict[str, Any] = {
    "train": dict,
    **{key: {"name": str} for key in ("method", "net", "likelihood")},
    "data": {"name": str, "root?": str | None},
    "task": {
        "kind": str,
        "input_shape": list[Count],
        "num_outputs": Count,
        "normalisation": {
            "mean": Numbers,
            "std": list[Positive],
            "target_mean?": Numbers | None,
            "target_std?": list[Positive] | None,
        },
        "inputs": Literal["bytes", "floats"],
        "num_targets": Count,
        "class_names": list[str] | None,
        "encoding?": Mapping[str, Any] | None,
        "scale?": Mapping[str, Numbers] | None,
        **dict.fromkeys(("num_train", "num_val", "num_test"), NotNegativeCount),
    },
    "versions": {"*": str},
    "device?": str,
    "modules_from?": str | None,
    "fingerprint?": Mapping[str, Any] | None,
}
ENCODING: dict[str, Any] = {"columns": list[Mapping[str, Any]], "targets": list[str]}
COLUMN: dict[str, Any] = {
    "name": str,
    "fill": float | None,
    "flag": bool,
    "categories": list[str] | None,
}


def check_tables(config: Mapping[str, Any], path: Path) -> None:
    """Raise where the config.json of a run lacks something, or says what cannot be."""
    check_content(config, CONFIG, path)
    task, known = config["task"], TrainTable.options()
    names, stored, targets = task["class_names"], task["normalisation"], task["num_targets"]
    lengths = {"mean": task["input_shape"][:1], "std": task["input_shape"][:1], "target_mean": [targets]}
    wrong = ["class_names"] if names is not None and len(names) < targets else []
    wrong += ["input_shape"] if math.prod(task["input_shape"]) > MOST_NUMBERS else []
    for key, length in {**lengths, "target_std": [targets]}.items():
        if stored.get(key) is not None and [len(stored[key])] not in ([1], length):
            wrong.append(f"normalisation.{key}")
    if wrong:
        raise ValueError(f"{path} is damaged: task.{wrong[0]} is missing, or is not what bayesify writes")
    if task.get("encoding") is not None:
        check_content(task["encoding"], ENCODING, path)
        for column in task["encoding"]["columns"]:
            check_content(column, COLUMN, path)
    for key, value in config["train"].items():
        if key in known:
            known[key].check(known[key].read(value), f"{path}: train.{key}")


def check_machines(train: Mapping[str, Any], file: Path, given: Mapping[str, Any]) -> None:
    """Raise where a file asks for several machines, and nobody else does: the run would wait for the others. And where
    it asks for more processes than this one has processors for."""
    if {"WORLD_SIZE", "SLURM_NTASKS"} & {*os.environ}:
        return
    asked, devices, there = train.get("num_nodes", 1), train.get("devices", 1), os.cpu_count() or 1
    if isinstance(devices, int) and devices > there and "devices" not in given:
        raise ValueError(
            f"{file} asks for {devices} devices, this machine has {there} processors: say --devices"
        )
    if asked != 1 and "num_nodes" not in given:
        raise ValueError(
            f"{file} asks for {asked} machines (train.num_nodes), and the run would wait for the others: say "
            f"--num-nodes {asked} as well, on each of them"
        )


def from_assignments(assignments: Iterable[str]) -> Tables:
    """`--set method.init_std=0.1` and the like, as tables."""
    tables: Tables = {}
    for text in assignments:
        path, equals, value = text.partition("=")
        keys = path.strip().split(".")
        if not equals or len(keys) < 2 or not all(keys):
            raise ValueError(f"--set {text!r} must read TABLE.OPTION=VALUE, for example method.init_std=0.1")
        check_choice(TABLES, keys[0], "--set: table")
        table: dict[str, Any] = tables
        for key in keys[:-1]:
            table = table.setdefault(key, {})
        table[keys[-1]] = parse_value(value.strip())
    return tables


def parse_value(text: str) -> Any:
    """A number, true, false, none, [a, list], a,list or else a text.

    >>> parse_value("0.1"), parse_value("64,32"), parse_value("[64]"), parse_value("relu"), parse_value("none")
    (0.1, [64, 32], [64], 'relu', None)
    """
    if text.lower() in ("none", "null"):
        return None
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        pass
    if "," in text and not set(text) & set("()[]{}'\""):
        return [parse_value(part.strip()) for part in text.split(",") if part.strip()]
    try:
        return float(text) if text[:1] in "+-.0123456789" else text  # .5 is no TOML
    except ValueError:
        return text


def merged(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """The layers as one; a later layer that names another thing drops the options of the former."""
    result: dict[str, Any] = {}
    for layer in layers:
        for key, value in layer.items():
            before = result.get(key)
            if isinstance(value, Mapping):
                before = {"name": before} if isinstance(before, str) else before
                before = before if isinstance(before, Mapping) else {}
                other = "name" in value and before.get("name", value["name"]) != value["name"]
                remaining = {k: v for k, v in before.items() if k == "root"} if other else before
                result[key] = merged(remaining, value)
            else:
                result[key] = value
    return result


def contradictions(stored: Mapping[str, Any], given: Mapping[str, Any], path: str = "") -> list[str]:
    """Where `given` differs from `stored`, as sentences with both values."""
    found = []
    for key, value in given.items():
        name, mine = f"{path}{key}", stored.get(key)
        if isinstance(value, Mapping) and isinstance(mine, Mapping):
            found += contradictions(mine, value, f"{name}.")
        elif not _same(key, mine, value):
            found.append(f"{name} is {value!r} here and {mine!r} in the run")
    return found


def _same(key: str, stored: Any, given: Any) -> bool:
    if isinstance(stored, Mapping) and isinstance(given, str):  # prior = "normal", in full
        return stored.get("name") == given
    if key == "where" and isinstance(given, str):
        return str(parse_where(given)) == stored
    return bool(stored == given or stored == [given])  # net.hidden=64 is a list of one
