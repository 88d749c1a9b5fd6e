"""From the tables of a configuration to the objects they name."""

import inspect
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from bayesify import data, nets
from bayesify.checks import accepted, fits, is_plain
from bayesify.cli.where_text import parse_where
from bayesify.data import DataSet
from bayesify.data.files import VARIABLE
from bayesify.likelihoods import LIKELIHOODS, Likelihood
from bayesify.likelihoods import likelihood as make_likelihood
from bayesify.methods import METHODS, Method
from bayesify.names import lookup
from bayesify.priors import PRIORS, Prior, prior
from bayesify.weights.where import Where

MOST_LAYERS = 1000  # in a list of widths
TRAINED = 4  # times the parameters: they, their gradients, and what Adam remembers
VALIDATION = 0.1  # of the training part, where the set has no validation part of its own


# -- method ------------------------------------------------------------------------------------------------
def full_method(table: Mapping[str, Any]) -> dict[str, Any]:
    """The table with every option of the method that is plain data, defaults filled in."""
    options = with_defaults(METHODS, table, "method")
    if isinstance(options.get("prior"), str | dict):
        options["prior"] = with_defaults(PRIORS, _named(options["prior"], "normal"), "prior")
    if isinstance(options.get("method"), str | dict):
        options["method"] = full_method(_named(options["method"], "point"))
    return options


def build_method(table: Mapping[str, Any]) -> Method:
    """The method of a full table."""
    options = {key: value for key, value in table.items() if key != "name"}
    if isinstance(options.get("where"), str):
        options["where"] = parse_where(options["where"])
    if isinstance(options.get("prior"), dict):
        options["prior"] = prior(**options["prior"])
    if isinstance(options.get("method"), dict):
        options["method"] = build_method(options["method"])
    return METHODS[table["name"]](**options)


def decided(table: Mapping[str, Any], method: Method) -> dict[str, Any]:
    """The full table with what it left to the network as `method`, made for that, has it."""
    result = dict(table)
    for key, value in table.items():
        now = getattr(method, key, None)
        if isinstance(now, Method) and value is not None:
            result[key] = decided(value, now)
        elif value is None and isinstance(now, Prior):
            result[key] = {"name": now.name, **now.options}
        elif value is None:
            result |= plain({key: now})
    return result


def _named(value: str | Mapping[str, Any], default: str) -> dict[str, Any]:
    return {"name": value} if isinstance(value, str) else {"name": default, **value}


# -- data --------------------------------------------------------------------------------------------------
def full_data(table: Mapping[str, Any]) -> dict[str, Any]:
    """The table with the options of the data set, defaults filled in, and `root` as a whole path."""
    name, root = table["name"], table.get("root")
    if data.is_outside(name):
        return dict(table)
    name, root = data.resolve(name, root) or (name, root)
    entry = lookup(data.DATA, name.partition(":")[0], "data")
    given = {key: value for key, value in table.items() if key not in ("name", "root")}
    check_types(entry.load, given, "data")
    variable = os.environ.get(VARIABLE, "")
    if root is None and variable and Path(variable).expanduser().is_dir():
        root = variable
    return {
        "name": name,
        "root": None if root is None else str(Path(root).expanduser().resolve()),
        **entry.options,
        **given,
    }


def load_data(table: Mapping[str, Any]) -> DataSet:
    """The data set of a table; a root that is not there is named first."""
    root = table.get("root")
    if root is not None and not Path(root).exists():
        raise ValueError(f"data root {root} is not there: name the right one with --data-root")
    if data.is_outside(table["name"]):
        find_modules_here()
    options = {key: value for key, value in table.items() if key not in ("name", "root")}
    return data.load(table["name"], root, **options)


def with_validation(ds: DataSet, fraction: float | None) -> DataSet:
    """The set with a validation part: its own, or `fraction` of train, the same examples for every seed."""
    if len(ds.train) == 0:
        raise ValueError(f"data={ds.name!r} has no training part here: evaluate on it, train on another set")
    if fraction is None:
        fraction = 0.0 if ds.val is not None else VALIDATION
    return ds.with_validation(fraction, seed=0) if fraction > 0 else ds


# -- likelihood and network --------------------------------------------------------------------------------
def full_likelihood(table: Mapping[str, Any], task: str) -> dict[str, Any]:
    """The likelihood of a table, or the usual one of the task, with its options."""
    wanted = {"name": "normal" if task == "regression" else "categorical", **table}
    name = wanted["name"]
    kind = lookup(LIKELIHOODS, name, "likelihood")
    if kind.task != task:
        fitting = ", ".join(key for key, each in LIKELIHOODS.items() if each.task == task)
        raise ValueError(f"likelihood={name!r} is for {kind.task}, the data are for {task}: use {fitting}")
    return with_defaults(LIKELIHOODS, wanted, "likelihood")


