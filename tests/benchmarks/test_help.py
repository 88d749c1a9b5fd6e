"""Every benchmark starts: its imports are there, and it says what it takes."""

import os
import subprocess
import sys
from pathlib import Path

import bayesify

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
FOREIGN = {"torchvision_conversion.py"}  # needs what tests do not install
ALL = """
import contextlib, io, runpy, sys
for script in sys.argv[1:]:
    sys.argv = [script, "--help"]
    with contextlib.redirect_stdout(io.StringIO()) as said:
        try:
            runpy.run_path(script, run_name="__main__")
        except SystemExit as end:
            assert not end.code, script
    print(script, len(said.getvalue()))
"""


def test_every_benchmark_shows_its_help() -> None:
    scripts = [path for path in sorted(BENCHMARKS.glob("*.py")) if "ArgumentParser" in path.read_text()]
    scripts = [path for path in scripts if path.name not in FOREIGN]
    assert len(scripts) > 20
    source = str(Path(bayesify.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((source, str(BENCHMARKS)))}
    command = [sys.executable, "-c", ALL, *map(str, scripts)]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)
    assert result.returncode == 0, result.stderr[-3000:]
    assert all(int(line.split()[-1]) > 100 for line in result.stdout.splitlines())
