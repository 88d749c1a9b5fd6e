"""Predictions without draws: a model with its weights at their means."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Generator, nn

from bayesify.checks import checked
from bayesify.predict.accumulation import Accumulator, one_more
from bayesify.predict.prediction import over_batches
from bayesify.predict.predictive import Predictive
from bayesify.weights import as_call


class AtMeans:
    """A model at the posterior mean, every member of a deep ensemble at its own; takes its place in `bf.evaluate`.

    It holds plain copies of the networks: what is trained afterwards does not reach them.
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        self.likelihood = model.likelihood
        count = len(model.posterior.nets(model.net))
        nets = [model.mean_net()] if count == 1 else [model.member(i) for i in range(count)]
        self.nets: list[nn.Module] = [net.eval() for net in nets]

    def parameters(self) -> Iterator[nn.Parameter]:
        """Those of the model, whose device inputs go to."""
        return self.model.parameters()

    @checked
    def predict(
        self,
        x: Any,
        num_draws: int = 1,
        keep_samples: bool = False,
        generator: Generator | None = None,
        batched: bool | None = None,
        compile: bool = False,
        on_nonfinite: str = "raise",
    ) -> Predictive:
        """As `model.predict`, one pass of each network; `num_draws`, `generator` and `batched` change nothing."""
        if compile:
            raise ValueError(
                "compile=True compiles draws and network together; mode='deterministic' makes no draws: "
                "use torch.compile(model.mean_net())"
            )
        return over_batches(self, x, lambda inputs: self._predict(inputs, keep_samples), on_nonfinite)

    def _predict(self, x: Any, keep_samples: bool) -> Predictive:
        call = as_call(x)
        accumulator = Accumulator(self.likelihood, keep_samples)
        with torch.no_grad():
            for net in self.nets:
                accumulator.add(one_more(self.model.pick(net(*call.args, **call.kwargs))))
        return accumulator.result()
