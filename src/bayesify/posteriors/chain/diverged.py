"""Words for a chain that ran out of the numbers: where, and what helps."""

from collections.abc import Mapping

from torch import Tensor


def first_not_finite(weights: Mapping[str, Tensor], momenta: Mapping[str, Tensor]) -> str | None:
    """The first weight or momentum that holds NaN or infinite values, by name."""
    for name, w in weights.items():
        if name in momenta and not momenta[name].isfinite().all():
            return f"the momentum of {name}"
        if not w.isfinite().all():
            return name
    return None


def diverged(
    trouble: str, steps: int, weights: Mapping[str, Tensor], momenta: Mapping[str, Tensor], num_draws: int
) -> str:
    """trouble: what was seen; steps: that were taken before it; num_draws: that are kept."""
    culprit = first_not_finite(weights, momenta)
    if culprit is None:
        largest = {name: w.abs().max().item() for name, w in weights.items() if w.numel()}
        name = max(largest, key=lambda n: largest[n])
        where = f"the largest weight is {largest[name]:.3g}, in {name}"
    else:
        where = f"{culprit} is not finite"
    seen = "" if where == trouble else f"; {where}"
    return (
        f"the chain has diverged: {trouble} after {steps} steps{seen}. The {num_draws} earlier draws are kept. "
        f"{advice(bool(momenta))}"
    )


def advice(momentum: bool) -> str:
    """What helps a chain that diverges, with or without momentum."""
    if not momentum:
        return "Lower the step size (lr)"
    return (
        "Lower the step size (lr), raise the mass (bf.diagnostics.suggest gives one that is safe), or bound the speed "
        "(max_speed)"
    )
