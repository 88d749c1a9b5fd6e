"""`bf.SamplingWarning` from training to prediction: said, raised or not heard, stored, and shown."""

import math
import re
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from small_chains import NUM, STD, data, fit, make, steady, stored
from torch import Tensor, nn

import bayesify as bf
from bayesify.engine.sampling_check import AWAY, check_draws, predicted, spread_out
from bayesify.evaluation.convergence import function_values
from bayesify.posteriors.chain.draw_store import DrawKey
from bayesify.samplers.agreement import APART, FEW, compare, judge
from bayesify.samplers.convergence import least_worth, rhat, worth
from bayesify.samplers.findings import DRIFTED, drift


def test_a_run_that_froze_says_so_and_so_does_its_model(tmp_path: Path) -> None:
    model = make()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        history = fit(model, folder=tmp_path / "run")
    assert {w.category for w in said} == {bf.SamplingWarning}
    assert len(said) <= len(model.posterior.findings)
    assert re.search(r"thermostats of \d of 2 weights \(weight \d\)", str(said[0].message))
    assert "thermostats of" in history.notes[-1] and "thermostats of" in str(model.summary())
    again = bf.load(tmp_path / "run" / "model.safetensors", nn.Linear(2, 1, bias=False))
    assert again.posterior.findings == model.posterior.findings
    for each in (model, again):
        with pytest.warns(bf.SamplingWarning, match="thermostats of"):
            each.predict(data()[0])
        each.predict(data()[0])  # said once


def test_a_run_that_is_right_says_nothing(tmp_path: Path) -> None:
    model = make(start=1.0)
    history = fit(model)
    model.predict(data()[0])
    assert model.posterior.findings == {} and not any("posterior" in note for note in history.notes)
    bf.save(model, tmp_path / "model.safetensors")
    assert bf.load(tmp_path / "model.safetensors", nn.Linear(2, 1, bias=False)).posterior.findings == {}


def test_it_can_be_raised_or_not_heard() -> None:
    model = make()
    with pytest.raises(bf.SamplingWarning, match="Lengthen the burn-in by some"):
        fit(model, on_bad_sampling="raise")
    assert model.posterior.num_draws == 0  # before the first is kept
    quiet = make()
    history = fit(quiet, on_bad_sampling="ignore")
    assert "stuck" in quiet.posterior.findings and "thermostats of" in history.notes[-1]
    with pytest.raises(ValueError, match="on_bad_sampling='panic' does not exist"):
        fit(make(), on_bad_sampling="panic")
    with pytest.raises(ValueError, match="on_bad_sampling='panic' does not exist"):
        bf.sample_chains(make(), [data()], num_chains=2, epochs=1, on_bad_sampling="panic")


def test_a_resumed_run_finds_the_same(tmp_path: Path) -> None:
    """Stopped inside of the window, and after what was found in it."""
    whole, parts = make(), make()
    fit(whole, on_bad_sampling="ignore", folder=tmp_path / "whole")

    def stop(model: bf.BayesianModule, epoch: int) -> None:
        if epoch in (250, 450):
            raise KeyboardInterrupt

    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            fit(parts, on_bad_sampling="ignore", folder=tmp_path / "parts", on_epoch=stop)
        parts = make()
    fit(parts, on_bad_sampling="ignore", folder=tmp_path / "parts")
    assert parts.posterior.findings == whole.posterior.findings != {}
    assert torch.equal(parts.net.weight, whole.net.weight)


def test_chains_side_by_side_are_checked_too() -> None:
    model = make()
    bf.sample_chains(model, [data()], num_chains=3, epochs=600, on_bad_sampling="ignore")
    assert "of 6 weights" in model.posterior.findings["stuck"]
    assert "the 3 chains do not agree" in model.posterior.findings["apart"]
    with pytest.raises(bf.SamplingWarning, match="of 6 weights"):
        bf.sample_chains(make(), [data()], num_chains=3, epochs=600, on_bad_sampling="raise")
    right = steady(every=10)
    bf.sample_chains(right, [data()], num_chains=3, epochs=600)
    assert right.posterior.findings == {}


