"""bf.EnsemblePatching as users meet it: counts, members, files, training, bad input."""

import copy
import math
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import bayesify as bf
from bayesify.methods import METHODS, method
from bayesify.nets import make

PATCHED = {  # every option that changes what a forward does
    "layer": {},
    "element": {"assignment": "element"},
    "member": {"assignment": "member"},
    "dropout": {"assignment": "dropout"},
    "dropconnect": {"assignment": "dropconnect"},
    "given mixing": {"num_components": 3, "mixing": (0.2, 0.3, 0.5)},
    "learned mixing": {"mixing": "learned"},
    "learned dropout": {"assignment": "dropout", "mixing": "learned"},
    "learned std": {"std": 0.01, "learn_std": True, "shared_std": 0.01},
    "own statistics": {"running_stats": "component"},
    "per example": {"per_example": True},
    "lambdas": {"l2": 1e-4},
    "fresh": {"init": "fresh", "gamma": 0.2},
}


def small_cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8 * 9, 5)
    )


def batch() -> tuple[Tensor, Tensor]:
    return torch.randn(16, 3, 8, 8), torch.randint(5, (16,))


def patched(**options: Any) -> bf.BayesianModule:
    return bf.bayesify(small_cnn(), bf.EnsemblePatching(**options), num_data=64)


# -- counts: the paper's Tables 1 and 3 ------------------------------------------------------------------------
@pytest.mark.parametrize("assignment", ["layer", "element"])
def test_the_parameters_of_resnet18(assignment: str) -> None:
    net = make("resnet18", num_outputs=1000, input_shape=(3, 224, 224))
    summary = bf.bayesify(net, bf.EnsemblePatching(5, assignment), num_data=10).summary()
    assert summary.num_parameters == 11_689_512
    assert summary.num_total == 13_779_912
    assert round(summary.overhead, 2) == 17.88
    patches = 21 if assignment == "layer" else 9_600 + 513_000
    assert f"effective ensemble size 5^{patches:,}" in str(summary)


@pytest.mark.parametrize(
    ("where", "overhead"), [(bf.where.norm, 0.328), (bf.where.output, 17.55), (bf.where.input, None)]
)
def test_the_overhead_of_parts_of_resnet18(where: Any, overhead: float | None) -> None:
    net = make("resnet18", num_outputs=1000, input_shape=(3, 224, 224))
    summary = bf.bayesify(net, bf.EnsemblePatching(5, where=where), num_data=10).summary()
    expected = 100 * 4 * 3 * 64 * 49 / 11_689_512 if overhead is None else overhead
    assert summary.overhead == pytest.approx(expected, abs=0.005)


@pytest.mark.parametrize(("assignment", "total"), [("dropout", 11_689_512), ("member", 58_447_560)])
def test_the_other_columns_of_table_3(assignment: str, total: int) -> None:
    net = make("resnet18", num_outputs=1000, input_shape=(3, 224, 224))
    model = bf.bayesify(net, bf.EnsemblePatching(5, assignment), num_data=10)
    assert model.summary().num_total == total


def test_the_parameters_of_pyramidnet() -> None:
    net = make("pyramidnet110", num_outputs=100, input_shape=(3, 32, 32))
    summary = bf.bayesify(net, bf.EnsemblePatching(5), num_data=10).summary()
    assert (summary.num_parameters, summary.num_total) == (28_511_307, 28_825_299)
    assert round(summary.overhead, 2) == 1.10


def test_the_parameters_of_the_mlp() -> None:
    """100 square layers of 100 units. The paper counts 1,129,100: hidden biases and no first batch-norm copy; a real
    network has 1,139,000, or 1,148,900 with hidden biases as well."""
    net = make(
        "mlp", num_outputs=100, input_shape=(100,), hidden=[100] * 99, batch_norm=True, output_bias=False
    )
    summary = bf.bayesify(net, bf.EnsemblePatching(5), num_data=10).summary()
    assert summary.num_total == 1_139_000
    extra = summary.num_total - summary.num_parameters
    assert extra == 4 * (2 * 99 * 100 + 100**2)
    assert 100 * 100**2 + 99 * 100 + extra == 1_129_100
    element = bf.bayesify(copy.deepcopy(net), bf.EnsemblePatching(5, "element"), num_data=10)
    assert f"5^{100**2 + 2 * 99 * 100:,}" in str(element.summary())  # K^(H² + 2(L−1)H)


