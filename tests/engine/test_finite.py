"""A chain that diverges stops with the step, the parameter and advice, and keeps its draws."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import bayesify as bf
from bayesify.checks import NonFiniteError
from bayesify.data import Loader, Split
from bayesify.engine.checkpoint import find_checkpoints, read_checkpoint
from bayesify.engine.finite import FiniteCheck

GENERATOR = torch.Generator().manual_seed(1)
DATA = Split(torch.randn(32, 3, generator=GENERATOR), torch.randn(32, 1, generator=GENERATOR))


def make(**options: Any) -> bf.BayesianModule:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    settings = {"burn_in": 0, "every": 1, **options}
    return bf.bayesify(
        net, bf.ThermostatMCMC(**settings), likelihood=bf.likelihood("normal", std=1.0), num_data=32
    )


def diverge(model: bf.BayesianModule, lr: float, **options: Any) -> str:
    """The message of a run at a step far too large."""
    with pytest.raises(NonFiniteError) as caught:
        bf.fit(model, Loader(DATA, 8), lr=lr, epochs=100, progress=False, seed=0, **options)
    return str(caught.value)


def steps_of(message: str) -> int:
    found = re.search(r"after (\d+) steps", message)
    assert found is not None, message
    return int(found[1])


@pytest.mark.parametrize("sampler", ["atmc", "sgnht", "sghmc", "sgld"])
def test_a_step_far_too_large(sampler: str, tmp_path: Path) -> None:
    """λ of U is about 50: √(λ/m) h = 70 with momentum, λ h = 50 without."""
    light = {} if sampler == "sgld" else {"mass": 1e-2}
    if sampler in ("atmc", "sgnht"):
        light["thermostat_rate"] = 0.0
    model = make(sampler=sampler, **light)
    message = diverge(model, lr=1.0, folder=tmp_path)
    steps, draws = steps_of(message), model.posterior.num_draws
    assert message.startswith("the chain has diverged: ")
    assert 1 < steps <= model.posterior.steps
    assert re.search(
        r"(\d\.(weight|bias) is not finite|the largest weight is .*, in \d\.(weight|bias))", message
    )
    assert f"The {draws} earlier draws are kept. Lower the step size (lr)" in message
    assert ("raise the mass" in message) == ("max_speed" in message) == (sampler != "sgld")
    assert draws in (steps, steps - 1)  # one for every good step
    _assert_kept(model, tmp_path, draws)


def _assert_kept(model: bf.BayesianModule, folder: Path, draws: int) -> None:
    """The draws before the end are used by this model, and load into another one from the folder."""
    assert model.predict(DATA.inputs).num_draws == draws
    other = make()
    posterior: Any = other.posterior
    assert posterior.add_folder(folder / "draws") == draws
    assert all(w.isfinite().all() for _, weights in posterior.each() for w in weights.values())


def test_no_checkpoint_holds_a_bad_step(tmp_path: Path) -> None:
    """A step that leaves weights or momenta that are not finite is found before it is written."""
    model = make(mass=1e-2, thermostat_rate=0.0, every=1000)
    diverge(model, lr=1.0, folder=tmp_path, checkpoint_every=1)
    paths = [path for _, path in find_checkpoints(tmp_path / "checkpoints")]
    assert paths
    for path in paths:
        state = read_checkpoint(path)
        assert all(value.isfinite().all() for value in state["model"].values())
        assert all(entry["momentum"].isfinite().all() for entry in state["optimizer"]["state"].values())


def test_a_momentum_that_is_not_finite_is_named() -> None:
    model = make()
    sampler = model.optimizer(lr=1e-3)
    model.loss(DATA.inputs, DATA.targets).total.backward()
    sampler.step()
    sampler.state[model.net[2].weight]["momentum"][0, 1] = torch.inf
    with pytest.raises(
        NonFiniteError, match=r"the momentum of 2.weight is not finite after 1 steps. The 1 earlier"
    ):
        model.collect()
    with pytest.raises(NonFiniteError, match=r"the momentum of 2.weight is not finite after 1 steps"):
        FiniteCheck(model, sampler, SimpleNamespace(world_size=1)).read()


def test_answers_that_are_read_later_name_the_step_that_was_bad() -> None:
    """As on a GPU: bad steps are skipped, the seventh of nine is found at the reading."""
    model = make(every=100)
    sampler = model.optimizer(lr=1e-3)
    finite = FiniteCheck(model, sampler, SimpleNamespace(world_size=1))
    finite.lazy = True
    for step in range(1, 10):
        sampler.zero_grad()
        total = model.loss(DATA.inputs, DATA.targets).total
        total.backward()
        if step == 7:
            model.net[0].weight.grad.fill_(torch.nan)  # type: ignore[union-attr]
        finite.before_step(total)
        sampler.step()
    with pytest.raises(NonFiniteError, match=r"after 6 steps; the largest weight is .*, in \d.(weight|bias)"):
        finite.read()
    assert all(p.isfinite().all() for p in model.parameters())


def test_a_bad_batch_is_no_divergence() -> None:
    model = make()
    x = DATA.inputs.clone()
    x[20, 1] = torch.nan
    with pytest.raises(NonFiniteError, match="the batch holds NaN or infinite values"):
        bf.fit(model, Loader(Split(x, DATA.targets), 8), epochs=1, progress=False)


def test_chains_as_members_name_the_one() -> None:
    torch.manual_seed(0)
    net = nn.Linear(3, 1)
    method = bf.DeepEnsemble(bf.ThermostatMCMC(burn_in=0, every=1), 2)
    model = bf.bayesify(net, method, likelihood=bf.likelihood("normal", std=1.0), num_data=32)
    sampler = model.optimizer(lr=1e-3)
    model.loss(DATA.inputs, DATA.targets).total.backward()
    sampler.step()
    with torch.no_grad():
        model.posterior.copies[0].bias.fill_(torch.inf)  # type: ignore[union-attr,index]
    with pytest.raises(
        ValueError, match=r"diverged: the loss is not finite .*, in member 1, .*; bias is not finite"
    ):
        model.loss(DATA.inputs, DATA.targets)