def test_a_cold_or_cyclic_chain_is_not_asked_whether_it_is_stationary() -> None:
    for options in ({"temperature": 0.1}, {"cycle": 10}):
        model = make(start=1.0, every=None if "cycle" in options else 10, **options)
        fit(model, epochs=600)
        assert model.posterior.findings == {}


@pytest.mark.parametrize("options", [{"cycle": 9999}, {"temperature": 0.1, "burn_in": 9999, "every": 5}])
def test_a_run_that_keeps_no_draw_is_told_so(options: dict[str, Any], tmp_path: Path) -> None:
    """However cold it is, and whatever its schedule."""
    x, y = data()
    model = bf.bayesify(
        nn.Linear(2, 1, bias=False), bf.ThermostatMCMC(**options), bf.likelihood("normal", std=1.0), NUM
    )
    with pytest.warns(bf.SamplingWarning, match="no draw was kept, and predictions are those of the last"):
        history = bf.fit(model, [(x, y)], epochs=30, folder=tmp_path, recipe=None, progress=False)
    assert "no draws yet" in history.notes[-1]
    with pytest.warns(bf.SamplingWarning, match="no draws yet"):
        bf.load(tmp_path / "model.safetensors", nn.Linear(2, 1, bias=False)).predict(x)
    with pytest.raises(bf.SamplingWarning, match="no draw was kept"):
        bf.sample_chains(model, [(x, y)], num_chains=2, epochs=30, on_bad_sampling="raise")


def test_chains_that_do_not_agree_and_draws_that_drift() -> None:
    x, _ = data()
    model = make(start=1.0)
    sampler = model.optimizer(num_steps=None)
    noise = torch.randn(4, 40, generator=torch.Generator().manual_seed(0))
    check_draws(stored(noise), sampler, x)
    check_draws(stored(noise[:1]), sampler, x)
    assert rhat(noise).item() < APART
    with pytest.warns(bf.SamplingWarning, match=r"the 4 chains do not agree .* 160 draws are worth some \d"):
        check_draws(stored(noise.cumsum(1)), sampler, x)
    with pytest.warns(bf.SamplingWarning, match="the 4 chains do not agree .* they sit in different modes"):
        check_draws(stored(noise + 3 * torch.arange(4)[:, None]), sampler, x)
    with pytest.warns(
        bf.SamplingWarning, match="predictions change slowly .* 40 draws are worth some 1 indep"
    ):
        check_draws(stored(noise[:1] + torch.arange(40)), sampler, x)
    rows = [{"step": 10 * i, "loss": math.exp(-i)} for i in range(40)]
    drifting = stored(noise)
    with pytest.warns(bf.SamplingWarning, match="the loss has not settled among the draws"):
        check_draws(drifting, sampler, x, [{"step": 300 + r["step"], "loss": r["loss"]} for r in rows])


