"""Predictions without draws: a model with its weights at their means."""

from collections.abc import Iterable, Iterator
from itertools import cycle, islice, repeat
from typing import Any

import torch
from torch import Generator, nn

from bayesify.checks import checked
from bayesify.predict.accumulation import Accumulator, one_more
from bayesify.predict.prediction import over_batches
from bayesify.predict.predictive import Predictive
from bayesify.predict.views import Augment, Views, check_augment
from bayesify.weights import Call, as_call


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
        augment: Augment | None = None,
    ) -> Predictive:
        """As `model.predict`, one pass of each network, or with `augment` its share of `num_draws`."""
        check_augment(augment)
        if compile:
            raise ValueError(
                "compile=True compiles draws and network together; mode='deterministic' makes no draws: "
                "use torch.compile(model.mean_net())"
            )
        each = 1 if augment is None else -(-num_draws // len(self.nets))

        def one(inputs: Any) -> Predictive:
            calls = repeat(as_call(inputs)) if augment is None else Views(augment, inputs, generator)
            return self._predict(islice(calls, each * len(self.nets)), keep_samples)

        return over_batches(self, x, one, on_nonfinite)

    def _predict(self, calls: Iterable[Call], keep_samples: bool) -> Predictive:
        accumulator = Accumulator(self.likelihood, keep_samples)
        with torch.no_grad():
            for net, call in zip(cycle(self.nets), calls, strict=False):
                accumulator.add(one_more(self.model.pick(net(*call.args, **call.kwargs))))
        return accumulator.result()
