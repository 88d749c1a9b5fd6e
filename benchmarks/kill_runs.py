"""Training that is killed (SIGKILL) at random instants and resumed until it ends, beside a run that nobody disturbed.

    python benchmarks/kill_runs.py [--kills 100] [--distributed 20] [--methods mc_vi atmc emp] [--seed 0]

The models, the draws, the history and the newest checkpoint of both must be the same bit for bit. Jobs are forked, so
that they start at once. Of two processes (DDP, gloo) the first, the second or both are killed; one that is left over
must end by itself. The exit code says whether all runs were identical.
"""

import argparse
import csv
import os
import random
import shutil
import signal
import socket
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import nn

import bayesify as bf
from bayesify.data import Loader, Split
from bayesify.engine.checkpoint import find_checkpoints, read_checkpoint
from timing import table

METHODS = {
    "mc_vi": lambda: bf.MonteCarloVI(),
    "atmc": lambda: bf.ThermostatMCMC(num_kept=10),
    "emp": lambda: bf.EnsemblePatching(num_components=3),
}
TIMING = {"seconds", "examples_per_second"}
PATIENCE = 60.0  # seconds that a process may go on after the other one was killed


def train(folder: Path | None, method: str, num_processes: int) -> None:
    """A small run: 4 epochs of 13 steps, a checkpoint after every second one."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    generator = torch.Generator().manual_seed(7)
    x = torch.randn(240, 6, generator=generator)
    y = (x[:, 0] + 0.5 * x[:, 1] ** 2 > 0.3).long()
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 12), nn.LayerNorm(12), nn.ReLU(), nn.Dropout(0.1), nn.Linear(12, 2))
    data = torch.utils.data.TensorDataset(x[:200], y[:200])
    bf.fit(
        bf.bayesify(net, METHODS[method]()),
        torch.utils.data.DataLoader(data, 16 // num_processes, shuffle=True),
        Loader(Split(x[200:], y[200:]), 40),
        epochs=4,
        lr=None if method == "atmc" else 1e-2,
        schedule=None if method == "atmc" else "cosine",
        ema=0.9 if method == "mc_vi" else None,
        folder=folder,
        checkpoint_every=2 if folder else None,
        seed=11,
        progress=False,
        accelerator="cpu",
        devices=num_processes,
        strategy="auto" if num_processes == 1 else "ddp",
    )


class Job:
    """A run in forked processes."""

    def __init__(self, folder: Path, method: str, num_processes: int) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.pids = {
            rank: self._start(folder, method, num_processes, rank, port) for rank in range(num_processes)
        }
        self.codes: dict[int, int] = {}

    def _start(self, folder: Path, method: str, num_processes: int, rank: int, port: int) -> int:
        sys.stdout.flush()
        pid = os.fork()
        if pid:
            return pid
        code = 1
        try:
            if num_processes > 1:  # as torchrun says it
                names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_PORT")
                values = (rank, rank, num_processes, num_processes, 0, port)
                os.environ |= {name: str(value) for name, value in zip(names, values, strict=True)}
                os.environ["MASTER_ADDR"] = "127.0.0.1"
            log = os.open(f"{folder}.log", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
            os.dup2(log, 1), os.dup2(log, 2)
            train(folder, method, num_processes)
            code = 0
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", flush=True)
        finally:
            os._exit(code)

    def wait(self, seconds: float) -> bool:
        """Have all processes ended within so many seconds?"""
        end = time.monotonic() + seconds
        while len(self.codes) < len(self.pids):
            for rank in self.pids.keys() - self.codes.keys():
                pid, status = os.waitpid(self.pids[rank], os.WNOHANG)
                if pid:
                    self.codes[rank] = os.waitstatus_to_exitcode(status)
            if time.monotonic() > end:
                break
            time.sleep(0.002)
        return len(self.codes) == len(self.pids)

    def kill(self, ranks: list[int]) -> None:
        for rank in ranks:
            if rank not in self.codes:
                os.kill(self.pids[rank], signal.SIGKILL)


def differences(a: Path, b: Path) -> list[str]:
    """Names of what two finished runs do not have in common."""
    files = [
        {
            str(path.relative_to(run)): path
            for path in [*run.glob("*.safetensors"), *(run / "draws").glob("*"), *run.rglob("*.partial")]
        }
        for run in (a, b)
    ]
    found = sorted(files[0].keys() ^ files[1].keys())
    found += [
        name
        for name in files[0].keys() & files[1].keys()
        if files[0][name].read_bytes() != files[1][name].read_bytes()
    ]
    if _rows(a) != _rows(b):
        found.append("metrics.csv")
    states = [read_checkpoint(find_checkpoints(run / "checkpoints")[0][1]) for run in (a, b)]
    tensors: list[dict[str, Any]] = [{}, {}]
    for state, held in zip(states, tensors, strict=True):
        _tensors(
            {name: state[name] for name in ("model", "optimizer", "schedule", "ema", "random")}, "", held
        )
    found += [
        f"checkpoint: {name}" for name in tensors[0] if not _same(tensors[0][name], tensors[1].get(name))
    ]
    return found


def _rows(run: Path) -> list[dict[str, str]]:
    with (run / "metrics.csv").open() as file:
        return [{k: v for k, v in row.items() if k not in TIMING} for row in csv.DictReader(file)]


def _tensors(value: Any, name: str, found: dict[str, Any]) -> None:
    if isinstance(value, dict):
        for key, item in value.items():
            _tensors(item, f"{name}.{key}", found)
    elif isinstance(value, list | tuple):
        for i, item in enumerate(value):
            _tensors(item, f"{name}.{i}", found)
    else:
        found[name] = value


def _same(a: Any, b: Any) -> bool:
    return torch.equal(a, b) if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) else a == b


def undisturbed(folder: Path, method: str, num_processes: int) -> float:
    """Seconds that the run takes."""
    start = time.monotonic()
    job = Job(folder, method, num_processes)
    if not job.wait(300) or any(job.codes.values()):
        raise SystemExit(f"the undisturbed run failed: {Path(f'{folder}.log').read_text()[-3000:]}")
    return time.monotonic() - start


def killed(
    folder: Path, method: str, num_processes: int, seconds: float, most: int, rng: random.Random
) -> dict[str, int]:
    """One run to its end, killed on the way, at most so many times."""
    counts = {"kills": 0, "early": 0, "hangs": 0}
    while True:
        job = Job(folder, method, num_processes)
        if counts["kills"] < most and not job.wait(rng.uniform(0, 0.6 * seconds)):
            choices = [[0]] if num_processes == 1 else [[0], [1], [0, 1]]
            job.kill(rng.choice(choices))
            counts["kills"] += 1
            counts["early"] += not find_checkpoints(folder / "checkpoints")
            if not job.wait(PATIENCE):
                counts["hangs"] += 1
                job.kill(list(job.pids))
                job.wait(10)
            continue
        if job.wait(300) and not any(job.codes.values()):
            return counts
        raise SystemExit(f"a resumed run failed: {Path(f'{folder}.log').read_text()[-3000:]}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=100, help="of single processes, over all methods")
    parser.add_argument("--distributed", type=int, default=20, help="kills of runs of two processes")
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="folder for runs that differ")
    o = parser.parse_args()
    rows, wrong = [], 0
    for method in o.methods:
        train(None, method, 1)  # what is imported here, jobs need not import
    with tempfile.TemporaryDirectory() as name:
        for num_processes, kills in ((1, o.kills), (2, o.distributed)):
            for index, method in enumerate(o.methods if kills else ()):
                wanted = kills * (index + 1) // len(o.methods) - kills * index // len(o.methods)
                whole = Path(name) / f"{method}-{num_processes}-whole"
                seconds = undisturbed(whole, method, num_processes)
                rng = random.Random(f"{o.seed} {method} {num_processes}")
                total, runs, same = {"kills": 0, "early": 0, "hangs": 0}, 0, 0
                while total["kills"] < wanted:
                    folder = Path(name) / f"{method}-{num_processes}-{runs}"
                    counts = killed(folder, method, num_processes, seconds, wanted - total["kills"], rng)
                    total = {key: total[key] + counts[key] for key in total}
                    found, runs = differences(whole, folder), runs + 1
                    same += not found
                    if found:
                        print(
                            f"{method}, {num_processes}, run {runs}, {counts['kills']} kills: {', '.join(found[:8])}"
                        )
                        if o.keep:
                            shutil.copytree(whole, o.keep / whole.name, dirs_exist_ok=True)
                            shutil.copytree(folder, o.keep / folder.name, dirs_exist_ok=True)
                    shutil.rmtree(folder)
                wrong += runs - same
                counted = [
                    str(n)
                    for n in (num_processes, total["kills"], total["early"], total["hangs"], runs, same)
                ]
                rows.append([method, *counted, f"{seconds:.1f}"])
                print(" ".join(rows[-1]), flush=True)
    head = [
        "method",
        "processes",
        "kills",
        "before a checkpoint",
        "hangs",
        "runs",
        "identical",
        "seconds undisturbed",
    ]
    table("Runs killed at random instants and resumed, against one that was not", rows, head)
    raise SystemExit(wrong > 0)


if __name__ == "__main__":
    main()
