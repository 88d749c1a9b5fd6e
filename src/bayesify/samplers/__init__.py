"""Samplers, one per file: torch optimisers that draw. Adding one: a file here and a line in SAMPLERS."""

from bayesify.samplers.base import Sampler
from bayesify.samplers.sgld import SGLD

SAMPLERS: dict[str, type[Sampler]] = {"sgld": SGLD}

__all__ = ["SAMPLERS", "SGLD", "Sampler"]
