"""What a person sees while a run goes on: a bar in a terminal, one line per epoch elsewhere."""

import sys
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any


class Progress:
    """Shows epoch, step, loss parts, accuracy, examples per second and the time left."""

    REFRESH = 0.2  # seconds between updates; each reads the loss from the device

    def __init__(self, epochs: int, steps_per_epoch: int | None, enabled: bool = True) -> None:
        self.epochs = epochs
        self.steps = steps_per_epoch
        self.enabled = enabled
        self.bar: Any = None
        self.last = 0.0

    def __enter__(self) -> "Progress":
        if self.enabled and sys.stderr.isatty():
            self.bar = _rich_bar()
            self.bar.start()
            total = None if self.steps is None else self.epochs * self.steps
            self.task = self.bar.add_task("starting", total=total, info="")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.bar is not None:
            self.bar.stop()

    def due(self) -> bool:
        """Is it time to show something? Reading a loss costs a synchronisation."""
        return self.bar is not None and time.monotonic() - self.last > self.REFRESH

    def step(self, epoch: int, step: int, numbers: Mapping[str, float]) -> None:
        self.last = time.monotonic()
        info = "  ".join(f"{name} {value:.4g}" for name, value in numbers.items())
        self.bar.update(self.task, completed=step, description=f"epoch {epoch + 1}/{self.epochs}", info=info)

    def epoch(self, row: Mapping[str, Any]) -> None:
        """One finished epoch, as a line."""
        if not self.enabled:
            return
        shown = ("loss", "nll", "kl", "val_accuracy", "val_nll", "val_rmse", "val_ece", "examples_per_second")
        numbers = "  ".join(f"{name} {row[name]:.4g}" for name in shown if row.get(name) is not None)
        self.note(f"epoch {row['epoch']}/{self.epochs}  {numbers}")

    def note(self, text: str) -> None:
        if self.bar is not None:
            self.bar.console.print(text, highlight=False)
        elif self.enabled:
            print(text, file=sys.stderr, flush=True)


def _rich_bar() -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[info]}"),
        console=Console(stderr=True),
        transient=True,
    )
