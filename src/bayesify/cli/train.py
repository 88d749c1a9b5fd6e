"""`bayesify train`: train a network by a method on a data set, in a folder of its own."""

import re
from pathlib import Path
from typing import Annotated, Any

import typer

from bayesify.cli.flags import with_flags
from bayesify.cli.options import TrainTable
from bayesify.cli.settings import Settings, Tables, from_assignments, from_file, merged
from bayesify.cli.show import completing
from bayesify.engine.options import FILES

WHAT = "What to train"


@with_flags(TrainTable)
def train(
    context: typer.Context,
    method: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=WHAT,
            autocompletion=completing("methods"),
            help="Method, see `bayesify show methods`.",
        ),
    ] = None,
    net: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=WHAT,
            autocompletion=completing("nets"),
            help="Network, see `bayesify show nets`; or your own as package.module:factory, found from the "
            "current folder; or transformers:TYPE, e.g. transformers:vit.",
        ),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=WHAT,
            autocompletion=completing("data"),
            help="Data set, see `bayesify show data`.",
        ),
    ] = None,
    data_root: Annotated[
        Path | None,
        typer.Option(
            rich_help_panel=WHAT,
            help="Folder that holds the data.",
            show_default="the variable BAYESIFY_DATA",
        ),
    ] = None,
    likelihood: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=WHAT,
            autocompletion=completing("likelihoods"),
            help="Likelihood, see `bayesify show likelihoods`.",
            show_default="categorical for classes, normal with a learned std for numbers",
        ),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="TABLE.OPTION=VALUE",
            rich_help_panel=WHAT,
            help="Any option of the method, net, data or likelihood, e.g. method.init_std=0.1, "
            "net.hidden=64,64, method.prior.std=0.3. May be repeated.",
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            rich_help_panel=WHAT,
            help="A .toml or .json file with the tables train, method, net, data; flags override it. "
            "The config.json of another run repeats that run.",
        ),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(
            rich_help_panel=FILES,
            help="Folder of this run: config.json, metrics.csv, checkpoints/, model.safetensors, "
            "best.safetensors, summary.json.",
            show_default="in runs/, named after what is trained",
        ),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            rich_help_panel=FILES,
            help="Go on with the run in the folder, exactly where it stopped. Everything comes from its "
            "config.json; only --epochs may be raised, and --data-root may have moved.",
        ),
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", rich_help_panel=FILES, help="Only say what would run; write nothing."),
    ] = False,
    **options: Any,
) -> None:
    """Train a network by a method on a data set, in a folder of its own.

    A run that was interrupted goes on with --resume as if nothing had happened. At the end the test
    metrics are printed and written to summary.json.

    Example: bayesify train --method mc_vi --net mlp --data digits --epochs 20 --folder runs/first
    """
    given = {
        name: value
        for name, value in context.params.items()
        if getattr(context.get_parameter_source(name), "name", "") == "COMMANDLINE"
    }
    file = {} if config is None else from_file(config)
    tables = merged(file, from_flags(given), from_assignments(set_ or []))
    from bayesify.cli import dry_run as dry
    from bayesify.cli.training import train as run

    where = default_folder(tables, resume) if folder is None else folder
    (dry.show if dry_run else run)(tables, where, resume)


def from_flags(given: dict[str, Any]) -> Tables:
    """The flags of the command line as tables."""
    tables: Tables = {}
    for flag in ("method", "net", "data", "likelihood"):
        if flag in given:
            tables[flag] = {"name": given[flag]}
    if "data_root" in given:
        tables.setdefault("data", {})["root"] = str(given["data_root"])
    tables["train"] = {name: given[name] for name in TrainTable.options() if name in given}
    return tables


def default_folder(tables: Tables, resume: bool) -> Path:
    """runs/DATA-NET-METHOD-seedSEED."""
    if resume and "net" not in tables:
        raise ValueError("--folder is missing: which run shall go on?")
    settings = Settings.of(tables)
    parts = (settings.data["name"], settings.net["name"], settings.method["name"])
    name = "-".join(re.sub(r"[^\w.]+", "_", part) for part in parts)
    return Path("runs") / f"{name}-seed{settings.train.seed}"
