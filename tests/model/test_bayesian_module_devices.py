"""Functions that take a model and inputs take them from any device; what they return is where the inputs were.

Without a GPU the other device is "meta", which holds no numbers: a function that fetches its inputs fails at that,
with torch's own message, and one that does not fails in the network, with another.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bayesify as bf
from bayesify.studies import attacks, diagnostics, explain

NO_NUMBERS = "Cannot copy out of meta tensor"


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))


def converted(method: Any) -> bf.BayesianModule:
    return bf.bayesify(network(), method, num_data=40).eval()


def chain() -> bf.BayesianModule:
    model = converted(bf.ThermostatMCMC())
    for _ in range(4):
        model.collect()
    return model


def random_one() -> bf.BayesianModule:
    return converted(bf.MonteCarloVI())


def propagated() -> bf.BayesianModule:
    return converted(bf.DensityPropagation())


def point() -> bf.BayesianModule:
    return converted(bf.Point())


def selected(net: nn.Module, x: Tensor) -> None:
    bf.bayesify(net, bf.MonteCarloVI(where=bf.where.output), example=x)


Case = tuple[Callable[[], nn.Module], Callable[[Any, Tensor, Tensor], Any]]
ATTACK = {"step": 0.1, "num_steps": 2, "bounds": None}
CASES: dict[str, Case] = {
    "predict": (random_one, lambda m, x, y: m.predict(x, 4).mean),
    "predict, one pass": (propagated, lambda m, x, y: m.predict(x, 4).mean),
    "predict, at the mean": (random_one, lambda m, x, y: m.predict(x, mode="deterministic").mean),
    "predict, input with variance": (
        propagated,
        lambda m, x, y: m.predict(bf.Moments(x, torch.ones_like(x)), 4).mean,
    ),
    "fast_sign": (point, lambda m, x, y: attacks.fast_sign(m, x, y, 0.1, 2, bounds=None)),
    "pgd": (random_one, lambda m, x, y: attacks.pgd(m, x, y, 0.1, num_steps=2, bounds=None)),
    "pgd of a plain network": (network, lambda m, x, y: attacks.pgd(m, x, y, 0.1, bounds=None)),
    "attack_curve": (point, lambda m, x, y: attacks.attack_curve(m, x, y, **ATTACK)),
    "attack_curve of a plain network": (network, lambda m, x, y: attacks.attack_curve(m, x, y, **ATTACK)),
    "saliency": (point, lambda m, x, y: explain.saliency(explain.probability_of(m, y), x)),
    "function_values": (chain, lambda m, x, y: diagnostics.function_values(m, x)),
    "suggest": (point, lambda m, x, y: diagnostics.suggest(m, x, y)),
    "example of bayesify": (network, lambda m, x, y: selected(m, x)),
}


@pytest.mark.parametrize("name", CASES)
def test_inputs_are_fetched(name: str) -> None:
    make, call = CASES[name]
    x, y = torch.randn(5, 6, device="meta"), torch.zeros(5, dtype=torch.long, device="meta")
    with pytest.raises(NotImplementedError, match=NO_NUMBERS):
        call(make(), x, y)


def test_the_example_of_an_export_is_fetched(tmp_path: Any) -> None:
    with pytest.raises(NotImplementedError, match=NO_NUMBERS):
        bf.export(propagated(), torch.randn(5, 6, device="meta"), tmp_path / "model.pt2")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("name", CASES)
def test_results_come_back(name: str) -> None:
    make, call = CASES[name]
    model = make().cuda()
    x, y = torch.randn(5, 6), torch.arange(5) % 3
    found = call(model, x, y)
    if isinstance(found, Tensor):
        assert found.device == x.device and found.isfinite().all()
    there = call(model, x.cuda(), y.cuda())
    if isinstance(there, Tensor) and name != "function_values":  # those are always on the CPU
        assert there.is_cuda
    if name in ("fast_sign", "saliency", "function_values", "predict, at the mean"):  # nothing is drawn
        torch.testing.assert_close(found, there.cpu(), rtol=1e-4, atol=1e-5)
