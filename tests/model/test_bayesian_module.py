"""The thin slice: one line, one loss, one prediction."""

import subprocess
import sys

import pytest
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


def test_importing_loads_nothing_but_the_core() -> None:
    """torch, numpy and safetensors; neither the optional packages nor torch's compiler."""
    heavy = "scipy sklearn matplotlib PIL rich typer lightning_fabric torchmetrics triton torch._dynamo"
    code = f"import sys, bayesify; print([m for m in '{heavy}'.split() if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_networks_are_loaded_when_they_are_asked_for() -> None:
    code = "import sys, bayesify as bf; a = 'bayesify.nets' in sys.modules; bf.nets.alexnet; print(a)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
    assert "nets" in bf.__all__
    with pytest.raises(AttributeError, match="module 'bayesify' has no attribute 'nests'"):
        _ = bf.nests  # type: ignore[attr-defined]
