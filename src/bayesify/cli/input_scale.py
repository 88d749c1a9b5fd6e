"""Are the inputs of a prediction in the units of the training data? What a run keeps of those, and a rule."""

from collections.abc import Mapping

import torch
from torch import Tensor

from bayesify.data import Split

NUMBERS, FEWEST = 2**22, 64  # looked at, in examples evenly over the training part
MOST = 4096  # features with numbers of their own; of more, those of all together
FAR_PIXELS, FAR_EXAMPLES = 0.01, 0.1  # a hot pixel or a rare outlier is no other unit
STDS = 6.0  # the range of few examples is narrow
SMALL, ENOUGH = 0.02, 8  # this near 0, in at least so many numbers that are not 0


def scale_of(part: Split) -> dict[str, list[float]] | None:
    """mean, std, min and max of the inputs, per feature or channel; bytes count from 0 to 1. None for images that are
    still files: those are decoded in training, not before."""
    if not isinstance(part.inputs, Tensor):
        return None
    each = max(1, part.inputs[:1].numel())
    count = min(len(part), max(FEWEST, NUMBERS // each))
    index = torch.linspace(0, len(part) - 1, count, dtype=torch.float64).round().long()
    columns = _columns(part.inputs[index]).transpose(0, 1).flatten(1)  # (features, …)
    found = {
        "mean": columns.mean(1),
        "std": columns.std(1, correction=0),
        "min": columns.amin(1),
        "max": columns.amax(1),
    }
    return {key: value.tolist() for key, value in found.items()}


def other_scale(examples: Tensor, scale: Mapping[str, list[float]]) -> str | None:
    """What is wrong with the scale of `examples` (N, *input_shape), as read from a file; None where nothing is.

    Too large: of more than a tenth of the examples a feature (of images more than 1 % of a channel) lies beyond the
    training data by more than the whole range of these, and by more than six standard deviations.
    Too small: all numbers lie within 2 % of the largest of their feature in training, and eight or more are not 0.
    """
    x = _columns(examples)  # (examples, features, positions)
    std, low, high = (torch.tensor(scale[key], dtype=x.dtype)[:, None] for key in ("std", "min", "max"))
    if x.shape[1] != len(std) or not x.numel():
        return None
    margin = torch.maximum(high - low, STDS * std)
    beyond = torch.maximum(low - x, x - high) / margin.clamp_min(torch.finfo(x.dtype).tiny)
    beyond = torch.where(margin > 0, beyond, 0.0)  # a constant of the training data has no scale
    far = ((beyond > 1).to(x.dtype).mean(2) > FAR_PIXELS).any(1)
    if far.to(x.dtype).mean() > FAR_EXAMPLES:
        worst = int(beyond.amax((0, 2)).argmax())
        where = "" if len(std) == 1 else f" of {_noun(examples)} {worst}"
        return _words(x[:, worst], low[worst], high[worst], where, f"{int(far.sum())} of {len(x)} examples")
    largest = torch.maximum(low.abs(), high.abs())
    if bool((x.abs() <= SMALL * largest).all()) and int((x != 0).sum()) >= ENOUGH:
        return _words(x, low.min(), high.max(), "", "all examples")
    return None


def _columns(inputs: Tensor) -> Tensor:
    """(examples, features or channels, positions), float64."""
    unit = 255.0 if inputs.dtype == torch.uint8 else 1.0
    x = inputs.double() / unit
    if x.dim() < 2 or x.shape[1] > MOST:
        return x.reshape(len(x), 1, -1)
    return x.reshape(*x.shape[:2], -1)


def _noun(examples: Tensor) -> str:
    return "feature" if examples.dim() == 2 else "channel"


def _words(x: Tensor, low: Tensor, high: Tensor, where: str, share: str) -> str:
    return (
        f"the inputs{where} go from {float(x.min()):.4g} to {float(x.max()):.4g}, those of the training data from "
        f"{float(low):.4g} to {float(high):.4g} ({share}): are they in another unit? Then the predictions mean "
        f"little; give inputs in the unit of the training data"
    )
