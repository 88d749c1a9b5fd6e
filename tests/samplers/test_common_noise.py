"""Noise that coordinates have in common: what is measured of it, when something is said, and where it can be read."""

import copy
import math
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import bayesify as bf
from bayesify.samplers import ATMC, SGLD
from bayesify.samplers.check import Watch
from bayesify.samplers.common_noise import DIRECTION, OVERLAP, Common, CommonNoise
from bayesify.samplers.findings import COMMON, common_noise

UNIT = torch.tensor(1 / 6)  # s where the mean square of a coordinate's noise is its B/D


def measured(gradients: Tensor, chains: int, scale: Tensor = UNIT) -> list[Common]:
    """Of (steps, chains, coordinates) gradients, looked at one after the other."""
    w = nn.Parameter(torch.zeros(gradients.shape[1:]))
    sampler, noise = SGLD([w], lr=1.0, num_data=1), CommonNoise(chains)
    for at, change in enumerate(gradients.diff(dim=0), 1):
        noise.look(sampler, [(w, scale, change)], at, len(gradients))
    found = noise.found(sampler, {"w": w})
    assert not sampler.state[w]
    return found


def test_of_even_noise_it_measures_what_it_is_and_says_nothing() -> None:
    """2,000 chains of 10 coordinates at the limit: the mean within 4.9 standard errors (failure 1e-6), the spread that
    of χ² over what the looks are worth; of 2,000 Poisson(0.06) more than 4 come once in 1e8."""
    gradients = math.sqrt(COMMON) * torch.randn(60, 2000, 10, generator=torch.Generator().manual_seed(0))
    found = measured(gradients, 2000)
    shares = torch.tensor([each.share for each in found])
    independent = 28 / OVERLAP  # of 58 second differences 28 are in the second half
    assert shares.mean().item() == pytest.approx(COMMON, abs=4.9 * COMMON * math.sqrt(2 / independent / 2000))
    assert shares.std().item() == pytest.approx(COMMON * math.sqrt(2 / independent), rel=0.1)
    assert max(each.independent for each in found) == pytest.approx(independent)
    assert sum(bool(common_noise([each])) for each in found) <= 4


def test_a_direction_with_more_is_found() -> None:
    """B/D = 4 along one of 100, of which coordinates have 0.05; 200 looks, each of 50 chains by itself."""
    generator = torch.Generator().manual_seed(1)
    widest = torch.randn(50, 100, generator=generator)
    widest /= widest.norm(dim=1, keepdim=True)
    noise = 0.1 * torch.randn(200, 50, 100, generator=generator)
    noise = noise + 2 * widest * torch.randn(200, 50, 1, generator=generator)
    found = measured(noise, 50)
    shares = torch.tensor([each.share for each in found])
    assert shares.mean().item() == pytest.approx(4.0, rel=0.1)
    assert all(common_noise([each]).keys() == {"common"} for each in found)


def test_heavy_tails_are_worth_less() -> None:
    generator = torch.Generator().manual_seed(2)
    rare = (torch.rand(200, 1, 5, generator=generator) < 0.02) * 7.0
    even = torch.randn(200, 1, 5, generator=generator)
    (heavy,), (light,) = measured(rare * even, 1), measured(even, 1)
    assert heavy.independent < light.independent / 3


def test_motion_hardly_counts() -> None:
    """A gradient that runs smoothly, as those of a full batch, whose changes are 0.3 of what is injected."""
    time = torch.arange(200.0)[:, None, None]
    (found,) = measured(torch.sin(0.6 * time + torch.arange(5.0)), 1)
    changes = torch.sin(0.6 * time + torch.arange(5.0)).diff(dim=0).square().mean() / 2
    assert found.share < changes


def test_masses_of_now_count() -> None:
    """They may be set anew between the halves of a window: four times as heavy, B/D a quarter."""
    generator = torch.Generator().manual_seed(3)
    w = nn.Parameter(torch.zeros(1, 3))
    gradients = torch.randn(400, 1, 3, generator=generator)
    shares = []
    for heavier in (1.0, 4.0):
        sampler, noise = SGLD([w], lr=1.0, num_data=1), CommonNoise()
        for at, change in enumerate(gradients.diff(dim=0), 1):
            noise.look(sampler, [(w, UNIT / (heavier if at >= 200 else 1.0), change)], at, 400)
        shares.append(noise.found(sampler, {"w": w})[0].share)
    assert shares[1] == pytest.approx(shares[0] / 4, rel=1e-4)


def test_words() -> None:
    assert common_noise([]) == common_noise([Common(), Common(0.9 * COMMON, 1e6)]) == {}
    assert common_noise([Common(4.0, 1.0)]) == {}  # by chance
    text = common_noise([Common(4.0, 50.0), Common(0.1, 50.0)])["common"]
    assert "is 4 times what is injected" in text and "a factor of up to 5 in variance" in text
    assert (
        "predictions hardly change" in text
        and "Larger batches, a larger mass or a smaller step (lr) help" in text
    )


