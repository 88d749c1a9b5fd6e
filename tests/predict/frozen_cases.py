"""Small networks of four kinds, for tests of what serves them."""

import importlib.util
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import bayesify as bf

needs_onnx = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("onnx", "onnxscript", "onnxruntime")),
    reason="onnx, onnxscript and onnxruntime are not installed",
)


class TinyTransformer(nn.Module):
    """One encoder layer over six tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(4, 8)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.out = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.layer(self.embed(x)).mean(1))


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3))


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 3)
    )


def regression() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 2))


#: network, shape of an example, likelihood
CASES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], str]] = {
    "mlp": (mlp, (4,), "categorical"),
    "cnn": (cnn, (1, 8, 8), "categorical"),
    "transformer": (TinyTransformer, (6, 4), "categorical"),
    "regression": (regression, (4,), "heteroscedastic"),
}
METHODS = [name for name in bf.methods.METHODS if name != "atmc"] + ["chain"]


def example(case: str, batch: int = 5) -> Tensor:
    return torch.randn(batch, *CASES[case][1])


def made(case: str, method: str) -> bf.BayesianModule:
    """A model whose draws differ: a chain has four of them, batch norm has seen data."""
    torch.manual_seed(1)
    build, shape, likelihood = CASES[case]
    net = build()
    net(torch.randn(16, *shape))
    given = {"chain": bf.ThermostatMCMC(sampler="sgld"), "laplace": bf.Laplace("diag")}
    known = given.get(method, method)
    model = bf.bayesify(net.eval(), known, likelihood, num_data=50).eval()
    for _ in range(4 if method in ("chain", "swag") else 0):
        with torch.no_grad():
            for parameter in model.net.parameters():
                parameter.add_(0.1 * torch.randn_like(parameter))
        model.collect()
    if method == "laplace":
        x = example(case, 16)
        target = torch.randn(16, 1) if likelihood == "heteroscedastic" else torch.zeros(16).long()
        bf.fit(model, [(x, target)], progress=False)
    return model.eval()
