"""Every network of the zoo can be patched without a change to it."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from zoo import ZOO, Case

import bayesify as bf

ASSIGNMENTS = ("layer", "element", "dropout", "member")


def convert(name: str, assignment: str = "layer", **options: Any) -> tuple[bf.BayesianModule, Any]:
    torch.manual_seed(0)
    case: Case = ZOO[name]()
    options = {"num_components": 3, "spread": 0.5, "drop_prob": 0.5, **options}
    method = bf.EnsemblePatching(assignment=assignment, where=case.where or bf.where.all, **options)
    return bf.bayesify(case.net, method, num_data=100, output=case.output), case.x


def outputs(model: bf.BayesianModule, x: Any) -> Tensor:
    return model.pick(model(x))


def plain(net: torch.nn.Module, model: bf.BayesianModule, x: Any) -> Tensor:
    if isinstance(x, dict):
        return model.pick(net(**x))
    return model.pick(net(*x) if isinstance(x, tuple) else net(x))


@pytest.mark.parametrize("assignment", ASSIGNMENTS)
@pytest.mark.parametrize("name", ZOO)
def test_draws_differ_and_components_train(name: str, assignment: str) -> None:
    """In eval mode, where only the choices are random; three members agree twelve times with 3^−11 < 1e-5."""
    model, x = convert(name, assignment)
    model.eval()
    with torch.no_grad():
        draws = [outputs(model, x) for _ in range(12)]
    assert all(d.shape == draws[0].shape for d in draws)
    assert any(not torch.equal(draws[0], d) for d in draws[1:])
    used = set()
    for _ in range(12):
        outputs(model, x).square().sum().backward()
    used = {n for n, p in model.named_parameters() if p.grad is not None and p.grad.any()}
    if assignment != "dropout":
        assert any(n.startswith("posterior.components.") for n in used)
        patched = [n for n in model.posterior.patches if f"net.{n}" in used]
        missing = [n for n in patched if f"posterior.components.{n}" not in used]
        assert not missing
    names = set(model.summary().random)
    assert all(torch.is_tensor(p) for n, p in model.net.named_parameters() if n in names)


@pytest.mark.parametrize("name", ZOO)
def test_members_are_plain_networks_and_equal_components_the_original(name: str) -> None:
    torch.manual_seed(0)
    original = copy.deepcopy(ZOO[name]().net).eval()
    model, x = convert(name, spread=0.0)
    with torch.no_grad():
        expected = plain(original, model, x)
        for net in (model.member(2), model.fold(), model.draw()):
            assert torch.allclose(plain(net.eval(), model, x), expected, atol=1e-6)
            assert set(net.state_dict()) == set(original.state_dict())
        model.eval()
        assert torch.allclose(outputs(model, x), expected, atol=1e-6)


@pytest.mark.parametrize("name", ZOO)
def test_files_and_copies(name: str, tmp_path: Path) -> None:
    model, x = convert(name, "element")
    bf.save(model, tmp_path / "m.safetensors")
    torch.manual_seed(1)
    case = ZOO[name]()
    loaded = bf.load(tmp_path / "m.safetensors", case.net, output=case.output)
    model.eval(), loaded.eval()
    seeded = torch.Generator().manual_seed
    with torch.no_grad():
        expected = model.pick(model(x, generator=seeded(3)))
        assert torch.equal(expected, loaded.pick(loaded(x, generator=seeded(3))))
        clone = copy.deepcopy(model)
        assert torch.equal(expected, clone.pick(clone(x, generator=seeded(3))))


COMPILED = [
    "transformers ResNet",
    "transformers ViT, sdpa",
    "transformers GPT-2, tied embeddings",
    "weight norm",
]


@pytest.mark.parametrize("name", COMPILED)
def test_networks_compile_whole(name: str) -> None:
    torch._dynamo.reset()
    model, x = convert(name)
    model.eval()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    draws = [model.pick(compiled(x)) for _ in range(8)]
    assert any(not torch.equal(draws[0], d) for d in draws[1:])
    draws[0].sum().backward()
    assert any(p.grad is not None for p in model.posterior.parameters())


@pytest.mark.parametrize(
    "name", ["transformers ViT, sdpa", "nn.TransformerEncoder", "monai UNet 3-D", "nn.Embedding"]
)
def test_a_choice_for_every_example(name: str) -> None:
    model, x = convert(name, per_example=True)
    assert outputs(model, x).isfinite().all()
    outputs(model, x).sum().backward()
