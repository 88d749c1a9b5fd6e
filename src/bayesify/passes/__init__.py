"""The three ways to evaluate a random network: draw, local (and flipout), moments."""

from bayesify.passes.last_layer import LastOutput
from bayesify.passes.local import LOCAL_KINDS, LocalWeight, random_weights
from bayesify.passes.moments import call_with_moments

__all__ = ["LOCAL_KINDS", "LastOutput", "LocalWeight", "call_with_moments", "random_weights"]
