"""What backward computes again is what forward had: gradients against finite differences and against kept tensors."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from propagation import propagate
from torch import Tensor, nn

import bayesify as bf
from bayesify.moments import recompute

NETS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "square linear": (
        lambda: nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), nn.Linear(4, 2)),
        (4,),
    ),
    "one by one": (lambda: nn.Sequential(nn.Linear(4, 1), nn.Linear(1, 1), nn.Linear(1, 2)), (4,)),
    "oblong linear": (lambda: nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2)), (4,)),
    "convolution": (lambda: nn.Sequential(nn.Conv2d(3, 3, 3), nn.ReLU(), nn.Conv2d(3, 2, 3)), (3, 5, 5)),
    "attention": (lambda: nn.TransformerEncoderLayer(4, 2, 4, 0.0, "gelu", batch_first=True), (3, 4)),
}


def gradients(name: str) -> dict[str, Tensor]:
    torch.manual_seed(0)
    make, shape = NETS[name]
    model = bf.bayesify(
        make().double(), bf.DensityPropagation(init_std=0.5), bf.likelihood("normal", std=1.0), num_data=10
    )
    output = model(torch.randn(5, *shape, dtype=torch.float64))
    (output.var.sum() + output.mean.square().sum()).backward()
    return {key: p.grad for key, p in model.named_parameters()}


@pytest.mark.parametrize("name", NETS)
def test_gradients_are_those_of_kept_tensors(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = gradients(name)
    monkeypatch.setattr(recompute, "plain", lambda: True)
    for key, expected in gradients(name).items():
        torch.testing.assert_close(found[key], expected, msg=lambda text, key=key: f"{key}: {text}")


def test_gradients_of_square_layers_against_finite_differences() -> None:
    """A linear layer saves the transpose of its weight: the same address, and for a square one the same shape."""
    w, v = (torch.rand(2, 3, 3, dtype=torch.float64) + 0.1).unbind(0)
    x, s = (torch.rand(2, 4, 3, dtype=torch.float64) + 0.1).unbind(0)

    def twice(x: bf.Moments, w: bf.Moments) -> bf.Moments:
        return F.linear(F.linear(x, w), w)  # type: ignore[arg-type, return-value]

    def function(x: Tensor, s: Tensor, w: Tensor, v: Tensor) -> tuple[Tensor, ...]:
        return tuple(propagate(twice, bf.Moments(x, s), bf.Moments(w, v)))

    assert torch.autograd.gradcheck(function, [t.requires_grad_() for t in (x, s, w, v)])
