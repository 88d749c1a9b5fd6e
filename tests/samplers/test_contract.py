"""What every registered sampler keeps: a new one is tested by being registered."""

import copy
import math
import pickle
from typing import Any

import pytest
import torch
from torch import nn

from bayesify.samplers import ATMC, PSGLD, SAMPLERS, SGHMC, SGLD, SGNHT, Sampler

LR = {"psgld": 0.01}


def make(name: str, parameters: list[nn.Parameter], **settings: Any) -> Sampler:
    return SAMPLERS[name](parameters, **{"lr": LR.get(name, 0.1), "num_data": 3, **settings})


def chain(steps: int, sampler: Sampler, parameters: list[nn.Parameter]) -> None:
    for _ in range(steps):
        for p in parameters:
            p.grad = p.detach().clone()
        sampler.step()


def parameters(dtype: torch.dtype = torch.float32) -> list[nn.Parameter]:
    return [nn.Parameter(torch.linspace(-1, 1, n, dtype=dtype)) for n in (5, 1, 12)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("name", SAMPLERS)
def test_a_resumed_chain_draws_the_same_numbers(name: str, dtype: torch.dtype) -> None:
    theta = parameters(dtype)
    sampler = make(name, theta)
    chain(4, sampler, theta)
    middle, state = copy.deepcopy(theta), sampler.state_dict()
    chain(4, sampler, theta)
    resumed = make(name, middle, seed=99)
    resumed.load_state_dict(state)
    chain(4, resumed, middle)
    assert all(torch.equal(a, b) for a, b in zip(theta, middle, strict=True))
    for a, b in zip(theta, middle, strict=True):
        assert sampler.state[a].keys() == resumed.state[b].keys()
        for key, value in sampler.state[a].items():
            assert torch.equal(value, resumed.state[b][key])
            assert value.dtype == torch.promote_types(dtype, torch.float32)


@pytest.mark.parametrize("name", SAMPLERS)
def test_a_copy_with_its_parameters_goes_on_alike(name: str) -> None:
    theta = nn.Parameter(torch.linspace(-1, 1, 5))
    sampler = make(name, [theta], temperature=0.7)
    chain(3, sampler, [theta])
    (other, copied), (third, pickled) = (
        copy.deepcopy((theta, sampler)),
        pickle.loads(pickle.dumps((theta, sampler))),
    )
    before = theta.detach().clone()
    chain(3, copied, [other])
    chain(3, pickled, [third])
    assert torch.equal(theta, before) and sampler.steps == 3
    chain(3, sampler, [theta])
    assert torch.equal(theta, other) and torch.equal(theta, third)


@pytest.mark.parametrize("name", SAMPLERS)
def test_a_stored_state_does_not_move_with_the_sampler(name: str) -> None:
    theta = parameters()
    sampler = make(name, theta)
    chain(2, sampler, theta)
    state = sampler.state_dict()
    kept = copy.deepcopy(state)
    chain(2, sampler, theta)
    for index, entry in state["state"].items():
        assert all(torch.equal(t, kept["state"][index][key]) for key, t in entry.items())


@pytest.mark.parametrize("name", SAMPLERS)
def test_temperature_zero_is_optimisation(name: str) -> None:
    theta = parameters()
    sampler = make(name, theta, temperature=0.0)
    chain(1500, sampler, theta)
    assert max(p.abs().max().item() for p in theta) < 0.02
    assert not sampler.generators


@pytest.mark.parametrize("name", SAMPLERS)
def test_groups_have_settings_of_their_own(name: str) -> None:
    """The second group at lr 0 stands still; a parameter without gradient too."""
    still, moved, unused = parameters()
    options = {"noise": 1.0} if issubclass(SAMPLERS[name], ATMC | SGNHT | SGHMC) else {}
    groups = [{"params": [moved, unused]}, {"params": [still], "lr": 0.0}]
    sampler = make(name, groups, **options)  # type: ignore[arg-type]
    before = copy.deepcopy([still, unused])
    chain(3, sampler, [still, moved])
    assert torch.equal(still, before[0])
    assert torch.equal(unused, before[1])
    assert not torch.equal(moved.detach(), torch.linspace(-1, 1, len(moved)))


@pytest.mark.parametrize("name", SAMPLERS)
def test_a_group_that_comes_later_starts_as_a_new_sampler(name: str) -> None:
    early, late, fresh = (nn.Parameter(torch.ones(4)) for _ in range(3))
    sampler, alone = make(name, [early]), make(name, [fresh])
    chain(50, sampler, [early])
    sampler.add_param_group({"params": [late]})
    noise = torch.randn(4, generator=torch.Generator().manual_seed(0))
    for theta in (early, late, fresh):
        theta.grad = theta.detach() / 3
    sampler.step(noise=[noise, noise])
    alone.step(noise=[noise])
    torch.testing.assert_close(late, fresh)


@pytest.mark.parametrize("name", SAMPLERS)
def test_gradients_that_come_and_go(name: str) -> None:
    """A parameter whose gradient is missing for a while keeps its state and goes on."""
    theta = parameters()
    sampler = make(name, theta)
    chain(2, sampler, theta)
    theta[1].grad = None
    state = {key: t.clone() for key, t in sampler.state[theta[1]].items()}
    for p in (theta[0], theta[2]):
        p.grad = p.detach().clone()
    sampler.step()
    assert all(torch.equal(t, sampler.state[theta[1]][key]) for key, t in state.items())
    chain(2, sampler, theta)
    assert all(p.isfinite().all() for p in theta)


@pytest.mark.parametrize("name", SAMPLERS)
def test_the_scale_of_the_loss(name: str) -> None:
    """num_data · mean loss is what counts: 10 times the data and a tenth of the gradient move alike.

    Preconditioned SGLD is left out: it scales its steps by the mean gradient itself.
    """
    if name == "psgld":
        return
    results = []
    for num_data in (3, 30):
        theta = parameters(torch.float64)
        sampler = make(name, theta, num_data=num_data)
        for _ in range(5):
            for p in theta:
                p.grad = p.detach() / num_data
            sampler.step()
        results.append(torch.cat([p.detach() for p in theta]))
    torch.testing.assert_close(*results)


def test_the_noise_is_not_that_of_the_global_generator() -> None:
    """Both seeded with 0; gradient noise from the global one must not meet itself in the sampler."""
    theta = nn.Parameter(torch.zeros(1000))
    sampler = SGLD([theta], lr=0.5, num_data=1, seed=0)
    torch.manual_seed(0)
    other = torch.randn(1000)
    theta.grad = torch.zeros(1000)
    sampler.step()  # θ = η
    correlation = (theta.detach() * other).mean().item()
    assert abs(correlation) < 4.9 / 1000**0.5


def test_small_steps_are_not_lost_in_half_precision() -> None:
    """bfloat16 has 8 bits: 200 steps of 1e-4 from 1.0 arrive at 1.02, not at 1.0."""
    theta = nn.Parameter(torch.ones(1, dtype=torch.bfloat16))
    sampler = SGLD([theta], lr=1e-4, num_data=1, temperature=0.0)
    for _ in range(200):
        theta.grad = -torch.ones_like(theta)
        sampler.step()
    assert theta.item() == pytest.approx(1.02, abs=0.004)
    with torch.no_grad():
        theta.fill_(3.0)  # somebody writes to the parameter: the chain goes on from there
    theta.grad = torch.zeros_like(theta)
    sampler.step()
    assert theta.item() == 3.0


def test_a_step_is_skipped_on_request() -> None:
    theta = nn.Parameter(torch.ones(3))
    sampler = ATMC([theta], lr=0.1, num_data=1)
    chain(2, sampler, [theta])
    before = copy.deepcopy((theta.detach(), sampler.state_dict()["state"]))
    sampler.found_inf = torch.ones(())
    theta.grad = torch.full((3,), torch.nan)
    sampler.step()
    assert torch.equal(theta, before[0])
    assert torch.equal(sampler.state[theta]["thermostat"], before[1][0]["thermostat"])


@pytest.mark.inductor
@pytest.mark.parametrize("max_speed", [None, 2.0])
@pytest.mark.parametrize("cls", [SGHMC, SGNHT, ATMC])
def test_the_compiled_update_is_the_same(cls: Any, max_speed: float | None) -> None:
    results = []
    for compile in (False, True):
        theta = [nn.Parameter(torch.linspace(-2, 2, 1000))]
        sampler = cls(theta, lr=0.1, num_data=3, max_speed=max_speed, compile=compile)
        chain(10, sampler, theta)
        results.append(theta[0].detach())
    torch.testing.assert_close(*results, rtol=1e-5, atol=1e-6)


def test_bad_numbers() -> None:
    theta = nn.Parameter(torch.ones(2))
    cases: list[tuple[type[Sampler], dict[str, Any], str]] = [
        (SGLD, {"num_data": 0}, "num_data=0"),
        (SGLD, {"lr": -1}, "lr=-1"),
        (SGLD, {"temperature": -1}, "temperature=-1"),
        (SGLD, {"lr": math.inf}, "lr=inf must be a number above 0"),
        (ATMC, {"mass": math.nan}, "mass=nan must be a number above 0"),
        (ATMC, {"mass": 0}, "mass=0 must be a number above 0"),
        (ATMC, {"noise": -1}, "noise=-1 must be a number of at least 0 or None"),
        (ATMC, {"max_speed": 0}, "max_speed=0 must be a number above 0 or None"),
        (ATMC, {"thermostat_rate": -1}, "thermostat_rate=-1"),
        (ATMC, {"lr": 0}, "lr=0 must be a number above 0"),
        (SGLD, {"lr": 0}, "lr=0 must be a number above 0"),
        (SGLD, {"lr": "0.1"}, "lr='0.1' must be a number"),
        (ATMC, {"mass": None}, "mass=None must be a number"),
        (ATMC, {"seed": math.nan}, "seed=nan must be a whole number"),
        (ATMC, {"integrator": "euler"}, "integrator='euler' does not exist"),
        (ATMC, {"fused": True}, "fused=True needs float32 parameters on CUDA"),
        (ATMC, {"capturable": True}, "capturable=True needs float32 parameters on CUDA"),
        (SGHMC, {"thermostat_rate": 2.0}, "SGHMC has no thermostat"),
        (PSGLD, {"decay": 1.0}, "decay=1.0"),
        (PSGLD, {"eps": 0}, "eps=0"),
    ]
    for cls, settings, message in cases:
        with pytest.raises(ValueError, match=message):
            cls([theta], **{"lr": 0.1, "num_data": 5, **settings})
    with pytest.raises(ValueError, match="noise=None takes its value from lr, which is 0: give noise"):
        ATMC([{"params": [theta], "lr": 0.0}], lr=0.1, num_data=5)
    with pytest.raises(TypeError, match="real floating-point"):
        SGLD([torch.ones(2, dtype=torch.int64)], lr=0.1, num_data=5)


def test_sparse_gradients_are_refused() -> None:
    table = nn.Embedding(5, 2, sparse=True)
    sampler = SGLD(table.parameters(), lr=0.1, num_data=5)
    table(torch.tensor([1])).sum().backward()
    with pytest.raises(RuntimeError, match="does not take sparse gradients.*sparse=False"):
        sampler.step()


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a device that is not there")
def test_a_chain_from_a_device_that_is_not_here_goes_on() -> None:
    theta = nn.Parameter(torch.ones(2))
    sampler = ATMC([theta], lr=0.1, num_data=5)
    chain(3, sampler, [theta])
    state = sampler.state_dict()
    state["generators"] = {"cuda:0": state["generators"]["cpu"]}
    momentum = sampler.state[theta]["momentum"].clone()
    again = ATMC([theta], lr=0.1, num_data=5)
    with pytest.warns(UserWarning, match="noise on cuda:0, which is not here"):
        again.load_state_dict(state)
    assert again.steps == 3 and torch.equal(again.state[theta]["momentum"], momentum)
    chain(1, again, [theta])


def test_a_chain_does_not_go_on_with_other_data_or_another_network() -> None:
    theta = nn.Parameter(torch.ones(2))
    sampler = ATMC([theta], lr=0.1, num_data=5)
    chain(1, sampler, [theta])
    state = sampler.state_dict()
    with pytest.raises(ValueError, match="num_data=5, this sampler 6"):
        ATMC([theta], lr=0.1, num_data=6).load_state_dict(state)
    with pytest.raises(ValueError, match=r"momentum of parameter 0 is \(2,\), the parameter is \(3,\)"):
        ATMC([nn.Parameter(torch.ones(3))], lr=0.1, num_data=5).load_state_dict(state)
    with pytest.raises(
        ValueError, match="drawn by ATMC, this sampler is SGNHT: go on with ATMC, or start a new"
    ):
        SGNHT([theta], lr=0.1, num_data=5).load_state_dict(state)
