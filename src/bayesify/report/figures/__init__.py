"""Figures as matplotlib objects, from plain arrays. `svg` makes one part of a page."""

from bayesify.report.figures import calibration, examples, posterior, shift
from bayesify.report.figures.svg import svg

__all__ = ["calibration", "examples", "posterior", "shift", "svg"]
