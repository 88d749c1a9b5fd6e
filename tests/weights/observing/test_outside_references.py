"""A parameter that the network reaches past its slots is refused, never silently left as it was."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bayesify as bf
from bayesify.weights import find_slots
from bayesify.weights.observing.outside_references import referenced_outside


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


def in_a_view(module: Any, weight: nn.Parameter) -> Callable[[], Tensor]:
    module.kept = weight.data[1:]
    return lambda: module.kept.expand(2, 3)


def in_a_buffer(module: Any, weight: nn.Parameter) -> Callable[[], Tensor]:
    module.register_buffer("kept", weight.detach())
    return lambda: module.kept


def in_a_view_of_a_foreign_object(module: Any, weight: nn.Parameter) -> Callable[[], Tensor]:
    module.kept = Holder(weight.data)  # type: ignore[arg-type]
    return lambda: module.kept.weight


def in_a_view_of_a_closure(module: Any, weight: nn.Parameter) -> Callable[[], Tensor]:
    view = weight.data
    module.kept = partial(lambda scale: scale * view, 1.0)
    return lambda: module.kept()


def in_a_view_made_later(module: Any, weight: nn.Parameter) -> Callable[[], Tensor]:
    return lambda: weight.data


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
    in_a_view,
    in_a_buffer,
    in_a_view_of_a_foreign_object,
    in_a_view_of_a_closure,
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


@pytest.mark.parametrize("keep", [in_a_closure, in_a_foreign_object, in_a_view_made_later])
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


METHODS = {
    "draw": bf.MonteCarloVI(),
    "local": bf.MonteCarloVI(sampling="local"),
    "flipout": bf.MonteCarloVI(sampling="flipout"),
    "vdp": bf.DensityPropagation(),
    "emp": bf.EnsemblePatching(num_components=2, where=bf.where.all),
    "variance": bf.VarianceNetwork(),
}
UNSEEN = (in_a_closure, in_a_foreign_object)


@pytest.mark.parametrize("keep", UNSEEN)
@pytest.mark.parametrize("method", METHODS)
def test_a_network_compiled_before_any_call_is_watched_while_it_is_traced(method: str, keep: Any) -> None:
    torch.compiler.reset()
    model = bf.bayesify(Keeps(keep), METHODS[method], num_data=4)
    for call in (model, lambda x: model.loss(x, torch.zeros(4, dtype=torch.long)).total):
        compiled = torch.compile(call, backend="aot_eager", fullgraph=True)
        with pytest.raises((RuntimeError, torch._dynamo.exc.Unsupported), match=r"linear\.weight"):
            compiled(torch.randn(4, 3))


class KeepsForLargeInputs(Keeps):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) if len(x) > 4 else self.linear(x)


@pytest.mark.parametrize("keep", UNSEEN)
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("method", METHODS)
def test_a_branch_first_taken_later_is_watched_too(method: str, compiled: bool, keep: Any) -> None:
    torch.compiler.reset()
    model = bf.bayesify(KeepsForLargeInputs(keep), METHODS[method])
    call = torch.compile(model, backend="aot_eager", fullgraph=True) if compiled else model
    for _ in range(2):
        call(torch.randn(4, 3))
    with pytest.raises((RuntimeError, torch._dynamo.exc.Unsupported), match=r"linear\.weight"):
        [call(torch.randn(5, 3)) for _ in range(50)]  # half of EMP's calls choose the parameter itself


def test_a_copied_member_does_not_use_the_first_members_weight() -> None:
    """`deepcopy` copies no closure: the second member would compute with the first one's parameter."""
    model = bf.bayesify(Keeps(in_a_closure), bf.DeepEnsemble(bf.Point(), num_members=2))
    with pytest.raises(RuntimeError, match=r"linear\.weight"):
        model.predict(torch.randn(4, 3))


def test_what_other_objects_hold_does_no_harm() -> None:
    """An optimiser made before, a list of the user's, a closure that the network never calls."""
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    optimizer = torch.optim.Adam(net.parameters())
    mine = list(net.parameters())
    penalty = in_a_closure(None, mine[0])
    model = bf.bayesify(net, bf.MonteCarloVI())
    x = torch.randn(4, 3)
    assert not torch.equal(model(x), model(x))
    assert not torch.equal(torch.compile(model, backend="aot_eager", fullgraph=True)(x), model(x))
    assert penalty() is optimizer.param_groups[0]["params"][0]


def test_only_what_is_referenced_outside_is_watched() -> None:
    net = nn.Sequential(nn.Linear(3, 4), nn.LSTM(4, 4))
    optimizer = torch.optim.Adam(net.parameters())
    assert not referenced_outside(find_slots(net))
    closure = in_a_closure(None, net[0].bias)
    assert referenced_outside(find_slots(net)) == {"0.bias"}
    assert [name for name, places in find_slots(net).items() if places[0].stray] == ["0.bias"]
    assert closure is not None and optimizer is not None
