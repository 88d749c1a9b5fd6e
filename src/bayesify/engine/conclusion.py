"""What a posterior finds once training is over, by looking at the network and the data: the end of a run."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Generator, Tensor

from bayesify.batches import first_examples, inputs_for, target_of, to_device
from bayesify.checks import as_tensor
from bayesify.engine.averaging import own_randomness
from bayesify.engine.position import batches
from bayesify.evaluation.evaluate import evaluate
from bayesify.model import BayesianModule
from bayesify.posteriors.base import TrainingData
from bayesify.predict.prediction import evaluating

LOOKED_AT = 256  # training examples whose predictions a posterior may ask for


def check_conclusion(model: BayesianModule, val: Any, processes: int) -> None:
    """Raise where what follows the training could not be done."""
    if model.posterior.concludes and processes > 1:
        raise ValueError(
            f"method={model.method.name!r} looks at the training data in one process, and this run has {processes}: "
            f"train the plain network with all of them (bf.Point()), then call bf.fit on one device"
        )
    if model.posterior.needs_validation and val is None:
        raise ValueError(
            "prior_precision='validation' needs a val_loader: give bf.fit one, or use prior_precision='marglik'"
        )


class Conclusion:
    """What a trained model may ask of its data, without a trace in random numbers or the order of the data.

    end:  batches of an epoch; None: all of the loader
    """

    def __init__(
        self, model: BayesianModule, train: Any, val: Any, epoch: int, end: int | None, num_draws: int
    ) -> None:
        self.model, self.train, self.val = model, train, val
        self.epoch, self.end, self.num_draws = epoch, end, num_draws

    def found(self) -> list[str]:
        """What the posterior found, in words."""
        model = self.model
        score = None if self.val is None else self.score
        data = TrainingData(self.seen, model.num_data, model.likelihood, model.pick, self.confidence, score)
        model.calibration = model.conformal = None  # they were fitted to another posterior
        with evaluating(model):
            return model.posterior.conclude(model.net, data)

    def seen(self) -> Iterator[tuple[Any, Tensor]]:
        """The training data, once, on the model's device."""
        like = next(self.model.parameters())
        with own_randomness(self.train, self.epoch, 0):
            for batch in batches(self.train, self.epoch, 0, self.end):
                target = to_device(target_of(batch), like.device)
                yield inputs_for(self.model, batch), as_tensor(target, "target", like)

    def confidence(self) -> float:
        """The mean confidence on the first training examples."""
        found: list[Tensor] = []
        for x, _ in self.seen():
            x, _ = first_examples(x, LOOKED_AT - sum(map(len, found)))
            with self.model.uncautioned():
                seen = self.model.predict(x, self.num_draws, generator=self._generator(), augment=None)
            found.append(seen.confidence)
            if sum(map(len, found)) >= LOOKED_AT:
                break
        return float(torch.cat(found).mean())

    def score(self) -> float:
        """The NLL on the validation data."""
        options: dict[str, Any] = {"generator": self._generator(), "augment": None}
        with self.model.uncautioned():
            return evaluate(self.model, self.val, self.num_draws, **options)["nll"]

    def _generator(self) -> Generator:
        return Generator(next(self.model.parameters()).device).manual_seed(0)
