"""A parameter that the network reaches past its slots is refused, never silently left as it was."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bayesify as bf


class Keeps(nn.Module):
    """A linear layer whose weight is used from wherever `keep` put it."""

    def __init__(self, keep: Callable[[nn.Module, nn.Parameter], Callable[[], Tensor]]) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 2)
        self.__dict__["fetch"] = keep(self, self.linear.weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) + x @ self.fetch().t()


def in_a_tuple(module: Any, weight: nn.Parameter) -> Callable[[], Tensor]:
    module.kept = (weight,)
    return lambda: module.kept[0]


def in_a_set(module: Any, weight: nn.Parameter) -> Callable[[], Tensor]:
    module.kept = {weight}
    return lambda: next(iter(module.kept))


def in_a_list_of_lists(module: Any, weight: nn.Parameter) -> Callable[[], Tensor]:
    module.kept = [[weight]]
    return lambda: module.kept[0][0]


def in_a_tuple_in_a_dict(module: Any, weight: nn.Parameter) -> Callable[[], Tensor]:
    module.kept = {"w": (weight,)}
    return lambda: module.kept["w"][0]


def past_registration(module: Any, weight: nn.Parameter) -> Callable[[], Tensor]:
    module.__dict__["kept"] = weight
    return lambda: module.__dict__["kept"]


def in_a_module_that_is_not_registered(module: Any, weight: nn.Parameter) -> Callable[[], Tensor]:
    other = nn.Linear(3, 2)
    other.weight = weight
    module.kept = [other]
    return lambda: module.kept[0].weight


def in_a_closure(module: Any, weight: nn.Parameter) -> Callable[[], Tensor]:
    return lambda: weight


class Holder:
    def __init__(self, weight: nn.Parameter) -> None:
        self.weight = weight


def in_a_foreign_object(module: Any, weight: nn.Parameter) -> Callable[[], Tensor]:
    module.kept = Holder(weight)
    return lambda: module.kept.weight


def in_a_list(module: Any, weight: nn.Parameter) -> Callable[[], Tensor]:
    module.kept = [weight]
    return lambda: module.kept[0]


def in_a_dict(module: Any, weight: nn.Parameter) -> Callable[[], Tensor]:
    module.kept = {"w": weight}
    return lambda: module.kept["w"]


SEEN = (
    in_a_tuple,
    in_a_set,
    in_a_list_of_lists,
    in_a_tuple_in_a_dict,
    past_registration,
    in_a_module_that_is_not_registered,
)
SAMPLINGS = ("draw", "local", "flipout")


@pytest.mark.parametrize("keep", SEEN)
def test_a_place_that_cannot_be_filled_is_refused_at_conversion(keep: Any) -> None:
    with pytest.raises(ValueError, match=r"'linear\.weight' is also kept in 'kept.*where="):
        bf.bayesify(Keeps(keep), bf.MonteCarloVI())


@pytest.mark.parametrize("keep", SEEN)
def test_a_weight_that_stays_deterministic_may_be_kept_anywhere(keep: Any) -> None:
    net = Keeps(keep)
    x = torch.randn(4, 3)
    model = bf.bayesify(net, bf.MonteCarloVI(where=bf.where.matching("bias")))
    assert model.mean_net()(x).shape == model(x).shape == (4, 2)


@pytest.mark.parametrize("keep", [in_a_closure, in_a_foreign_object])
@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_a_place_that_cannot_be_seen_is_refused_at_the_first_call(sampling: str, keep: Any) -> None:
    model = bf.bayesify(Keeps(keep), bf.MonteCarloVI(sampling=sampling), num_data=4)
    x = torch.randn(4, 3)
    for call in (model, model.predict, lambda x: model.loss(x, torch.zeros(4, dtype=torch.long))):
        with pytest.raises(RuntimeError, match=r"uses its parameter 'linear\.weight' from a place"):
            call(x)


class KeepsInEval(Keeps):
    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) if self.training else super().forward(x)


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_each_mode_of_the_network_is_watched_once(sampling: str) -> None:
    model = bf.bayesify(KeepsInEval(in_a_closure), bf.MonteCarloVI(sampling=sampling))
    x = torch.randn(4, 3)
    model.train()(x)
    with pytest.raises(RuntimeError, match=r"uses its parameter 'linear\.weight' from a place"):
        model.eval()(x)


@pytest.mark.parametrize("keep", [in_a_list, in_a_dict])
@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_a_plain_list_or_dict_gets_the_same_draw(sampling: str, keep: Any) -> None:
    net = Keeps(keep)
    model = bf.bayesify(net, bf.MonteCarloVI(sampling=sampling, where=bf.where.matching("weight")))
    x = torch.randn(4, 3)
    y = model(x)
    draw = (y - net.linear.bias) / 2  # both uses see one weight: y = 2 W x + b
    weight = torch.linalg.lstsq(x, draw).solution.t()
    assert torch.allclose(x @ weight.t(), draw, atol=1e-5)
    assert not torch.allclose(weight, net.linear.weight, atol=1e-5)
