"""Mean and variance of every activation in one pass, through unmodified networks."""

from bayesify.moments import rules
from bayesify.moments.carrier import RULES, Carrier, CarrierMode, Moments, rule
from bayesify.moments.standin import METADATA, StandIn, replace

__all__ = ["METADATA", "RULES", "Carrier", "CarrierMode", "Moments", "StandIn", "replace", "rule", "rules"]
