"""Networks that keep activations in attributes, move or replace their buffers, or share modules without weights."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._C._functorch import is_functorch_wrapped_tensor

import bayesify as bf

ALL = bf.where.all
METHODS = {
    "draw": bf.MonteCarloVI(where=ALL),
    "local": bf.MonteCarloVI(where=ALL, sampling="local"),
    "moments": bf.DensityPropagation(where=ALL),
    "elements": bf.EnsemblePatching(3, assignment="element", where=ALL),
    "ensemble": bf.DeepEnsemble(num_members=2),
}


class Keeping(nn.Module):
    """Keeps the hidden layer, as networks that show their features or attention do; `again` also reads it."""

    def __init__(self, again: bool = False) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 6), nn.Linear(6, 3)
        self.temperature = nn.Parameter(torch.tensor(1.5))
        self.again = again
        self.hidden: Any = None
        self.register_buffer("latest", None)
        self.register_buffer("seen", torch.zeros(0))

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x).tanh()
        if self.again and self.hidden is not None:
            h = h + 0.1 * self.hidden.detach()
        self.hidden = h
        self.latest = torch.ones(3)
        self.seen.resize_(2).fill_(1.0)
        return self.last(h) / self.temperature


@pytest.mark.filterwarnings("ignore:DeepEnsemble")
@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("name", METHODS)
def test_activations_kept_in_attributes(name: str, again: bool) -> None:
    torch.manual_seed(0)
    net = Keeping(again)
    model = bf.bayesify(net, METHODS[name], num_data=10)
    x, y = torch.randn(5, 4), torch.tensor([0, 1, 2, 0, 1])
    model.loss(x, y).total.backward()
    assert model.draw()(x).shape == (5, 3)  # while the activation has a graph
    if again:
        net.hidden = None
    probabilities = model.predict(x, num_draws=4).probs
    assert probabilities.isfinite().all()
    assert not is_functorch_wrapped_tensor(net.hidden)
    assert type(copy.deepcopy(model.net).hidden) is type(net.hidden)


def test_prediction_one_by_one_says_why() -> None:
    model = bf.bayesify(Keeping(), METHODS["draw"], num_data=10)
    model.predict(torch.randn(5, 4), num_draws=4)
    assert "keeps an activation in its attribute 'hidden'" in model.posterior.vmap_refusal


@pytest.mark.parametrize("wrap", ["weight_norm", "spectral_norm"])
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_weights_made_anew_in_every_call(wrap: str) -> None:
    """torch.nn.utils' hooks keep them with their graph, which torch does not copy."""
    net = nn.Sequential(getattr(nn.utils, wrap)(nn.Linear(4, 6)), nn.Tanh(), nn.Linear(6, 3))
    model = bf.bayesify(net, bf.DeepEnsemble(bf.MonteCarloVI(where=ALL), 2), num_data=10)
    x = torch.randn(5, 4)
    model.loss(x, torch.tensor([0, 1, 2, 0, 1])).total.backward()
    assert model.mean_net()(x).shape == (5, 3)
    assert model.predict(x, num_draws=4).probs.isfinite().all()


def test_a_module_without_weights_may_be_in_two_networks() -> None:
    relu = nn.ReLU()
    models = [bf.bayesify(nn.Sequential(nn.Linear(4, 3), relu), bf.MonteCarloVI()) for _ in range(2)]
    with pytest.raises(ValueError, match="already bayesified"):
        bf.bayesify(nn.Sequential(models[0].net[0], nn.Tanh()), bf.MonteCarloVI())


class Lengthless(tuple):
    __slots__ = ()

    def __len__(self) -> int:
        raise TypeError("ask for something else")


def test_a_tuple_that_does_not_say_how_long_it_is() -> None:
    net = nn.Linear(4, 3)
    net.kinds = [Lengthless((1, 2))]
    assert bf.bayesify(net, bf.MonteCarloVI(where=ALL)).summary().random == ["weight", "bias"]
