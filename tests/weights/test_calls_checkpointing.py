"""Activation checkpointing inside a network, which would recompute it without the draw, is refused."""

import pytest
import torch
import torch.utils.checkpoint
from torch import Tensor, nn

import bayesify as bf


def batch() -> tuple[Tensor, Tensor]:
    return torch.randn(8, 6), torch.randint(3, (8,))


class Checkpointed(nn.Module):
    """Recomputes its middle during backward, by a module or by a bare function."""

    def __init__(self, use_reentrant: bool, functional: bool) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 3)
        self.use_reentrant, self.functional = use_reentrant, functional
        self.on = True

    def middle(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, self.second.weight, self.second.bias).tanh()

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x).relu()
        block = self.middle if self.functional else self.second
        if not self.on:
            return block(x)
        return torch.utils.checkpoint.checkpoint(block, x, use_reentrant=self.use_reentrant)


@pytest.mark.parametrize("sampling", ["draw", "local"])
@pytest.mark.parametrize("functional", [False, True])
@pytest.mark.parametrize("use_reentrant", [False, True])
def test_checkpointing_inside_the_network_is_refused(
    use_reentrant: bool, functional: bool, sampling: str
) -> None:
    net = Checkpointed(use_reentrant, functional)
    model = bf.bayesify(net, bf.MonteCarloVI(sampling=sampling), num_data=10)
    with pytest.raises(RuntimeError, match="activation checkpointing inside the network"):
        model.loss(*batch()).total.backward()


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_checkpointing_switched_on_later_is_refused_too(use_reentrant: bool) -> None:
    net = Checkpointed(use_reentrant, functional=False)
    net.on = False
    model = bf.bayesify(net, bf.MonteCarloVI(), num_data=10)
    model.loss(*batch()).total.backward()
    net.on = True
    with pytest.raises(RuntimeError, match="activation checkpointing inside the network"):
        model.loss(*batch()).total.backward()


def test_checkpointing_the_whole_call_gives_the_right_gradients() -> None:
    model = bf.bayesify(
        nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 3)), bf.MonteCarloVI(), num_data=10
    )
    x, y = batch()

    def gradients(checkpointed: bool) -> list[Tensor]:
        model.zero_grad()
        torch.manual_seed(5)
        if checkpointed:
            loss = torch.utils.checkpoint.checkpoint(model, x, target=y, use_reentrant=False)
        else:
            loss = model(x, target=y)
        loss.total.backward()
        return [p.grad.clone() for p in model.parameters() if p.grad is not None]

    for a, b in zip(gradients(False), gradients(True), strict=True):
        assert torch.allclose(a, b, atol=1e-7)
