"""bf.acquisition: which inputs of a pool to label next."""

from typing import Any, NamedTuple

from torch import Generator, Tensor

from bayesify.checks import Count, checked
from bayesify.evaluation.evaluate import predicted
from bayesify.predict.decisions import uncertainty
from bayesify.predict.predictive import Predictive

#: kinds that are about what the draws disagree on
OF_DRAWS = ("agreement", "bald", "mutual_information")


class Acquisition(NamedTuple):
    """What `bf.acquisition` found."""

    scores: Tensor  # (pool,): one number for each input, larger is more worth a label
    indices: Tensor  # (k,): the inputs with the largest scores, the largest first


@checked
def acquisition(
    model: Any,
    x: Any = None,
    kind: str = "bald",
    k: Count | None = None,
    num_draws: Count = 20,
    generator: Generator | None = None,
) -> Acquisition:
    """The scores of a pool of inputs, and the `k` that are most worth a label.

    model:     what bf.bayesify or model.freeze returned, or a prediction of the pool, which needs no x
    x:         the pool: one input of the model, or a loader, whose targets are not looked at
    kind:      "bald": the mutual information of the label and the weights, what the draws disagree on; "entropy",
               "confidence" (1 − that of the label), "variance", "agreement": see `Predictive.uncertainty`
    k:         None: all of the pool, in order

    The k inputs are chosen each by itself, so they may be alike: label few at a time. Inputs whose prediction is NaN
    come last.

    >>> next_ones = bf.acquisition(model, pool_loader, "bald", k=10).indices
    """
    if isinstance(model, Predictive) != (x is None):
        raise ValueError(
            "x is the pool of a model, and a prediction has none: give bf.acquisition(model, x) or "
            "bf.acquisition(prediction)"
        )
    found = model if x is None else predicted(model, x, num_draws, generator)
    scores = uncertainty(found, kind, "kind")
    if kind in OF_DRAWS and found.num_draws == 1:
        raise ValueError(
            f"kind={kind!r} is what several draws disagree on, and this prediction has one: use kind='entropy', or a "
            f"method with draws"
        )
    order = scores.nan_to_num(-float("inf"), float("inf")).argsort(descending=True, stable=True)
    return Acquisition(scores, order[:k])
