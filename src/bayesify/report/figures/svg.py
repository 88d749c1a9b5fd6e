"""A figure as inline SVG whose ink and paper follow the page."""

import html
import io
import re
from typing import Any

from bayesify.report.figures.style import GRID, INK, MUTED, PAPER

_VARIABLES = {INK: "--ink", MUTED: "--muted", GRID: "--grid", PAPER: "--paper"}
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
    width = round(float(box[1].split()[2]) * 1.45)  # its text has the size of the page's small text
    opening = (
        f'<svg viewBox="{box[1]}" role="img" aria-label="{label}" xmlns="http://www.w3.org/2000/svg" '
        f'xmlns:xlink="http://www.w3.org/1999/xlink" style="max-width:{width}px">'
    )
    return opening + body[head.end() :].strip()
