"""What a person sees while a run goes on: a bar in a terminal, one line per epoch without one."""

import sys
import time
from collections.abc import Mapping
from typing import Any

WIDE = 110  # columns from which the parts of the loss have room too
PARTS = ("nll", "kl")


class Progress:
    """Shows epoch, step, time left, loss, accuracy and examples per second; in a wide terminal nll and kl too."""

    REFRESH = 0.2  # seconds between updates; each reads the loss from the device

    def __init__(self, epochs: int, steps_per_epoch: int | None, enabled: bool = True) -> None:
        self.epochs = epochs
        self.steps = steps_per_epoch
        self.enabled = enabled
        self.bar: Any = None
        self.started = False
        self.last = 0.0

    def __enter__(self) -> "Progress":
        if self.enabled and sys.stderr.isatty():
            self.bar = _rich_bar()
            self.bar.start()
            total = None if self.steps is None else self.epochs * self.steps
            self.task = self.bar.add_task("starting", total=total, info="")
        return self

    def __exit__(self, *error: object) -> None:
        if self.bar is not None:
            self.bar.stop()

    def due(self) -> bool:
        """Is it time to show something? Reading a loss costs a synchronisation."""
        return self.bar is not None and time.monotonic() - self.last > self.REFRESH

    def step(self, epoch: int, step: int, numbers: Mapping[str, float]) -> None:
        """Move the bar to `step` and show the numbers beside it."""
        self.last = time.monotonic()
        if not self.started:  # the steps before a resume took no time: they must not count in the time left
            self.bar.reset(self.task, completed=step)
            self.started = True
        name = f"epoch {epoch + 1}/{self.epochs}"
        self.bar.update(self.task, completed=step, description=name, info=self._line(numbers))

    def epoch(self, row: Mapping[str, Any]) -> None:
        """One finished epoch, as a line."""
        if not self.enabled:
            return
        shown = ("loss", "nll", "kl", "val_accuracy", "val_nll", "val_rmse", "val_ece", "examples_per_second")
        numbers = {name: row[name] for name in shown if row.get(name) is not None}
        full = "  ".join(f"{name} {value:.4g}" for name, value in numbers.items())
        self.note(f"epoch {row['epoch']}/{self.epochs}  {full if self.bar is None else self._line(numbers)}")

    def _line(self, numbers: Mapping[str, float]) -> str:
        """The numbers that fit beside the bar."""
        wide = self.bar.console.width >= WIDE
        return " ".join(compact(k, v) for k, v in numbers.items() if wide or k not in PARTS)

    def note(self, text: str) -> None:
        """One line above the bar, or on stderr."""
        if self.bar is not None:
            self.bar.console.print(text, highlight=False, markup=False)
        elif self.enabled:
            print(text, file=sys.stderr, flush=True)


def compact(name: str, value: float) -> str:
    """A number in as few characters as say it.

    >>> compact("loss", 0.43217), compact("accuracy", 0.9712), compact("examples/s", 12345.0)
    ('loss 0.432', 'acc 97.1%', '12.3k/s')
    """
    if name in ("accuracy", "val_accuracy"):
        return f"acc {100 * value:.1f}%"
    if name not in ("examples/s", "examples_per_second"):
        return f"{name} {value:.3g}"
    for unit in ("", "k", "M"):
        if value < 1000 or unit == "M":
            break
        value /= 1000
    return f"{value:.3g}{unit}/s"


def _rich_bar() -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
    from rich.table import Column

    def text(content: str) -> TextColumn:
        return TextColumn(content, table_column=Column(no_wrap=True))

    return Progress(
        text("{task.description}"),
        BarColumn(bar_width=None, table_column=Column(ratio=1, min_width=6)),
        MofNCompleteColumn(),
        TimeRemainingColumn(compact=True),
        text("{task.fields[info]}"),
        console=Console(stderr=True),
        transient=True,
        expand=True,
    )
