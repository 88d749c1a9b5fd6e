"""Every way by which bytes from outside come in: a sound sample, what reads it, and what may be spoiled there."""

import json
import shutil
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import data_files
import mutators
import numpy as np
import torch
from cli_runs import invoke
from torch import nn
from training_job import data, loader

import bayesify as bf
from bayesify.cli.inputs import read_examples
from bayesify.cli.run import Run
from bayesify.cli.settings import from_file
from bayesify.data import Loader
from bayesify.studies.suites import read_evaluation


class CommandFailed(ValueError):
    """A command that ended with its one line on stderr."""


@dataclass(frozen=True)
class Door:
    """One format.

    make:    writes a sound sample into an empty folder
    read:    what a user gets from the folder, to be compared; the generator chooses one of several `ways` in
    spoil:   the files that are spoiled (a pattern), each with the sealed mutations that suit it
    checked: does the format have checksums? Without them other values may come back, as long as they can be ones
    """

    make: Callable[[Path], object]
    read: Callable[[Path, mutators.Rng], Any]
    spoil: dict[str, tuple[Callable[[Path, mutators.Rng], str], ...]]
    checked: bool = True
    ways: int = 1
    expected: tuple[type[Exception], ...] = (ValueError, OSError)


# -- models, draws, checkpoints ---------------------------------------------------------------------------
def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2))


def chain() -> bf.BayesianModule:
    return bf.bayesify(net(), bf.ThermostatMCMC(burn_in=0, every=5, num_kept=3), num_data=200)


def quick(
    model: bf.BayesianModule, folder: Path | None = None, epochs: int = 1, **options: Any
) -> bf.History:
    options = {"progress": False, "seed": 0, "lr": 1e-3, "folder": folder, **options}
    return bf.fit(model, loader("own"), epochs=epochs, **options)


def _vi(folder: Path) -> None:
    model = bf.bayesify(net(), bf.MonteCarloVI(), num_data=200)
    bf.calibrate(model, [(x, y) for x, y in Loader(data().test, 40)])
    bf.conformal(model, [(x, y) for x, y in Loader(data().test, 40)])
    bf.save(model, folder / "model.safetensors")


def _chain(folder: Path) -> None:
    model = chain()
    quick(model, folder)
    bf.save(model, folder / "model.safetensors")


def _pruned(folder: Path) -> None:
    model = bf.bayesify(net(), bf.Point(), bf.likelihood("normal", learn_std=True), num_data=200)
    with torch.no_grad():
        model.net[0].weight[:6] = 0
    bf.save(model, folder / "model.safetensors")


def _ensemble(folder: Path) -> None:
    model = bf.bayesify(net(), bf.DeepEnsemble(bf.DensityPropagation(), 2), num_data=200)
    bf.save(model, folder / "model.safetensors")


def normed() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))


#: methods whose files say more than weights: a curvature, iterates, components, masks, priors of one's own
OTHERS: dict[str, Callable[[], Any]] = {
    "kron": lambda: bf.Laplace("kron", prior_precision=1.0),
    "full": lambda: bf.Laplace("full", prior_precision=1.0, linearised=False),
    "diag": lambda: bf.Laplace("diag", prior_precision=1.0, per_layer=False),
    "swag": lambda: bf.SWAG(burn_in=2, every=1, rank=3, num_settled=3),
    "ivon": bf.IVON,
    "emp": bf.EnsemblePatching,
    "ecmp": lambda: bf.EnsemblePatching(assignment="element"),
    "dropout": lambda: bf.MCDropout(0.2),
    "variance": bf.VarianceNetwork,
    "per_layer": lambda: bf.MonteCarloVI(
        prior=bf.prior("per_layer", rules={"weight$": bf.prior("student_t", df=3.0)}, default="laplace")
    ),
    "around": lambda: bf.MonteCarloVI(prior=bf.prior("normal", mean="net", std=0.5)),
    "several": lambda: bf.DeepEnsemble(bf.Laplace("kron", prior_precision=1.0), 2),
}


def _others(folder: Path) -> None:
    for name, method in OTHERS.items():
        model = bf.bayesify(normed(), method(), num_data=200)
        quick(model, epochs=1)
        bf.save(model, folder / f"{name}.safetensors")


def read_others(folder: Path, rng: mutators.Rng) -> Any:
    """Those that were touched: the others are what they were."""
    return [_predicted(bf.load(folder / f"{name}.safetensors", normed())) for name in OTHERS]


def _predicted(model: bf.BayesianModule) -> Any:
    try:
        p = model.eval().predict(data().test.inputs[:5], 3, generator=torch.Generator().manual_seed(0))
    except ValueError as error:  # what loads and does not fit the outputs is named by its setting
        if "class_dim=" in str(error):
            raise ValueError("model.safetensors: class_dim") from error
        raise
    return {"mean": p.mean, "std": p.spread, **model.state_dict()}


