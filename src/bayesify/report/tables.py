"""One table, four ways to write it: for the terminal, Markdown, CSV and LaTeX (and HTML, in page.py)."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Cell:
    """text: as shown; value: for sorting and CSV (None for a text); best: the best of its column;
    tied: not told apart from the best; error: standard error of the value over seeds, for CSV."""

    text: str
    value: float | None = None
    best: bool = False
    tied: bool = False
    error: float | None = None


@dataclass(frozen=True)
class Column:
    """key: in CSV; header: as shown; better: "higher", "lower" or None."""

    key: str
    header: str
    better: str | None = None
    meaning: str = ""


@dataclass(frozen=True)
class Table:
    """Columns and rows of cells; the first column names the row."""

    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    notes: Sequence[str] = field(default_factory=tuple)

    def markdown(self) -> str:
        """A Markdown table; the best of a column in bold, what is not told apart from it with ≈."""
        head = [_arrow(c) for c in self.columns]
        lines = [f"**{self.title}**", "", _pipes([_escape_pipe(h) for h in head])]
        lines.append(_pipes([":---", *["---:"] * (len(head) - 1)]))
        lines += [_pipes([_escape_pipe(_marked(cell, "**")) for cell in row]) for row in self.rows]
        return "\n".join([*lines, *[f"\n{note}" for note in self.notes]]) + "\n"

    def csv(self) -> str:
        """Plain numbers under the columns' keys; beside means over seeds their standard errors, as KEY_error."""
        columns: list[list[object]] = []
        for i, column in enumerate(self.columns):
            cells = [row[i] for row in self.rows]
            columns.append([column.key, *(cell.text if cell.value is None else cell.value for cell in cells)])
            if any(cell.error is not None for cell in cells):
                columns.append([f"{column.key}_error", *(cell.error for cell in cells)])  # None stays empty
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(zip(*columns, strict=True))
        return text.getvalue()

    def latex(self) -> str:
        """A tabular for booktabs, with its caption."""
        sides = "l" + "r" * (len(self.columns) - 1)
        head = " & ".join(_latex(_arrow(c)) for c in self.columns)
        rows = []
        for row in self.rows:
            cells = [rf"\textbf{{{_latex(c.text)}}}" if c.best else _latex(_marked(c, "")) for c in row]
            rows.append(" & ".join(cells) + r" \\")
        caption = _latex(" ".join([f"{self.title}.", *self.notes]))
        return "\n".join(
            [
                r"\begin{table}",
                r"  \centering",
                rf"  \caption{{{caption}}}",
                rf"  \begin{{tabular}}{{{sides}}}",
                r"    \toprule",
                rf"    {head} \\",
                r"    \midrule",
                *[f"    {row}" for row in rows],
                r"    \bottomrule",
                r"  \end{tabular}",
                r"\end{table}",
                "",
            ]
        )

    def terminal(self) -> object:
        """A rich renderable."""
        from rich import box
        from rich.console import Group
        from rich.table import Table as RichTable
        from rich.text import Text

        made = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
        for number, column in enumerate(self.columns):
            first = number == 0
            made.add_column(
                _arrow(column), justify="left" if first else "right", no_wrap=first, overflow="fold"
            )
        for row in self.rows:
            made.add_row(*(Text(_marked(cell, ""), style="bold" if cell.best else "") for cell in row))
        notes = [Text(note, style="dim") for note in self.notes]
        return Group(Text(self.title, style="bold"), made, *notes)


def _arrow(column: Column) -> str:
    return column.header + {"higher": " ↑", "lower": " ↓"}.get(column.better or "", "")


def _marked(cell: Cell, bold: str) -> str:
    if cell.best:
        return f"{bold}{cell.text}{bold}" if bold else f"{cell.text} *"
    return f"{cell.text} ≈" if cell.tied else cell.text


def _pipes(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _escape_pipe(text: str) -> str:
    return text.replace("|", r"\|").replace("\n", " ")


_LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "−": "$-$",
    "≈": r"$\approx$",
    "↑": r"$\uparrow$",
    "↓": r"$\downarrow$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "×": r"$\times$",
}


def _latex(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text)
