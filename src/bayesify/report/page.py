"""One HTML page that holds everything it needs: no network, no other file."""

import html
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from itertools import count
from typing import Any

from bayesify.report.figures import svg
from bayesify.report.tables import Cell, Column, Table


@dataclass(frozen=True)
class Picture:
    """A figure and what it shows; `wide` strips scroll sideways on a phone."""

    figure: Any
    caption: str
    wide: bool = False


@dataclass(frozen=True)
class Gallery:
    """Pictures side by side: "normal", "small" or "wide"."""

    pictures: Sequence[Picture]
    size: str = "normal"


@dataclass(frozen=True)
class Folded:
    """Something under a heading that opens on demand (and when printing)."""

    title: str
    parts: Sequence["Part"]
    printed: bool = True


@dataclass(frozen=True)
class List:
    """Points, or references (`papers`)."""

    points: Sequence[str]
    kind: str = "short"


@dataclass(frozen=True)
class Copy:
    """Text to copy into a paper, shown as it is."""

    text: str


Part = str | Table | Gallery | Folded | List | Copy


@dataclass(frozen=True)
class Section:
    """A chapter of the page."""

    title: str
    parts: Sequence[Part]

    @property
    def anchor(self) -> str:
        """Its id, which links go to."""
        return "".join(c if c.isalnum() else "-" for c in self.title.lower())


@dataclass(frozen=True)
class Page:
    """A whole page."""

    title: str
    lead: str
    sections: Sequence[Section]
    footer: str = ""
    _numbers: Any = field(default_factory=count, repr=False, compare=False)

    def html(self) -> str:
        """The page as text."""
        beside = files("bayesify.report")
        css, script = ((beside / f"page.{end}").read_text(encoding="utf-8") for end in ("css", "js"))
        links = "".join(f'<a href="#{s.anchor}">{_text(s.title)}</a>' for s in self.sections)
        body = "\n".join(self._section(section) for section in self.sections)
        policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
        return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="generator" content="bayesify">
<title>{_text(self.title)}</title>
<style>{css}</style>
</head>
<body>
<a class="skip" href="#main">Skip to the results</a>
<header>
<button id="theme" type="button" aria-label="Switch between light and dark">Dark</button>
<h1>{_text(self.title)}</h1>
<p class="lead">{_text(self.lead)}</p>
<nav aria-label="Sections">{links}</nav>
</header>
<main id="main">
{body}
<footer>{_text(self.footer)}</footer>
</main>
<script>{script}</script>
</body>
</html>
"""

    def _section(self, section: Section) -> str:
        inner = "\n".join(self._part(part) for part in section.parts)
        return f'<section id="{section.anchor}">\n<h2>{_text(section.title)}</h2>\n{inner}\n</section>'

    def _part(self, part: Part) -> str:
        if isinstance(part, str):
            return f"<p>{_text(part)}</p>"
        if isinstance(part, Table):
            return table_html(part)
        if isinstance(part, Copy):
            return f'<pre tabindex="0">{_text(part.text)}</pre>'
        if isinstance(part, List):
            tag = "ol" if part.kind == "papers" else "ul"
            points = "".join(f"<li>{_text(point)}</li>" for point in part.points)
            return f'<{tag} class="{part.kind}">{points}</{tag}>'
        if isinstance(part, Folded):
            inner = "\n".join(self._part(p) for p in part.parts)
            kind = "" if part.printed else ' class="screen"'
            return f"<details{kind}><summary>{_text(part.title)}</summary>{inner}</details>"
        return self._gallery(part)

    def _gallery(self, gallery: Gallery) -> str:
        figures = []
        for picture in gallery.pictures:
            drawn = svg(picture.figure, f"f{next(self._numbers)}", picture.caption)
            strip = ' class="strip"' if picture.wide else ""
            caption = f"<figcaption>{_text(picture.caption)}</figcaption>"
            figures.append(f"<figure><div{strip}>{drawn}</div>{caption}</figure>")
        size = "" if gallery.size == "normal" else f" {gallery.size}"
        if not size and len(figures) % 3 == 0:
            size = " thirds"
        return f'<div class="figures{size}">{"".join(figures)}</div>'


def table_html(table: Table) -> str:
    """A table whose columns sort by a button each, reachable by keyboard."""
    head = "".join(_head(column) for column in table.columns)
    rows = "\n".join(f"<tr>{_cells(row)}</tr>" for row in table.rows)
    notes = "".join(f'<p class="notes">{_text(note)}</p>' for note in table.notes)
    label = html.escape(table.title, quote=True)
    wrap = "" if any(c.value is not None for row in table.rows for c in row) else " wrap"
    return (
        f'<div class="scroll" role="region" aria-label="{label}" tabindex="0">'
        f'<table class="sortable{wrap}"><caption>{_text(table.title)}</caption>'
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}\n</tbody></table></div>{notes}"
    )


def _head(column: Column) -> str:
    arrow = {"higher": "\u00a0↑", "lower": "\u00a0↓"}.get(column.better or "", "")
    meaning = f' title="{html.escape(column.meaning, quote=True)}"' if column.meaning else ""
    better = f' data-better="{column.better}"' if column.better else ""
    return (
        f'<th scope="col" aria-sort="none"{better}><button type="button"{meaning}>'
        f"{_text(column.header)}{arrow}</button></th>"
    )


def _cells(row: Sequence[Cell]) -> str:
    first, *rest = row
    made = [f'<th scope="row">{_text(first.text)}</th>']
    for cell in rest:
        kind = ' class="best"' if cell.best else ' class="tied"' if cell.tied else ""
        value = "" if cell.value is None else f' data-value="{cell.value!r}"'
        made.append(f"<td{kind}{value}>{_text(cell.text)}</td>")
    return "".join(made)


def _text(text: str) -> str:
    return html.escape(text, quote=False)
