"""Reports: tables (terminal, Markdown, CSV, LaTeX), figures, and one HTML page that needs nothing else."""

from bayesify.report.build import Report
from bayesify.report.tables import Cell, Column, Table

__all__ = ["Cell", "Column", "Report", "Table"]
