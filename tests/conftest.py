"""Shared settings of the tests."""

import sys
from pathlib import Path

import pytest
import torch

for room in ("conversion", "engine"):
    sys.path.append(str(Path(__file__).parent / room))


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)
