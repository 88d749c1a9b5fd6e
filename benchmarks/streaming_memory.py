"""Memory and time of loading a chain and predicting with all its draws, which stay on disk.

    python benchmarks/streaming_memory.py [--draws 1000] [--width 998] [--files run one]

run: the file of a run, which refers to draws/ beside it; one: a single file of `bf.save`. Each is measured in a
process of its own, which has predicted with one draw in memory before. Anonymous memory is what the process holds;
pages of mapped files (RssFile), which the system can drop at any time, are shown beside it. Draws in memory are the
comparison: all of them are read first, and stay there.
"""

import argparse
import gc
import json
import subprocess
import sys
import tempfile
import threading
import time
import warnings
import zlib
from pathlib import Path

import torch
from torch import nn

import bayesify as bf
from bayesify.files.storage import save_in_run
from bayesify.posteriors.chain import stored_draws
from bayesify.posteriors.chain.draw_store import DrawKey
from timing import table

MB = 2**20


def make_net(width: int) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 4))


def write(folder: Path, width: int, num_draws: int) -> None:
    """A run with so many draws, and its model as one file."""
    model = bf.bayesify(make_net(width), bf.ThermostatMCMC(), num_data=100)
    model.posterior.begin(folder=folder / "draws")
    store = model.posterior.store  # type: ignore[union-attr]
    weights = {name: p.detach().clone() for name, p in model.net.named_parameters()}
    for step in range(num_draws):
        for w in weights.values():
            w.mul_(0.99).add_(torch.randn_like(w), alpha=0.003)
        store.add(DrawKey(0, step + 1), weights)  # type: ignore[union-attr, operator]
    save_in_run(model, folder / "model.safetensors")
    bf.save(model, folder / "one.safetensors")


class Peak:
    """The largest anonymous and mapped memory of this process while entered, in MB, looked at every millisecond."""

    def __enter__(self) -> "Peak":
        self.anon = self.file = 0.0
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._watch)
        self.thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.over.set()
        self.thread.join()

    def _watch(self) -> None:
        while not self.over.wait(0.001):
            anon, file = resident()
            self.anon, self.file = max(self.anon, anon), max(self.file, file)


def resident() -> tuple[float, float]:
    """Anonymous memory and pages of mapped files, in MB."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    anon, shared, file = (int(lines[n].split()[0]) / 1024 for n in ("RssAnon", "RssShmem", "RssFile"))
    return anon + shared, file


def measure(path: Path, width: int, in_memory: bool) -> dict[str, float]:
    """Load, and predict twice with every draw, one example and then a batch of 256."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    net = make_net(width)
    x = torch.randn(256, width, generator=torch.Generator().manual_seed(1))
    one = bf.bayesify(make_net(width), bf.ThermostatMCMC(), num_data=100)
    one.collect()
    for inputs in (x[:1], x):
        one.predict(inputs)
    del one
    gc.collect()
    if in_memory:
        stored_draws.MEMORY = 2**40
    before = resident()
    found: dict[str, float] = {}
    with Peak() as peak:
        start = time.perf_counter()
        model = bf.load(path, net)
        found["load"] = time.perf_counter() - start
        count = model.posterior.num_draws  # type: ignore[union-attr]
        if in_memory:
            list(model.posterior.each())  # type: ignore[union-attr, operator]
        for name, inputs in (("first", x[:1]), ("again", x[:1]), ("batch", x)):
            start = time.perf_counter()
            prediction = model.predict(inputs, num_draws=count)  # type: ignore[arg-type]
            found[name] = time.perf_counter() - start
    assert prediction.num_draws == count
    return {
        **found,
        "anon": peak.anon - before[0],
        "file": peak.file - before[1],
        "bits": zlib.crc32(prediction.probs.numpy().tobytes()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--width", type=int, default=998, help="the network has about width² weights")
    parser.add_argument("--files", nargs="+", default=["run", "one"], choices=["run", "one"])
    parser.add_argument("--folder", type=Path, help="where the draws are written (default: a temporary one)")
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    o = parser.parse_args()
    if o.measure:
        print(json.dumps(measure(Path(o.measure[0]), o.width, o.measure[1] == "memory")))
        return
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(dir=o.folder) as name:
        folder, rows = Path(name), []
        write(folder, o.width, o.draws)
        for kind in o.files:
            for place in ("disk", "memory"):
                path = folder / {"run": "model.safetensors", "one": "one.safetensors"}[kind]
                command = [sys.executable, __file__, "--width", str(o.width), "--measure", str(path), place]
                said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
                got = json.loads(said.splitlines()[-1])
                times = [f"{got[key]:.2f}" for key in ("load", "first", "again", "batch")]
                rows.append(
                    [
                        kind,
                        place,
                        *times,
                        f"{got['anon']:.0f}",
                        f"{got['file']:.0f}",
                        f"{got['bits'] & 65535:04x}",
                    ]
                )
    weights = sum(p.numel() for p in make_net(o.width).parameters())
    title = f"{o.draws} draws of {weights:,} weights ({o.draws * weights * 4 / MB:,.0f} MB); seconds and MB"
    head = ["file", "draws in", "load", "predict 1", "again", "predict 256", "anonymous", "mapped", "bits"]
    table(title, rows, head)


if __name__ == "__main__":
    main()
