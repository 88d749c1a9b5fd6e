"""What shall run, from three sources: a file, then the flags, then --set. Later ones win."""

import json
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from bayesify.checks import Count, NotNegativeCount, fits
from bayesify.cli.options import TrainTable
from bayesify.cli.where_text import parse_where
from bayesify.names import check_choice

Tables = dict[str, dict[str, Any]]

#: the tables of a configuration: how to train, and names and options of what is trained
TABLES = ("train", "method", "net", "data", "likelihood")
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
        text = path.read_text(encoding="utf-8")
        content = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except OSError as error:
        raise ValueError(f"--config {path} cannot be read: {error.strerror}") from None
    except ValueError as error:  # of either parser
        raise ValueError(f"--config {path} is not valid {path.suffix or 'JSON'}: {error}") from None
    if not isinstance(content, dict):
        raise ValueError(f"--config {path} must hold the tables {', '.join(TABLES)}")
    if "bayesify_run" in content:
        check_tables(content, path)
        return {key: content[key] for key in TABLES}
    for key, value in content.items():
        check_choice(TABLES, key, f"--config {path}: table")
        if not isinstance(value, dict):
            raise ValueError(f"--config {path}: {key} must be a table, [{key}] with name = value lines")
    return content


#: what predictions need to know of the task, and what else a run writes about it
NEEDED: dict[str, Any] = {
    "kind": str,
    "input_shape": list[Count],
    "num_outputs": Count,
    "normalisation": Mapping[str, list[Any] | None],
}
TASK: dict[str, Any] = {
    **NEEDED,
    "inputs": Literal["bytes", "floats"],
    "num_targets": Count,
    "class_names": list[str] | None,
    "scale": Mapping[str, list[Any]] | None,
    **dict.fromkeys(("num_train", "num_val", "num_test"), NotNegativeCount),
}


def check_tables(config: Mapping[str, Any], path: Path) -> None:
    """Raise where the config.json of a run lacks a table, the name of what one describes, or facts of the task."""
    for key in (*TABLES, "task", "versions"):
        table = config.get(key)
        if not isinstance(table, dict) or (key in TABLES[1:] and not isinstance(table.get("name"), str)):
            raise ValueError(f"{path} is damaged: its table {key!r} is missing, or is not what a run writes")
    task, device = config["task"], config.get("device", "")
    wrong = [key for key, kind in TASK.items() if key in task and not fits(task[key], kind)]
    wrong += [key for key in NEEDED if key not in task]
    names, least = task.get("class_names"), task.get("num_targets", 0)
    wrong += ["class_names"] if not wrong and names is not None and len(names) < least else []
    if wrong or not isinstance(device, str):
        field = f"task.{wrong[0]}" if wrong else "device"
        raise ValueError(f"{path} is damaged: {field} is missing, or is not what a run writes")


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