@pytest.mark.parametrize("chains", [1, 3])
def test_weights_that_grow_are_a_drift_though_predictions_do_not_show_it(chains: int) -> None:
    """The second input is always 0: what its weight does is in no prediction, near the data or away."""
    x = data()[0] * torch.tensor([1.0, 0.0])
    noise = torch.randn(chains, 20, 2, generator=torch.Generator().manual_seed(0))
    for way, found in ((0.0, set()), (0.3, {"drift"})):
        model = stored(
            noise * torch.tensor([1.0, 0.1]) + way * torch.arange(20)[:, None] * torch.tensor([0, 1])
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", bf.SamplingWarning)
            check_draws(model, model.optimizer(num_steps=None), x)
        assert model.posterior.findings.keys() == found
    assert "the log prior has not settled" in model.posterior.findings["drift"]
    assert ("one chain cannot tell whether it missed" in str(model.summary())) == (chains == 1)
    assert drift(torch.zeros(1, 40), "log prior") == {}  # a flat one
    assert rhat(torch.arange(20)[None]).item() > DRIFTED


def test_a_sampler_that_nobody_told_the_length_of_its_run() -> None:
    model = make(start=1.0)
    with pytest.warns(
        bf.SamplingWarning, match="no draw will be kept: .* model.optimizer.num_steps="
    ) as said:
        sampler = model.optimizer()
    assert Path(said[0].filename).name == Path(__file__).name
    assert sampler.param_groups[0]["lr"] == 1e-3  # lr=None: the sampler's own
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.optimizer(num_steps=None)
        model.optimizer(num_steps=100)
        make(burn_in=10, every=2).optimizer()
    with pytest.warns(bf.SamplingWarning, match="too short") as said:
        fit(make(start=1.0), epochs=4, optimizer=lambda _: model.optimizer())
    assert len(said) == 1


@pytest.mark.parametrize("by_hand", [True, False])
def test_own_loops_are_checked(by_hand: bool) -> None:
    """Also where draws are kept by hand: 200 steps after the first."""
    model = make()
    sampler = model.optimizer(seed=0, num_steps=None if by_hand else 600)
    x, y = data()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bf.SamplingWarning)
        for step in range(600):
            sampler.zero_grad()
            model.loss(x, y).total.backward()
            sampler.step()
            if by_hand and step == 100:
                model.collect()
    assert "stuck" in model.posterior.findings


@pytest.mark.parametrize(("slow", "classes"), [(True, False), (False, False), (True, True)])
def test_draws_of_own_loops_are_compared_where_one_predicts(slow: bool, classes: bool) -> None:
    """Weights that go round once in all draws, or almost half round from one to the next; on a circle, so that their
    prior says nothing. The level of logits, which no probability shows, may go round as it likes."""
    turn = torch.arange(40) * (2 * math.pi / 40 if slow else 2.4)
    weights = torch.stack([turn.cos(), turn.sin()], 1)
    model = make(start=1.0)
    sampler = model.optimizer(num_steps=600)
    model.posterior.begin(sampler, 600)
    for step, row in enumerate(weights):
        model.posterior.store.add(DrawKey(0, step), {"weight": row[None]})
    model.posterior.unjudged = True
    if classes:
        model.likelihood = bf.likelihood("categorical")
        model.pick = lambda output: output.expand(-1, 3)  # type: ignore[method-assign]
    assert "few" not in model.posterior.findings and "independent" not in str(model.summary())
    if slow and not classes:
        with pytest.warns(bf.SamplingWarning, match="the 40 draws are worth some . independent ones"):
            model.predict(data()[0])
        assert set(model.posterior.findings) == {"few"} and "independent ones" in str(model.summary())
    else:
        model.predict(data()[0])
        assert model.posterior.findings == {} and not model.posterior.unjudged


def test_what_a_window_found_stays_where_draws_agree() -> None:
    """Weights that hardly move are not in what the draws predict."""
    model = stored(torch.randn(1, 40, generator=torch.Generator().manual_seed(0)))
    model.posterior.findings["slow"] = "weights hardly move"
    check_draws(model, model.method.optimizer(model, num_steps=600), data()[0], past=600)
    assert model.posterior.findings == {"slow": "weights hardly move"}


def test_a_run_that_is_too_short_to_be_judged_says_so_until_it_is_longer(tmp_path: Path) -> None:
    """By its steps, by its draws, and in chains side by side; a longer run of the same folder forgets it."""
    text = r"may not be those of the posterior: .* too short .* \({} steps after the burn-in, {} draws\)"
    model, folder = make(start=1.0, burn_in=300, every=10), tmp_path / "run"
    with pytest.warns(bf.SamplingWarning, match=text.format(90, 10)):
        history = fit(model, epochs=400, folder=folder)
    assert "too short to tell" in history.notes[-1] and "too short" in str(model.summary())
    again = bf.load(folder / "model.safetensors", nn.Linear(2, 1, bias=False))
    assert again.posterior.findings.keys() == {"short"}
    with pytest.raises(
        bf.SamplingWarning, match="posterior: 7 draws are too few to tell .* keep at least 20"
    ):
        fit(make(start=1.0, num_kept=7, burn_in=274), on_bad_sampling="raise")
    longer = make(start=1.0, burn_in=300, every=10)
    fit(longer, epochs=600, folder=folder)
    assert longer.posterior.findings == {}
    with pytest.warns(bf.SamplingWarning, match=text.format(95, 20)):
        bf.sample_chains(steady(), [data()], num_chains=3, epochs=200)


