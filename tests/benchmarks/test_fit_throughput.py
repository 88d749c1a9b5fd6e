"""The benchmark of bf.fit runs: the numbers are for a GPU, that it runs is tested here."""

import os
import re
import subprocess
import sys
from pathlib import Path

import bayesify

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "fit_throughput.py"
TINY = (
    "--device",
    "cpu",
    "--net",
    "lenet_small",
    "--batch",
    "8",
    "--batches",
    "2",
    "--epochs",
    "2",
    "--no-compile",
)


def test_the_benchmark_prints_a_line_for_each_side() -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(bayesify.__file__).parents[1])}
    command = [sys.executable, str(SCRIPT), *TINY]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr[-3000:]
    for side in ("hand-written loop", "bf.fit, point"):
        for augmentation in ("no augmentation", "crop and flip"):
            line = rf"{side}, {augmentation} +[\d,]+ +\d+\.\d+ +[\d.]+\n"
            assert re.search(line, result.stdout), result.stdout
