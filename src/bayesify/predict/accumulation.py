"""Predictions from draws that come one after the other: their statistics, streamed."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from bayesify.likelihoods import Likelihood
from bayesify.predict.mixture import OutputMixture
from bayesify.predict.predictive import Predictive, divisor
from bayesify.torch_internals import pytree

FEW = 2**16  # numbers in the draws' summaries that a prediction keeps until its statistics are asked for


class Statistics(NamedTuple):
    """Of the outputs of several draws: what predictions need of them."""

    num_draws: int
    mean: Tensor
    squares: Tensor  # Σ (value − mean)²
    noise: Tensor  # mean
    votes: Tensor | None  # draws voting for each class
    per_draw: tuple[Tensor, Tensor] | None  # (draws, ...) of value and noise
    outputs: Any | None  # (draws, ...), where the likelihood's law is not in value and noise


def statistics(likelihood: Likelihood, outputs: Any, keep_samples: bool = False) -> Statistics:
    """The statistics of outputs (draws, batch, ...); it compiles."""
    return _statistics(likelihood, *likelihood.summaries(outputs), outputs, keep_samples)


def _statistics(
    likelihood: Likelihood, value: Tensor, noise: Tensor, outputs: Any, keep_samples: bool
) -> Statistics:
    mean = value.mean(0)
    squares = (value - mean).square().sum(0)
    per_draw = (value, noise) if keep_samples else None
    held = outputs if likelihood.keeps_outputs else None
    return Statistics(len(value), mean, squares, noise.mean(0), likelihood.votes(value), per_draw, held)


def one_more(output: Any) -> Any:
    """(batch, ...) -> (1, batch, ...)."""
    return output[None] if isinstance(output, Tensor) else pytree.tree_map(lambda t: t[None], output)


class Accumulator:
    """Streams over draws: memory does not grow with their number unless they are kept.

    Of a regression whose law is not normal the outputs of all draws are always kept: its density needs them.
    matched: the draws' own mean and variance, with divisor S, are the true ones (`output_draws.py`).
    """

    def __init__(self, likelihood: Likelihood, keep_samples: bool = False, matched: bool = False) -> None:
        self.likelihood = likelihood
        self.keep_samples = keep_samples
        self.matched = matched
        self.count = 0
        self.only: tuple[Tensor, Tensor] | None = None  # summaries of few draws, which may remain all
        self.per_draw: list[tuple[Tensor, Tensor]] = []
        self.outputs: list[Any] = []

    def add(self, outputs: Any) -> None:
        """The outputs of several draws: (draws, batch, ...)."""
        value, noise = self.likelihood.summaries(outputs)
        plain = not (self.keep_samples or self.likelihood.keeps_outputs or value.requires_grad)
        if plain and self.count == 0 and value.numel() <= FEW:
            self.likelihood.check_values(value)
            self.only, self.count = (value, noise), len(value)
            return
        self.merge(_statistics(self.likelihood, value, noise, outputs, self.keep_samples))

    def merge(self, more: Statistics) -> None:
        """Further draws, by their statistics."""
        if self.only is not None:
            only, self.only, self.count = self.only, None, 0
            self.merge(_statistics(self.likelihood, *only, None, False))
        if self.count == 0:
            _, self.mean, self.squares, self.noise, self.votes, *_ = more
        else:  # Chan, Golub and LeVeque's update of a mean and a sum of squares
            share, delta = more.num_draws / (self.count + more.num_draws), more.mean - self.mean
            self.mean = self.mean + share * delta
            self.squares = self.squares + more.squares + self.count * share * delta.square()
            noise = self.noise + share * (more.noise - self.noise)
            self.noise = torch.where(self.noise.isinf(), self.noise, noise)  # a law without a variance
            if more.votes is not None and self.votes is not None:
                self.votes = self.votes + more.votes
        self.count += more.num_draws
        if more.per_draw is not None:
            self.per_draw.append(more.per_draw)
        if more.outputs is not None:
            self.outputs.append(more.outputs)

    def result(self) -> Predictive:
        """The prediction of all draws so far."""
        if self.only is not None:
            return Predictive.of_draws(self.likelihood, *self.only, self.matched)
        per_draw = None
        if self.keep_samples:
            per_draw = (torch.cat([v for v, _ in self.per_draw]), torch.cat([n for _, n in self.per_draw]))
        votes = None if self.votes is None else self.votes / self.count
        spread = self.squares / divisor(self.count, self.matched)
        law = None
        if self.outputs:
            outputs = pytree.tree_map(lambda *parts: torch.cat(parts), *self.outputs)
            law = OutputMixture.of(self.likelihood, outputs, self.mean)
        return Predictive(
            self.likelihood, self.count, self.mean, spread, self.noise, votes, per_draw, law=law
        )
