"""Monte-Carlo variational inference (paper 1)."""

from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

from torch import nn

from bayesify.checks import Count, NotNegative, Positive
from bayesify.divergences import ESTIMATORS, check_method, check_options, kl_of
from bayesify.families import FAMILIES, Family
from bayesify.methods.base import LAST, Method, around, weight_by_size
from bayesify.names import check_choice, lookup
from bayesify.objectives import DataTerm
from bayesify.objectives.last_layer import last_layer_nll
from bayesify.posteriors import SAMPLINGS, Call, Factorized
from bayesify.priors import Prior, prior
from bayesify.weights import Selection, where
from bayesify.weights.kinds import kind_of_network
from bayesify.weights.where import Where


@dataclass(frozen=True)
class MonteCarloVI(Method):
    """q(w) from a family, trained by the ELBO (paper 1).

    where:     None: the last layer in a network of convolutions with batch or group norm, whose other weights fit
               better without noise; else all but norm layers
    kl_weight: tempering of the KL; 1 is Bayes. None: 1, less of more than 100,000 random weights (`weight_by_size`)
    family:    posterior family of every random tensor
    family_options: options of the family (`concentration`, `tail`)
    prior:     a name or `bf.prior(...)`; "fan_in" and "per_layer" give every tensor its own. None: "normal"; around
               the network's weights with `start="pretrained"`.
               docs/families_and_priors.md lists which pairs have a KL and by which estimators; the others raise
    sampling:  "draw" one set of weights per forward; "local" reparameterization, fresh noise for every
               example (linear and convolutional layers; others are drawn), for the normal family; "flipout" likewise
               by signs, for independent symmetric families
    kl:        estimator of the KL (`bf.kl` describes them). "auto" is the best available: "exact" where there is one,
               else "repar", else "stream". Time and memory of "repar" do not depend on `num_kl_draws` where the
               statistics of many draws are drawn at once; its graph never does
    num_kl_draws: number of draws of a Monte-Carlo estimator
    kl_options:   options of the estimator: {"order": 4, "about": "mean"} for "taylor"
    init_std:  starting std as a fraction of each tensor's root mean square, small enough that a
               pretrained network predicts nearly as before
    same_draws: every process of a distributed run draws the same weights (else each its own)
    num_likelihood_draws: number of draws of the last layer, linear or convolutional, in every pass of a loss, over
               which the log-likelihood is averaged (§4.2); the rest of the network runs once. For the normal family
               each example has noise of its own, and the graph does not grow with the number
    """

    name = "mc_vi"
    about = "variational inference: a distribution over every weight, trained by the ELBO"
    paper = (
        "J. Nazarovs, R. R. Mehta, V. S. Lokhande, V. Singh: Graph Reparameterizations for Enabling 1000+ Monte Carlo "
        "Iterations in Bayesian Deep Neural Networks. UAI 2021."
    )
    reasons: ClassVar[dict[str, str]] = {**Method.reasons, "where": LAST}

    where: Where | None = field(default=None, kw_only=True)
    kl_weight: NotNegative | None = field(default=None, kw_only=True)
    family: str = "normal"
    prior: str | Prior | None = None
    kl: str = "auto"
    num_kl_draws: Count = 1000
    kl_options: dict[str, Any] = field(default_factory=dict)
    sampling: str = "draw"
    init_std: Positive = 0.05
    same_draws: bool = False
    family_options: dict[str, Any] = field(default_factory=dict)
    num_likelihood_draws: Count = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        lookup(FAMILIES, self.family, "family")
        lookup(ESTIMATORS, self.kl, "kl")
        check_options(self.kl, self.kl_options)
        if isinstance(self.prior, str):
            object.__setattr__(self, "prior", prior(self.prior))
        check_choice(SAMPLINGS[:3], self.sampling, "sampling")
        kind = FAMILIES[self.family]
        reason = refusal(self.sampling, kind)
        if reason:
            raise ValueError(
                f"sampling={self.sampling!r} is not valid for the {self.family} family: {reason}; use sampling='draw'"
            )
        law = prior("normal") if self.prior is None else self.prior
        assert isinstance(law, Prior)
        check_method(kind, law, self.kl, {"init_std": self.init_std, **self.family_options})

    def for_pretrained(self, net: nn.Module) -> "MonteCarloVI":
        moves = FAMILIES[self.family].moves
        return self.decided(prior=around()) if self.prior is None and moves else self

    def for_net(self, net: nn.Module, example: Any) -> "MonteCarloVI":
        usual = where.output if kind_of_network(net) == "convolutional" else ~where.norm
        made = self.decided(where=usual) if self.where is None else self
        made = made.decided(prior=prior("normal")) if made.prior is None else made
        if made.kl_weight is not None:
            return made
        return made.decided(kl_weight=weight_by_size(made.select(net, example)))

    def posterior(self, net: nn.Module, selection: Selection, example: Call | None) -> Factorized:
        assert isinstance(self.prior, Prior)
        return Factorized(
            net,
            selection,
            FAMILIES[self.family],
            self.prior,
            sampling=self.sampling,
            divergence=partial(kl_of, estimator=self.kl, num_draws=self.num_kl_draws, **self.kl_options),
            same_draws=self.same_draws,
            num_likelihood_draws=self.num_likelihood_draws,
            init_std=self.init_std,
            example=example,
            **self.family_options,
        )

    def data_term(self) -> DataTerm | None:
        num = self.num_likelihood_draws
        return None if num == 1 else partial(last_layer_nll, num_draws=num)


def refusal(sampling: str, family: type[Family]) -> str:
    """Why a family cannot be sampled this way; empty where it can."""
    if sampling == "draw" or (family.gaussian if sampling == "local" else family.symmetric):
        return ""
    if not family.independent:
        return "its weights are not independent, one draw couples the whole tensor"
    if sampling == "local":
        return "its weights are not normal, so that the output of a layer has no law to sample from"
    return "its weights are not symmetric about their mean, so that random signs would change their law"
