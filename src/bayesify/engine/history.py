"""What happened in a run: one row per epoch."""

import csv
import io
from pathlib import Path
from typing import Any

from bayesify.atomic import write_atomically


class History(list[dict[str, Any]]):
    """Rows of a run, one dict per epoch: epoch, step, loss, nll, kl, lr, val_accuracy …

    >>> history.column("val_nll")
    """

    notes: list[str]

    def __init__(self, rows: list[dict[str, Any]] | None = None) -> None:
        super().__init__(rows or [])
        self.notes = []

    def column(self, name: str) -> list[Any]:
        """One quantity over the epochs (None where a row lacks it)."""
        return [row.get(name) for row in self]

    def best(self, name: str, largest: bool = False) -> dict[str, Any]:
        """The row with the smallest (or largest) value of `name`."""
        rows = [row for row in self if row.get(name) is not None]
        if not rows:
            raise ValueError(f"no row of this history has {name!r}")
        return (max if largest else min)(rows, key=lambda row: row[name])

    def write_csv(self, path: Path) -> None:
        columns = list(dict.fromkeys(key for row in self for key in row))
        text = io.StringIO()
        writer = csv.DictWriter(text, columns)
        writer.writeheader()
        writer.writerows(self)
        write_atomically(path, lambda partial: _write(partial, text.getvalue()))


def _write(path: Path, text: str) -> None:
    path.write_text(text)
