"""One training run: prepare, train in its folder, test, and write down what came out."""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

import bayesify as bf
from bayesify.atomic import sealed_json, write_json
from bayesify.checks import naming
from bayesify.cli import build
from bayesify.cli.errors import EXPECTED, RunFailed, describe
from bayesify.cli.options import TrainTable
from bayesify.cli.record import CONFIG, SUMMARY, config_of, data_facts, holds_a_run, read_config, versions
from bayesify.cli.recording import recording
from bayesify.cli.run import Run
from bayesify.cli.settings import (
    Settings,
    Tables,
    check_machines,
    contradictions,
    merged,
    tables_of_run,
)
from bayesify.cli.terminal import counted, metrics_table, note, output
from bayesify.cli.trust import check_trust
from bayesify.cli.units import evaluate
from bayesify.data import DataSet, Loader
from bayesify.engine import fit_members
from bayesify.engine.folder import RunFolder
from bayesify.engine.groups import World
from bayesify.engine.members import number_of_groups
from bayesify.engine.optimizers import USUAL_LR
from bayesify.engine.randomness import seed_everything
from bayesify.engine.resume_checks import NO_FINGERPRINT, check_same_data
from bayesify.engine.sampling_check import acting
from bayesify.engine.settling import settled
from bayesify.engine.setup import number_of_processes
from bayesify.likelihoods import LIKELIHOODS
from bayesify.methods import DeepEnsemble, Method
from bayesify.model.bayesian_module import PRETRAINED
from bayesify.predict.prediction import shares

EXAMPLES = 8  # of the batch that is tried before anything is written


@dataclass(frozen=True)
class Prepared:
    """Everything a run needs, checked against each other; nothing is written yet."""

    settings: Settings  # with every option filled in
    data: DataSet
    model: bf.BayesianModule
    make: Callable[[Method], bf.BayesianModule]  # another one by another method
    train: Loader
    val: Loader | None
    device: torch.device
    config: dict[str, Any]
    recipe: str | None  # what it chose, in words


