"""`bayesify train`: train a network by a method on a data set, in a folder of its own."""

import re
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from bayesify.checks import naming
from bayesify.cli.flags import Trust, completing, with_flags
from bayesify.cli.options import TrainTable
from bayesify.cli.settings import (
    TABLES,
    Settings,
    Tables,
    check_machines,
    from_assignments,
    from_file,
    merged,
)
from bayesify.cli.show import registry
from bayesify.engine.options import FILES

#: flags under the two headings that are not those of training itself
what, files = (partial(typer.Option, rich_help_panel=heading) for heading in ("What to train", FILES))
USUAL = "categorical for classes, normal with a learned std for numbers"


def chosen(words: str, noun: str, more: str = "", **options: Any) -> Any:
    """A flag for the name of an entry of the registry behind `words`."""
    seen = completing(lambda: registry(words))
    return what(help=f"{noun}, see `bayesify show {words}`{more}.", autocompletion=seen, **options)


@with_flags(TrainTable)
def train(
    context: typer.Context,
    method: Annotated[str | None, chosen("methods", "Method")] = None,
    net: Annotated[
        str | None,
        chosen(
            "nets",
            "Network",
            "; or your own as package.module:factory, found from the current folder; or transformers:TYPE, e.g. "
            "transformers:vit",
        ),
    ] = None,
    data: Annotated[
        str | None,
        chosen(
            "data",
            "Data set",
            "; or your own: a csv, tsv, parquet or npz file, a folder of images or arrays or one saved by datasets, "
            "or package.module:factory",
        ),
    ] = None,
    target: Annotated[
        str | None,
        what(help="Column of a table that is to be predicted (data.target).", show_default="found"),
    ] = None,
    data_root: Annotated[
        Path | None, what(help="Folder that holds the data.", show_default="the variable BAYESIFY_DATA")
    ] = None,
    likelihood: Annotated[str | None, chosen("likelihoods", "Likelihood", show_default=USUAL)] = None,
    label_smoothing: Annotated[
        float | None,
        what(help="Share of every label spread over all classes in training (likelihood.label_smoothing)."),
    ] = None,
    set_: Annotated[
        list[str] | None,
        what(
            "--set",
            metavar="TABLE.OPTION=VALUE",
            help="Any option of the method, net, data or likelihood, e.g. method.init_std=0.1, "
            "net.hidden=64,64, method.prior.std=0.3. May be repeated.",
        ),
    ] = None,
    config: Annotated[
        Path | None,
        what(
            help="A .toml or .json file with the tables train, method, net, data; flags override it. "
            "The config.json of another run repeats that run."
        ),
    ] = None,
    folder: Annotated[
        Path | None,
        files(
            help="Folder of this run: config.json, metrics.csv, checkpoints/, model.safetensors, "
            "best.safetensors, summary.json.",
            show_default="in runs/, named after what is trained",
        ),
    ] = None,
    resume: Annotated[
        bool,
        files(
            "--resume",
            help="Go on with the run in the folder, exactly where it stopped. Everything comes from its "
            "config.json; only --epochs may be raised, and --data-root may have moved.",
        ),
    ] = False,
    data_changed: Annotated[
        bool,
        files(
            "--data-changed",
            help="With --resume: go on although the data are others than those of the run, which is refused without; "
            "--data and its options may be others, too. config.json is written anew.",
        ),
    ] = False,
    trust: Trust = False,
    dry_run: Annotated[bool, files("--dry-run", help="Only say what would run; write nothing.")] = False,
    **options: Any,
) -> None:
    """Train a network by a method on a data set, in a folder of its own.

    A run that was interrupted goes on with --resume as if nothing had happened. At the end the test
    metrics are printed and written to summary.json.

    Example: bayesify train --method mc_vi --net mlp --data digits --epochs 20 --folder runs/first
    """
    sources = {name: getattr(context.get_parameter_source(name), "name", "") for name in context.params}
    given = {name: value for name, value in context.params.items() if sources[name] == "COMMANDLINE"}
    file = {} if config is None else from_file(config)
    here = merged(from_flags(given), from_assignments(set_ or []))
    from bayesify.cli import dry_run as dry
    from bayesify.cli.training import train as run
    from bayesify.cli.trust import check_trust

    if config is not None:
        check_trust(file, config, here, trust)
        check_machines(file.get("train", {}), config, here["train"])
    tables = merged(file, here)
    if data_changed and not resume:
        raise ValueError("--data-changed is for --resume: a run that begins takes any data; leave it out")
    where = default_folder(tables, resume) if folder is None else folder
    with nullcontext() if config is None else naming(f"--config {config}"):
        (dry.show if dry_run else run)(tables, where, resume, trust, data_changed)


def from_flags(given: dict[str, Any]) -> Tables:
    """The flags of the command line as tables."""
    tables: Tables = {key: {"name": given[key]} for key in TABLES if key in given}
    if "data_root" in given:
        tables.setdefault("data", {})["root"] = str(given["data_root"])
    if "target" in given:
        tables.setdefault("data", {})["target"] = given["target"]
    if "label_smoothing" in given:
        tables.setdefault("likelihood", {})["label_smoothing"] = given["label_smoothing"]
    tables["train"] = {name: given[name] for name in TrainTable.options() if name in given}
    return tables


def default_folder(tables: Tables, resume: bool) -> Path:
    """runs/DATA-NET-METHOD-seedSEED."""
    if resume and "net" not in tables:
        raise ValueError("--folder is missing: which run shall go on?")
    settings = Settings.of(tables)
    parts = (Path(settings.data["name"]).stem, settings.net["name"], settings.method["name"])
    name = "-".join(re.sub(r"[^\w.]+", "_", part) for part in parts)
    return Path("runs") / f"{name}-seed{settings.train.seed}"
