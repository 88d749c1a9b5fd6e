"""Timing on CPU and GPU: median of several blocks, device synchronised, memory at its peak; tables and records."""

import gc
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch


class Timing(NamedTuple):
    seconds: float
    megabytes: float  # peak of the device's memory; 0 on a CPU


def measure(function: Callable[[], object], device: str, budget: float = 1.5) -> Timing:
    """Run `function` for about `budget` seconds after warming up; the median block counts."""
    for _ in range(3):
        function()
    cuda = device.startswith("cuda")
    if cuda:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    start = time.perf_counter()
    function()
    if cuda:
        torch.cuda.synchronize()
    once = max(time.perf_counter() - start, 1e-6)
    calls = max(1, int(budget / 7 / once))
    blocks = []
    for _ in range(7):
        start = time.perf_counter()
        for _ in range(calls):
            function()
        if cuda:
            torch.cuda.synchronize()
        blocks.append((time.perf_counter() - start) / calls)
    peak = torch.cuda.max_memory_allocated() / 2**20 if cuda else 0.0
    return Timing(statistics.median(blocks), peak)


def free(device: str) -> None:
    """Let go of what earlier runs left on the device: a peak is that of the whole device."""
    torch._dynamo.reset()
    gc.collect()
    if device.startswith("cuda"):
        torch._C._cuda_clearCublasWorkspaces()  # 32 MB for each stream that ever multiplied
        torch.cuda.empty_cache()


def table(title: str, rows: list[list[str]], header: list[str]) -> None:
    """A plain table that survives a log file."""
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    print(f"\n{title}")
    for row in [header, ["-" * w for w in widths], *rows]:
        print(
            "  ".join(
                cell.ljust(w) if i == 0 else cell.rjust(w)
                for i, (cell, w) in enumerate(zip(row, widths, strict=True))
            )
        )


def add_record(path: str, record: dict[str, Any]) -> None:
    """Add a run's result to a JSON file of such records."""
    file = Path(path)
    records = json.loads(file.read_text()) if file.exists() else []
    file.write_text(json.dumps([*records, record], indent=1))
