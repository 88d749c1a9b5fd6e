"""Every example runs, in a process and a folder of its own, and says what it promises."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import bayesify

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))
NEEDS = {
    "02_lightning_module": "pytorch_lightning",
    "03_hf_trainer": "transformers",
    "14_lora_generation": "peft",
}
SAYS = {
    "01_plain_loop": r"accuracy 0\.9",
    "02_lightning_module": r"'accuracy': 0\.9",
    "03_hf_trainer": r"accuracy (1|0\.[6-9])",
    "14_lora_generation": r"as trained: [2-8] different sequences by 8 draws\n  first token 0\.\d+ nats",
    "04_fit_and_resume": r"equal to a run that was never stopped: True",
    "05_regression_uncertainty": r"beside it: ([2-9]|1\.[5-9])",
    "06_members_in_parallel": r"ensemble of 4: accuracy 0\.9",
    "07_ensemble_patching": r"folded: Sequential, accuracy 0\.9",
    "07_function_prior": r"components have [3-4]\.\d times the steps",
    "08_density_propagation": r"accuracy 0\.9[\s\S]*-6 dB[ .0-9]* 0\.[12]\d\d\n",
    "10_variance_network": r"deterministic accuracy 0\.[01].*\n.*\nensemble      accuracy 0\.9",
    "11_pretrained_network": r"(mc_vi|ivon|emp|atmc) +(1\.0|0\.9[89])\d* +0\.0\d+ +0\.[89]\d* +0\.[1-4]\d*\n"
    r"(.*\n)*.*prior normal\(mean='net', std=1\.0\)",
    "12_active_learning": r"\nbald .* 0\.9[2-9]\d\nrandom .* 0\.(8[5-9]|9[0-3])\d\n",
    "13_scikit_learn": r"accuracy 0\.[89][\s\S]*negative_binomial: (8[5-9]|9\d) % inside, lowest end \d",
    "09_thermostat_mcmc": r"R-hat of the outputs: (0\.9|1\.[01])\d? .*\nboth chains: 40 draws, nll 0\.[12]",
}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example(path: Path, tmp_path: Path) -> None:
    needed = NEEDS.get(path.stem)
    if needed is not None and importlib.util.find_spec(needed) is None:
        pytest.skip(f"needs {needed}")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": str(tmp_path)}
    source = str(Path(bayesify.__file__).parents[1])
    environment["PYTHONPATH"] = os.pathsep.join([source, environment.get("PYTHONPATH", "")])
    result = subprocess.run(
        [sys.executable, str(path)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert result.returncode == 0, result.stderr
    assert re.search(SAYS[path.stem], result.stdout), result.stdout


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_short_enough_to_read(path: Path) -> None:
    lines = path.read_text().splitlines()
    assert len(lines) < 70
    assert lines[0].startswith('"""')
