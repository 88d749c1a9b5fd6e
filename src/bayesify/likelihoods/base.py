"""The face of every likelihood p(y | network output)."""

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from numbers import Real
from typing import Any, ClassVar

import torch
from torch import Generator, Tensor, nn

from bayesify.laws.noise import random_signs
from bayesify.likelihoods.classes import Classes
from bayesify.likelihoods.curvature import root_by_autograd
from bayesify.likelihoods.draws import rsample
from bayesify.likelihoods.shapes import (
    match_real,
    match_shape,
    normal_log_prob,
    sum_over_example,
    weighted_nll,
)
from bayesify.moments.values import Moments
from bayesify.torch_internals import pytree

TASKS = ("classification", "regression")
#: where options of one likelihood differ between two files, or a file and an object
LEARNED = " (the names of options that training changes belong into `learned` of the likelihood)"
OUTPUT_DRAWS = 8  # of an output with moments, where an expectation has no closed form


def log_of_option(option: str, value: Any) -> Tensor:
    """log of a noise level or shape, in float32, in which models hold it."""
    if isinstance(value, bool) or not isinstance(value, Real | Tensor) or not 1e-37 < float(value) < 1e38:
        raise ValueError(f"likelihood {option}={value!r} must be positive and finite in float32: e.g. 1.0")
    return torch.tensor(math.log(value))


