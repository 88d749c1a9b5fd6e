"""The benchmark of the kernels runs: the numbers are for a GPU, that it runs is tested here."""

import os
import re
import subprocess
import sys
from pathlib import Path

import bayesify
from bayesify.kernels import LAWS

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "kl_kernels.py"
TINY = "--device cpu --net lenet_small --numel 1000 --draws 3 --budget 0.01"


def test_the_benchmark_prints_a_line_for_each_law() -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(bayesify.__file__).parents[1])}
    command = [sys.executable, str(SCRIPT), *TINY.split()]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr[-3000:]
    for law in LAWS:
        assert len(re.findall(rf"{law}( +\d+\.\d+){{5}}\n", result.stdout)) == 2, result.stdout
