"""Mean and variance of every activation in one pass, through unmodified networks."""

from bayesify.moments.carrier import Carrier, carried, unwrap
from bayesify.moments.gains import Gains, fit_gains
from bayesify.moments.registry import FORMS, RULES, rule
from bayesify.moments.values import Gaussian, Moments, certain

from bayesify.moments import rules  # isort: skip
from bayesify.moments.mode import CarrierMode, of_moments
from bayesify.moments.sources import Sources, sources
from bayesify.moments.standin import StandIn, holds, replace

__all__ = [
    "FORMS",
    "RULES",
    "Carrier",
    "CarrierMode",
    "Gains",
    "Gaussian",
    "Moments",
    "Sources",
    "StandIn",
    "carried",
    "certain",
    "fit_gains",
    "holds",
    "of_moments",
    "replace",
    "rule",
    "rules",
    "sources",
    "unwrap",
]
