"""The deterministic baseline: the network as it is."""

from dataclasses import dataclass
from typing import Any

from torch import nn

from bayesify.methods.base import Method
from bayesify.posteriors import PointMass
from bayesify.priors import Prior, prior
from bayesify.weights import Selection, where
from bayesify.weights.where import Where


@dataclass(frozen=True)
class Point(Method):
    """Maximum likelihood, or maximum a posteriori with a prior.

    prior:  over the weights in `where`, a name or `bf.prior(...)`; None: maximum likelihood
    """

    name = "point"
    needs_random = False
    about = "the plain network: maximum likelihood, or MAP with a prior"
    is_reference = True

    where: Where = where.all
    prior: str | Prior | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.prior, str):
            object.__setattr__(self, "prior", prior(self.prior))

    @property
    def needs_num_data(self) -> bool:
        return self.prior is not None

    def posterior(self, net: nn.Module, selection: Selection, example: Any) -> PointMass:
        assert not isinstance(self.prior, str)
        return PointMass(net, selection, self.prior)
