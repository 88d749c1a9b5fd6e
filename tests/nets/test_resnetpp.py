"""ResNet++: the function the paper describes, and its priors."""

import math

import pytest
import torch
from torch import nn

import bayesify as bf
from bayesify.nets import make
from bayesify.nets.resnetpp import FIXUP, Block, WeightNorm, WeightNormConv2d
from bayesify.priors import prior

CIFAR = {"num_outputs": 10, "input_shape": (3, 32, 32)}


def numel(net: nn.Module) -> int:
    return sum(p.numel() for p in net.parameters())


def test_no_batch_norm_and_as_deep_as_its_name() -> None:
    for depth in (20, 32, 44, 56):
        net = make(f"resnetpp{depth}", **CIFAR)  # type: ignore[arg-type]
        layers = [m for m in net.modules() if isinstance(m, WeightNorm)]
        shortcuts = [m for m in net.modules() if isinstance(m, Block) and isinstance(m.shortcut, WeightNorm)]
        assert len(layers) - len(shortcuts) == depth
        assert not any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in net.modules())


def test_about_as_many_weights_as_the_resnet() -> None:
    """Directions are the convolutions of ResNet; scales and biases take the place of batch norm's two vectors."""
    for depth in (20, 56):
        ours, theirs = (make(f"{name}{depth}", **CIFAR) for name in ("resnetpp", "resnet"))  # type: ignore[arg-type]
        assert numel(ours) == pytest.approx(numel(theirs), rel=0.02)
    wide = make("resnetpp20", width=32, **CIFAR)  # type: ignore[arg-type]
    assert numel(wide) == pytest.approx(4 * numel(make("resnetpp20", **CIFAR)), rel=0.02)  # type: ignore[arg-type]
    large = make("resnetpp50", num_outputs=1000, input_shape=(3, 224, 224))
    assert numel(large) == pytest.approx(25.6e6, rel=0.01)


def test_the_length_of_a_direction_does_not_matter() -> None:
    conv = WeightNormConv2d(3, 5, 3)
    x = torch.randn(2, 3, 8, 8)
    before = conv(x)
    with torch.no_grad():
        conv.direction *= torch.rand(5, 1, 1, 1) + 0.5
    torch.testing.assert_close(conv(x), before)
    lengths = conv.weight.flatten(1).norm(dim=1)
    torch.testing.assert_close(lengths, conv.scale.detach())


def test_residual_branches_start_small_and_the_variance_stays() -> None:
    """Unit-variance input; the output of 27 blocks is neither vanishing nor exploding."""
    torch.manual_seed(0)
    net = make("resnetpp56", **CIFAR)  # type: ignore[arg-type]
    blocks = [m for m in net.modules() if isinstance(m, Block)]
    assert all(torch.equal(b.convs[-1].scale, torch.full_like(b.convs[-1].scale, FIXUP)) for b in blocks)
    with torch.no_grad():
        features = net.blocks(torch.nn.functional.selu(net.stem(torch.randn(8, 3, 32, 32))))
    assert 0.3 < features.std().item() < 3


def test_the_priors_of_its_parameters() -> None:
    """The energy of paper 4: Σ (d/2)(‖φ‖² − 1)² + Σ |s|/5 + biases, up to constants: here by its gradient."""
    net = make("resnetpp20", width=2, **CIFAR)  # type: ignore[arg-type]
    model = bf.bayesify(net, bf.ThermostatMCMC(prior="weight_norm"), num_data=1)
    with torch.no_grad():
        for p in net.parameters():
            p.add_(0.1 * torch.randn_like(p))
    model.kl().backward()
    conv = net.blocks[0].convs[0]
    d = conv.direction[0].numel()
    excess = conv.direction.square().sum((1, 2, 3), keepdim=True) - 1
    torch.testing.assert_close(conv.direction.grad, (2 * d * excess * conv.direction).detach())
    torch.testing.assert_close(conv.scale.grad, conv.scale.sign().detach() / 5)
    torch.testing.assert_close(conv.bias.grad, conv.bias.detach())


@pytest.mark.parametrize(("flat", "expected"), [(0.0, 1.155), (1.0, 1.0)])
def test_the_mode_of_the_radius(flat: float, expected: float) -> None:
    """d = 9: density of ‖φ‖ on a grid, r^{d−1} p."""
    r = torch.linspace(1e-3, 3, 3001, dtype=torch.float64)
    rows = torch.zeros(3001, 9, dtype=torch.float64)
    rows[:, 0] = r
    p = prior("direction", flat=flat)
    logs = torch.stack([p.log_prob(row[None]) for row in rows]) + 8 * r.log()
    assert r[logs.argmax()].item() == pytest.approx(expected, abs=3e-3)
    weight = torch.softmax(logs, 0)
    mean = (weight * r).sum().item()
    if not flat:
        assert mean == pytest.approx(1.137, abs=2e-3)
        assert (weight * (r - mean).square()).sum().sqrt().item() == pytest.approx(0.1318, abs=1e-3)


def test_group_laplace() -> None:
    """One entry: the Laplace prior. Two: ∫ exp(−r/b) 2πr dr = 2π b²."""
    values = torch.randn(7)
    expected = prior("laplace", scale=5.0).log_prob(values).sum()
    torch.testing.assert_close(prior("group_laplace").log_prob(values), expected)
    pair = torch.tensor([[3.0, 4.0]])
    found = prior("group_laplace", scale=2.0).log_prob(pair).item()
    assert found == pytest.approx(-5 / 2 - math.log(2 * math.pi * 4))
    draws = torch.randn(6, 4, 3)
    many = prior("group_laplace").tensor_log_prob(draws, 2)
    torch.testing.assert_close(many, torch.stack([prior("group_laplace").log_prob(w) for w in draws]))


def test_names_without_a_prior_of_their_own() -> None:
    p = prior("weight_norm", bias_std=2.0, flat=1.0)
    assert p.at("head.bias", torch.zeros(3)) == prior("normal", std=2.0)
    assert p.at("head.direction", torch.zeros(3, 3)) == prior("direction", flat=1.0)
    with pytest.raises(ValueError, match="depends on the tensor's name"):
        p.log_prob(torch.zeros(3))
    assert prior(p.name, **p.options) == p
