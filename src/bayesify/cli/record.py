"""The files of a run folder that the command line writes: config.json and summary.json."""

import os
import platform
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

import bayesify
from bayesify import data, nets
from bayesify.atomic import read_json
from bayesify.cli.input_scale import scale_of
from bayesify.cli.options import TrainTable
from bayesify.cli.settings import TABLES, Tables, check_tables
from bayesify.data import DataSet, Normalisation
from bayesify.data.fingerprint import fingerprint
from bayesify.engine.folder import remains

FORMAT = 1
CONFIG, SUMMARY = "config.json", "summary.json"


#: what of the table [task] belongs to the data
DATA_FACTS = ("kind", "input_shape", "inputs", "num_targets", "class_names", "normalisation", "encoding")
SIZES = ("num_train", "num_val", "num_test")


def holds_a_run(folder: Path) -> list[str]:
    """What there is of a run that must not be overwritten."""
    return [name for name in (CONFIG, SUMMARY) if (folder / name).exists()] + remains(folder)


def read_config(folder: Path) -> dict[str, Any]:
    """config.json of a run; a ValueError says what is wrong with any other folder."""
    path = folder / CONFIG
    try:
        content = read_json(path)
    except FileNotFoundError:
        raise ValueError(f"{folder} holds no run of `bayesify train` (it has no {CONFIG})") from None
    except NotADirectoryError:
        raise ValueError(f"{folder} is a file: give the folder of a run") from None
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None
    if not isinstance(content, dict) or "bayesify_run" not in content:
        raise ValueError(f"{path} was not written by `bayesify train`")
    if content["bayesify_run"] not in range(FORMAT + 1):
        raise ValueError(f"{path} was written by a newer bayesify: upgrade bayesify")
    check_tables(content, path)
    return {**content, "train": {**asdict(TrainTable()), **content["train"]}}  # an option newer than the run


def config_of(tables: Tables, ds: DataSet, outputs: int, device: torch.device) -> dict[str, Any]:
    """Everything needed to repeat a run, and to predict without its data."""
    return {
        "bayesify_run": FORMAT,
        **{key: tables[key] for key in TABLES},
        "task": task_of(ds, outputs),
        "fingerprint": {part: fingerprint(split) for part, split in ds.parts().items()},
        "versions": versions(),
        "device": device_name(device),
        "modules_from": os.getcwd() if _from_outside(tables) else None,
    }


def _from_outside(tables: Tables) -> bool:
    return nets.is_outside(tables["net"]["name"]) or data.is_outside(tables["data"]["name"])


def task_of(ds: DataSet, outputs: int) -> dict[str, Any]:
    """What the network's inputs and outputs mean."""
    return {
        "kind": ds.task,
        "input_shape": list(ds.input_shape),
        "inputs": "bytes" if ds.test.inputs.dtype == torch.uint8 else "floats",
        "num_outputs": outputs,
        "num_targets": ds.num_outputs,
        "class_names": None if ds.class_names is None else list(ds.class_names),
        "scale": None if len(ds.train) == 0 else scale_of(ds.train),
        "normalisation": ds.normalisation.numbers(),
        "encoding": None if ds.encoding is None else ds.encoding.plain(),
        "num_train": len(ds.train),
        "num_val": 0 if ds.val is None else len(ds.val),
        "num_test": len(ds.test),
    }


def data_facts(config: Mapping[str, Any]) -> dict[str, Any]:
    """What config.json says about the data, to be compared: sizes, classes, normalisation, fingerprints."""
    facts = {key: config["task"][key] for key in (*SIZES, *DATA_FACTS) if key in config["task"]}
    return {**facts, "fingerprint": config.get("fingerprint") or {}}


def normalisation_of(task: Mapping[str, Any]) -> Normalisation:
    """The normalisation that a run's network was trained with."""
    stored = {
        key: None if value is None else torch.tensor(value, dtype=torch.float64)
        for key, value in task["normalisation"].items()
    }
    return Normalisation(**stored)  # type: ignore[arg-type]


def versions() -> dict[str, str]:
    """Of this package and those that its numbers depend on."""
    return {
        "bayesify": bayesify.__version__,
        "torch": str(torch.__version__),
        "numpy": np.__version__,
        "python": platform.python_version(),
    }


def device_name(device: torch.device) -> str:
    """The device as its maker calls it."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{device.type} ({platform.processor() or platform.machine()})"
