"""The thin slice: one line, one loss, one prediction."""

import torch
from torch import nn

import bayesify as bf


def test_an_mlp_trains_and_predicts() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3))
    model = bf.bayesify(net, bf.MonteCarloVI(family="normal"), num_data=100)
    x, y = torch.randn(8, 4), torch.randint(3, (8,))
    model.loss(x, y).total.backward()
    assert all(p.grad is not None for p in model.parameters())
    assert torch.allclose(model.predict(x, 10).probs.sum(1), torch.ones(8))
