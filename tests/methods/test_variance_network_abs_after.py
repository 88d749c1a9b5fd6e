"""bf.VarianceNetwork(abs_after=True): |·| behind the random layers (paper 5, appendix D)."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bayesify as bf
from bayesify.nets.parts import Abs


def model_of(net: nn.Module, **options: Any) -> bf.BayesianModule:
    return bf.bayesify(net, bf.VarianceNetwork(**options), num_data=100)


def test_abs_after_replaces_the_activation_behind_random_layers() -> None:
    net = nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(18, 4), nn.BatchNorm1d(4), nn.ReLU()
    )
    net.append(nn.Linear(4, 2))
    model_of(net, parameterization="zero_mean", where=bf.where.matching("^3"), abs_after=True)
    assert isinstance(net[5], Abs) and isinstance(net[1], nn.ReLU)
    assert not any(module._forward_hooks for module in net.modules())


class Written(nn.Module):
    """Activations are called in forward; the first layer is used by itself, the others lie in a list and a dict."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv1d(1, 3, 3)
        self.middle = nn.ModuleList([nn.Linear(18, 7)])
        self.last = nn.ModuleDict({"head": nn.Linear(7, 3)})

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.first(x)).flatten(1)
        return self.last["head"](torch.relu(self.middle[0](x)))


def test_abs_after_layers_of_any_module(tmp_path: Path) -> None:
    """|y| behind the layers, by draws, means, copies, ensembles and files; names stay."""
    torch.manual_seed(0)
    net, x = Written(), torch.randn(5, 1, 8)
    names = list(net.state_dict())
    model = model_of(net, parameterization="layer", init_log_alpha=0.0, abs_after=True)
    assert list(net.state_dict()) == names
    assert [n for n, m in net.named_modules() if m._forward_hooks] == ["first", "middle.0"]  # not the last
    for plain in (model.mean_net(), model.draw(torch.Generator().manual_seed(0))):
        hidden = nn.functional.conv1d(x, plain.first.weight, plain.first.bias).abs().flatten(1)
        hidden = nn.functional.linear(hidden, plain.middle[0].weight, plain.middle[0].bias).abs()
        expected = nn.functional.linear(hidden, plain.last["head"].weight, plain.last["head"].bias)
        torch.testing.assert_close(plain(x), expected)
    bf.save(model, tmp_path / "m.safetensors")
    loaded = bf.load(tmp_path / "m.safetensors", Written())
    seeds = [torch.Generator().manual_seed(1) for _ in range(2)]
    a, b = (m.predict(x, 3, generator=g).probs for m, g in zip((model, loaded), seeds, strict=True))
    assert torch.equal(a, b)
    model.loss(x, torch.randint(3, (5,))).total.backward()
    assert all(p.grad is not None for p in model.parameters())
    ensemble = bf.bayesify(Written(), bf.DeepEnsemble(bf.VarianceNetwork(abs_after=True), 2), num_data=5)
    hooks = [len(m._forward_hooks) for m in ensemble.modules() if isinstance(m, nn.Conv1d | nn.Linear)]
    assert sorted(hooks) == [0, 0, 1, 1, 1, 1]


def test_abs_after_makes_zero_mean_outputs_half_normal() -> None:
    """Behind a layer of mean zero without bias y is |N(0, s²)|, of mean s√(2/π): 4,000 passes, 6 standard errors."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(5, 3, bias=False), nn.Linear(3, 2))
    model = model_of(net, parameterization="zero_mean", abs_after=True)
    x, seen = torch.randn(1, 5), []
    handle = net[1].register_forward_pre_hook(lambda module, args: seen.append(args[0].detach()))
    model(x.expand(4000, 5), generator=torch.Generator().manual_seed(0))
    handle.remove()
    std = (x.square() @ net[0].weight.detach().square().T).sqrt()
    error = (seen[-1].mean(0) - math.sqrt(2 / math.pi) * std).abs()
    assert (seen[-1] >= 0).all() and (error < 6 * std * math.sqrt((1 - 2 / math.pi) / 4000)).all()


def test_abs_after_a_weight_that_is_no_layer_is_refused() -> None:
    class Attending(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(4, 2, batch_first=True)
            self.head = nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.attention(x, x, x)[0][:, 0])

    for name in ("attention.in_proj_weight", "attention.out_proj.weight"):
        with pytest.raises(ValueError, match="abs_after=True: 'attention.* is no layer whose output"):
            model_of(Attending(), where=bf.where.matching(name), abs_after=True)


def test_abs_after_in_compiled_code() -> None:
    torch.compiler.reset()
    torch.manual_seed(0)
    model = model_of(Written(), init_log_alpha=-20.0, abs_after=True)  # as good as without noise
    x, y = torch.randn(5, 1, 8), torch.randint(3, (5,))
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    plain = nn.functional.cross_entropy(model.mean_net()(x), y)
    torch.testing.assert_close(compiled(x, target=y).nll, plain, atol=1e-3, rtol=0)