def test_a_patched_layer_is_named_with_its_components() -> None:
    summary = patched().summary()
    assert summary.random == ["1.weight", "1.bias", "5.weight", "5.bias"]
    assert {row.became for row in summary.rows if row.random} == {"5 components, by layer"}
    model = patched()
    assert tuple(model.get_parameter("posterior.components.5.weight").shape) == (4, 5, 72)
    assert model.get_parameter("net.5.weight") is model.net[5].weight


# -- plain networks out of a patched one -------------------------------------------------------------------------
def test_every_member_is_a_plain_network() -> None:
    model = patched(spread=1.0)
    x = batch()[0]
    nets = [model.member(k).eval() for k in range(5)]
    assert all(type(m) is nn.Sequential and not m[1]._forward_pre_hooks for m in nets)
    assert torch.equal(nets[0][5].weight, model.net[5].weight)
    others = model.get_parameter("posterior.components.5.weight")
    assert torch.equal(nets[3][5].weight, others[2])
    outputs = [net(x) for net in nets]
    assert all(not torch.equal(a, b) for i, a in enumerate(outputs) for b in outputs[:i])
    mixed = model.member({"1": 2, "5": 4})
    assert torch.equal(mixed[1].weight, nets[2][1].weight) and torch.equal(mixed[5].bias, nets[4][5].bias)
    assert torch.equal(model.member([2, 4])[5].weight, mixed[5].weight)
    assert torch.equal(model.member({"5": 4})[1].weight, nets[0][1].weight)
    element = patched(assignment="element")
    assert torch.equal(element.member({"5": 4})[5].bias, element.member(4)[5].bias)
    with torch.no_grad():
        model.net[5].weight.zero_()
    assert nets[0][5].weight.any()  # a copy


def test_every_draw_of_layers_is_a_member() -> None:
    model = patched(num_components=2, spread=1.0)
    members = {(i, j): model.member([i, j]) for i in range(2) for j in range(2)}
    for _ in range(10):
        draw = model.draw()
        same = [k for k, m in members.items() if all(map(torch.equal, m.parameters(), draw.parameters()))]
        assert len(same) == 1


@pytest.mark.parametrize("probs", ["uniform", (0.1, 0.2, 0.7)])
def test_folding_averages_the_centroids(probs: Any) -> None:
    model = patched(num_components=3, mixing=probs)
    p = (1 / 3,) * 3 if probs == "uniform" else probs
    expected = sum(q * model.member(k)[5].weight for k, q in enumerate(p))
    torch.testing.assert_close(model.fold()[5].weight, expected)
    torch.testing.assert_close(model.mean_net()[5].weight, expected)
    assert torch.equal(model.fold()[0].weight, model.net[0].weight)


def test_the_mean_of_dropped_weights_is_the_network() -> None:
    for assignment in ("dropout", "dropconnect"):
        model = patched(assignment=assignment)
        torch.testing.assert_close(model.fold()[5].weight, model.net[5].weight)


def test_members_that_do_not_exist_are_named() -> None:
    model = patched()
    for index, message in (
        (5, "index 5 must be a whole number in 0..4"),
        ([0], "1 indices for the 2 patched 1, 5"),
        ({"0": 1}, "'0' is not patched; patched are 1, 5"),
        (True, "index True"),
    ):
        with pytest.raises(ValueError, match=message):
            model.member(index)
    with pytest.raises(TypeError, match=r"has no numbered members: use model.draw\(\)"):
        patched(assignment="dropout").member(0)
    with pytest.raises(TypeError, match=r"use draw\(\) or mean_net\(\)"):
        bf.bayesify(small_cnn(), "mc_vi", num_data=10).member(0)
    with pytest.raises(TypeError, match=r"use mean_net\(\)"):
        bf.bayesify(small_cnn(), "point").fold()
    ensemble = bf.bayesify(small_cnn(), bf.DeepEnsemble(num_members=2))
    assert torch.equal(ensemble.member(1)[5].weight, ensemble.posterior.copies[0][5].weight)
    with pytest.raises(ValueError, match=r"index 2 must be a whole number in 0..1"):
        ensemble.member(2)


# -- starting values ---------------------------------------------------------------------------------------------
def test_components_start_apart() -> None:
    """`copies`: the spread is that many root mean squares (72 × 5 × 4 numbers); an all-zero bias counts as 0.1."""
    model = patched(spread=0.2)
    others, own = model.get_parameter("posterior.components.5.weight").detach(), model.net[5].weight.detach()
    rms = own.square().mean().sqrt()
    assert ((others - own).std() / rms).item() == pytest.approx(0.2, rel=0.1)
    assert model.get_parameter("posterior.components.1.bias").abs().max() > 0
    equal = patched(spread=0.0)
    assert torch.equal(equal.member(3)[5].weight, equal.net[5].weight)


