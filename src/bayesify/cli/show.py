"""`bayesify show`: what there is to choose from, what docstrings say about options, and what a run folder holds."""

import importlib
import inspect
import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from bayesify.cli.flags import completing

#: word -> where its registry lives
REGISTRIES = {
    "methods": ("bayesify.methods", "METHODS"),
    "families": ("bayesify.families", "FAMILIES"),
    "priors": ("bayesify.priors", "PRIORS"),
    "likelihoods": ("bayesify.likelihoods", "LIKELIHOODS"),
    "samplers": ("bayesify.samplers", "SAMPLERS"),
    "nets": ("bayesify.nets", "NETS"),
    "data": ("bayesify.data", "DATA"),
    "metrics": ("bayesify.evaluation.metrics", "METRICS"),
    "corruptions": ("bayesify.studies.corruptions", "CORRUPTIONS"),
    "suites": ("bayesify.studies.suites", "SUITES"),
    "schedules": ("bayesify.engine.schedules", "SCHEDULES"),
}


def show(
    what: Annotated[
        str,
        typer.Argument(
            metavar="WHAT",
            autocompletion=completing(lambda: REGISTRIES),
            help=f"One of {', '.join(REGISTRIES)}; or the folder of a run.",
        ),
    ],
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="One entry of the list, for its options; data of your own, for what is in them.",
        ),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="data.OPTION=VALUE", help="An option of data of your own."),
    ] = None,
) -> None:
    """List what can be chosen, the options of one choice, or what a run folder or a file of data holds.

    Examples: bayesify show nets · bayesify show mc_vi · bayesify show data houses.csv · bayesify show runs/first
    """
    if what == "data" and name is not None and _is_own(name):
        from bayesify.cli.show_data import show_data

        show_data(name, set_ or [])
    elif what in REGISTRIES and name is None:
        _list(what, registry(what))
    elif what in REGISTRIES and name is not None:
        _options(what, name, registry(what))
    elif name is None and (
        lists := [each for each in REGISTRIES if what.partition(":")[0] in registry(each)]
    ):
        for each in lists:
            _options(each, what, registry(each))
    elif Path(what).is_dir():
        from bayesify.cli.show_run import show_run

        show_run(Path(what))
    else:
        from bayesify.names import check_choice

        check_choice(REGISTRIES, what, "show (neither a folder nor a list): WHAT")


def _is_own(name: str) -> bool:
    from bayesify.data import is_outside, resolve

    return is_outside(name) or resolve(name, None) is not None


def registry(what: str) -> Mapping[str, Any]:
    """The registry behind a word."""
    module, attribute = REGISTRIES[what]
    return getattr(importlib.import_module(module), attribute)


def about(entry: Any) -> str:
    """One line: `about` or `description`, else the first line of the docstring."""
    made = unwrapped(entry)
    for each in (entry, made):
        for attribute in ("about", "description"):
            if isinstance(text := getattr(each, attribute, None), str) and text:
                return text
    return (made.__doc__ or "").strip().split("\n")[0]


def _list(what: str, entries: Mapping[str, Any]) -> None:
    from bayesify.cli.terminal import output, rows_table

    rows = ((name, about(entry)) for name, entry in entries.items())
    output().print(rows_table(f"{len(entries)} {what}", {"name": "left", "what it is": "left"}, rows))
    note = getattr(importlib.import_module(REGISTRIES[what][0]), "NOTE", "")
    if note:
        output().print(note, highlight=False, markup=False)


def options_of(entry: Any) -> dict[str, Any]:
    """The options of an entry that are plain data, with their defaults."""
    import inspect

    from bayesify.cli.build import plain

    options = getattr(entry, "options", None)
    if isinstance(options, dict):  # nets and data list their own
        return options
    parameters = inspect.signature(entry).parameters.values()
    return plain({p.name: p.default for p in parameters if p.default is not p.empty})


def _options(what: str, name: str, entries: Mapping[str, Any]) -> None:
    from bayesify.cli.terminal import output, rows_table
    from bayesify.names import lookup

    entry = lookup(entries, name.partition(":")[0], what)
    options = options_of(entry)
    console = output()
    console.print(f"{name}: {about(entry)}", highlight=False, markup=False)
    table = {"methods": "method", "nets": "net", "data": "data", "likelihoods": "likelihood"}.get(what)
    hint = f", for --set {table}.OPTION=VALUE" if table else ""
    known = meanings(entry)
    rows = ((key, repr(value), known.get(key, "")) for key, value in options.items())
    if options:
        columns = {"option": "left", "default": "left", **({"meaning": "left"} if known else {})}
        console.print(rows_table(f"Options{hint}", columns, (row[: len(columns)] for row in rows)))
    else:
        console.print("It has no options.")


_LINE = re.compile(r"(?P<indent> *)(?P<names>\w+(, \w+)*): +(?P<text>\S.*)")


def unwrapped(entry: Any) -> Any:
    """The function or class that makes what a registry's entry stands for."""
    entry = getattr(entry, "build", getattr(entry, "load", entry))  # of a network, of a data set
    while isinstance(entry, partial):
        entry = entry.func
    return entry


def meanings(entry: Any) -> dict[str, str]:
    """option -> meaning, as the docstring of the entry or of its base classes has it."""
    made = unwrapped(entry)
    found: dict[str, str] = {}
    for each in reversed(made.__mro__) if isinstance(made, type) else [made]:
        found |= parse(each.__dict__.get("__doc__") or "" if isinstance(each, type) else each.__doc__ or "")
    return found


def parse(doc: str) -> dict[str, str]:
    """The named lines of a docstring, each with the deeper lines below it.

    >>> parse("Make a net.\\n\\n    hidden, depth:  units and\\n        layers\\n    dropout: rate\\n\\n    Done.")
    {'hidden': 'units and layers', 'depth': 'units and layers', 'dropout': 'rate'}
    """
    found: dict[str, str] = {}
    names: list[str] = []
    indent = 0
    for line in inspect.cleandoc(doc).splitlines():
        match = _LINE.fullmatch(line)
        if match:
            names, indent = match["names"].split(", "), len(match["indent"])
            found |= dict.fromkeys(names, match["text"])
        elif names and line.startswith(" " * (indent + 1)):
            found |= {name: f"{found[name]} {line.strip()}" for name in names}
        else:
            names = []
    return found
