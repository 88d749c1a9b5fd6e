"""One draw per forward: every use of a weight sees the same value, in every pass that samples."""

import copy
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

import bayesify as bf

SAMPLED = pytest.mark.parametrize("sampling", ["draw", "local", "flipout"])


class Twice(nn.Module):
    """layer(x) − layer(x)."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) - self.layer(x)


class Tied(nn.Module):
    """Two layers that hold the same weight."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 2, bias=False)
        self.second = nn.Linear(3, 2, bias=False)
        self.second.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.first(x) - self.second(x)


class Outside(nn.Module):
    """A layer's output minus the same product written by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) - (self.layer.weight * x[:, None, :]).sum(-1)


class Sometimes(nn.Module):
    """Uses its layer once, or twice when `again` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, x: Tensor, again: bool = False) -> Tensor:
        return self.layer(x) - self.layer(x) if again else self.layer(x)


class ByHand(nn.Linear):
    """A linear layer whose author wrote the product with `.T`."""

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight.T + self.bias


def make(net: nn.Module, sampling: str) -> bf.BayesianModule:
    method = bf.MonteCarloVI(sampling=sampling, where=bf.where.all, init_std=0.5)
    return bf.bayesify(net, method, bf.likelihood("normal", std=1.0), num_data=1)


@SAMPLED
@pytest.mark.parametrize(
    ("layer", "shape"),
    [(nn.Linear(3, 2), (4, 3)), (nn.Conv2d(2, 3, 3), (4, 2, 5, 5)), (nn.ConvTranspose1d(2, 3, 3), (4, 2, 5))],
    ids=["linear", "conv2d", "conv_transpose1d"],
)
def test_a_layer_called_twice_sees_one_draw(sampling: str, layer: nn.Module, shape: tuple[int, ...]) -> None:
    model = make(Twice(copy.deepcopy(layer)), sampling)
    for _ in range(2):
        output = model(torch.randn(shape))
        assert torch.equal(output, torch.zeros_like(output))


@SAMPLED
def test_every_forward_takes_a_new_draw(sampling: str) -> None:
    model = make(nn.Linear(3, 2), sampling)
    x = torch.randn(4, 3)
    outputs = [model(x) for _ in range(4)]
    assert all(not torch.equal(a, b) for a, b in pairwise(outputs))


@SAMPLED
def test_tied_weights_share_one_draw(sampling: str) -> None:
    model = make(Tied(), sampling)
    output = model(torch.randn(4, 3))
    assert torch.equal(output, torch.zeros_like(output))


@SAMPLED
def test_a_tied_weight_counts_once_in_the_kl(sampling: str) -> None:
    model = make(Tied(), sampling)
    alone = make(nn.Linear(3, 2, bias=False), sampling)
    with torch.no_grad():
        alone.net.weight.copy_(model.net.first.weight)
        alone.posterior.q.get_submodule("weight").log_scale.copy_(
            model.posterior.q.get_submodule("first.weight").log_scale
        )
    torch.testing.assert_close(model.kl(), alone.kl())


@SAMPLED
def test_a_use_outside_a_layer_sees_the_same_draw(sampling: str) -> None:
    model = make(Outside(), sampling)
    output = model(torch.randn(4, 3))
    torch.testing.assert_close(output, torch.zeros_like(output), rtol=0, atol=1e-6)


@SAMPLED
def test_a_second_use_found_later_sees_the_same_draw(sampling: str) -> None:
    model = make(Sometimes(), sampling)
    x = torch.randn(4, 3)
    model(x)
    output = model(x, again=True)
    assert torch.equal(output, torch.zeros_like(output))


@SAMPLED
def test_a_second_use_found_later_leaves_the_kl_of_an_ensemble_whole(sampling: str) -> None:
    method = bf.DeepEnsemble(bf.MonteCarloVI(sampling=sampling, where=bf.where.all), num_members=3)
    model = bf.bayesify(Sometimes(), method, bf.likelihood("normal", std=1.0), num_data=1)
    x, y = torch.randn(4, 3), torch.randn(4, 2)
    model.loss(x, y)
    torch.testing.assert_close(model.loss(x, y, again=True).kl, model.kl())


@SAMPLED
def test_a_transposed_weight_is_still_random(sampling: str) -> None:
    model = make(ByHand(3, 2), sampling)
    with torch.no_grad():
        model.posterior.q.get_submodule("bias").log_scale.fill_(-20)
    x = torch.randn(4, 3)
    difference = (model(x) - model(x)).abs().max()
    assert difference > 1e-3


@SAMPLED
def test_a_drawn_network_is_the_network_with_one_draw_in_place(sampling: str) -> None:
    model = make(nn.Linear(3, 2), sampling)
    drawn = model.draw(torch.Generator().manual_seed(1))
    weights = model.posterior.draw(0, 1, torch.Generator().manual_seed(1))
    assert torch.equal(drawn.weight, weights["weight"][0])
    assert torch.equal(drawn.bias, weights["bias"][0])
    x = torch.randn(4, 3)
    assert torch.equal(drawn(x), drawn(x))


class NormThenBranch(nn.Module):
    """Uses its layer a second time only from the second call on."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(3)
        self.layer = nn.Linear(3, 3)
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        x = self.layer(self.norm(x))
        return self.layer(x) if self.calls > 2 else x  # the first call is the observed one, the second ours


@pytest.mark.parametrize("sampling", ["local", "flipout"])
def test_a_second_use_found_later_moves_batch_norm_once(sampling: str) -> None:
    net = NormThenBranch()
    model = bf.bayesify(net, bf.MonteCarloVI(sampling=sampling))
    x = torch.randn(16, 3) + 5
    for steps in (1, 2, 3):
        model(x)
        assert net.norm.num_batches_tracked == steps
        expected = x.mean(0) * (1 - 0.9**steps)
        torch.testing.assert_close(net.norm.running_mean, expected)