def test_a_pretrained_network_predicts_nearly_as_before() -> None:
    net = small_cnn().eval()
    x = batch()[0]
    before = net(x)
    model = bf.bayesify(net, bf.EnsemblePatching(spread=0.01), num_data=10)
    assert torch.allclose(model.predict(x, 10).probs, before.softmax(1), atol=0.02)
    assert torch.equal(model.member(0)(x), before)


def test_fresh_components_and_a_given_gamma() -> None:
    model = patched(init="fresh")
    gamma = model.get_parameter("posterior.components.1.weight")
    assert ((gamma >= 0) & (gamma <= 1)).all() and gamma.std() > 0.1  # U(0, 1), as torch once did
    assert torch.equal(model.net[1].weight, torch.ones(8))
    weight = model.get_parameter("posterior.components.5.weight")
    assert weight.abs().max() <= 1 / math.sqrt(72) and not torch.equal(weight[0], weight[1])
    regression = patched(gamma=0.2, spread=0.0)
    assert torch.equal(regression.net[1].weight, torch.full((8,), 0.2))
    assert torch.equal(regression.get_parameter("posterior.components.1.weight"), torch.full((4, 8), 0.2))


# -- every option: training, predicting, files, copies, compiling ------------------------------------------------
@pytest.mark.parametrize("name", PATCHED)
def test_every_option_trains_predicts_and_comes_back(name: str, tmp_path: Path) -> None:
    model = patched(**PATCHED[name])
    x, y = batch()
    optimizer = model.optimizer(lr=0.02)
    start = torch.stack([model.loss(x, y).nll.detach() for _ in range(5)]).mean()
    for _ in range(40):
        optimizer.zero_grad()
        model.loss(x, y).total.backward()
        optimizer.step()
    with torch.no_grad():
        assert torch.stack([model.loss(x, y).nll for _ in range(5)]).mean() < 0.8 * start
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
    assert isinstance(model.net[5].weight, nn.Parameter)
    prediction = model.predict(x, 10, generator=torch.Generator().manual_seed(0))
    assert prediction.mutual_information.max() > 0
    bf.save(model, tmp_path / "m.safetensors")
    loaded = bf.load(tmp_path / "m.safetensors", small_cnn())
    assert loaded.method.options() == model.method.options()
    again = loaded.predict(x, 10, generator=torch.Generator().manual_seed(0))
    assert torch.equal(prediction.probs, again.probs)
    assert torch.equal(loaded.kl(), model.kl())
    clone = copy.deepcopy(model)
    model.zero_grad()
    clone.loss(x, y).total.backward()
    assert all(p.grad is None for p in model.parameters())
    with torch.no_grad():
        clone.net[5].weight.add_(1.0)
    assert not torch.equal(clone.fold()[5].weight, model.fold()[5].weight)


@pytest.mark.parametrize("name", PATCHED)
def test_every_option_compiles_whole(name: str) -> None:
    torch._dynamo.reset()
    model = patched(**PATCHED[name])
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    x, y = batch()
    loss = compiled(x, target=y)
    loss.total.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
    torch.testing.assert_close(loss.kl, model.kl())
    with torch.no_grad():
        outputs = [compiled(x) for _ in range(12)]
    assert any(not torch.equal(outputs[0], other) for other in outputs[1:])


@pytest.mark.parametrize("assignment", ["layer", "element"])
def test_compiled_and_eager_agree_where_all_components_are_equal(assignment: str) -> None:
    torch._dynamo.reset()
    model = patched(spread=0.0, assignment=assignment)
    x, y = batch()
    found = []
    for called in (model, torch.compile(model, fullgraph=True, backend="aot_eager")):
        model.zero_grad()
        loss = called(x, target=y)
        loss.total.backward()
        others = model.get_parameter("posterior.components.5.weight").grad
        found.append(
            (
                *(part.detach() for part in loss),
                model.net[0].weight.grad,
                model.net[5].weight.grad + others.sum(0),
            )
        )
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("assignment", ["layer", "element", "dropout"])
def test_draws_one_by_one_and_together_have_the_same_mean(assignment: str) -> None:
    """The same 30 draws, in a loop and by vmap."""
    model = patched(assignment=assignment)
    x = batch()[0]
    weights = model.posterior.draw(0, 30, torch.Generator().manual_seed(1))
    model.eval()
    with torch.no_grad():
        probs = []
        for i in range(30):
            one = {name: value[i] for name, value in weights.items()}
            probs.append(model.posterior.run_draw(model.net, bf.posteriors.Call((x,), {}), one).softmax(1))
        together = model.predict(x, 30, batched=True, generator=torch.Generator().manual_seed(1))
    assert model.posterior.vmap_refusal == ""
    torch.testing.assert_close(together.probs, torch.stack(probs).mean(0), rtol=1e-4, atol=1e-5)


