"""Every network of the zoo becomes Bayesian without a change to it."""

import copy
import re
from typing import Any

import pytest
import torch
from torch import Tensor
from zoo import ZOO, Case

import bayesify as bf
from bayesify.model import BayesianModule

SAMPLINGS = ("draw", "local", "flipout")
# A key bias shifts every score of a row alike, which softmax ignores: its gradient is zero but for rounding.
KEY_BIAS = re.compile(r"(key|k_proj)\.bias$")


def convert(name: str, sampling: str = "draw") -> tuple[BayesianModule, Any]:
    torch.manual_seed(0)
    case: Case = ZOO[name]()
    method = bf.MonteCarloVI(sampling=sampling, where=case.where or bf.where.all)
    model = bf.bayesify(case.net, method, num_data=100, output=case.output)
    return model, case.x


def outputs(model: BayesianModule, x: Any) -> Tensor:
    return model.pick(model(x))


def plain(net: torch.nn.Module, model: BayesianModule, x: Any) -> Tensor:
    if isinstance(x, dict):
        return model.pick(net(**x))
    return model.pick(net(*x) if isinstance(x, tuple) else net(x))


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("name", ZOO)
def test_draws_differ_and_every_parameter_gets_a_gradient(name: str, sampling: str) -> None:
    model, x = convert(name, sampling)
    for mode in (True, False):
        model.train(mode)
        with torch.no_grad():
            first, second = outputs(model, x), outputs(model, x)
        assert first.shape == second.shape
        assert not torch.equal(first, second), f"deterministic with training={mode}"
    model.train()
    outputs(model, x).square().sum().backward()
    gradients = {n: _log_scale(model, n).grad for n in model.summary().random}
    assert not model.posterior.unused
    assert not [n for n, gradient in gradients.items() if gradient is None]
    zero = [n for n, gradient in gradients.items() if gradient is not None and not gradient.any()]
    assert all(KEY_BIAS.search(n) for n in zero), zero


def _log_scale(model: BayesianModule, name: str) -> Tensor:
    return model.get_parameter(f"posterior.q.{name}.log_scale")


@pytest.mark.parametrize("name", ZOO)
def test_the_mean_network_equals_the_original(name: str) -> None:
    torch.manual_seed(0)
    case = ZOO[name]()
    original = copy.deepcopy(case.net).eval()
    model, x = convert(name)
    with torch.no_grad():
        expected = plain(original, model, x)
        mean_net = model.mean_net().eval()
        assert torch.allclose(plain(mean_net, model, x), expected, rtol=0, atol=1e-6)
        assert model.eval() and outputs(model, x).shape == expected.shape
    assert type(mean_net).__name__ == type(original).__name__
    assert set(mean_net.state_dict()) == set(original.state_dict())


@pytest.mark.parametrize("name", ZOO)
def test_the_kl_is_the_sum_over_all_random_weights(name: str) -> None:
    model, _ = convert(name)
    prior = torch.distributions.Normal(0.0, 1.0)
    parameters = dict(model.net.named_parameters())
    expected = sum(
        torch.distributions.kl_divergence(
            torch.distributions.Normal(parameters[n].double(), _log_scale(model, n).double().exp()), prior
        )
        .sum()
        .item()
        for n in model.summary().random
    )
    assert model.kl().item() == pytest.approx(expected, rel=1e-5)
    trainable = [n for n, p in model.net.named_parameters() if p.requires_grad]
    if "LoRA" not in name:
        assert sorted(model.summary().random) == sorted(trainable)


@pytest.mark.parametrize("name", ZOO)
def test_a_draw_is_a_plain_network_and_a_copy_is_a_model(name: str) -> None:
    model, x = convert(name)
    model.eval()
    outputs(model, x)
    with torch.no_grad():
        net = model.draw().eval()
        one = plain(net, model, x)
        assert torch.equal(one, plain(net, model, x))
        assert not torch.equal(one, plain(model.draw().eval(), model, x))
    clone = copy.deepcopy(model)
    outputs(clone, x).sum().backward()
    assert all(p.grad is None for p in model.parameters())
    assert any(p.grad is not None for p in clone.parameters())


@pytest.mark.parametrize("name", ZOO)
def test_save_and_load_give_the_same_model(name: str, tmp_path: Any) -> None:
    model, x = convert(name)
    bf.save(model, tmp_path / "model.safetensors")
    torch.manual_seed(1)
    case = ZOO[name]()
    loaded = bf.load(tmp_path / "model.safetensors", case.net, output=case.output)
    generator = torch.Generator().manual_seed(3)
    model.eval(), loaded.eval()
    with torch.no_grad():
        expected = model.pick(model(x, generator=generator.manual_seed(3)))
        assert torch.equal(expected, loaded.pick(loaded(x, generator=generator.manual_seed(3))))
    assert loaded.summary().random == model.summary().random


def test_tied_weights_stay_tied() -> None:
    model, x = convert("transformers GPT-2, tied embeddings")
    row = next(r for r in model.summary().rows if r.name == "transformer.wte.weight")
    assert row.aliases == ("lm_head.weight",)
    net = model.draw()
    assert net.lm_head.weight is net.transformer.wte.weight  # type: ignore[union-attr]
