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


@pytest.fixture
def compile_by_tracing(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch.compile traces and does not call Inductor, which costs minutes."""
    compile_ = torch.compile
    monkeypatch.setattr(
        torch,
        "compile",
        lambda f, mode, dynamic: compile_(f, backend="aot_eager", dynamic=dynamic, fullgraph=True),
    )
