"""Shared settings of the tests."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

# tables and jobs that tests of several rooms share are imported by their own names
for room in sorted({path.parent for path in Path(__file__).parent.rglob("*.py")}):
    sys.path.append(str(room))


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


@pytest.fixture(autouse=True, scope="session")
def _on_the_cpu() -> Iterator[None]:
    """ "auto" is the CPU, also on a machine with a GPU: tests of a GPU name it."""
    with pytest.MonkeyPatch.context() as patch:
        if torch.cuda.is_available():
            from lightning_fabric.connector import _Connector

            patch.setattr(_Connector, "_choose_auto_accelerator", staticmethod(lambda: "cpu"))
            patch.setattr(torch.accelerator, "is_available", lambda *_: False)
            patch.setattr(torch.accelerator, "current_accelerator", lambda *_, **__: None)
        yield


@pytest.fixture
def compile_by_tracing(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch.compile traces and does not call Inductor, which costs minutes."""
    compile_ = torch.compile
    monkeypatch.setattr(
        torch,
        "compile",
        lambda f, mode, dynamic: compile_(f, backend="aot_eager", dynamic=dynamic, fullgraph=True),
    )
