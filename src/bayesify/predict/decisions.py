"""How unsure a prediction is, as one number for each example: what to answer, and what to label next.

entropy             of the prediction; of a regression of the normal with its mean and variance
bald                what the draws disagree on: entropy − expected entropy of the draws; of a regression
                    ½ log(variance / aleatoric), that of normals (Houlsby et al. 2011)
mutual_information  the same, of classes
variance            of the probabilities over draws, summed over classes; of a regression of the target
confidence          1 − probability of the label
agreement           1 − share of the draws that vote for the class with most votes
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from bayesify.names import check_choice


def _bald(p: Any) -> Tensor:
    if p.likelihood.task == "classification":
        return p.mutual_information
    return 0.5 * (p.variance / p.aleatoric).log()


def _variance(p: Any) -> Tensor:
    if not p.likelihood.is_multiclass:
        return p.variance
    return p.variance.sum(p.likelihood.class_dim)


#: larger is less certain; one number for each position
UNCERTAINTIES: dict[str, Callable[[Any], Tensor]] = {
    "entropy": lambda p: p.entropy,
    "mutual_information": lambda p: p.mutual_information,
    "confidence": lambda p: 1 - p.confidence,
    "agreement": lambda p: 1 - p.agreement,
    "bald": _bald,
    "variance": _variance,
}


#: those of a regression
OF_NUMBERS = frozenset({"entropy", "bald", "variance"})


def uncertainty(prediction: Any, score: str, argument: str = "score") -> Tensor:
    """(batch,): the score of every example, the mean over its positions or numbers."""
    known = frozenset(UNCERTAINTIES) if prediction.likelihood.task == "classification" else OF_NUMBERS
    check_choice(known, score, argument)
    each = UNCERTAINTIES[score](prediction)
    return each if each.dim() == 1 else each.flatten(1).mean(1)


def surest(scores: Tensor, count: int) -> Tensor:
    """(batch,), bool: the `count` examples with the smallest scores, of equal ones the first; NaN comes last."""
    order = scores.nan_to_num(torch.inf, torch.inf, -torch.inf).argsort(stable=True)
    return torch.zeros_like(scores, dtype=torch.bool).index_fill_(0, order[:count], True)
