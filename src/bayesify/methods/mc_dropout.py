"""Monte-Carlo dropout: dropout stays on when predicting."""

from dataclasses import dataclass, field, replace
from typing import Any

from torch import nn

from bayesify.checks import NotNegative, Share
from bayesify.methods.base import Method
from bayesify.methods.ensemble_patching import EnsemblePatching
from bayesify.posteriors import Posterior
from bayesify.posteriors.dropout import ActiveDropout, dropout_layers
from bayesify.weights import Selection, where
from bayesify.weights.where import Where, kind_of

#: drop_prob where none is given; a channel of a convolution carries more than a unit
CHANNEL_DROP_PROB, UNIT_DROP_PROB = 0.05, 0.1
INPUT = "sees the inputs of the network, which are all kept: a draw that drops them sees no data"
HIDDEN = (where.linear | where.conv) & ~where.input


@dataclass(frozen=True)
class MCDropout(Method):
    """The network's own dropout layers kept on; where it has none, input units of its layers dropped.

    drop_prob:        for a network without dropout layers: each input unit (channel of a convolution) of a layer in
                      `where` is dropped with this probability, for every example by itself; left out, 0.05 in networks
                      with convolutions and 0.1 in others
    prior_precision:  τ of a normal prior over all trained weights: the L2 term; 0: none, weight decay holds them
    where:            linear and convolution layers but those that see the inputs of the network, of which a draw would
                      lose its data; where there are no others, these
    """

    name = "mc_dropout"
    about = "dropout kept on when predicting: the network's own layers, or units and channels dropped"
    paper = (
        "Y. Gal, Z. Ghahramani: Dropout as a Bayesian Approximation: Representing Model Uncertainty in Deep Learning. "
        "ICML 2016."
    )
    needs_random = False

    drop_prob: Share | None = None
    prior_precision: NotNegative = 0.0
    where: Where = field(default=HIDDEN, kw_only=True)

    @property
    def needs_num_data(self) -> bool:
        return self.prior_precision > 0

    def posterior(self, net: nn.Module, selection: Selection, example: Any) -> Posterior:
        if dropout_layers(net):
            return ActiveDropout(net, self.prior_precision)
        return self._patching(net).posterior(net, selection, example)

    def select(self, net: nn.Module, example: Any) -> Selection:
        if dropout_layers(net):
            selection = super().select(net, example)
            reason = "a weight: this network's dropout layers are random"
            weights = tuple(replace(w, random=False, reason=w.reason or reason) for w in selection.weights)
            return replace(selection, weights=weights, slots={})
        selection = self._patching(net).select(net, example)
        if not selection.random and self.where is HIDDEN:  # a network of one layer
            selection = replace(self, where=where.linear | where.conv)._patching(net).select(net, example)
        if not selection.random:
            raise ValueError(
                f"where={self.where} selects no weight matrix, and the network has no dropout layers: "
                f"choose layers with weights, or put nn.Dropout into the network"
            )
        weights = tuple(
            replace(w, reason=INPUT)
            if w.kind in ("linear", "conv") and w.reason == f"not in where={HIDDEN}"
            else w
            for w in selection.weights
        )
        return replace(selection, weights=weights)

    def _patching(self, net: nn.Module) -> EnsemblePatching:
        convolves = any(kind_of(layer) == "conv" for layer in net.modules())
        usual = CHANNEL_DROP_PROB if convolves else UNIT_DROP_PROB
        return EnsemblePatching(
            assignment="dropout",
            drop_prob=usual if self.drop_prob is None else self.drop_prob,
            prior_precision=self.prior_precision,
            per_example=True,
            where=self.where,
        )