def test_the_running_mean_is_that_of_all_draws() -> None:
    """Algorithm 1 divides by s, not s + 1: with one draw the mean is that draw, and probabilities are averaged."""
    model = patched(spread=1.0)
    x = batch()[0]
    for n in (1, 2, 7):
        prediction = model.predict(x, n, keep_samples=True)
        assert len(prediction.samples) == n
        torch.testing.assert_close(prediction.probs, prediction.samples.mean(0))
        torch.testing.assert_close(prediction.probs.sum(1), torch.ones(16))
    single = model.predict(x, 1, generator=torch.Generator().manual_seed(0), keep_samples=True)
    net = model.draw(generator=torch.Generator().manual_seed(0)).eval()
    torch.testing.assert_close(single.probs, F.softmax(net(x), 1))


def test_coordinate_descent_trains_shared_and_patched_parameters_in_turn() -> None:
    model = patched(coordinate_steps=2)
    optimizer = model.optimizer(lr=0.01)
    x, y = batch()
    patched_names = {
        n for n, _ in model.named_parameters() if n.startswith(("posterior.", "net.1.", "net.5."))
    }
    moved = []
    for step in range(6):
        before = {n: p.detach().clone() for n, p in model.named_parameters()}
        optimizer.zero_grad()
        model.loss(x, y).total.backward()
        if step == 3:  # resumes in the middle of a phase
            fresh = model.optimizer(lr=0.01)
            fresh.load_state_dict(optimizer.state_dict())
            optimizer = fresh
        optimizer.step()
        moved.append({n for n, p in model.named_parameters() if not torch.equal(p, before[n])})
    assert all(
        names.isdisjoint(patched_names) and names for names in (moved[0], moved[1], moved[4], moved[5])
    )
    assert all(names <= patched_names and names for names in (moved[2], moved[3]))


def test_the_emp_toy_regression_knows_where_it_has_seen_nothing() -> None:
    """x in [−1, 1]: ECMP fits there, and its std is larger at ±3."""
    torch.manual_seed(0)
    x = torch.linspace(-1, 1, 64)[:, None]
    y = torch.sin(3 * x) + 0.05 * torch.randn_like(x)
    net = make("mlp", num_outputs=1, input_shape=(1,), hidden=(50,), batch_norm=True, input_norm=True)
    method = bf.EnsemblePatching(
        assignment="element", gamma=0.2, spread=0.5, prior_precision=0.01, where=bf.where.norm
    )
    model = bf.bayesify(net, method, bf.likelihood("normal", std=0.1), num_data=64)
    optimizer = model.optimizer(lr=0.01)
    for _ in range(400):
        optimizer.zero_grad()
        model.loss(x, y).total.backward()
        optimizer.step()
    inside = model.predict(x, 100)
    outside = model.predict(torch.tensor([[-3.0], [3.0]]), 100)
    assert (inside.mean - y).square().mean().sqrt() < 0.2
    assert outside.epistemic.mean() > 4 * inside.epistemic.mean()


def test_fit_and_evaluate_by_name() -> None:
    x, y = torch.randn(64, 4), torch.randint(3, (64,))
    for name in ("emp", "ecmp", "mc_dropout"):
        net = make("mlp", num_outputs=3, input_shape=(4,), hidden=(8,), batch_norm=True)
        model = bf.bayesify(net, name)
        loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), 16)
        bf.fit(model, loader, epochs=1, progress=False)
        assert bf.evaluate(model, loader)["nll"] > 0
    assert method("ecmp").assignment == "element"
    assert method("emp").where.text == "(norm | output)"
    assert METHODS["ecmp"]().options()["assignment"] == "element"


def test_the_default_place_depends_on_the_assignment() -> None:
    texts = {
        a: bf.EnsemblePatching(assignment=a).where.text for a in ("layer", "element", "dropout", "member")
    }
    expected = {
        "layer": "(norm | output)",
        "element": "(norm | output)",
        "dropout": "(linear | conv)",
        "member": "all",
    }
    assert texts == expected


