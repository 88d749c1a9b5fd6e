"""Samplers, one per file: torch optimisers that draw. Adding one: a file here and a line in SAMPLERS."""

from bayesify.names import Registry
from bayesify.samplers.atmc import ATMC
from bayesify.samplers.base import Sampler
from bayesify.samplers.findings import SamplingWarning
from bayesify.samplers.psgld import PSGLD
from bayesify.samplers.sghmc import SGHMC
from bayesify.samplers.sgld import SGLD
from bayesify.samplers.sgnht import SGNHT

SAMPLERS: dict[str, type[Sampler]] = {
    "sgld": SGLD,
    "psgld": PSGLD,
    "sghmc": SGHMC,
    "sgnht": SGNHT,
    "atmc": ATMC,
}
SAMPLERS = Registry(Sampler, SAMPLERS)

__all__ = ["ATMC", "PSGLD", "SAMPLERS", "SGHMC", "SGLD", "SGNHT", "Sampler", "SamplingWarning"]
