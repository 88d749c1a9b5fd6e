"""bf.EnsemblePatching as users meet it: every option trains, predicts, compiles and comes back from a file."""

import copy
from functools import partial
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from patched_cases import batch, patched, small_cnn
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

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


def test_fit_trains_by_coordinate_descent() -> None:
    """A run of one phase moves the shared parameters alone, a longer one both; another optimiser is refused."""
    x, y = batch()
    loader = DataLoader(TensorDataset(x, y), len(x))
    for epochs in (2, 4):
        model = patched(coordinate_steps=2)
        before = {n: p.detach().clone() for n, p in model.named_parameters()}
        bf.fit(model, loader, epochs=epochs, lr=0.01, accelerator="cpu", progress=False)
        moved = {n for n, p in model.named_parameters() if not torch.equal(p, before[n])}
        patched_names = {n for n in before if n.startswith(("posterior.", "net.1.", "net.5."))}
        assert moved - patched_names and bool(moved & patched_names) == (epochs == 4)
    with pytest.raises(
        ValueError, match="optimizer=SGD would train all parameters at once, but coordinate_steps=2"
    ):
        bf.fit(model, loader, epochs=1, optimizer=partial(torch.optim.SGD, lr=0.1), progress=False)


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