def read_model(folder: Path, rng: mutators.Rng) -> Any:
    return _predicted(bf.load(folder / "model.safetensors", net()))


def read_draws(folder: Path, rng: mutators.Rng) -> Any:
    model = chain()
    model.posterior.add_folder(folder / "draws")
    return _predicted(model)


def _checkpoints(folder: Path) -> None:
    """Of a run of three epochs that ended after the second."""
    model = bf.bayesify(net(), bf.MonteCarloVI(), num_data=200)
    quick(model, folder, 3, schedule="cosine", ema=0.9, keep_last=3)
    max((folder / "checkpoints").iterdir()).unlink()


def resume(folder: Path, rng: mutators.Rng) -> Any:
    model = bf.bayesify(net(), bf.MonteCarloVI(), num_data=200)
    history = quick(model, folder, 3, schedule="cosine", ema=0.9)
    return [row["loss"] for row in history], model.state_dict()


def _sampling(folder: Path) -> None:
    quick(chain(), folder, 2)


def resume_chain(folder: Path, rng: mutators.Rng) -> Any:
    model = chain()
    history = quick(model, folder, 3)
    return [row["loss"] for row in history], _predicted(model)


def crowded() -> bf.BayesianModule:
    """More weights than examples: a cold chain, which goes on from a plain network."""
    torch.manual_seed(0)
    wide = nn.Sequential(nn.Linear(6, 30), nn.ReLU(), nn.Linear(30, 2))
    return bf.bayesify(wide, bf.ThermostatMCMC(num_kept=3), num_data=200)


def _plain_first(folder: Path) -> None:
    """Two epochs of a plain network and one of a chain, with a checkpoint after each; the last epoch is to come."""
    quick(crowded(), folder, 4, lr=None, plain_first=0.5, keep_last=4)
    max((folder / "checkpoints").iterdir()).unlink()


def resume_plain_first(folder: Path, rng: mutators.Rng) -> Any:
    model = crowded()
    history = quick(model, folder, 4, lr=None, plain_first=0.5)
    return [row["loss"] for row in history], _predicted(model)


# -- run folders ------------------------------------------------------------------------------------------
def _command(*arguments: object) -> str:
    result = invoke(*arguments)
    text = result.stdout + result.stderr
    if set("\x1b\x07\x9b\u202e") & set(text):
        raise AssertionError("control characters reach the terminal")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    for line in result.stderr.splitlines():
        if line.startswith("warning: "):
            warnings.warn(line)
    if result.exit_code:
        raise CommandFailed(result.stderr)
    return result.stdout


@cache
def _trained() -> Path:
    """A run of the command line, with everything in its folder."""
    folder = Path(mkdtemp(prefix="fuzz-")) / "run"
    options = ("--net", "mlp", "--data", "two_moons", "--set", "net.hidden=8", "--epochs", "1")
    _command("train", "--method", "atmc", *options, "--folder", folder, "--record", "--seed", 0)
    _command("evaluate", folder, "--suite", "calibration", "--num-draws", 3)
    np.save(folder / "x.npy", np.zeros((2, 2), np.float32))
    return folder


def _run(folder: Path) -> None:
    shutil.copytree(_trained(), folder, dirs_exist_ok=True)


WAYS = 6


def read_run(folder: Path, rng: mutators.Rng) -> Any:
    """By one of the commands; those that train only say what they would do: with `devices` they start processes."""
    ways = (
        ("show", folder),
        ("predict", folder, folder / "x.npy", "--num-draws", 3),
        ("evaluate", folder, "--num-draws", 3),
        ("report", folder, "--page", folder / "report.html"),
        ("train", "--resume", "--folder", folder, "--dry-run"),
        ("train", "--config", folder / "config.json", "--folder", folder / "new", "--dry-run"),
    )
    way = ways[rng.randrange(WAYS)]
    return way[0], _command(*way).replace(str(folder), "RUN")


def read_config(folder: Path, rng: mutators.Rng) -> Any:
    return from_file(folder / "config.toml")


def _toml(folder: Path) -> None:
    tables = ("[train]", "epochs = 2", "[method]", 'name = "mc_vi"', "[net]", 'name = "mlp"', "hidden = [8]")
    (folder / "config.toml").write_text("\n".join((*tables, "[data]", 'name = "digits"')))


def read_stored_evaluation(folder: Path, rng: mutators.Rng) -> Any:
    found = read_evaluation(folder)
    if found is None:
        raise FileNotFoundError(f"{folder} was not evaluated")
    return [found.facts, {name: [o.metrics, o.arrays] for name, o in found.outcomes.items()}]


def read_history(folder: Path, rng: mutators.Rng) -> Any:
    run = Run.at(folder)
    return [*run.history()], run.last_metrics(), run.summary()


