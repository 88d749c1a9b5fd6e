"""Monte-Carlo variational inference (paper 1)."""

from dataclasses import dataclass, field
from typing import Any

from torch import nn

from bayesify.divergences import ESTIMATORS
from bayesify.families import FAMILIES
from bayesify.methods.base import Method
from bayesify.names import lookup
from bayesify.posteriors import SAMPLINGS, Call, Factorized
from bayesify.priors import Prior, prior
from bayesify.weights import Selection


@dataclass(frozen=True)
class MonteCarloVI(Method):
    """q(w) from a family, trained by the ELBO.

    family:    posterior family of every random tensor
    prior:     a name or `bf.prior(...)`
    sampling:  "draw" one set of weights per forward; "local" reparameterization, fresh noise for every
               example (linear and convolutional layers; others are drawn); "flipout" likewise by signs
    kl:        estimator of the KL ("exact", or "auto": the best available); `num_kl_draws` is the number
               of draws of a Monte-Carlo estimator
    init_std:  starting std as a fraction of each tensor's root mean square, small enough that a
               pretrained network predicts nearly as before
    same_draws: every process of a distributed run draws the same weights (else each its own)
    """

    name = "mc_vi"
    about = "variational inference: a distribution over every weight, trained by the ELBO"

    family: str = "normal"
    prior: str | Prior = "normal"
    kl: str = "auto"
    num_kl_draws: int = 1000
    sampling: str = "draw"
    init_std: float = 0.05
    same_draws: bool = False
    family_options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        lookup(FAMILIES, self.family, "family")
        lookup(ESTIMATORS, self.kl, "kl")
        if isinstance(self.prior, str):
            object.__setattr__(self, "prior", prior(self.prior))
        if self.sampling not in SAMPLINGS[:3]:
            raise ValueError(
                f"sampling={self.sampling!r} does not exist; choose from {', '.join(SAMPLINGS[:3])}"
            )
        if not self.init_std > 0:
            raise ValueError(f"init_std={self.init_std!r} must be positive")
        kind = FAMILIES[self.family]
        if (self.sampling == "local" and not kind.gaussian) or (
            self.sampling == "flipout" and not kind.symmetric
        ):
            raise ValueError(
                f"sampling={self.sampling!r} is not valid for the {self.family} family: use sampling='draw'"
            )

    def posterior(self, net: nn.Module, selection: Selection, example: Call | None) -> Factorized:
        assert isinstance(self.prior, Prior)
        posterior = Factorized(
            net,
            selection,
            FAMILIES[self.family],
            self.prior,
            sampling=self.sampling,
            kl_estimator=self.kl,
            num_kl_draws=self.num_kl_draws,
            same_draws=self.same_draws,
            init_std=self.init_std,
            **self.family_options,
        )
        if example is not None:
            posterior.observe(net, example)
        return posterior
