"""The benchmarks of the kernels and of the KL run: the numbers are for a GPU, that they run is tested here."""

import os
import re
import subprocess
import sys
from pathlib import Path

import bayesify
from bayesify.kernels import LAWS

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def run(script: str, options: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(Path(bayesify.__file__).parents[1])}
    command = [sys.executable, str(BENCHMARKS / script), "--device", "cpu", *options.split()]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr[-3000:]
    return result.stdout


def test_the_benchmark_prints_a_line_for_each_law() -> None:
    found = run("kl_kernels.py", "--net lenet_small --numel 1000 --draws 3 --budget 0.01")
    for law in LAWS:
        assert len(re.findall(rf"{law}( +\d+\.\d+){{5}}\n", found)) == 2, found


def test_the_paper_s_claims_stand_beside_the_ratios() -> None:
    """At the largest M of direct that was measured and fits: here the cap leaves M = 1 of 1 and 3."""
    options = "--nets lenet_small --batch 2 --budget 0.01 --draws 1 3 --memory-cap"
    for cap, largest in (("1", 3), ("0.005", 1)):
        found = run("kl_draws.py", f"{options} {cap}")
        assert re.search(
            rf"repar ÷ direct at M = {largest}: time \d\.\d+ \(paper: up to 5 times faster", found
        ), found
        assert re.search(rf"repar ÷ direct at M = {largest}: memory 0\.\d+ \(paper: < 0.25\)", found), found
        assert re.search(r"repar ÷ accumulation at M = 3: time ~?\d\.\d+ \(paper: up to 14 times", found), (
            found
        )
