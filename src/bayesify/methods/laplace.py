"""Laplace's approximation around a trained network."""

from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

from torch import nn

from bayesify.checks import Range
from bayesify.methods.base import Method
from bayesify.names import check_choice
from bayesify.posteriors.gaussian.laplace import MARGLIK, VALIDATION
from bayesify.posteriors.gaussian.laplace import Laplace as Posterior
from bayesify.weights import Selection, select, where
from bayesify.weights.where import Where

STRUCTURES = ("kron", "diag", "full", "last_layer")
#: where nothing is said: weights of a dense matrix, whose eigenvalues take seconds, and of Kronecker factors of all
MOST_OF_FULL, MOST_OF_ALL = 2_000, 100_000


@dataclass(frozen=True)
class Laplace(Method):
    """A normal law around the weights of a trained network, whose precision is the curvature of the loss there plus
    that of the prior.

    `bf.fit(model, loader)` is one pass over the data and no training; `bf.fit(model, loader, epochs=20)` trains the
    plain network first. Predictions are those of the network linearised at its weights, N(f(x), J Σ Jᵀ).

    structure:        of the curvature (generalised Gauss-Newton): "kron", Kronecker factors of every linear
                      operation's weight; "diag"; "full", dense; "last_layer", dense, of the output layer. None: "full"
                      of at most 2,000 weights, "kron" of at most 100,000, else of the output layer, dense or factors
    prior_precision:  1 / variance of the prior N(0, ·) of the weights: a number; "marglik", the one with the largest
                      marginal likelihood, by the training data; or "validation", by the NLL on the val_loader of
                      `bf.fit`. None: "validation" of classes where there is a val_loader, else "marglik"
    per_layer:        a prior precision for each layer, by "marglik"
    find_noise:       is the noise std of likelihood="normal" found by the marginal likelihood, beside the prior
                      precision? None: where it stands at 1, its default, and training does not learn it
    linearised:       False: predictions put draws of the weights into the network, as other methods do
    where:            None: all weights but those of norm layers; of "last_layer" the output layer
    """

    name = "laplace"
    about = "Laplace's approximation: one pass over the data gives a trained network a normal posterior"
    paper = (
        "E. Daxberger, A. Kristiadi, A. Immer, R. Eschenhagen, M. Bauer, P. Hennig: Laplace Redux - Effortless "
        "Bayesian Deep Learning. NeurIPS 2021."
    )
    reasons: ClassVar[dict[str, str]] = {
        "structure": "by the number of weights",
        "where": "too many weights for a curvature of all",
    }
    needs_training = False

    structure: str | None = None
    prior_precision: Annotated[float, Range(above=0)] | str | None = None
    per_layer: bool = False
    find_noise: bool | None = None
    linearised: bool = True
    where: Where | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.structure is not None:
            check_choice(STRUCTURES, self.structure, "structure")
        if isinstance(self.prior_precision, str):
            check_choice((MARGLIK, VALIDATION), self.prior_precision, "prior_precision")
        if self.per_layer and self.prior_precision not in (MARGLIK, None):
            raise ValueError(
                f"per_layer=True is found by prior_precision='marglik', not {self.prior_precision!r}: leave it out"
            )
        if self.per_layer and self.structure == "full":
            raise ValueError(
                "per_layer=True needs a curvature by layer, and structure='full' is one dense matrix: use 'kron'"
            )

    @property
    def needs_num_data(self) -> bool:
        return False

    def for_net(self, net: nn.Module, example: Any) -> "Laplace":
        structure, chosen = self.structure, self.where
        if structure is None:
            total = _numel(select(net, ~where.norm if chosen is None else chosen, example))
            structure = "full" if total <= MOST_OF_FULL and not self.per_layer else "kron"
            if chosen is None and total > MOST_OF_ALL:
                chosen = where.output
                small = _numel(select(net, chosen, example)) <= MOST_OF_FULL
                structure = "last_layer" if small else "kron"
        if chosen is None:
            chosen = where.output if structure == "last_layer" else ~where.norm
        return self.decided(structure=structure, where=chosen)

    def posterior(self, net: nn.Module, selection: Selection, example: Any) -> Posterior:
        assert self.structure is not None
        dense = {"full": "dense", "last_layer": "dense"}
        structure = dense.get(self.structure, self.structure)
        options = (self.prior_precision, self.per_layer, self.find_noise, self.linearised)
        return Posterior(net, selection, structure, *options)


def _numel(selection: Selection) -> int:
    return sum(w.numel for w in selection.random)
