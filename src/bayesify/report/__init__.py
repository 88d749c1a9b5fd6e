"""Reports: tables (terminal, Markdown, CSV, LaTeX), figures, and one HTML page that needs nothing else.

Adding a chapter: a function of the report's rows that gives a `Section`, and a line in SECTIONS.
"""

from bayesify.report.build import SECTIONS, Report
from bayesify.report.comparison import Row
from bayesify.report.page import Folded, Gallery, Picture, Section
from bayesify.report.tables import Cell, Column, Table

__all__ = [
    "SECTIONS",
    "Cell",
    "Column",
    "Folded",
    "Gallery",
    "Picture",
    "Report",
    "Row",
    "Section",
    "Table",
]
