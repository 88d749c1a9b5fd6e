"""Two finished runs that several files of tests look at."""

from pathlib import Path

import pytest
from cli_runs import DIABETES, DIGITS, succeed


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten classes, images of 8×8."""
    folder = tmp_path_factory.mktemp("runs") / "digits"
    succeed("train", *DIGITS, "--folder", folder)
    return folder


@pytest.fixture(scope="session")
def diabetes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Regression, ten features, targets from 25 to 346."""
    folder = tmp_path_factory.mktemp("runs") / "diabetes"
    succeed("train", *DIABETES, "--folder", folder, "--epochs", "10")
    return folder
