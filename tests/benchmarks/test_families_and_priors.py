"""The page of pairs is up to date, and names every family and prior."""

import os
import subprocess
import sys
from pathlib import Path

import bayesify
from bayesify.families import FAMILIES
from bayesify.priors import PRIORS

ROOT = Path(__file__).parents[2]


def test_the_page_of_pairs_is_up_to_date_and_names_every_family_and_prior() -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(bayesify.__file__).parents[1])}
    command = [sys.executable, str(ROOT / "benchmarks" / "families_and_priors.py")]
    written = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    page = (ROOT / "docs" / "families_and_priors.md").read_text()
    assert page == written, "run python benchmarks/families_and_priors.py > docs/families_and_priors.md"
    assert all(f"`{name}`" in written for name in [*FAMILIES, *PRIORS])
    assert "each weight keeps the sign of its initial value as a constant" in written