# -- data -------------------------------------------------------------------------------------------------
def data_door(name: str, pattern: str, *sealed: Callable[[Path, mutators.Rng], str]) -> Door:
    """A data set that is read from files."""

    def read(folder: Path, rng: mutators.Rng) -> Any:
        found = bf.data.load(name, folder)
        return [[split.inputs[:4], split.targets] for split in (found.train, found.test)]

    make = partial(_idx, suffix="") if name == "mnist" else data_files.WRITERS[name]
    return Door(make, read, {pattern: sealed}, checked=False)


def _idx(folder: Path, suffix: str) -> None:
    data_files.write_mnist(folder / "MNIST/raw", suffix)


def _cifar_python(folder: Path) -> None:
    (folder / "cifar-100-python").mkdir()
    pixels, labels = data_files.images(20, 3, 32, 32).reshape(20, -1), [*range(20)]
    batch = data_files.python2_batch(pixels, fine_labels=labels, coarse_labels=labels)
    for part in ("train", "test"):
        (folder / "cifar-100-python" / part).write_bytes(batch)


def _examples(folder: Path) -> None:
    np.save(folder / "x.npy", np.zeros((2, 1, 8, 8), np.float32))
    np.savez(folder / "x.npz", x=np.zeros((2, 1, 8, 8), np.uint8))
    for name in ("x.png", "x.jpg", "x.gif", "x.bmp"):
        data_files.write_image(folder / name, 30, 40, (200, 0, 0))


def read_own_files(folder: Path, rng: mutators.Rng) -> Any:
    """As `bayesify predict` does; its errors are printed behind the file's name."""
    task = {"input_shape": [1, 8, 8], "inputs": "bytes"}
    found = []
    for path in sorted(folder.iterdir()):
        try:
            found.append(read_examples(path, task, {"name": "digits"}))
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error
    return found


MODEL = (mutators.sealed_header, mutators.sealed_header, mutators.sealed_tensors)
JSON = (mutators.sealed_text,)
DOORS: dict[str, Door] = {
    "model": Door(_vi, read_model, {"model.safetensors": MODEL}),
    "model of a chain": Door(_chain, read_model, {"model.safetensors": MODEL}),
    "pruned model": Door(_pruned, read_model, {"model.safetensors": MODEL}),
    "model of an ensemble": Door(_ensemble, read_model, {"model.safetensors": MODEL}),
    "models of other methods": Door(_others, read_others, {f"{name}.safetensors": MODEL for name in OTHERS}),
    "draws": Door(_chain, read_draws, {"draws/*.safetensors": MODEL, "draws/index.json": JSON}),
    "checkpoint": Door(_checkpoints, resume, {"checkpoints/*": MODEL}),
    "checkpoint of a chain": Door(
        _sampling, resume_chain, {"checkpoints/*": MODEL, "draws/*.safetensors": ()}
    ),
    "plain network, chain": Door(
        _plain_first, resume_plain_first, {"checkpoints/*": MODEL, "draws/*.safetensors": ()}
    ),
    "config.json": Door(_run, read_run, {"config.json": JSON}, ways=WAYS),
    "run folder": Door(
        _run,
        read_run,
        {
            "*.json": JSON,
            "*.npz": (mutators.sealed_npz,),
            "*.safetensors": MODEL,
            "metrics.csv": (),
            "checkpoints/*": MODEL,
        },
        ways=WAYS,
    ),
    "metrics.csv": Door(_run, read_history, {"metrics.csv": (), "summary.json": JSON}, checked=False),
    "config.toml": Door(_toml, read_config, {"config.toml": ()}, checked=False),
    "evaluation": Door(
        _run, read_stored_evaluation, {"evaluation.json": JSON, "evaluation.npz": (mutators.sealed_npz,)}
    ),
    "idx": data_door("mnist", "MNIST/raw/*"),
    "idx, packed": data_door("fashion_mnist", "FashionMNIST/raw/*"),
    "cifar binary": data_door("cifar10", "cifar-10-batches-bin/*"),
    "cifar python": Door(_cifar_python, data_door("cifar100", "").read, {"*/*": ()}, checked=False),
    "svhn": data_door("svhn", "svhn/*"),
    "uci npz": data_door("uci_boston", "uci/*", mutators.sealed_npz),
    "medmnist npz": data_door("adrenalmnist3d", "medmnist/*", mutators.sealed_npz),
    "image folder": data_door("image_folder", "*/*/*"),
    "own files": Door(_examples, read_own_files, {"*": ()}, checked=False),
}


def same(a: Any, b: Any) -> bool:
    """Two results, bit for bit."""
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return a.shape == b.shape and a.dtype == b.dtype and torch.equal(a.nan_to_num(), b.nan_to_num())
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return a.dtype == b.dtype and np.array_equal(a, b, equal_nan=a.dtype.kind == "f")
    if isinstance(a, dict) and isinstance(b, dict):
        return [*a] == [*b] and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b or json.dumps(a, default=repr) == json.dumps(b, default=repr)
