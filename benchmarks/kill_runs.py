"""Training that is killed (SIGKILL) at random instants and resumed until it ends, beside a run that nobody disturbed.

    PYTHONPATH=src python benchmarks/kill_runs.py --jobs 16 [--kills 100] [--distributed 20] [--seconds 500]

The models, the draws, the history and the newest checkpoint of both must be the same, bit for bit. Runs are forked,
so that they start at once. Of two processes (DDP, gloo) the first, the second or both are killed; one that is left
over must end by itself. The exit code says whether all runs were identical.
"""

import argparse
import csv
import multiprocessing
import os
import random
import shutil
import signal
import socket
import sys
import tempfile
import time
import warnings
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

os.environ |= {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}  # a CUDA context does not survive a fork

import torch
from torch import nn

import bayesify as bf
from bayesify.data import Loader, Split
from bayesify.engine.checkpoint import find_checkpoints, read_checkpoint
from timing import table

METHODS = {
    "mc_vi": lambda: bf.MonteCarloVI(),
    "atmc": lambda: bf.ThermostatMCMC(num_kept=10, temperature=1.0),
    "cold_atmc": lambda: bf.ThermostatMCMC(num_kept=10),  # the default here: it goes on from a plain network
    "emp": lambda: bf.EnsemblePatching(num_components=3),
}
TIMING = {"seconds", "examples_per_second"}
EACH = 5  # kills of a share: what one process does before it takes the next
PATIENCE = 60.0  # seconds that a process may go on after the other one was killed


def train(folder: Path | None, method: str, num_processes: int) -> None:
    """A small run: 6 epochs of 13 steps, a checkpoint after every second one."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    generator = torch.Generator().manual_seed(7)
    x = torch.randn(240, 6, generator=generator)
    y = (x[:, 0] + 0.5 * x[:, 1] ** 2 > 0.3).long()
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 30), nn.LayerNorm(30), nn.ReLU(), nn.Dropout(0.1), nn.Linear(30, 2))
    data = torch.utils.data.TensorDataset(x[:200], y[:200])
    bf.fit(
        bf.bayesify(net, METHODS[method]()),
        torch.utils.data.DataLoader(data, 16 // num_processes, shuffle=True),
        Loader(Split(x[200:], y[200:]), 40),
        epochs=6,
        lr=None if "atmc" in method else 1e-2,
        schedule=None if "atmc" in method else "cosine",
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
        self.folder = folder
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


class Share(NamedTuple):
    """Some of the kills, of runs by one method in so many processes."""

    method: str
    num_processes: int
    kills: int
    number: int

    @property
    def name(self) -> str:
        return f"{self.method}-{self.num_processes}"


def undisturbed(share: Share, folder: Path) -> float:
    """Seconds that the run takes."""
    start = time.monotonic()
    job = Job(folder / share.name, share.method, share.num_processes)
    if not job.wait(300) or any(job.codes.values()):
        raise RuntimeError(f"the undisturbed run failed: {Path(f'{job.folder}.log').read_text()[-3000:]}")
    return time.monotonic() - start


def killed(folder: Path, share: Share, seconds: float, most: int, rng: random.Random) -> Counter[str]:
    """One run to its end, killed on the way, at most so many times."""
    counts = Counter(runs=1)
    while True:
        job = Job(folder, share.method, share.num_processes)
        if counts["kills"] < most and not job.wait(rng.uniform(0, 0.6 * seconds)):
            choices = [[0]] if share.num_processes == 1 else [[0], [1], [0, 1]]
            job.kill(rng.choice(choices))
            counts["kills"] += 1
            newest = [path for _, path in find_checkpoints(folder / "checkpoints")][:1]
            counts["early"] += not newest
            counts["plain"] += any(read_checkpoint(path)["is_plain"] for path in newest)
            if not job.wait(PATIENCE):
                counts["hangs"] += 1
                job.kill(list(job.pids))
                job.wait(10)
            continue
        if job.wait(300) and not any(job.codes.values()):
            return counts
        raise RuntimeError(f"a resumed run failed: {Path(f'{folder}.log').read_text()[-3000:]}")


def kill_and_compare(
    share: Share, folder: Path, seconds: dict[str, float], seed: int, until: float, keep: Path | None
) -> tuple[Share, Counter[str], list[str]]:
    """Runs until the share of kills is spent, or the time: counts, and what runs that differ do not share."""
    rng, whole = random.Random(f"{seed} {share}"), folder / share.name
    total, said = Counter[str](), []
    while total["kills"] < share.kills and time.time() < until:
        run = folder / f"{share.name}-{share.number}-{total['runs']}"
        try:
            total += killed(run, share, seconds[share.name], share.kills - total["kills"], rng)
            found = differences(whole, run)
        except Exception as error:  # of a run that cannot be resumed, too
            total["runs"] += 1
            found = [str(error)]
        total["identical"] += not found
        if found:
            said.append(f"{run.name}: {', '.join(found[:8])}")
            for each in (whole, run) if keep else ():
                shutil.copytree(each, keep / each.name, dirs_exist_ok=True)
        shutil.rmtree(run)
    return share, total, said


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=100, help="of single processes, over all methods")
    parser.add_argument("--distributed", type=int, default=20, help="kills of runs of two processes")
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no run after so many")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="folder for runs that differ")
    o = parser.parse_args()
    until = time.time() + o.seconds
    shares = []
    for processes, kills in ((2, o.distributed), (1, o.kills)):  # those of two processes take longest
        for i in range(kills):
            method, number = o.methods[i % len(o.methods)], i // len(o.methods) // EACH
            shares.append(Share(method, processes, 1, number))
    shares = [Share(*each[:2], n, each.number) for each, n in Counter(shares).items()]
    for method in o.methods:
        train(None, method, 1)  # what is imported here, jobs need not import
    total: dict[str, Counter[str]] = {share.name: Counter() for share in shares}
    with (
        tempfile.TemporaryDirectory() as name,
        multiprocessing.get_context("fork").Pool(o.jobs) as pool,
    ):
        firsts = [share for share in shares if share.number == 0]
        taken = pool.map(partial(undisturbed, folder=Path(name)), firsts, chunksize=1)
        seconds = {share.name: s for share, s in zip(firsts, taken, strict=True)}
        compare = partial(
            kill_and_compare, folder=Path(name), seconds=seconds, seed=o.seed, until=until, keep=o.keep
        )
        for share, counts, said in pool.imap_unordered(compare, shares):
            total[share.name] += counts
            print(f"{share.name} {dict(counts)}", *said, sep="\n", flush=True)
    columns = ("kills", "early", "plain", "hangs", "runs", "identical")
    rows = [
        [*each.split("-"), *(str(counts[c]) for c in columns), f"{seconds[each]:.1f}"]
        for each, counts in total.items()
    ]
    head = [
        "method",
        "processes",
        "kills",
        "before a checkpoint",
        "in the plain network",
        "hangs",
        "runs",
        "identical",
        "seconds undisturbed",
    ]
    table("Runs killed at random instants and resumed, against one that was not", rows, head)
    raise SystemExit(any(counts["runs"] != counts["identical"] for counts in total.values()))


if __name__ == "__main__":
    main()
