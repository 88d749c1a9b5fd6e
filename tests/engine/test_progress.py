"""The bar in a terminal: everything in one line, however narrow."""

import io
import re
from typing import Any

import pytest

from bayesify.engine.progress import Progress, compact

NUMBERS = {
    "loss": 1234.5678,
    "nll": 0.43217,
    "kl": 36321.0,
    "accuracy": 0.9712,
    "examples/s": 123456.7,
}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(columns: int, monkeypatch: pytest.MonkeyPatch, steps: int | None = 39_000) -> str:
    """The bar in the middle of the third of ten epochs."""
    terminal = Terminal()
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr("sys.stderr", terminal)
    progress = Progress(10, steps)
    with progress:
        progress.step(2, 90_000, NUMBERS)
        progress.bar.refresh()
    lines = [_plain(line) for line in re.split(r"[\r\n]", terminal.getvalue())]
    return [line for line in lines if "epoch 3/10" in line][-1]


def _plain(line: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", line)


@pytest.mark.parametrize("columns", [80, 120])
def test_one_line_holds_everything(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    line = shown(columns, monkeypatch)
    assert len(line) <= columns
    assert "…" not in line
    for part in ("epoch 3/10", "━", "90000/390000", "loss 1.23e+03", "acc 97.1%", "123k/s"):
        assert part in line, line
    assert ("nll 0.432" in line) == (columns == 120)
    assert re.search(r" (-?-:--|\d+:\d\d)", line), line  # the time left


def test_a_stream_without_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "90000/?" in shown(80, monkeypatch, steps=None)


def test_a_resumed_run_does_not_count_the_steps_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", Terminal())
    now = 100.0
    progress = Progress(10, 100)
    with progress:
        progress.bar.get_time = lambda: now
        progress.step(5, 500, {"loss": 1.0})
        for step in (510, 520):
            now += 1
            progress.step(5, step, {"loss": 1.0})
        (task,) = progress.bar.tasks
        assert task.time_remaining == pytest.approx(480 / 10, rel=0.2)  # ten steps a second


def test_an_epoch_is_one_line_at_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("sys.stderr", terminal)
    row: dict[str, Any] = {
        **{"epoch": 119, "loss": 28.7812, "nll": 0.71, "kl": 36321.0, "val_accuracy": 0.9722},
        **{"val_nll": 0.19734, "val_ece": 0.11923, "examples_per_second": 80173.2},
    }
    with Progress(120, 10) as progress:
        progress.epoch(row)
    lines = [_plain(line) for line in re.split(r"[\r\n]", terminal.getvalue())]
    assert "epoch 119/120  loss 28.8 acc 97.2% val_nll 0.197 val_ece 0.119 80.2k/s" in [
        line.strip() for line in lines
    ]


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("loss", 0.43217, "loss 0.432"),
        ("val_accuracy", 1.0, "acc 100.0%"),
        ("examples/s", 12.34, "12.3/s"),
        ("examples/s", 12345.0, "12.3k/s"),
        ("examples_per_second", 2.5e6, "2.5M/s"),
        ("examples/s", 4e9, "4e+03M/s"),
        ("loss", float("nan"), "loss nan"),
    ],
)
def test_compact_numbers(name: str, value: float, text: str) -> None:
    assert compact(name, value) == text
