"""`bayesify train --dry-run`: what would run, without writing anything."""

from pathlib import Path

import torch

import bayesify as bf
from bayesify.cli.options import TrainTable
from bayesify.cli.record import CONFIG, holds_a_run
from bayesify.cli.settings import Settings, Tables
from bayesify.cli.terminal import counted, facts_table, output, size
from bayesify.cli.training import Prepared, prepare, prepare_resumed
from bayesify.engine.optimizers import make_optimizer


def show(tables: Tables, folder: Path, resume: bool, trust: bool = False, data_changed: bool = False) -> None:
    """Prepare the run as `train` would, and print it."""
    going_on = resume and (folder / CONFIG).exists()
    prepared = (
        prepare_resumed(folder, tables, trust, data_changed) if going_on else prepare(Settings.of(tables))
    )
    s, o = prepared.settings, prepared.settings.train
    counts, ds = prepared.model.summary(), prepared.data
    steps = -(-len(prepared.train) // o.accumulate)
    batch = f"{o.batch_size}" + f" × {prepared.train.world_size} processes" * (prepared.train.world_size > 1)
    state = "goes on" if going_on else "holds a run already" if holds_a_run(folder) else "new"
    val = 0 if ds.val is None else len(ds.val)
    epochs, apart = counted(o.epochs or 0, "epoch"), "trained apart, each by its share of the processes"
    rows = [
        ("method", options_line(s.method)),
        ("network", options_line(s.net)),
        ("data", f"{ds.name}: {len(ds.train):,} train, {val:,} validation, {len(ds.test):,} test examples"),
        ("likelihood", options_line(s.likelihood)),
        ("parameters", f"{counts.num_parameters:,} in the network, {counts.num_random:,} of them random"),
        ("in all", f"{counts.num_total:,} parameters (+{counts.overhead:.2f} %)"),
        ("steps", f"{steps:,} per epoch, {steps * (o.epochs or 0):,} in {epochs} of batch size {batch}"),
        *([("training", prepared.recipe)] if prepared.recipe else []),
        *([("members", apart)] if o.members_in_parallel else []),
        ("memory", memory_line(prepared)),
        ("device", prepared.config["device"]),
        ("folder", f"{folder} ({state})"),
        *(("note", text) for text in counts.notes),
    ]
    output().print(facts_table("What would run (nothing was written)", rows))


def options_line(table: dict[str, object]) -> str:
    """ "mc_vi (family=normal, …)" ."""
    options = ", ".join(f"{key}={_short(value)}" for key, value in table.items() if key != "name")
    return f"{table['name']} ({options})" if options else str(table["name"])


def _short(value: object) -> str:
    if isinstance(value, dict):
        return options_line(value) if "name" in value else str(value)
    return str(value)


def memory_line(prepared: Prepared) -> str:
    """Parameters, gradients and optimiser state; what the network computes on the way is not known."""
    model = prepared.model
    trained = [p for p in model.parameters() if p.requires_grad]
    stored = sum(t.nbytes for t in (*model.parameters(), *model.buffers()))
    gradients = sum(p.nbytes for p in trained)
    state = int(gradients * state_per_parameter(model, prepared.settings.train))
    return (
        f"about {size(stored + gradients + state)} ({size(stored)} parameters, {size(gradients)} gradients, "
        f"{size(state)} optimiser state); an estimate without activations"
    )


def state_per_parameter(model: bf.BayesianModule, options: TrainTable) -> float:
    """How many numbers the optimiser keeps per parameter, seen on a step of the smallest one."""
    optimizer = make_optimizer(model, options)
    smallest = min((p for g in optimizer.param_groups for p in g["params"]), key=torch.Tensor.numel)
    smallest.grad = torch.zeros_like(smallest)
    optimizer.step()
    tensors = (v for v in optimizer.state[smallest].values() if isinstance(v, torch.Tensor))
    return sum(v.numel() for v in tensors if v.shape == smallest.shape) / smallest.numel()