def test_shortened_steps_are_counted_over_a_resume(tmp_path: Path) -> None:
    """160 of 400 steps are clipped in the first part of the run, none in the second."""

    def run(epochs: int, clip_norm: float) -> bf.BayesianModule:
        model = make(start=1.0, burn_in=100, every=5)
        options = {"clip_norm": clip_norm, "folder": tmp_path / "run", "on_bad_sampling": "ignore"}
        fit(model, epochs=epochs, **options)
        return model

    run(160, 1e-6)
    assert "shortened the gradients of 160 steps" in run(400, 1e6).posterior.findings["clipped"]


def walks(chains: int, draws: int = 40) -> Tensor:
    """Draws of two weights whose sum is well known and whose difference wanders: (chains, draws, 2)."""
    generator = torch.Generator().manual_seed(0)
    known, wandering = torch.randn(2, chains, draws, generator=generator)
    slow = 2 * torch.randn(chains, 1, generator=generator) + wandering.cumsum(1)
    return torch.stack([known / 2 + slow, known / 2 - slow], -1)


@pytest.mark.parametrize(
    ("chains", "words"),
    [(1, "predictions{} change slowly"), (4, "4 chains do not agree in their predictions{}")],
)
def test_directions_that_correlated_inputs_leave_open_are_looked_at(chains: int, words: str) -> None:
    """Two features that are equal in the data: the network's outputs there say nothing of the difference."""
    x = data()[0][:, :1].expand(-1, 2) + 0.01 * data()[0]
    model = stored(walks(chains))
    assert compare(predicted(model, x)) == {}
    with pytest.warns(bf.SamplingWarning, match=words.format(AWAY)):
        check_draws(model, model.optimizer(num_steps=None), x)
    check_draws(model, model.optimizer(num_steps=None), x[:1])  # one input: nothing to shuffle
    assert model.posterior.findings == {}


def test_inputs_are_spread_out_where_that_can_be_done() -> None:
    x = data()[0]
    away = spread_out(x)
    assert away is not None and torch.allclose(away.mean(0), x.mean(0), atol=1e-6)
    assert torch.allclose(away.std(0), 2 * x.std(0)) and not torch.equal(away, spread_out(x.flip(0)))
    assert spread_out(x.long()) is spread_out([x]) is spread_out(x[:3]) is spread_out(x[:, 0]) is None


