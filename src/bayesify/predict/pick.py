"""The prediction in what a network returns."""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from bayesify.moments import Moments, StandIn, of_moments


def picked(output: Any, by: Callable[[Any], Any] | None, takes_heads: bool) -> Any:
    """What `by` picks; without it the output itself, its .logits, or several heads where the likelihood takes them."""
    if by is not None:
        return of_moments(by, output)
    if isinstance(output, Tensor | Moments | StandIn):
        return output
    logits = output.get("logits") if isinstance(output, dict) else getattr(output, "logits", None)
    if logits is not None:
        return logits
    if takes_heads and isinstance(output, tuple | list):
        return output
    raise TypeError(
        f"the network returned {type(output).__name__}, which is neither a tensor nor has .logits: "
        f"say what to use with bayesify(..., output=lambda out: ...)"
    )