def prepare(settings: Settings) -> Prepared:
    """Load the data, make the network Bayesian, and try both on a few examples."""
    o = settings.train
    device = build.choose_device(o.accelerator)
    method = build.full_method(settings.method)
    ds = build.with_validation(build.load_data(build.full_data(settings.data)), o.val_fraction)
    likelihood = build.full_likelihood(settings.likelihood, ds.task)
    kind = LIKELIHOODS[likelihood["name"]]
    outputs = kind.num_outputs(ds.num_outputs)
    if kind.is_discrete or kind.has_flags:  # whole numbers stay what they are
        plain = replace(ds.normalisation, target_mean=None, target_std=None)
        ds = replace(ds, normalisation=plain)
    if o.patience is not None and ds.val is None:
        raise ValueError(f"--patience {o.patience} needs a validation part: give --val-fraction")
    if o.calibrate and ds.val is None:
        raise ValueError("--calibrate needs a validation part: give --val-fraction")
    if o.members_in_parallel and method["name"] != DeepEnsemble.name:
        raise ValueError(f"--members-in-parallel needs --method {DeepEnsemble.name}, not {method['name']}")
    net = build.full_net(settings.net)
    if o.start == PRETRAINED and net["name"] in bf.nets.NETS:
        raise ValueError(
            f"--start pretrained: --net {net['name']} begins with random weights. Give a network of your own that "
            f"has its weights, --net package.module:factory, or leave --start out"
        )
    few = ds.train.take(torch.arange(min(EXAMPLES, len(ds.train))))
    x, y = next(iter(Loader(few, EXAMPLES, normalise=ds.normalisation)))

    def network() -> nn.Module:
        return build.build_net(net, outputs, ds.input_shape)

    def convert(plain: nn.Module, by: Method) -> bf.BayesianModule:
        return bf.bayesify(
            plain, by, build.build_likelihood(likelihood), len(ds.train), example=x, start=o.start
        )

    seed_everything(o.seed)
    made = network()
    try:
        model = _try(convert(made, build.build_method(method)), x, y)
    except (RuntimeError, IndexError, TypeError) as error:
        shape = "×".join(map(str, ds.input_shape))
        raise ValueError(
            f"net={net['name']!r} does not fit data={ds.name!r} (inputs {shape}): {describe(error)}"
        ) from error
    augment = ds.augment if o.augment else "none"
    options: dict[str, Any] = {"device": device, "normalise": ds.normalisation}
    processes = _processes(o, model.method)
    train = Loader(
        ds.train, o.batch_size, shuffle=True, seed=o.seed, augment=augment, world_size=processes, **options
    )
    steps = -(-len(train) // o.accumulate)
    o, chosen = settled(o, model, train, steps, processes, trains=o.start != PRETRAINED)
    usual = model.method.default_lr(model) if o.optimizer is None else USUAL_LR[o.optimizer]
    o = replace(o, lr=usual) if o.lr is None else o
    full = Settings(o, build.decided(method, model.method), net, build.full_data(settings.data), likelihood)
    val = None if ds.val is None else Loader(ds.val, o.batch_size, **options)
    config = config_of(full.tables(), ds, outputs, device)
    return Prepared(full, ds, model, lambda by: convert(network(), by), train, val, device, config, chosen)


def _processes(o: TrainTable, method: Method) -> int:
    """That a network is trained by, which the recipe goes by and `bf.fit` gives their shares of a batch."""
    if o.members_in_parallel:
        assert isinstance(method, DeepEnsemble)
        return World.here().size // number_of_groups(method.num_members)
    return number_of_processes(o.accelerator, o.devices, o.num_nodes)


def _try(model: bf.BayesianModule, x: torch.Tensor, y: torch.Tensor) -> bf.BayesianModule:
    """The model after one loss in eval mode, which changes nothing: do network and data fit?"""
    model.eval()
    with torch.no_grad():
        model.loss(x, y)
    return model.train()


def prepare_resumed(folder: Path, given: Tables, trust: bool, data_changed: bool) -> Prepared:
    """The run in `folder` again, with the data that it had, or with others on purpose."""
    config = read_config(folder)
    with naming(folder / CONFIG):
        prepared = prepare(go_on(folder, given, trust, data_changed))
    if "fingerprint" not in config:
        note(NO_FINGERPRINT, "yellow")
    check_same_data(data_facts(config), data_facts(prepared.config), folder, data_changed)
    return prepared


def go_on(folder: Path, given: Tables, trust: bool = False, data_changed: bool = False) -> Settings:
    """The settings of the run in `folder`; only `epochs` may grow, the data may have moved (be others, with
    `data_changed`), and what to do about a sampler that does not sample may be another."""
    config = read_config(folder)
    check_trust(config, folder / CONFIG, given, trust, config.get("modules_from"))
    check_machines(config["train"], folder / CONFIG, given.get("train", {}))
    stored = Settings.of(tables_of_run(config)).tables()
    given = {key: dict(value) for key, value in given.items()}
    data = given.get("data", {})
    moved = given.pop("data", {}) if data_changed else {"root": data.pop("root")} if "root" in data else {}
    epochs = given.get("train", {}).pop("epochs", None)
    action = given.get("train", {}).pop("on_bad_sampling", stored["train"]["on_bad_sampling"])
    before = stored["train"]["epochs"]
    found = contradictions(stored, given)
    if None not in (epochs, before) and epochs < before:
        found.append(f"train.epochs is {epochs} here and {before} in the run, and can only grow")
    if found:
        raise ValueError(
            f"{folder / CONFIG} disagrees: {'; '.join(found)}. Leave that out, or start a new folder"
        )
    for package, now in versions().items():
        then = config["versions"].get(package)
        if then != now:
            began = f"the run began with {package} {then}, this is {now}"
            note(f"warning: {began}: it may go on differently", "yellow")
    changed: Tables = {"train": {"on_bad_sampling": action}}
    changed["train"] |= {} if epochs is None else {"epochs": epochs}
    changed["data"] = moved
    return Settings.of(merged(stored, changed))


def is_first_process() -> bool:
    """Is this the process that writes? Others are started by torchrun, SLURM or Fabric itself."""
    variables = ("RANK", "LOCAL_RANK", "SLURM_PROCID")
    return next((int(os.environ[v]) for v in variables if v in os.environ), 0) == 0


def _check_free(folder: Path, resume: bool) -> None:
    """Raise where a run that begins in `folder` would overwrite another."""
    found = ", ".join(holds_a_run(folder))
    if found and resume:
        raise FileExistsError(
            f"{folder} has no {CONFIG}, so no run can go on there, and one that begins would overwrite what it has: "
            f"{found}. Put {CONFIG} back, or choose another --folder"
        )
    if found:
        raise FileExistsError(
            f"{folder} holds a run already: go on with --resume, or choose another --folder (it has {found})"
        )


def train(
    tables: Tables, folder: Path, resume: bool, trust: bool = False, data_changed: bool = False
) -> None:
    """Run the command."""
    asked, resume = resume, resume and (folder / CONFIG).exists()
    first = is_first_process()
    if first and not resume:
        _check_free(folder, asked)
    before: dict[str, Any] = {}
    prepared = (
        prepare_resumed(folder, tables, trust, data_changed) if resume else prepare(Settings.of(tables))
    )
    if first:
        with RunFolder(folder, True, True):  # one owner at a time, also while config.json is written
            if not resume:
                _check_free(folder, asked)
            before = read_config(folder) if resume else {}
            kept = {} if data_changed else before
            tables = prepared.settings.tables()
            write_json(folder / CONFIG, sealed_json({**prepared.config, **kept, **tables}))
        note(f"training in {folder}")
    prepared.train.set_epoch(-1)  # `fit` sets it when the first epoch begins
    try:
        history = _fit(prepared, folder, resume, data_changed)
    except (KeyboardInterrupt, SystemExit):
        if first:
            note(f"stopped; go on with: bayesify train --resume --folder {folder}", "yellow")
        raise
    except EXPECTED as error:
        if prepared.train.epoch >= 0:
            raise RunFailed(f"{describe(error)}. The run so far is in {folder}") from error
        if first and before:  # it never began: the folder is what it was
            write_json(folder / CONFIG, sealed_json(before))
        elif first:
            (folder / CONFIG).unlink(missing_ok=True)
        raise
    if first:
        try:
            _finish(prepared, folder, history)
        except EXPECTED as error:
            raise RunFailed(f"trained, but the test failed: {describe(error)}") from error


def _fit(prepared: Prepared, folder: Path, resume: bool, data_changed: bool) -> bf.History:
    """Train the model, or its members apart from each other; the rows of all members then."""
    model, o = prepared.model, prepared.settings.train
    options: dict[str, Any] = {"folder": folder, "resume": resume, **o.for_fit()}
    options["data_changed"] = data_changed
    if o.record:
        found = recording(model, prepared.val, folder, o.lr, o.epochs or 0)
        options |= found if is_first_process() else {}
    if not o.members_in_parallel:
        return bf.fit(model, prepared.train, prepared.val, **options)
    method = model.method
    assert isinstance(method, DeepEnsemble)
    loaders, count = (prepared.train, prepared.val), method.num_members
    merged = fit_members(lambda: prepared.make(method.method), *loaders, num_members=count, **options)
    if merged is None:  # not the first process: that one has it
        return bf.History()
    history = Run.at(folder).history()
    history.notes.append(f"{counted(count, 'member')} trained apart and merged")
    return history


def _finish(prepared: Prepared, folder: Path, history: bf.History) -> None:
    """Test the model that was written, and write the summary."""
    run, o = Run.at(folder, prepared.settings.net["name"]), prepared.settings.train
    loader = run.loader(prepared.data.test, None, prepared.device)
    model = run.model("last", prepared.device)
    caution = model.posterior.caution()
    sampling = str(caution) if isinstance(caution, bf.SamplingWarning) else None
    with acting("ignore"):  # training has said it
        test = evaluate(model, loader, run.normalisation, o.val_draws)
    members, each = shares(model, o.val_draws)
    counts = prepared.model.summary()
    apart = o.members_in_parallel
    num_epochs = max(history.column("epoch")) if apart else len(history)
    summary = {
        "test": test,
        "num_draws": members * each,
        "units": "original",
        "parameters": {
            "network": counts.num_parameters,
            "random": counts.num_random,
            "total": counts.num_total,
        },
        "epochs": num_epochs,
        "best_epoch": history.best("val_nll")["epoch"] if prepared.val and history and not apart else None,
        "seconds": sum(history.column("seconds")),
        "sampling": sampling,  # what the check of the sampler found
        "notes": [text for text in (*counts.notes, *history.notes) if text != sampling],
    }
    write_json(folder / SUMMARY, sealed_json(summary))
    epochs = counted(num_epochs, "epoch")
    title = f"Test after {epochs}: {prepared.settings.method['name']} on {prepared.data.name}"
    draws = counted(members * each, "draw")
    caption = f"{draws}, {summary['seconds']:.1f} s of training; saved in {folder}"
    output().print(metrics_table(title, test, caption))
