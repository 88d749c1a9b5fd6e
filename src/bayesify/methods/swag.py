"""SWAG: the mean and covariance of the iterates of SGD."""

import warnings
from dataclasses import dataclass
from typing import Annotated, Any

import torch
from torch import nn

from bayesify.checks import Count, NotNegative, NotNegativeCount, Range
from bayesify.methods.base import Method
from bayesify.methods.thermostat_mcmc import DTYPES
from bayesify.names import lookup
from bayesify.posteriors.gaussian.iterates import FEWEST
from bayesify.posteriors.gaussian.weight_average import Due, WeightAverage
from bayesify.samplers import SamplingWarning
from bayesify.samplers.schedules import EvenTimes, SampleTimes, burn_in_steps, check_burn_in
from bayesify.weights import Selection, where
from bayesify.weights.calls import is_sharded
from bayesify.weights.where import Where

BURN_IN = {False: 0.5, True: 0.1}  # by whether the network is trained already


@dataclass(frozen=True)
class SWAG(Method):
    """q(w) = N(w̄, ½ diag v + D Dᵀ / (2 (K − 1))): mean, variance and last K deviations of iterates of SGD at a
    constant rate.

    `bf.fit` trains a plain network by its recipe first, then keeps iterates of the tail; with `start="pretrained"` the
    tail is all. At its end the network has the mean for its weights, and batch norm the statistics of that.

    num_kept: iterates to keep, evenly over the run after `burn_in`, where `every` is left out
    every:    steps between iterates
    burn_in:  steps before the first iterate; below 1 a share of the steps of the tail. None: half of them, or a tenth
              where a network goes on that is trained already
    rank:     K, columns of the covariance; each takes as much memory as the network
    deviation_dtype: of these: "float32" or "bfloat16"; None: the parameters' own

    num_settled: with batch norm `bf.fit` finds statistics for so many draws, each its own, and predictions take these;
              0: every draw takes those of the mean, which are too small for it

    In a loop of one's own `model.optimizer(lr)` is SGD that keeps them at its steps, when `burn_in` and `every` are
    whole numbers of steps or `model.optimizer(lr, num_steps=...)` says how long the run is; else `model.collect()`
    keeps one. With batch norm `torch.optim.swa_utils.update_bn(loader, model)` then takes the statistics of the mean.
    In `bf.fit` another optimiser may take SGD's place: `optimizer="adam"`.

    >>> model = bf.bayesify(net, bf.SWAG(), start="pretrained")
    >>> bf.fit(model, train_loader)
    """

    name = "swag"
    about = "mean and low-rank covariance of the iterates of SGD"
    paper = (
        "W. J. Maddox, T. Garipov, P. Izmailov, D. Vetrov, A. G. Wilson: A Simple Baseline for Bayesian Uncertainty "
        "in Deep Learning. NeurIPS 2019."
    )

    where: Where = where.all
    num_kept: Annotated[int, Range(least=FEWEST)] = 60
    every: Count | None = None
    burn_in: NotNegative | None = None
    rank: Annotated[int, Range(least=FEWEST)] = 20
    deviation_dtype: str | None = None
    num_settled: NotNegativeCount = 20

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.deviation_dtype is not None:
            lookup(DTYPES, self.deviation_dtype, "deviation_dtype")
        check_burn_in(self.burn_in)

    @property
    def needs_num_data(self) -> bool:
        return False

    @property
    def own_optimizer(self) -> bool:
        """Iterates of any may be kept."""
        return False

    def for_pretrained(self, net: nn.Module) -> "SWAG":
        return self if self.burn_in is not None else self.decided(burn_in=BURN_IN[True])

    def posterior(self, net: nn.Module, selection: Selection, example: Any) -> WeightAverage:
        dtype = None if self.deviation_dtype is None else DTYPES[self.deviation_dtype]
        return WeightAverage(net, selection, self.due, self.rank, dtype, self.num_settled)

    def default_lr(self, model: Any) -> float:
        return 1e-2

    def optimizer(self, model: Any, lr: float = 1e-2, **options: Any) -> torch.optim.Optimizer:
        """SGD, with momentum 0.9 where no other is given. num_steps: of the run, by which iterates are kept (a warning
        says so where it is left out and matters; None: they are kept otherwise); other options are those of SGD."""
        silent = "num_steps" in options
        num_steps = options.pop("num_steps", None)
        parameters = [p for p in model.parameters() if p.requires_grad]
        made = torch.optim.SGD(parameters, lr=lr, **{"momentum": 0.9, **options})
        self.check_optimizer(made, model)
        model.posterior.begin(made, num_steps)
        if not silent and self.due(None) is None:
            warnings.warn(
                f"no iterate will be kept: burn_in={self.burn_in!r} and num_kept={self.num_kept!r} are of a run whose "
                f"length is not known here. Give model.optimizer(num_steps=...), or a method with burn_in= and every= "
                f"in steps; num_steps=None where `bf.fit` gets this optimiser or model.collect() keeps the iterates",
                SamplingWarning,
                stacklevel=3,
            )
        return made

    def check_optimizer(self, optimizer: torch.optim.Optimizer, model: Any) -> None:
        """Any may go on, but not over shards."""
        if is_sharded(model):
            raise RuntimeError(
                "swag does not keep iterates of sharded parameters (FSDP2): use strategy='ddp'"
            )

    def due(self, num_steps: int | None, trained: bool = False) -> Due | None:
        """When to keep iterates in a run of `num_steps` steps, perhaps from a network that is trained already; None
        where that cannot be said."""
        burn_in = burn_in_steps(BURN_IN[trained] if self.burn_in is None else self.burn_in, num_steps)
        if burn_in is None or (self.every is None and num_steps is None):
            return None
        if self.every is not None:
            return SampleTimes(burn_in, self.every).due
        assert num_steps is not None
        return EvenTimes(burn_in, num_steps - burn_in, self.num_kept).due
