"""The check of a sampler: its windows, what it adds up, chains that are right and chains that are not."""

import copy
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bayesify.samplers import ATMC, PSGLD, SAMPLERS, SGHMC, SGLD, SGNHT, Sampler
from bayesify.samplers.check import ACCUMULATORS, Watch, noise_share, seen
from bayesify.samplers.schedules import EvenTimes, SampleTimes

STEPS = 800
CURVATURE = torch.tensor([400.0, 100.0, 25.0])  # of U = ½ Σ λ θ²


def run(
    sampler: Sampler, w: Tensor, steps: int = STEPS, watch: Watch | None = None, noise: float = 0.0
) -> tuple[dict[str, str], Watch]:
    """Steps on U with gradient noise of this std, and everything that was found."""
    watch = Watch(EvenTimes(steps // 2, steps - steps // 2, 10).due, steps) if watch is None else watch
    generator = torch.Generator().manual_seed(sampler.steps + 1)
    found: dict[str, str] = {}
    for _ in range(steps):
        w.grad = CURVATURE * w.detach() + noise * torch.randn(w.shape, generator=generator)
        watch.before(sampler.steps + 1, sampler, {"w": w})
        sampler.step()
        found |= watch.after(sampler.steps, sampler, {"w": w})
    return found, watch


def start(far: float = 0.0) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return nn.Parameter(far + torch.randn(8, 3, generator=generator) / CURVATURE.sqrt())


def make(name: str, w: Tensor, lr: float = 0.01, **settings: Any) -> Sampler:
    kind = SAMPLERS[name]
    known = kind.settings(lr, 1)
    return kind([w], lr=lr, num_data=1, **{k: v for k, v in (known | settings).items() if k in known})


def test_windows_end_at_the_first_draw_and_at_the_end() -> None:
    """A fifth of the burn-in, or 200 steps of the second half of it."""
    watch = Watch(EvenTimes(2000, 2000, 10).due, 4000)
    assert [(w[0], w[-1]) for w in watch.windows] == [(2200 - 440 + 1, 2200), (4000 - 440 + 1, 4000)]
    assert watch.first == 2200
    unknown = Watch(SampleTimes(300, 100).due)
    assert [(w[0], w[-1]) for w in unknown.windows] == [(201, 400), (401, 600)]
    assert unknown.pull is not None and (unknown.pull.first, unknown.pull.last) == (400, 600)
    assert [len(w) for w in Watch(EvenTimes(10, 10, 1).due, 20).windows] == [10, 0]  # one draw, at the end
    assert Watch(None).windows == []


@pytest.mark.parametrize("name", ["atmc", "sgnht", "sghmc"])
def test_a_chain_that_is_right_is_left_alone(name: str) -> None:
    w = start()
    assert run(make(name, w, mass=0.4), w)[0] == {}


@pytest.mark.parametrize("name", ["atmc", "sgnht"])
def test_a_thermostat_that_wound_up_is_found(name: str) -> None:
    """24 weights from 20 standard deviations and more away."""
    w = start(far=4.0)
    found, _ = run(make(name, w, mass=0.4), w)
    assert "of 24 weights (w " in found["stuck"] and "predictions too sure" in found["stuck"]
    assert "Lengthen the burn-in by some" in found["stuck"]


@pytest.mark.parametrize("settings", [{"temperature": 0.1}, {"lr": 0.01, "cyclic": True}])
def test_of_cold_and_cyclic_chains_the_thermostats_alone(settings: dict[str, Any]) -> None:
    cyclic = settings.pop("cyclic", False)
    quiet, stuck = start(), start(far=4.0)
    for w, expected in ((quiet, set()), (stuck, {"stuck"})):
        sampler = make("atmc", w, mass=0.4, **settings)
        if cyclic:
            sampler.param_groups[0]["initial_lr"] = 0.02
        noise = 0.0 if expected else 200.0  # far more than D
        assert set(run(sampler, w, noise=noise)[0]) == expected


def test_gradient_noise() -> None:
    """With a thermostat against D, without one as an excess of variance, with a friction alone as heat."""
    w = start()
    assert "times D in 24 of 24 weights" in run(make("atmc", w, mass=0.4), w, noise=60.0)[0]["noisy"]
    w = start()
    found, _ = run(make("sgld", w, lr=1e-4), w, noise=200.0)
    assert (
        set(found) == {"noisy"}
        and " 24 of 24 weights (w 24) some " in found["noisy"]
        and "too unsure" in found["noisy"]
    )
    w = start()
    found, _ = run(make("sghmc", w, mass=0.4), w, noise=60.0)
    assert set(found) == {"hot"} and "sampler='atmc'" in found["hot"]


def test_a_chain_that_does_not_move_is_cold() -> None:
    w = start()
    sampler = make("sghmc", w, mass=0.4)
    watch = Watch(SampleTimes(400, 1).due)
    for _ in range(401):
        watch.before(sampler.steps + 1, sampler, {"w": w})
        w.grad = torch.zeros_like(w)
        sampler.step(noise=[torch.zeros_like(w)])
        found = watch.after(sampler.steps, sampler, {"w": w})
    assert "kinetic temperature of 24 weights is not 1 (0 in w)" in found["cold"]


@pytest.mark.parametrize("name", ["atmc", "sgld"])
def test_a_step_that_is_skipped_leaves_the_looks_finite(name: str) -> None:
    """As by torch's GradScaler, which says so and forgets it."""
    w = start()
    sampler = make(name, w, lr=1e-4)
    watch = Watch(lambda step: step >= 100)
    for step in range(1, 101):
        bad = step % 20 == 0
        w.grad = torch.full_like(w, torch.inf) if bad else CURVATURE * w.detach()
        sampler.found_inf, sampler.grad_scale = torch.tensor(float(bad)), torch.tensor(1.0)
        watch.before(step, sampler, {"w": w})
        assert all(value.isfinite().all() for value in sampler.state[w].values())
        sampler.step()
        del sampler.found_inf, sampler.grad_scale
    assert watch.after(100, sampler, {"w": w}) == {}
    assert sampler.found_inf is None and w.isfinite().all()


def test_shares_of_gradient_noise() -> None:
    """h V / 2 m T D, h V / 2 T and h P V / 2 T, with a mass for every coordinate where there is one."""
    w, v = nn.Parameter(torch.zeros(2)), torch.tensor([3.0, 4.0])
    mass = torch.tensor([1.0, 4.0])
    for kind in (ATMC, SGNHT, SGHMC):
        sampler = kind([w], lr=0.1, num_data=1, mass=2.0, noise=5.0, temperature=0.5)
        group = sampler.param_groups[0]
        torch.testing.assert_close(noise_share(sampler, w, group, v), 0.1 * v / (2 * 2 * 0.5 * 5))
        sampler.state[w]["mass"] = mass
        torch.testing.assert_close(noise_share(sampler, w, group, v), 0.1 * v / (2 * mass * 0.5 * 5))
    sgld = SGLD([w], lr=0.1, num_data=1, temperature=0.5)
    torch.testing.assert_close(noise_share(sgld, w, sgld.param_groups[0], v), 0.1 * v)
    psgld = PSGLD([w], lr=0.1, num_data=1, temperature=0.5, eps=1.0, decay=0.0)
    psgld.state[w]["square"] = torch.tensor([4.0, 9.0])
    expected = 0.1 * v / torch.tensor([3.0, 4.0])
    torch.testing.assert_close(noise_share(psgld, w, psgld.param_groups[0], v), expected)


def test_what_a_window_adds_up() -> None:
    """V and temperature from the same gradients and momenta, written out; nothing is left behind."""
    w = start()
    sampler, watch = make("atmc", w, mass=0.4), Watch(lambda step: step >= 100)
    gradients, momenta = [], []
    generator = torch.Generator().manual_seed(0)
    for step in range(1, 101):
        w.grad = CURVATURE * w.detach() + torch.randn(w.shape, generator=generator)
        watch.before(step, sampler, {"w": w})
        if step > 50:
            gradients.append(w.grad)
            momenta.append(sampler.state[w]["momentum"].clone())
        sampler.step()
    state = sampler.state[w]
    moved = torch.stack(gradients).diff(dim=0).square().sum(0)
    torch.testing.assert_close(state["check_noise"], moved)
    torch.testing.assert_close(state["check_kinetic"], torch.stack(momenta).square().sum(0) / 0.4)
    (row,) = seen(sampler, "w", w, sampler.param_groups[0], 50)
    assert row.kinetic == pytest.approx((torch.stack(momenta).square().mean() / 0.4).item(), rel=1e-5)
    assert row.independent == pytest.approx(24 * 50 * math.tanh(-math.log(0.9)))
    watch.after(100, sampler, {"w": w})
    assert not set(ACCUMULATORS) & set(sampler.state[w])


def test_a_chain_stopped_in_a_window_says_the_same() -> None:
    due = EvenTimes(400, 400, 10).due
    w = start(far=4.0)
    sampler = make("atmc", w, mass=0.4)
    run(sampler, w, 350, Watch(due, STEPS))
    again = nn.Parameter(w.detach().clone())
    other = make("atmc", again, mass=0.4)
    other.load_state_dict(copy.deepcopy(sampler.state_dict()))
    whole, resumed = (run(s, p, 100, Watch(due, STEPS))[0] for s, p in ((sampler, w), (other, again)))
    assert whole == resumed and "stuck" in whole


def test_every_chain_of_many_is_looked_at_by_itself() -> None:
    """One of eight is stuck."""
    w = start()
    with torch.no_grad():
        w[2] += 4.0
    watch = Watch(EvenTimes(400, 400, 10).due, STEPS, num_chains=8)
    found, _ = run(make("atmc", w, mass=0.4), w, watch=watch)
    assert set(found) == {"stuck"} and "of 24 weights" in found["stuck"]
    assert int(found["stuck"].split(" of 24")[0].split()[-1]) <= 3


@pytest.mark.parametrize("name", ["atmc", "sghmc", "sgld"])
def test_weights_that_only_a_weak_prior_acts_on_are_named(name: str) -> None:
    """τ = m h D / h² λ is 4,200 steps of the momentum samplers at λ = 0.01, and 1 / h λ = 10,000 of SGLD. Gradient
    noise or a strong curvature of its own makes no weight slow."""
    w = start()
    sampler = make(name, w, mass=0.4, lr=0.01)
    watch = Watch(EvenTimes(400, 400, 10).due, 800)
    found: dict[str, str] = {}
    curvature = CURVATURE * torch.tensor([1.0, 1.0, 4e-4])
    for _ in range(800):
        w.grad = curvature * w.detach()
        w.grad[:, 1] += torch.randn(8)
        watch.before(sampler.steps + 1, sampler, {"w": w})
        sampler.step()
        found |= watch.after(sampler.steps, sampler, {"w": w})
    assert "8 of 24 weights (w 8) hardly move" in found["slow"]
