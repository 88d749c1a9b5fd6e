"""Shared settings of the tests."""

import sys
from pathlib import Path

import pytest
import torch

sys.path.append(str(Path(__file__).parent / "conversion"))


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)
