"""Monte-Carlo dropout: dropout stays on when predicting."""

from dataclasses import dataclass, field, replace
from typing import Any

from torch import nn

from bayesify.checks import NotNegative, Share
from bayesify.methods.base import Method
from bayesify.methods.ensemble_patching import EnsemblePatching
from bayesify.posteriors import Posterior
from bayesify.posteriors.dropout import ActiveDropout, dropout_layers
from bayesify.weights import Selection
from bayesify.weights.where import Where


@dataclass(frozen=True)
class MCDropout(Method):
    """The network's own dropout layers kept on; where it has none, rows of its weights dropped.

    drop_prob:        for a network without dropout layers: each input unit of a layer in `where` (linear | conv)
                      is dropped with this probability, the same for a whole batch
    prior_precision:  τ of a normal prior over all trained weights: the L2 term
    """

    name = "mc_dropout"
    about = "dropout kept on when predicting: the network's own layers, or rows of its weights"
    paper = (
        "Y. Gal, Z. Ghahramani: Dropout as a Bayesian Approximation: Representing Model Uncertainty in Deep Learning. "
        "ICML 2016."
    )
    needs_random = False

    drop_prob: Share = 0.1
    prior_precision: NotNegative = 1.0
    where: Where = field(default=None, kw_only=True)  # type: ignore[assignment]  # filled in from the dropout assignment

    def __post_init__(self) -> None:
        object.__setattr__(self, "where", self._patching().where)
        super().__post_init__()

    def posterior(self, net: nn.Module, selection: Selection, example: Any) -> Posterior:
        if dropout_layers(net):
            return ActiveDropout(net, self.prior_precision)
        return self._patching().posterior(net, selection, example)

    def select(self, net: nn.Module, example: Any) -> Selection:
        if dropout_layers(net):
            selection = super().select(net, example)
            reason = "a weight: this network's dropout layers are random"
            weights = tuple(replace(w, random=False, reason=w.reason or reason) for w in selection.weights)
            return replace(selection, weights=weights, slots={})
        selection = self._patching().select(net, example)
        if not selection.random:
            raise ValueError(
                f"where={self.where} selects no weight matrix, and the network has no dropout layers: "
                f"choose layers with weights, or put nn.Dropout into the network"
            )
        return selection

    def _patching(self) -> EnsemblePatching:
        return EnsemblePatching(
            assignment="dropout",
            drop_prob=self.drop_prob,
            prior_precision=self.prior_precision,
            where=self.where,
        )
