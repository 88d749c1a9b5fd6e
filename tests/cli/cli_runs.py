"""Running the command line in this process, and what the tests ask of a run folder."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from safetensors.torch import load_file
from torch import Tensor
from typer.testing import CliRunner, Result

import bayesify
from bayesify.cli.app import app

DIGITS = ("--method", "mc_vi", "--net", "mlp", "--data", "digits", "--set", "net.hidden=16", "--epochs", "2")
DIABETES = (
    "--method",
    "mc_vi",
    "--net",
    "mlp",
    "--data",
    "diabetes",
    "--set",
    "net.hidden=8",
    "--lr",
    "0.01",
)


def invoke(*arguments: object, **environment: str) -> Result:
    """`bayesify *arguments`, in an 80-column terminal that shows no colours."""
    env = {"COLUMNS": "80", "BAYESIFY_DATA": None, "BAYESIFY_DEBUG": None, **environment}
    return CliRunner(env=env).invoke(app, [str(a) for a in arguments])


def succeed(*arguments: object, **environment: str) -> Result:
    result = invoke(*arguments, **environment)
    assert result.exit_code == 0, result.output
    return result


def fail(*arguments: object, code: int = 2, **environment: str) -> str:
    """The one line on stderr with which the command must end."""
    result = invoke(*arguments, **environment)
    assert result.exit_code == code, result.output
    lines = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1, result.stderr
    assert "Traceback" not in result.output
    return lines[0].removeprefix("error: ")


def start(*arguments: object, **options: Any) -> subprocess.Popen[str]:
    """The command in a process of its own."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "80"}
    environment["PYTHONPATH"] = str(Path(bayesify.__file__).parents[1])
    return subprocess.Popen(
        [sys.executable, "-m", "bayesify", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        **options,
    )


def read(folder: Path, name: str = "config.json") -> dict[str, Any]:
    return json.loads((folder / name).read_text())


def weights(folder: Path) -> dict[str, Tensor]:
    return load_file(folder / "model.safetensors")
