"""What every registered network keeps: a new one is tested by being registered."""

import pytest
import torch
from torch import Tensor, nn

from bayesify.nets import NETS, make

NUM_OUTPUTS = 3


def build(name: str) -> nn.Module:
    torch.manual_seed(0)
    return make(name, num_outputs=NUM_OUTPUTS, input_shape=NETS[name].smallest)


def owners(net: nn.Module) -> dict[str, nn.Module]:
    """The submodules that own parameters directly."""
    return {name: module for name, module in net.named_modules() if list(module.parameters(recurse=False))}


@pytest.fixture(scope="module", params=NETS)
def named(request: pytest.FixtureRequest) -> tuple[str, nn.Module]:
    """One network at a time, built once for all tests of it."""
    return request.param, build(request.param)


@pytest.mark.parametrize("training", [True, False])
def test_forward_gives_one_finite_output_per_example(named: tuple[str, nn.Module], training: bool) -> None:
    name, net = named
    x = torch.randn(2, *NETS[name].smallest, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        out = net.train(training)(x)
    assert out.shape == (2, NUM_OUTPUTS)
    assert out.isfinite().all()


def test_every_parameter_gets_a_gradient(named: tuple[str, nn.Module]) -> None:
    name, net = named
    x = torch.randn(2, *NETS[name].smallest, generator=torch.Generator().manual_seed(2))
    out: Tensor = net.eval()(x)
    gradients = torch.autograd.grad(out.square().sum(), list(net.parameters()), allow_unused=True)
    unused = [key for (key, _), g in zip(net.named_parameters(), gradients, strict=True) if g is None]
    assert not unused


def test_same_seed_same_net_and_reset_starts_again(named: tuple[str, nn.Module]) -> None:
    """Equal seeds give equal weights; `reset_parameters` draws new ones of the same spread."""
    name, net = named
    twin = build(name)
    before = dict(net.named_parameters())
    assert all(torch.equal(before[key], value) for key, value in twin.named_parameters())
    for owner in owners(twin).values():
        owner.reset_parameters()  # type: ignore[operator]
    for key, after in twin.named_parameters():
        assert_redrawn(key, before[key].detach(), after.detach())


def assert_redrawn(key: str, before: Tensor, after: Tensor) -> None:
    """A constant start is repeated; a random one changes, and keeps its standard deviation.

    The relative standard error of a standard deviation over n entries is at most 1 / √(2n) for the uniform
    and normal starts used here; the ratio of two is off by more than 7 / √n with probability below 1e-10.
    """
    if before.numel() == 1 or before.std() == 0:
        assert torch.equal(before, after) or before.numel() == 1, key
        return
    assert not torch.equal(before, after), key
    if before.numel() >= 200:
        ratio = (after.std() / before.std()).item()
        assert abs(ratio - 1) < 7 / before.numel() ** 0.5, key


@pytest.mark.parametrize("name", NETS)
def test_smaller_inputs_raise(name: str) -> None:
    smallest = NETS[name].smallest
    with pytest.raises(ValueError, match="input_shape="):
        make(name, num_outputs=NUM_OUTPUTS, input_shape=(*smallest[:-1], smallest[-1] - 1))


@pytest.mark.parametrize("name", [name for name in NETS if name != "mlp"])
def test_inputs_of_another_rank_raise(name: str) -> None:
    with pytest.raises(ValueError, match=r"input_shape=\(13,\) must be \(channels, "):
        make(name, num_outputs=NUM_OUTPUTS, input_shape=(13,))


@pytest.mark.parametrize("name", NETS)
def test_entry_says_what_it_is(name: str) -> None:
    about = NETS[name].about
    assert 0 < len(about) <= 70
    assert "\n" not in about
    with pytest.raises(ValueError, match=f"net='{name}': option='colour' does not exist; choose from "):
        make(name, num_outputs=NUM_OUTPUTS, input_shape=NETS[name].smallest, colour="red")
