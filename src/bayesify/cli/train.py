"""`bayesify train`: train a network by a method on a data set, in a folder of its own."""

import re
from pathlib import Path
from typing import Annotated, Any

import typer

from bayesify.cli.options import TrainOptions
from bayesify.cli.settings import Settings, Tables, from_assignments, from_file, merged
from bayesify.cli.show import completing

WHAT, HOW, VALIDATION, WHERE, FILES = "What to train", "How to train", "Validation", "Where to run", "Files"
D = TrainOptions()


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
    checkpoint_every: Annotated[
        int | None,
        typer.Option(
            min=1,
            rich_help_panel=FILES,
            help="Steps between checkpoints.",
            show_default="one after each epoch",
        ),
    ] = D.checkpoint_every,
    keep_last: Annotated[
        int, typer.Option(min=1, rich_help_panel=FILES, help="Checkpoints to keep.")
    ] = D.keep_last,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", rich_help_panel=FILES, help="Write TensorBoard files as well.")
    ] = D.tensorboard,
    record: Annotated[
        bool,
        typer.Option(
            "--record",
            rich_help_panel=FILES,
            help="Write down what the method's diagnostics see in each epoch, for `bayesify report`: the phase "
            "transition of a variance network, temperature and thermostat of a sampler.",
        ),
    ] = D.record,
    epochs: Annotated[
        int, typer.Option(min=1, rich_help_panel=HOW, help="Passes over the training data.")
    ] = D.epochs,
    seed: Annotated[
        int,
        typer.Option(rich_help_panel=HOW, help="Seed of the weights, the order of the data and the draws."),
    ] = D.seed,
    batch_size: Annotated[
        int, typer.Option(min=1, rich_help_panel=HOW, help="Examples in a batch (of each device).")
    ] = D.batch_size,
    lr: Annotated[
        float | None,
        typer.Option(rich_help_panel=HOW, help="Learning rate.", show_default="0.001, or the sampler's own"),
    ] = D.lr,
    schedule: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=HOW,
            autocompletion=completing("schedules"),
            help="Course of the learning rate: cosine, linear or onecycle.",
            show_default="constant, or the method's cycle",
        ),
    ] = D.schedule,
    num_draws: Annotated[
        int, typer.Option(min=1, rich_help_panel=HOW, help="Draws of the weights averaged in each loss.")
    ] = D.num_draws,
    kl_warmup: Annotated[
        float, typer.Option(min=0, rich_help_panel=HOW, help="Epochs over which the KL weight rises from 0.")
    ] = D.kl_warmup,
    accumulate: Annotated[
        int, typer.Option(min=1, rich_help_panel=HOW, help="Batches whose gradients make one step.")
    ] = D.accumulate,
    clip_norm: Annotated[
        float | None,
        typer.Option(rich_help_panel=HOW, help="Largest norm of a gradient.", show_default="no limit"),
    ] = D.clip_norm,
    ema: Annotated[
        float | None,
        typer.Option(
            rich_help_panel=HOW,
            help="Decay of a moving average of the parameters, e.g. 0.999, which becomes the model.",
            show_default="off",
        ),
    ] = D.ema,
    augment: Annotated[
        bool, typer.Option(rich_help_panel=HOW, help="Random crops and flips, where the data set has them.")
    ] = D.augment,
    val_fraction: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            rich_help_panel=VALIDATION,
            help="Share of the training examples kept for validation; 0 for none.",
            show_default="0.1, or the data set's own validation part",
        ),
    ] = D.val_fraction,
    val_draws: Annotated[
        int, typer.Option(min=1, rich_help_panel=VALIDATION, help="Draws averaged in validation and test.")
    ] = D.val_draws,
    patience: Annotated[
        int | None,
        typer.Option(
            min=1,
            rich_help_panel=VALIDATION,
            help="Stop after this many epochs without a better validation.",
            show_default="never",
        ),
    ] = D.patience,
    accelerator: Annotated[
        str, typer.Option(rich_help_panel=WHERE, help="auto, cpu, cuda or mps.")
    ] = D.accelerator,
    devices: Annotated[
        str, typer.Option(rich_help_panel=WHERE, help="How many devices, or auto for all of them.")
    ] = str(D.devices),
    num_nodes: Annotated[int, typer.Option(min=1, rich_help_panel=WHERE, help="Machines.")] = D.num_nodes,
    strategy: Annotated[
        str, typer.Option(rich_help_panel=WHERE, help="Over several devices: ddp, fsdp or auto.")
    ] = D.strategy,
    members_in_parallel: Annotated[
        bool,
        typer.Option(
            "--members-in-parallel",
            rich_help_panel=WHERE,
            help="Train the members of a deep ensemble apart, each by a share of the processes that torchrun "
            "started (torchrun --nproc-per-node=4 -m bayesify.cli train …), and merge them at the end.",
        ),
    ] = D.members_in_parallel,
    precision: Annotated[
        str, typer.Option(rich_help_panel=WHERE, help="32-true, bf16-mixed, bf16-true or 64-true.")
    ] = D.precision,
    compile: Annotated[
        bool | None,
        typer.Option(
            "--compile/--no-compile",
            rich_help_panel=WHERE,
            help="Compile the network with torch.compile.",
            show_default="when it pays",
        ),
    ] = None,
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
    tables["train"] = {name: value for name, value in given.items() if hasattr(D, name)}
    devices = tables["train"].get("devices", "")
    if devices.isdigit():
        tables["train"]["devices"] = int(devices)
    return tables


def default_folder(tables: Tables, resume: bool) -> Path:
    if resume and "net" not in tables:
        raise ValueError("--folder is missing: which run shall go on?")
    settings = Settings.of(tables)
    parts = (settings.data["name"], settings.net["name"], settings.method["name"])
    name = "-".join(re.sub(r"[^\w.]+", "_", part) for part in parts)
    return Path("runs") / f"{name}-seed{settings.train.seed}"