class Likelihood(nn.Module, ABC):
    """Turns a network's output into a distribution over targets.

    One of your own has `name`, `task`, `check`, `log_prob`, `summarize` and `options`, in this order in every file of
    this room. All other members have defaults that follow from these; a likelihood overrides what it knows better.

    >>> class Cauchy(Likelihood):
    ...     name, task, options = "cauchy", "regression", {}
    ...     def check(self, output, target, values):
    ...         return match_real(output, target, values)
    ...     def log_prob(self, output, target):
    ...         return torch.distributions.Cauchy(output, 1.0).log_prob(target).sum(-1)
    ...     def summarize(self, output):
    ...         return output, torch.full_like(output, torch.inf)
    """

    name: ClassVar[str]
    task: ClassVar[str]  # "classification" or "regression"

    #: of probabilities: the dimension of the classes, or None: each number is the probability of 1 of its own label
    class_dim: int | None = 1
    #: targets of this value do not count
    ignore_index: int | None = None
    #: a regression's draw is the normal with the mean and variance of `summarize`: predictions need no outputs
    is_normal: ClassVar[bool] = False
    #: log p = log softmax(output)[target] for class indices: closed forms may use it
    is_softmax: bool = False
    #: targets are whole numbers: they are not standardised, and predictions not rescaled
    is_discrete: ClassVar[bool] = False
    #: the second half of each target are flags (seen or censored), which are not standardised
    has_flags: ClassVar[bool] = False
    #: the network may return several tensors, as a tuple or list
    takes_heads: ClassVar[bool] = False
    #: names of the options that training changes
    learned: tuple[str, ...] = ()
    #: its noise is to start from the data, which `bf.fit` does once
    from_data: bool = False

    # -- what every likelihood writes -------------------------------------------------------------------
    @abstractmethod
    def check(self, output: Any, target: Tensor, values: bool) -> Tensor:
        """The target as `log_prob` wants it; raises on a wrong shape or dtype, with `values` also on a wrong range."""

    @abstractmethod
    def log_prob(self, output: Any, target: Tensor) -> Tensor:
        """log p(y | output), summed over all but the batch dimension: (batch,)."""

    @abstractmethod
    def summarize(self, output: Any) -> tuple[Tensor, Tensor]:
        """What one draw predicts: (probabilities, entropy) or (mean, variance)."""

    @property
    @abstractmethod
    def options(self) -> dict[str, Any]:
        """Plain data that makes this likelihood again: `bf.likelihood(name, **options)`."""

    def compared(self, output: Any) -> Tensor:
        """What draws are compared by: of classes the probabilities, because a shift of all logits says nothing, and
        takes long to go round."""
        return self.summarize(output)[0] if self.task == "classification" or self.takes_heads else output

    # -- training ---------------------------------------------------------------------------------------
    def nll(
        self, output: Any, target: Tensor, sample_weight: Tensor | None = None, values: bool = True
    ) -> Tensor:
        """Mean negative log-likelihood per example."""
        target = self.matched(output, target, values)
        return weighted_nll(self.per_example(output, target), sample_weight, values)

    def expected_log_prob(self, output: Any, target: Tensor, logits: str = "bound") -> Tensor:
        """E log p(y | z) over z ~ N(mean, var), the moments in `output` (or in each head): (batch,).

        Here an unbiased estimate by OUTPUT_DRAWS draws of z, with gradients. `logits` is for likelihoods of classes
        that know bounds or expansions of it (`bf.DensityPropagation`).
        """
        drawn = rsample(output, OUTPUT_DRAWS)
        repeated = target.expand(OUTPUT_DRAWS, *target.shape).flatten(0, 1)
        return over_draws(lambda z: self.per_example(z, repeated), drawn).mean(0)

    def probe(self, output: Any, target: Tensor) -> tuple[Tensor, Any, Tensor]:
        """E log p(y | z) to first order about the variances in `output`: (log_prob, u, held), without a gradient by
        them. On average over random signs in u, log_prob − (Σ uᵀ Cov u − held) has the covariance in their place.

        u is (seeds, batch, …) as the output (or each head) is: u_k = ξ_k √(−∂E log p/∂Var z_k).
        """
        heads = output if type(output) is tuple else (output,)
        means, fixed = ([getattr(head, name).detach() for head in heads] for name in ("mean", "var"))

        def loss(*variances: Tensor) -> Tensor:
            known = tuple(map(Moments, means, variances))
            return -self.expected_log_prob(known if type(output) is tuple else known[0], target).sum()

        found = torch.func.grad(loss, tuple(range(len(fixed))))(*fixed)
        slopes = [slope.detach().clamp_min(0) for slope in found]
        u = tuple((s.sqrt() * random_signs(tuple(s.shape), s, None))[None] for s in slopes)
        held: Any = sum(sum_over_example(s * v) for s, v in zip(slopes, fixed, strict=True))
        known = tuple(Moments(h.mean, h.var.detach()) for h in heads)
        log_prob = self.expected_log_prob(known if type(output) is tuple else known[0], target)
        return log_prob, u if type(output) is tuple else u[0], held

    def gaussian_log_prob(self, output: Any, target: Tensor, var_floor: float = 1e-3) -> Tensor:
        """log of the normal density of y under the moments of the prediction, per example (paper 3, eq. 11): (batch,).

        Here with moments over OUTPUT_DRAWS draws. Regression: plus the variance of the noise. Classes: y is one-hot,
        and `var_floor` is added to the variance of the probabilities.
        """
        value, noise = self.summaries(rsample(output, OUTPUT_DRAWS))
        if self.task == "regression":
            return normal_log_prob(value.mean(0), value.var(0) + noise.mean(0), target)
        y = self.classes.one_hot(target, value[0])
        return normal_log_prob(value.mean(0), value.var(0) + var_floor, y)

    def curvature_root(self, output: Any, target: Tensor, columns: Tensor) -> Tensor:
        """L ξ for columns ξ (columns, batch, numbers of the output), where L Lᵀ is the Hessian of −log p(y | output)
        by the output, without its negative part. `target` is what `matched` gave."""
        return root_by_autograd(self.log_prob, output, target, columns)

    def average_log_prob(
        self, mean: Tensor, std: Tensor, target: Tensor, num_draws: int, generator: Generator | None
    ) -> Tensor | None:
        """The average of log p(y | z_i) over `num_draws` draws z_i ~ N(mean, std²), by one joint draw of what it needs
        of them: (batch,); None where the draws themselves are needed."""
        return None

    # -- training ---------------------------------------------------------------------------------------
    def start(self, output: Tensor, target: Tensor) -> Tensor | None:
        """Start what is learned from the data (`from_data`), by the outputs of a network that is not trained yet;
        returns what has to be added to them, None where they are near enough."""
        return None

    def units(self, output: Any, mean: Tensor, std: float) -> Tensor | None:
        """What takes outputs like `output` from targets of mean 0 and std 1 to those of `mean` (outputs,) and `std`:
        (heads, 2, outputs), what is added and the factor; None where outputs have no such map, as here."""
        return None

    # -- prediction -------------------------------------------------------------------------------------
    @property
    def classes(self) -> Classes:
        """Where the classes stand in what `summarize` gives."""
        return Classes(self.class_dim, self.ignore_index)

    @property
    def is_multiclass(self) -> bool:
        """One class of several for each position, rather than labels or numbers."""
        return self.task == "classification" and self.class_dim is not None

    @property
    def keeps_outputs(self) -> bool:
        """Must predictions keep the outputs of all draws, since what `summarize` gives is not the whole law?"""
        return self.task == "regression" and not self.is_normal

    def check_probs(self, probs: Tensor, target: Tensor) -> Tensor:
        """The target of predicted probabilities, which need not have the shape of an output."""
        return self.classes.target(probs, target)

    def votes(self, probs: Tensor) -> Tensor | None:
        """How many draws vote for each class, of probabilities (draws, ...): (...); None for regression."""
        if self.task == "regression":
            return None
        self.check_values(probs)
        return self.classes.votes(probs)

    def check_values(self, value: Tensor) -> None:
        """Raise where the first summary of draws, (draws, ...), has no classes where this likelihood says."""
        if self.task != "regression":
            self.classes.check(value[0], self.name)

    def mixture_log_prob(self, outputs: Any, target: Tensor) -> Tensor:
        """log (1/S) Σ_s p(y | output_s), outputs (draws, batch, ...): (batch,)."""
        leaves, structure = pytree.tree_flatten(outputs)
        draws = (pytree.tree_unflatten(draw, structure) for draw in zip(*leaves, strict=True))
        each = torch.stack([self.per_example(draw, target) for draw in draws])
        return each.logsumexp(0) - math.log(len(each))

    def numbers(self, like: Tensor, target: Tensor) -> Tensor:
        """The numbers in the targets of a regression, in the shape of the predicted means `like`."""
        return match_real(like, target, values=True)

    def rescaled(self, target: Tensor, shift: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
        """(t, log |dt/dy|) for y = shift + scale · t, the second summed over an example: (batch,)."""
        return (match_shape(shift, target) - shift) / scale, -sum_over_example(scale.log())

    def cdf(self, output: Any, value: Tensor) -> Tensor:
        """P(y ≤ value | output), elementwise; here of the normal with the mean and variance of `summarize`."""
        mean, var = self.summarize(output)
        return torch.special.ndtr((value - mean) / var.sqrt())

    # -- what a class of your own gives, looked at: by shapes and types, which compiled code takes as constants ---
    def matched(self, output: Any, target: Tensor, values: bool) -> Tensor:
        """What `check` gives: a tensor."""
        found = self.check(output, target, values)
        if not isinstance(found, Tensor):
            raise self._wrong("check", found, "the target as log_prob wants it, a tensor")
        return found

    def per_example(self, output: Any, target: Tensor) -> Tensor:
        """What `log_prob` gives: (batch,)."""
        found = self.log_prob(output, target)
        if not isinstance(found, Tensor) or found.shape != target.shape[:1]:
            wanted = f"one number for each of the {len(target)} examples, shape ({len(target)},): "
            raise self._wrong("log_prob", found, wanted + "sum over all but the batch dimension")
        return found

    def summaries(self, outputs: Any) -> tuple[Tensor, Tensor]:
        """What `summarize` gives for outputs (draws, batch, ...), a pair, draws first."""

        def pair(output: Any) -> tuple[Tensor, Tensor]:
            found = self.summarize(output)
            if not isinstance(found, tuple | list) or len(found) != 2:
                raise self._wrong("summarize", found, "a pair, (probabilities, entropy) or (mean, variance)")
            return found

        return over_draws(pair, outputs)

    def _wrong(self, member: str, found: Any, wanted: str) -> TypeError:
        what = f"shape {tuple(found.shape)}" if isinstance(found, Tensor) else type(found).__name__
        return TypeError(f"{type(self).__name__}.{member} returned {what}: it must return {wanted}")

    # -- files and the command line ---------------------------------------------------------------------
    def pooled(self, others: Sequence["Likelihood"]) -> "Likelihood":
        """One likelihood for models that were trained apart, this one's and `others`': the mean of each parameter."""
        result = copy.deepcopy(self)
        with torch.no_grad():
            for mine, *theirs in zip(*(each.parameters() for each in (result, *others)), strict=True):
                mine.copy_(torch.stack([mine, *theirs]).mean(0))
        return result

    @classmethod
    def num_outputs(cls, num_targets: int) -> int:
        """How many numbers the network gives for each example, of `num_targets` numbers or classes."""
        return num_targets


def over_draws(function: Callable[[Any], Any], outputs: Any) -> Any:
    """What `function` gives for outputs (draws, batch, ...), a tensor or a tuple, draws first; called once for draws ·
    batch examples."""
    if isinstance(outputs, Tensor):
        draws, flat = outputs.shape[:2], outputs.flatten(0, 1)  # (draws · batch, ...)
    else:
        draws = pytree.tree_leaves(outputs)[0].shape[:2]
        flat = pytree.tree_map(lambda t: t.flatten(0, 1), outputs)
    found = function(flat)
    if isinstance(found, Tensor):
        return found.view(draws + found.shape[1:])
    return tuple([part.view(draws + part.shape[1:]) for part in found])
