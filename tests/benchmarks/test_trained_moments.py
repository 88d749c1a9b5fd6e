"""The benchmark of trained moments runs: its numbers take hours, that it runs is tested here."""

import os
import re
import subprocess
import sys
from pathlib import Path

import bayesify

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "trained_moments.py"


def run(options: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(Path(bayesify.__file__).parents[1])}
    command = [sys.executable, str(SCRIPT), "--device", "cpu", *options.split()]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr[-3000:]
    return result.stdout


def test_it_prints_a_row_for_each_objective_and_keeps_records(tmp_path: Path) -> None:
    file = tmp_path / "records.json"
    small = "--nets mlp --seeds 0 1 --epochs 1 --draws 20 --networks 2 --kl-weights 0.5"
    found = run(f"{small} --objectives probe mc_vi --out {file}")
    assert re.search(r"mlp, fresh +- +\d\.\d+ \[\d\.\d+, \d\.\d+\] +\d\.\d+ ± ", found), found
    assert re.search(r"mlp, probe +0\.5 +\d\.\d+ \[", found) and re.search(r"mlp, mc_vi +0\.5 +- +- +", found)
    assert found.partition("\ndigits;")[2] == run(f"--table {file}").partition("\ndigits;")[2]


def test_other_forms_and_noise_of_the_inputs_have_tables_of_their_own() -> None:
    small = (
        "--nets mlp unet --seeds 0 --epochs 1 --draws 20 --networks 2 --objectives bound --input-noise 0.3"
    )
    found = run(f"{small} --covariance diagonal --forms diagonal gains full")
    number = r"\d\.\d+ \[\d+\.\d+, \d+\.\d+\]"
    for form in ("diagonal", "gains", "full"):
        assert re.search(rf"mlp, bound, {form} +1 +{number} +\d\.\d+", found), found
    assert re.search(r"unet, bound, gains", found) and "unet, bound, full" not in found
    assert re.search(rf"unet, bound +{number} +{number} +{number} +{number} +\d\.\d+", found), found
