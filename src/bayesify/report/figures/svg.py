"""A figure as inline SVG whose ink and paper follow the page, or as a file of its own."""

import html
import io
import re
from pathlib import Path
from typing import Any

from bayesify.report.figures.style import GRID, INK, MUTED, PAPER

_VARIABLES = {INK: "--ink", MUTED: "--muted", GRID: "--grid", PAPER: "--paper"}
_LIGHT = {INK: "#1c2430", MUTED: "#667085", GRID: "#e4e7ec", PAPER: "#ffffff"}
_RC: dict[Any, Any] = {"svg.fonttype": "none", "svg.hashsalt": "bayesify", "font.family": "sans-serif"}


def svg(figure: Any, name: str, title: str) -> str:
    """The figure as an <svg> element that scales with the page.

    Args:
        name: makes its ids unique on the page.
        title: what it shows, for those who do not see it.
    """
    import matplotlib

    text = io.StringIO()
    with matplotlib.rc_context(_RC):
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    body = text.getvalue()
    body = body[body.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    body = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', body)
    body = re.sub(r"url\(#([^)]+)\)", rf"url(#{name}-\1)", body)
    body = re.sub(r'(xlink:href|href)="#([^"]+)"', rf'\1="#{name}-\2"', body)
    body = re.sub(r"font: ([\d.]+)px [^;\"]+", r"font: \1px var(--sans)", body)
    for colour, variable in _VARIABLES.items():
        body = body.replace(colour, f"var({variable})")
    head = re.match(r"<svg[^>]*>", body)
    assert head is not None
    box = re.search(r'viewBox="([^"]+)"', head[0])
    assert box is not None
    label = html.escape(title, quote=True)
    opening = (
        f'<svg viewBox="{box[1]}" role="img" aria-label="{label}" xmlns="http://www.w3.org/2000/svg" '
        f'xmlns:xlink="http://www.w3.org/1999/xlink" style="max-width:{_width(box[1])}px">'
    )
    return opening + body[head.end() :].strip()


def _width(box: str) -> int:
    """Pixels at which the text of the figure has the size of the page's small text."""
    return round(float(box.split()[2]) * 1.45)


def save(figure: Any, path: str | Path) -> None:
    """The figure as a file (.svg, .pdf, .png), in light colours on a transparent ground."""
    import matplotlib

    _recolour(figure)
    with matplotlib.rc_context(_RC):
        figure.savefig(path, dpi=160, transparent=True)


def _recolour(figure: Any) -> None:
    """Stand-in colours of every artist by those of a light page."""
    from matplotlib.colors import to_hex

    for artist in figure.findobj():
        for kind in ("color", "facecolor", "edgecolor"):
            get, put = getattr(artist, f"get_{kind}", None), getattr(artist, f"set_{kind}", None)
            if get is None or put is None:
                continue
            try:
                colour = to_hex(get())
            except (ValueError, TypeError):
                continue
            if colour in _LIGHT:
                put(_LIGHT[colour])
