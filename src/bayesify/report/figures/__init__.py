"""Figures as matplotlib objects, from plain arrays. `svg` makes one part of a page."""

from bayesify.report.figures import calibration, conformal, examples, posterior, shift
from bayesify.report.figures.svg import svg

__all__ = ["calibration", "conformal", "examples", "posterior", "shift", "svg"]