def noisy(sampler: Any, parameters: list[Tensor], watch: Watch, steps: int, share: float) -> dict[str, str]:
    """Steps at gradients of 0 mean, whose noise is all along (1, …, 1)."""
    generator = torch.Generator().manual_seed(sampler.steps)
    count, found = sum(p.numel() for p in parameters), dict[str, str]()
    group = sampler.param_groups[0]
    width = math.sqrt(2 * group["mass"] * group["noise"] / group["lr"] * share / count)
    for _ in range(steps):
        draw = width * math.sqrt(count) * torch.randn((), generator=generator)
        for p in parameters:
            p.grad = (p.detach() + draw / math.sqrt(count)).to(p.dtype)
        named = {str(i): p for i, p in enumerate(parameters)}
        watch.before(sampler.steps + 1, sampler, named)
        sampler.step()
        found |= watch.after(sampler.steps, sampler, named)
    return found


def two(dtype: torch.dtype = torch.float32, temperature: float = 1.0) -> tuple[ATMC, list[Tensor]]:
    """A sampler of two groups, of 30 and of 1 weights; the second has no dimension."""
    torch.manual_seed(0)
    parameters: list[Tensor] = [
        nn.Parameter(torch.zeros(5, 6, dtype=dtype)),
        nn.Parameter(torch.zeros((), dtype=dtype)),
    ]
    groups = [{"params": [p], "temperature": temperature} for p in parameters]
    return ATMC(groups, lr=0.1, num_data=1, mass=1.0, thermostat_rate=0.1), parameters


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_over_all_groups_and_in_half_precision(dtype: torch.dtype) -> None:
    """Coordinates have 3 / 31 of D each."""
    sampler, parameters = two(dtype)
    found = noisy(sampler, parameters, Watch(lambda step: step == 400, 400), 400, 3.0)
    assert found.keys() == {"common"}
    assert 1.5 < float(found["common"].split(" is ")[1].split(" times")[0]) < 5.0


def test_of_cold_chains_nothing_is_asked() -> None:
    sampler, parameters = two(temperature=0.5)
    assert noisy(sampler, parameters, Watch(lambda step: step == 400, 400), 400, 3.0) == {}


@pytest.mark.parametrize("stop", [230, 350])
def test_a_chain_stopped_in_a_window_measures_the_same(stop: int) -> None:
    """In both halves of it, bit for bit."""
    (sampler, parameters), (other, again) = two(), two()
    noisy(sampler, parameters, Watch(lambda step: step == 400, 400), stop, 3.0)
    with torch.no_grad():
        for p, q in zip(parameters, again, strict=True):
            q.copy_(p)
    other.load_state_dict(copy.deepcopy(sampler.state_dict()))
    assert torch.equal(other.state[again[0]][DIRECTION], sampler.state[parameters[0]][DIRECTION])
    whole, resumed = (
        noisy(s, p, Watch(lambda step: step == 400, 400), 400 - stop, 3.0)
        for s, p in ((sampler, parameters), (other, again))
    )
    assert whole == resumed and whole.keys() == {"common"}


class Own(nn.Module):
    """A layer that nobody knows for one, and has no axes."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(0.1 * torch.randn(20, 1))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight


@pytest.mark.parametrize("loop", ["fit", "own", "axes"])
def test_features_that_are_alike(loop: str, tmp_path: Any) -> None:
    """B/D is 1.4 along what they have in common, whose variance comes out 1.4 times too large; predictions are right
    on average, and a remark says so. Along axes it is 0.12, of which nothing is said."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(500, 20, generator=generator) + 2 * torch.randn(500, 1, generator=generator)
    y = x @ torch.randn(20, 1, generator=generator) + 0.3 * torch.randn(500, 1, generator=generator)
    torch.manual_seed(0)
    net = nn.Linear(20, 1) if loop == "axes" else Own()
    likelihood = bf.likelihood("normal", std=0.3)
    model = bf.bayesify(net, bf.ThermostatMCMC(), likelihood, num_data=500)
    loader = DataLoader(TensorDataset(x, y), batch_size=20, shuffle=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bf.SamplingWarning)
        if loop == "own":
            sampler = model.optimizer(num_steps=2000)
            for _ in range(80):
                for inputs, target in loader:
                    sampler.zero_grad()
                    model(inputs, target=target).total.backward()
                    sampler.step()
        else:
            history = bf.fit(model, loader, epochs=80, progress=False, seed=0, accelerator="cpu")
    remarks = model.posterior.asides()
    assert "common" not in model.posterior.findings
    assert [text[:44] for text in remarks] == (
        [] if loop == "axes" else ["along one direction of the weights the noise"]
    )
    if loop == "fit":
        assert remarks[0] in history.notes and remarks[0] in str(model.summary())
        bf.save(model, tmp_path / "model.safetensors")
        assert bf.load(tmp_path / "model.safetensors", Own()).posterior.asides() == remarks
