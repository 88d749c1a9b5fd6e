"""Networks that nobody here wrote, through the moments pass: which run, and what the others lack."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor
from zoo import ZOO

import bayesify as bf

#: the operation without a rule, for the networks that are refused
REFUSED = {
    "spectral norm": "F.normalize",  # in training, where it updates its vectors from random weights
}
RUNNING = [name for name in ZOO if name not in REFUSED]
SMALL_RANDOM = 1e-6
#: segmentations have too many outputs for a sweep, and some weights stand in operations that it does not follow
pytestmark = pytest.mark.filterwarnings(
    "ignore:the covariance of the outputs (is not taken of|does not follow)"
)


def convert(name: str, **options: Any) -> tuple[bf.BayesianModule, Any]:
    torch.manual_seed(0)
    case = ZOO[name]()
    method = bf.DensityPropagation(where=case.where or bf.where.all, **options)
    return bf.bayesify(case.net, method, num_data=100, output=case.output), case.x


def call(net: torch.nn.Module, x: Any) -> Any:
    if isinstance(x, dict):
        return net(**x)
    return net(*x) if isinstance(x, tuple) else net(x)


@pytest.mark.parametrize("name", RUNNING)
def test_it_runs_and_without_variance_gives_the_plain_output(name: str) -> None:
    model, x = convert(name, init_std=SMALL_RANDOM)
    plain = copy.deepcopy(ZOO[name]().net)
    plain.load_state_dict(model.net.state_dict())
    with torch.no_grad():
        result = model.eval().pick(model(x))
        expected: Tensor = model.pick(call(plain.eval(), x))
    assert isinstance(result, bf.Moments)
    torch.testing.assert_close(result.mean, expected, rtol=1e-4, atol=1e-5)
    assert result.var.shape == result.mean.shape
    assert (result.var > 0).all() and (result.var < 1e-8).all()


@pytest.mark.parametrize("name", RUNNING)
def test_every_parameter_gets_a_finite_gradient(name: str) -> None:
    model, x = convert(name)
    result = model.train().pick(model(x))
    (result.mean.square().mean() + result.var.mean()).backward()
    unused = set(model.posterior.unused)
    for n in model.summary().random:
        if n not in unused:
            grad = model.get_parameter(f"posterior.q.{n}.log_scale").grad
            assert grad is not None and grad.isfinite().all(), n


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_rule_is_named(name: str) -> None:
    model, x = convert(name)
    with pytest.raises(NotImplementedError, match=rf"no rule for '{REFUSED[name]}'.*, used in module"):
        model.train()(x)


def test_both_kinds_of_attention_code_agree() -> None:
    """Fused and step by step: the softmax remembers the variance of its scores."""
    results = []
    for name in ("transformers ViT, sdpa", "transformers ViT, eager"):
        model, x = convert(name)
        with torch.no_grad():
            results.append(model.eval().pick(model(x)))
    torch.testing.assert_close(results[0].mean, results[1].mean, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(results[0].var, results[1].var, rtol=1e-3, atol=1e-9)


@pytest.mark.parametrize("name", ["nn.MultiheadAttention", "monai UNet 3-D"])
def test_it_compiles_whole(name: str) -> None:
    """What the matrix of architectures (test_architectures_matrix.py) has not."""
    torch._dynamo.reset()
    model, x = convert(name)
    with torch.no_grad():
        eager = model.eval().pick(model(x))
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    result = model.pick(compiled(x))
    torch.testing.assert_close(result.mean, eager.mean, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(result.var, eager.var, rtol=1e-3, atol=1e-9)
    result.var.sum().backward()
    assert any(p.grad is not None for p in model.posterior.parameters())