# -- bad input ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_components": 1}, r"num_components=1 must be at least 2; for one component use bf.Point\(\)"),
        ({"assignment": "elment"}, "assignment='elment' does not exist; .* Did you mean 'element'?"),
        ({"mixing": (0.5, 0.6)}, "must hold num_components=5 positive numbers"),
        ({"mixing": (0.5, 0.6), "num_components": 2}, "must sum to one, not to 1.1"),
        ({"mixing": (1.5, -0.5), "num_components": 2}, "positive numbers"),
        ({"mixing": "even"}, "mixing='even' must be 'uniform', 'learned' or 5 probabilities"),
        ({"mixing": (0.5, 0.5), "assignment": "dropout"}, "takes drop_prob= in place of probabilities"),
        ({"drop_prob": 1.0}, "drop_prob=1.0 must lie between 0 and 1"),
        ({"std": -1.0}, "std=-1.0 must be at least 0"),
        ({"spread": -0.1}, "spread=-0.1 must be at least 0"),
        ({"temperature": 0.0}, "temperature=0.0 must be positive"),
        ({"prior_precision": -1.0}, "prior_precision=-1.0 must not be negative"),
        ({"prior_precision": {"weight": 1.0}}, "a dict with patched_weight, patched_bias"),
        ({"l2": {"weight": 1.0}}, "l2=.* a dict with patched_weight"),
        ({"kl": "exact"}, "kl='exact' does not exist; choose from auto, l2, full, monte_carlo"),
        ({"init": "random"}, "init='random' does not exist"),
        ({"kl": "full"}, "the KL of a component of width 0 is infinite; give std= a positive number"),
        ({"learn_std": True}, "infinite; give std="),
        ({"learn_std": True, "std": 0.1, "kl": "l2"}, "use kl='auto' and prior_precision="),
        ({"running_stats": "own"}, "running_stats='own' does not exist"),
        ({"running_stats": "component", "assignment": "element"}, "use running_stats='shared'"),
        ({"per_example": True, "mixing": "learned"}, "use per_example=False"),
    ],
)
def test_bad_options_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        bf.EnsemblePatching(**options)


def test_nothing_to_patch_is_named() -> None:
    bare = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, affine=False), nn.InstanceNorm2d(4), nn.Flatten()
    )
    with pytest.raises(
        ValueError, match=r"norm layers without parameters \(1, 2\): nothing to patch. .* affine=True"
    ):
        bf.bayesify(bare, bf.EnsemblePatching(where=bf.where.norm))
    with pytest.raises(ValueError, match="where=norm selects no parameter"):
        bf.bayesify(nn.Linear(2, 2), bf.EnsemblePatching(where=bf.where.norm))
    with pytest.raises(ValueError, match="drops weight matrices only"):
        bf.bayesify(nn.BatchNorm1d(2), bf.EnsemblePatching(assignment="dropout", where=bf.where.norm))
    some = nn.Sequential(nn.LayerNorm(4, elementwise_affine=False), nn.LayerNorm(4), nn.Linear(4, 2))
    summary = bf.bayesify(some, bf.EnsemblePatching(), num_data=10).summary()
    assert "norm layers without parameters, nothing to patch: 0" in str(summary)


def test_checkpointing_inside_a_patched_network_is_refused() -> None:
    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            return torch.utils.checkpoint.checkpoint(self.layer, x, use_reentrant=True)

    model = bf.bayesify(Checkpointed(), bf.EnsemblePatching(), num_data=10)
    x = torch.randn(3, 4, requires_grad=True)
    with pytest.raises(RuntimeError, match="activation checkpointing inside the network"):
        model(x).sum().backward()


def test_norm_layers_of_every_kind_are_patched() -> None:
    layers = {
        "batch": (nn.BatchNorm1d(4), (6, 4)),
        "batch 2d": (nn.BatchNorm2d(4), (6, 4, 3, 3)),
        "batch 3d": (nn.BatchNorm3d(4), (6, 4, 3, 3, 3)),
        "layer": (nn.LayerNorm(4), (6, 4)),
        "group": (nn.GroupNorm(2, 4), (6, 4)),
        "instance": (nn.InstanceNorm1d(4, affine=True), (6, 4, 3)),
        "rms": (nn.RMSNorm(4), (6, 4)),
    }
    for name, (layer, shape) in layers.items():
        for assignment in ("layer", "element"):
            method = bf.EnsemblePatching(3, assignment, spread=1.0, where=bf.where.norm)
            model = bf.bayesify(copy.deepcopy(layer), method, num_data=10)
            assert len(model.summary().random) == len(list(layer.parameters())), name
            x = torch.randn(shape)
            outputs = [model(x).detach() for _ in range(12)]
            assert any(not torch.equal(outputs[0], other) for other in outputs), name
