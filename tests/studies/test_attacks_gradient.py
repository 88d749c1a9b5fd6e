"""The draws that are attacked are those that a prediction averages; they are constants to the gradient."""

from typing import Any

import pytest
import torch
from torch import nn

import bayesify as bf
from bayesify.studies.attacks import outputs


def model_of(method: Any) -> bf.BayesianModule:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.BatchNorm1d(8), nn.Linear(8, 3))
    return bf.bayesify(net, method, num_data=10).eval()


@pytest.mark.parametrize(
    "method",
    [
        bf.MonteCarloVI(init_std=0.5),
        bf.MonteCarloVI(init_std=0.5, where=bf.where.output),
        bf.EnsemblePatching(spread=0.5),
        bf.DeepEnsemble(bf.MonteCarloVI(init_std=0.5), num_members=2),
        bf.MonteCarloVI(init_std=0.5, sampling="local"),
    ],
    ids=["all", "output", "emp", "ensemble", "local"],
)
def test_they_are_the_draws_of_a_prediction(method: Any) -> None:
    model, x = model_of(method), torch.randn(5, 6)
    drawn = [o.softmax(-1) for o in outputs(model, x, 4, torch.Generator().manual_seed(1))]
    predicted = model.predict(x, 4, batched=False, generator=torch.Generator().manual_seed(1))
    assert len(drawn) == predicted.num_draws
    torch.testing.assert_close(torch.stack(drawn).mean(0), predicted.probs)


@pytest.mark.parametrize("method", [bf.MonteCarloVI(), bf.DensityPropagation(), bf.EnsemblePatching()])
def test_weights_that_were_drawn_are_constants(method: Any) -> None:
    model = model_of(method)
    x = torch.randn(5, 6, requires_grad=True)
    total = torch.stack(list(outputs(model, x, 3, None))).square().sum()
    random = [p for name, p in model.named_parameters() if name.startswith("posterior.")]
    gradients = torch.autograd.grad(total, [x, *random], allow_unused=True)
    assert gradients[0].abs().sum() > 0
    if not isinstance(method, bf.DensityPropagation):  # its pass carries the parameters along
        assert all(g is None for g in gradients[1:])
