"""How many operations a step and a prediction dispatch, how often they read a number from a tensor, and how many
graphs torch.compile makes of a loss. Seconds are never asserted; these counts depend on no machine. The bounds are
about a tenth above what was counted with torch 2.13: a change that needs more says so here.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import bayesify as bf

DIAGONAL = bf.DensityPropagation(covariance="diagonal", logits="bound")
# operations of a loss with its backward, of predict at batch 1, and numbers read in each
BOUNDS: dict[str, tuple[Any, int, int, int, int]] = {
    "point": (bf.Point(), 84, 28, 1, 2),
    "mc_vi": (bf.MonteCarloVI(), 136, 49, 1, 2),
    "local": (bf.MonteCarloVI(sampling="local"), 174, 49, 1, 2),
    "emp": (bf.EnsemblePatching(), 165, 90, 1, 2),
    "variance": (bf.VarianceNetwork(), 226, 53, 1, 2),
    "vdp": (bf.DensityPropagation(), 1000, 500, 3, 2),
    "vdp, diagonal": (DIAGONAL, 410, 129, 1, 2),
    "ensemble": (bf.DeepEnsemble(num_members=2), 166, 87, 1, 2),
}
READS = "_local_scalar_dense"


class Operations(TorchDispatchMode):
    """Counts the operations inside, by name."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.counts[func.__name__.partition(".")[0]] += 1
        return func(*args, **(kwargs or {}))


def converted(method: Any) -> bf.BayesianModule:
    torch.manual_seed(0)
    net = nn.Sequential(
        *(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
        *(nn.Linear(36, 8), nn.ReLU(), nn.Linear(8, 3)),
    )
    return bf.bayesify(net, method, num_data=100)


def counted(function: Callable[[], Any]) -> tuple[int, int]:
    """All operations, and how many read a number."""
    for _ in range(2):  # the first calls learn about the network
        function()
    with Operations() as seen:
        function()
    return sum(seen.counts.values()), seen.counts[READS]


@pytest.mark.parametrize("name", BOUNDS)
def test_operations(name: str) -> None:
    method, step, prediction, reads_of_step, reads_of_prediction = BOUNDS[name]
    model, x, y = converted(method), torch.randn(8, 1, 8, 8), torch.arange(8) % 3
    found = counted(lambda: model.loss(x, y).total.backward())
    assert found[0] <= step and found[1] <= reads_of_step, found
    found = counted(lambda: model.predict(x[:1]))
    assert found[0] <= prediction and found[1] <= reads_of_prediction, found


@pytest.mark.parametrize("name", ["point", "mc_vi", "local", "emp", "variance", "vdp, diagonal"])
def test_a_loss_is_one_graph_and_stays_it(name: str) -> None:
    torch._dynamo.reset()
    graphs: list[Any] = []

    def backend(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return graph

    model, x, y = converted(BOUNDS[name][0]), torch.randn(8, 1, 8, 8), torch.arange(8) % 3
    model.loss(x, y)
    loss = torch.compile(model.loss, backend=backend, fullgraph=True, dynamic=False)
    for _ in range(3):
        loss(x, y)
    assert len(graphs) == 1