def build_likelihood(table: Mapping[str, Any]) -> Likelihood:
    """The likelihood of a full table."""
    return make_likelihood(**table)


def full_net(table: Mapping[str, Any]) -> dict[str, Any]:
    """The table with the options of a registered network, defaults filled in."""
    name = table["name"]
    defaults = plain(nets.NETS[name].options) if name in nets.NETS else {}
    lists = {key for key, value in defaults.items() if isinstance(value, list)}
    given = {k: [v] if k in lists and not isinstance(v, list) else v for k, v in table.items()}
    if name in nets.NETS:
        check_types(nets.NETS[name].build, given, "net")
    return {"name": name, **defaults, **given}


def build_net(table: Mapping[str, Any], outputs: int, input_shape: tuple[int, ...]) -> nn.Module:
    """The network of a table that may be trusted (`check_trust`); your own are found from the current folder."""
    if nets.is_outside(table["name"]) and not table["name"].startswith(nets.TRANSFORMERS):
        find_modules_here()
    sketched(table, outputs, input_shape)
    return _make(table, outputs, input_shape)


def find_modules_here() -> None:
    """The current folder, last: a file there must not stand in for an installed package."""
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())


def sketched(table: Mapping[str, Any], outputs: int, input_shape: tuple[int, ...]) -> nn.Module | None:
    """A network of bayesify's own without its numbers; raise where those would not fit into memory. None for others,
    of which only their code knows."""
    if nets.is_outside(table["name"]):
        return None
    if any(isinstance(value, list) and len(value) > MOST_LAYERS for value in table.values()):
        raise ValueError(f"net={table['name']!r}: more than {MOST_LAYERS:,} layers are not made")
    with torch.device("meta"):
        made = _make(table, outputs, input_shape)
    needed = TRAINED * sum(t.nbytes for t in (*made.parameters(), *made.buffers()))
    if needed > (there := os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")):
        raise ValueError(
            f"net={table['name']!r} would need {needed / 1e9:,.0f} GB to be trained, this machine has "
            f"{there / 1e9:,.0f}: make it smaller"
        )
    return made


def _make(table: Mapping[str, Any], outputs: int, input_shape: tuple[int, ...]) -> nn.Module:
    options = {key: value for key, value in table.items() if key != "name"}
    try:
        return nets.make(table["name"], num_outputs=outputs, input_shape=input_shape, **options)
    except (TypeError, RuntimeError, OverflowError) as error:
        shown = ", ".join(f"{key}={value!r}" for key, value in options.items())
        raise ValueError(f"net={table['name']!r} cannot be made with {shown}: {error}") from error


# -- shared ------------------------------------------------------------------------------------------------
def with_defaults(registry: Mapping[str, Any], table: Mapping[str, Any], noun: str) -> dict[str, Any]:
    """The table of an entry with its options and the defaults of those left out; an unknown one names the nearest."""
    name = table["name"]
    factory = lookup(registry, name, noun)
    parameters = inspect.signature(factory).parameters
    given = {key: value for key, value in table.items() if key != "name"}
    for key in given:
        if not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
            lookup(parameters, key, f"{noun}={name!r}: option")
    check_types(factory, given, noun)
    defaults = {key: p.default for key, p in parameters.items() if p.default is not p.empty}
    return {"name": name, **plain(defaults), **given}


def check_types(factory: Callable[..., Any], given: Mapping[str, Any], table: str) -> None:
    """Raise where an option is not of the type that `factory` declares for it, as far as files can hold that type."""
    for key, parameter in inspect.signature(factory).parameters.items():
        kind, default = parameter.annotation, parameter.default
        if key in given and is_plain(kind) and not fits(given[key], kind):
            example = "" if default in (None, parameter.empty) else f", e.g. {default!r}"
            raise ValueError(f"{table}.{key}={given[key]!r} must be {accepted(kind)}{example}")


def plain(options: Mapping[str, Any]) -> dict[str, Any]:
    """What of `options` can stand in a file: numbers, texts, lists of them, and `where` as text."""
    result: dict[str, Any] = {}
    for key, value in options.items():
        if isinstance(value, Where):
            result[key] = str(value)
        elif value is None or isinstance(value, bool | int | float | str):
            result[key] = value
        elif isinstance(value, tuple | list):
            result[key] = list(value)
    return result


def choose_device(name: str) -> torch.device:
    """ "auto" (or an accelerator's name as Fabric takes it) as a torch device for this process."""
    if name == "auto":
        name = str(torch.accelerator.current_accelerator()) if torch.accelerator.is_available() else "cpu"
    name = {"gpu": "cuda"}.get(name, name)
    rank = os.environ.get("LOCAL_RANK")
    try:
        device = torch.device(f"cuda:{rank}" if name == "cuda" and rank is not None else name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"device {name!r} cannot be used here: {str(error).splitlines()[0]}") from None
    return device
