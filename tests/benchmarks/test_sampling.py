"""The benchmarks of sampling run: their numbers take an hour (make test-sampling), that they run is tested here."""

import os
import subprocess
import sys
from pathlib import Path

import bayesify

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def run(script: str, *options: str) -> str:
    """What the script prints; so short a run may well be found wrong, which is exit code 1."""
    environment = {**os.environ, "PYTHONPATH": str(Path(bayesify.__file__).parents[1])}
    command = [sys.executable, str(BENCHMARKS / script), *options]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert result.returncode in (0, 1) and "Traceback" not in result.stderr, result.stderr[-3000:]
    return result.stdout


def test_the_zoo_prints_a_row_for_each_target_and_sampler(tmp_path: Path) -> None:
    options = ("--targets", "banana", "eight", "--samplers", "atmc", "sgld", "--steps", "60", "--chains", "4")
    found = run("sampler_zoo.py", *options, "--out", str(tmp_path / "zoo.json"))
    for name in ("banana *", "eight schools *"):
        assert found.count(f"{name} | ") == 2
    assert (tmp_path / "zoo.json").stat().st_size > 0


def test_calibration_prints_a_row_for_each_method_and_draws_the_ranks(tmp_path: Path) -> None:
    options = ("--methods", "atmc", "vdp", "--simulations", "20", "--together", "10", "--steps", "40")
    found = run("sbc.py", *options, "--out", str(tmp_path / "ranks.png"))
    for name in ("atmc", "vdp"):
        assert f"{name} | weight | " in found and f"{name} | prediction | " in found
    assert (tmp_path / "ranks.png").stat().st_size > 0
