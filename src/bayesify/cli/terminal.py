"""What a person sees: tables on stdout, notes, warnings and errors on stderr."""

import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TextIO

from rich import box
from rich.console import Console, ConsoleOptions, Group
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from bayesify.evaluation.metrics.registry import fact, written

_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


class SafeConsole(Console):
    """Texts of files are printed as they are: no markup, and what would steer the terminal is written out."""

    def render(self, renderable: Any, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """The pieces of what is printed; colours come later."""
        for piece in super().render(renderable, options):
            yield piece if piece.control else Segment(printable(piece.text), piece.style)


def printable(text: str) -> str:
    r"""Control characters, and those that turn the direction of writing, as escapes; lines stay lines.

    >>> printable("a\x1b[2Jb")
    'a\\x1b[2Jb'
    """
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def output() -> Console:
    """Standard output. Without a terminal: no colours, and lines as long as they need to be."""
    wide = None if sys.stdout.isatty() or "COLUMNS" in os.environ else 200
    return SafeConsole(width=wide, highlight=False, markup=False)


def note(text: str, style: str = "") -> None:
    """One line on stderr, never folded."""
    console = SafeConsole(stderr=True, highlight=False)
    console.print(Text(text.replace("\n", " "), style=style), soft_wrap=True)


def show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """A Python warning as one line, without the source code that gave it."""
    note(f"warning: {message}", "yellow")


def table(columns: Mapping[str, str]) -> Table:
    """An empty table; `columns` maps each header to "left" or "right"."""
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for header, side in columns.items():
        made.add_column(header, justify="right" if side == "right" else "left", overflow="fold")
    return made


def titled(title: str, made: Table, caption: str = "") -> Group:
    """A table under a title and over a caption, both as long as they need to be."""
    return Group(Text(title, style="bold"), made, *([Text(f"{caption}\n", style="dim")] if caption else []))


def metrics_table(title: str, metrics: Mapping[str, Any], caption: str = "") -> Group:
    """One row per metric: its name, its value and what it says."""
    made = table({"metric": "left", "value": "right", "meaning": "left"})
    for name, value in metrics.items():
        made.add_row(name, number(name, value), fact(name).meaning)
    return titled(title, made, caption)


def rows_table(
    title: str, header: Mapping[str, str], rows: Iterable[tuple[str, ...]], show_header: bool = True
) -> Group:
    """Rows of text under a header."""
    made = table(header)
    made.show_header = show_header
    for row in rows:
        made.add_row(*(Text(cell) for cell in row))
    return titled(title, made)


def facts_table(title: str, facts: Iterable[tuple[str, str]]) -> Group:
    """Names and what they are, without a header."""
    return rows_table(title, {"name": "left", "what": "left"}, facts, show_header=False)


def number(name: str, value: Any) -> str:
    """A metric as a person reads it."""
    if isinstance(value, str) or value is None:
        return str(value)
    return written(name, value)


def counted(count: int, noun: str) -> str:
    """ "1 epoch", "1,000 epochs"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def size(num_bytes: float) -> str:
    """A number of bytes in the unit that suits it."""
    for unit in ("B", "kB", "MB"):
        if num_bytes < 1000:
            return f"{num_bytes:.0f} {unit}" if unit == "B" else f"{num_bytes:.1f} {unit}"
        num_bytes /= 1000
    return f"{num_bytes:.1f} GB"