def test_a_network_that_refuses_inputs_is_judged_by_the_others() -> None:
    class Refuses(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            assert x.abs().max() <= most, "no such input"
            return super().forward(x)

    most = data()[0].abs().max()
    method = bf.ThermostatMCMC(mass=0.1, warm_start=False, burn_in=300, every=10)
    net = Refuses(2, 1, bias=False)
    nn.init.ones_(net.weight)
    model = bf.bayesify(net, method, likelihood=bf.likelihood("normal", std=STD), num_data=NUM)
    fit(model)
    assert model.posterior.findings == {}


def test_classes_are_compared_by_their_probabilities() -> None:
    """All logits of a chain are shifted together, which predicts the same."""
    model = bf.bayesify(nn.Linear(2, 3), bf.ThermostatMCMC(), num_data=NUM)
    noise = torch.randn(4, 30, 3, 2, generator=torch.Generator().manual_seed(0))
    for chain, draws in enumerate(noise):
        for step, weight in enumerate(draws):
            here = {"weight": weight, "bias": torch.full((3,), 5.0 * chain)}
            model.posterior.store.add(DrawKey(chain, step), here)
    assert "apart" in compare(function_values(model, data()[0]))
    assert compare(predicted(model, data()[0])) == {}


def test_how_many_independent_draws_one_chain_is_worth() -> None:
    """AR(1) chains of 200 draws with φ = 0.9 are worth 200 · 0.1 / 1.9 = 10.5. A part that is new in every draw, of a
    sixth of the variance, does not hide one that stands still."""
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(200, 400, generator=generator, dtype=torch.float64)
    chain = [noise[0]]
    for each in noise[1:]:
        chain.append(0.9 * chain[-1] + math.sqrt(1 - 0.81) * each)
    assert worth(torch.stack(chain)) == pytest.approx(200 * 0.1 / 1.9, rel=0.2)
    assert worth(noise[:20]) == pytest.approx(20, rel=0.1)
    ramp = torch.linspace(-1.5, 1.5, 200, dtype=torch.float64)[:, None]
    assert worth(ramp + noise[:, :5] * 0.4) < 2
    assert math.isnan(worth(torch.ones(20, 3)))


@pytest.mark.parametrize(("quantities", "slow"), [(1, 0.3), (5, 0.95)])
def test_few_independent_draws_of_many_quantities_are_noticed(quantities: int, slow: float) -> None:
    """Of 3,000 chains of 20 independent draws at most 6 are worth fewer than chance leaves (1 in 3,000 in 40,000
    chains; seven and more of a mean of 1 come once in 12,000). AR(1) draws that are worth 3, φ = 0.74, are, in this
    share of 300 (0.41 and 0.99 in 1,500)."""
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(3000, 20, quantities, generator=generator)
    assert sum(worth(draws) < min(FEW, least_worth(draws)) for draws in noise) <= 6
    time, chain = 20 / 3, [noise[:300, 0]]
    phi = (time - 1) / (time + 1)
    for draw in range(1, 20):
        chain.append(phi * chain[-1] + math.sqrt(1 - phi**2) * noise[:300, draw])
    found = ["few" in compare(draws[None]) for draws in torch.stack(chain, 1)]
    assert sum(found) > slow * 300


def test_a_level_that_goes_round_does_not_hide_differences_that_stand_still() -> None:
    """20 draws of predictions at 30 inputs: their common level is new in every draw, a slope drifts."""
    generator = torch.Generator().manual_seed(0)
    level, inputs = torch.randn(1, 20, 1, generator=generator), torch.randn(30, generator=generator)
    slope = torch.linspace(-0.8, 0.8, 20)[None, :, None]
    assert compare(level + slope * inputs) == {}
    assert (
        "predictions in their differences between inputs change slowly"
        in judge(level + slope * inputs)["few"]
    )
    assert judge(level + 0.1 * slope * inputs) == {}  # as good as nothing of the predictions
    assert judge(level + torch.randn(1, 20, 1, generator=generator) * inputs) == {}


@pytest.mark.parametrize("chains", [1, 2])
def test_draws_that_are_all_alike_or_not_finite_are_no_posterior(chains: int) -> None:
    alike, lost = torch.full((chains, 20, 5), 3.0), torch.randn(chains, 20, 5)
    lost[0, 3, 2] = math.nan
    assert "the same in all draws" in compare(alike)["frozen"]
    assert "not finite" in compare(lost)["frozen"]


def test_chains_in_different_modes_are_not_told_to_go_on() -> None:
    """Each draws independently, at a place of its own; those that go round one mode slowly are to be lengthened."""
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(4, 40, 5, generator=generator)
    modes = torch.tensor([-3.0, -3.0, 3.0, 3.0])[:, None, None]
    assert "they sit in different modes" in compare(noise + modes)["apart"]
    slow = noise.cumsum(1)
    assert "Lengthen" in compare(slow)["apart"]
    on_their_way = torch.arange(40.0)[:, None] + 30 * modes + noise  # worth one draw each
    assert "Lengthen" in compare(on_their_way)["apart"]
