"""What the tests of likelihoods share: data and a network for every registered one, and two of a user's own."""

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

import bayesify as bf
from bayesify.likelihoods import LIKELIHOODS, Likelihood

X = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
SLOPE = X @ torch.tensor([[0.8], [-0.5], [0.3]])

#: name -> targets of the inputs X, and the outputs that the network needs
DATA: dict[str, Callable[[], tuple[Tensor, int]]] = {
    "categorical": lambda: ((X[:, 0] > 0).long() + (X[:, 1] > 0).long(), 3),
    "bernoulli": lambda: ((SLOPE > 0).float(), 1),
    "normal": lambda: (SLOPE + 0.1 * X[:, 1:2].sin(), 1),
    "heteroscedastic": lambda: (SLOPE + 0.1 * X[:, 1:2].sin(), 2),
    "student_t": lambda: (SLOPE + 0.1 * X[:, 1:2].sin(), 1),
    "laplace": lambda: (SLOPE + 0.1 * X[:, 1:2].sin(), 1),
    "poisson": lambda: ((1 + SLOPE).exp().round(), 1),
    "negative_binomial": lambda: ((1 + SLOPE).exp().round(), 1),
    "censored_normal": lambda: (torch.cat([SLOPE.clamp(max=0.5), (SLOPE < 0.5).float()], 1), 1),
    "ordinal": lambda: ((X[:, 0] > 0).long() + (X[:, 0] > 0.5).long(), 2),
}


class OwnStudentT(Likelihood):
    """A regression with the six members that every likelihood has, and a learned parameter."""

    name = "own_student_t"
    task = "regression"

    def __init__(self, df: float = 3.0) -> None:
        super().__init__()
        self.df_given = df
        self.log_scale = nn.Parameter(torch.tensor(-2.3))

    def check(self, output: Tensor, target: Tensor, values: bool) -> Tensor:
        return target

    def log_prob(self, output: Tensor, target: Tensor) -> Tensor:
        law = torch.distributions.StudentT(self.df_given, output, self.log_scale.exp(), validate_args=False)
        return law.log_prob(target).sum(-1)

    def summarize(self, output: Tensor) -> tuple[Tensor, Tensor]:
        variance = self.log_scale.exp().square() * self.df_given / (self.df_given - 2)
        return output, variance.expand(output.shape)

    @property
    def options(self) -> dict[str, Any]:
        return {"df": self.df_given}


class OwnClasses(Likelihood):
    """Classes by a softmax of doubled outputs; it says nothing about where the classes stand."""

    name = "own_classes"
    task = "classification"
    options: ClassVar[dict[str, Any]] = {}  # type: ignore[misc]

    def check(self, output: Tensor, target: Tensor, values: bool) -> Tensor:
        return target

    def log_prob(self, output: Tensor, target: Tensor) -> Tensor:
        return (2 * output).log_softmax(1).gather(1, target[:, None]).squeeze(1)

    def summarize(self, output: Tensor) -> tuple[Tensor, Tensor]:
        probs = (2 * output).softmax(1)
        return probs, torch.special.entr(probs).sum(1)


class OwnLabels(OwnClasses):
    """A yes or no for every output, its probability by the normal distribution function."""

    name = "own_labels"
    class_dim = None

    def log_prob(self, output: Tensor, target: Tensor) -> Tensor:
        sign = 2 * target - 1
        return torch.special.log_ndtr(sign * output).sum(1)

    def summarize(self, output: Tensor) -> tuple[Tensor, Tensor]:
        probs = torch.special.ndtr(output)
        return probs, torch.special.entr(probs) + torch.special.entr(1 - probs)


OWN: dict[str, tuple[type[Likelihood], Tensor, int]] = {
    "regression": (OwnStudentT, SLOPE + 0.1 * X[:, 1:2].sin(), 1),
    "classes": (OwnClasses, (X[:, 0] > 0).long() + (X[:, 1] > 0).long(), 3),
    "labels": (OwnLabels, (SLOPE > 0).float(), 1),
}


def case(name: str) -> tuple[Likelihood, Tensor, int]:
    """A likelihood, registered or own, the targets of X, and the number of outputs."""
    if name in LIKELIHOODS:
        return bf.likelihood(name), *DATA[name]()
    law, target, outputs = OWN[name]
    return law(), target, outputs


def train(method: str, name: str, steps: int = 30) -> tuple[bf.BayesianModule, Tensor]:
    """A small network after a few steps, and the targets of X."""
    torch.manual_seed(0)
    likelihood, target, outputs = case(name)
    net = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, outputs))
    model = bf.bayesify(net, method, likelihood, num_data=len(X))
    optimizer = model.optimizer(lr=0.02)
    for _ in range(steps):
        optimizer.zero_grad()
        model.loss(X, target).total.backward()
        optimizer.step()
    return model, target
