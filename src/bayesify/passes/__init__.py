"""The three ways to evaluate a random network: draw, local (and flipout), moments."""

from bayesify.passes.local import LOCAL_KINDS, LocalWeight, local_weights
from bayesify.passes.moments import call_with_moments

__all__ = ["LOCAL_KINDS", "LocalWeight", "call_with_moments", "local_weights"]
