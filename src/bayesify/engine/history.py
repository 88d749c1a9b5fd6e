"""What happened in a run: one row per epoch."""

from pathlib import Path
from typing import Any

from bayesify.atomic import write_rows


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
        """The rows as a table with a column for every quantity."""
        write_rows(path, self)


def joined(row: dict[str, Any], more: Any, timing: dict[str, Any]) -> dict[str, Any]:
    """The row of an epoch with what `on_epoch` returned in it."""
    if not isinstance(more, dict):
        raise TypeError(f"on_epoch returned {more!r}: it must return a dict of numbers by name, or None")
    taken = more.keys() & {**row, **timing}
    if taken:
        raise ValueError(f"on_epoch returned {sorted(taken)}, which the row has already: choose other names")
    return {**row, **more, **timing}
