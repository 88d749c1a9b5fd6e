"""`bf.fit` by SWAG: a plain network first, then iterates of a tail; stopped anywhere, and by several members."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bayesify as bf
from bayesify.data import Loader, Split
from bayesify.engine.averaging import settle_statistics
from bayesify.engine.options import FitOptions
from bayesify.engine.settling import plain_options, settled
from bayesify.engine.setup import make_fabric
from bayesify.methods import swag

STEPS = 13  # of an epoch: 200 examples in batches of 16
TAIL = 5 * STEPS  # of ten epochs


def data() -> Split:
    generator = torch.Generator().manual_seed(7)
    x = torch.randn(200, 6, generator=generator)
    return Split(x, (x[:, 0] + 0.5 * x[:, 1] ** 2 > 0.3).long())


def loader() -> Loader:
    return Loader(data(), 16, shuffle=True, seed=3)


class Stops:
    """A loader whose batches end in an error, after so many of them."""

    def __init__(self, after: int) -> None:
        self.inner, self.left = loader(), after

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def __len__(self) -> int:
        return len(self.inner)

    def __iter__(self) -> Iterator[Any]:
        for batch in self.inner:
            if self.left == 0:
                raise InterruptedError
            self.left -= 1
            yield batch


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Dropout(0.1), nn.Linear(12, 2))


def made(start: str = "scratch", **options: Any) -> bf.BayesianModule:
    return bf.bayesify(net(), bf.SWAG(**options), start=start)


def fit(model: bf.BayesianModule, batches: Any = None, **options: Any) -> bf.History:
    settings: dict[str, Any] = {"epochs": 10, "progress": False, "seed": 0, **options}
    return bf.fit(model, loader() if batches is None else batches, **settings)


def state(model: bf.BayesianModule) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


def test_a_fresh_network_is_trained_plainly_first() -> None:
    seen: list[dict[str, Tensor]] = []
    model = made()
    history = fit(
        model, on_epoch=lambda m, _: seen.append({n: p.clone() for n, p in m.net.named_parameters()})
    )
    point = bf.bayesify(net(), bf.Point())
    fit(point, epochs=5)
    assert all(torch.equal(seen[4][name], p) for name, p in point.net.named_parameters())
    posterior = model.posterior
    assert posterior.steps == TAIL and posterior.iterates.count == len(range(TAIL // 10, TAIL))
    assert f"step {5 * STEPS}: the plain network is trained, swag goes on from it" in history.notes
    assert len(set(history.column("lr")[5:])) == 1
    for name, p in model.net.named_parameters():  # the mean, and not the last iterate
        assert torch.equal(p, posterior.iterates.means[name])
    assert not torch.equal(model.net[4].weight, seen[-1]["4.weight"])


def test_the_statistics_are_those_of_the_mean() -> None:
    model = made()
    fit(model)
    found = {name: b.clone() for name, b in model.net.named_buffers()}
    plain = bf.bayesify(model.mean_net(), bf.Point())
    settle_statistics(plain, loader(), 9, make_fabric("cpu", 1, 1, "auto", "32-true"))
    for name, buffer in plain.net.named_buffers():
        torch.testing.assert_close(found[name], buffer)


def test_a_trained_network_has_a_tail_alone() -> None:
    for start, plain in (("scratch", 5), ("pretrained", 0)):
        model = made(start)
        found, said = settled(FitOptions(epochs=10), model, loader(), STEPS)
        first = plain_options(found, model, loader())
        assert (0 if first is None else first.epochs) == plain, said
        assert (found.optimizer, found.schedule) == ("adam", "constant")
    fit(model)
    assert model.posterior.steps == 10 * STEPS
    assert model.posterior.iterates.count == model.method.num_kept
    assert model.method.burn_in == 0.1


@pytest.mark.parametrize(
    ("stop", "options"),
    [
        (5 * STEPS - 1, {}),
        (5 * STEPS, {}),
        (9 * STEPS + 1, {}),
        (5 * STEPS + 8, {"accumulate": 2, "precision": "bf16-mixed", "ema": 0.9}),
        (5 * STEPS + 8, {"calibrate": True}),
    ],
)
def test_a_stopped_run_goes_on_bit_for_bit(tmp_path: Path, stop: int, options: dict[str, Any]) -> None:
    val = [(data().inputs, data().targets)]
    options = {"val_loader": val, "checkpoint_every": 2, "val_draws": 2, **options}
    whole = made(rank=4)
    fit(whole, folder=tmp_path / "whole", **options)
    with pytest.raises(InterruptedError):
        fit(made(rank=4), Stops(stop), folder=tmp_path / "parts", **options)
    again = made(rank=4)
    torch.manual_seed(99)  # what is random comes from the checkpoint
    fit(again, folder=tmp_path / "parts", **{**options, "seed": None})
    mine, theirs = state(whole), state(again)
    assert mine.keys() == theirs.keys() and all(torch.equal(mine[name], theirs[name]) for name in mine)
    for name in ("model", "best"):
        files = [bf.load(tmp_path / part / f"{name}.safetensors", net()) for part in ("whole", "parts")]
        first, second = (state(model) for model in files)
        assert all(torch.equal(first[key], second[key]) for key in first), name


def test_a_run_grows(tmp_path: Path) -> None:
    fit(made(), folder=tmp_path)
    model = made()
    fit(model, folder=tmp_path, epochs=12)
    assert model.posterior.steps == 7 * STEPS
    assert model.posterior.iterates.count > TAIL - TAIL // 10


@pytest.mark.parametrize("start", ["scratch", "pretrained"])
def test_members_are_those_of_runs_by_themselves(tmp_path: Path, start: str) -> None:
    torch.manual_seed(1)
    ensemble = bf.bayesify(net(), bf.DeepEnsemble(bf.SWAG(rank=4), 2, init="fresh"), start=start)
    firsts = [
        {k: v.clone() for k, v in m.state_dict().items()} for m in ensemble.posterior.nets(ensemble.net)
    ]
    for m in ensemble.modules():
        if isinstance(m, nn.Dropout):
            m.p = 0.0  # members would take turns with random numbers
    fit(ensemble)
    for index, first in enumerate(firsts):
        alone = made(start, rank=4)
        alone.net.load_state_dict(first)
        alone.net[3].p = 0.0
        fit(alone, loader().for_member(index))
        member = ensemble.posterior.posteriors[index]
        for name, mean in alone.posterior.iterates.means.items():
            torch.testing.assert_close(member.iterates.means[name], mean)
            torch.testing.assert_close(
                member.iterates.columns[name], alone.posterior.iterates.columns[name], rtol=1e-3, atol=1e-6
            )
    bf.save(ensemble, tmp_path / "both.safetensors")
    again = bf.load(tmp_path / "both.safetensors", net())
    x = data().inputs
    both = [m.predict(x, 8, generator=torch.Generator().manual_seed(0)).probs for m in (ensemble, again)]
    assert torch.equal(*both)


def test_other_optimisers_and_a_rate_alone() -> None:
    for options, kept in (({"optimizer": "adam", "lr": 1e-3}, 60), ({"lr": 0.01}, 60)):
        model = made()
        fit(model, **options)
        assert model.posterior.steps == (TAIL if "optimizer" in options else 10 * STEPS)
        assert model.posterior.iterates.count == min(
            kept, model.posterior.steps - int(0.1 * model.posterior.steps)
        )


def test_compiled_steps_are_followed() -> None:
    """Collecting is outside of what is compiled."""
    torch._dynamo.reset()
    models = [made(burn_in=2, every=2) for _ in range(2)]
    for model, compiled in zip(models, (False, True), strict=True):
        model.net[3].p = 0.0
        run: Any = torch.compile(model, backend="eager", fullgraph=True) if compiled else model
        optimizer = model.optimizer(lr=0.1)
        for x, y in loader():
            optimizer.zero_grad()
            run(x, target=y).total.backward()
            optimizer.step()
    first, second = (m.posterior.iterates for m in models)
    assert first.count == second.count == 5
    for name, mean in first.means.items():
        torch.testing.assert_close(mean, second.means[name])


def test_shards_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(swag, "is_sharded", lambda model: True)
    for run in (lambda: made().optimizer(num_steps=1), lambda: fit(made())):
        with pytest.raises(RuntimeError, match=r"sharded parameters \(FSDP2\): use strategy='ddp'"):
            run()


def test_a_quadratic_has_the_known_stationary_covariance() -> None:
    """w ← w − h (a w + s ξ) has the stationary variance h s² / (a (2 − h a)) and the correlation (1 − h a)^|t|.

    Of n = 2,000 iterates every 10 steps, ρ = (1 − h a)^10, Var v / v² is 2/n (1 + ρ²)/(1 − ρ²), and v̂ is small by
    (1/n) (1 + ρ)/(1 − ρ). Half of Σ is by K = 500 columns. 6 standard errors for 3 + 3 numbers: wrong
    for fewer than one seed of a million.
    """
    a, s, h, n, rank, every = torch.tensor([0.5, 1.0, 2.0]), 0.3, 0.2, 2000, 500, 10
    linear = nn.Linear(3, 1, bias=False)
    model = bf.bayesify(
        linear, bf.SWAG(burn_in=200, every=every, rank=rank), bf.likelihood("normal", std=1.0)
    )
    optimizer = model.optimizer(lr=h, momentum=0.0)
    generator = torch.Generator().manual_seed(0)
    noise = s * torch.randn(200 + n * every, 3, generator=generator)
    linear.weight.data.zero_()
    for xi in noise:
        linear.weight.grad = (a * linear.weight.detach()[0] + xi)[None]
        optimizer.step()
    exact = h * s**2 / (a * (2 - h * a))
    rho = (1 - h * a) ** every
    found = model.posterior.iterates
    assert found.count == n
    error = 6 * (2 / n * (1 + rho**2) / (1 - rho**2)).sqrt()
    bias = (1 + rho) / (1 - rho) / n
    assert ((found.squares["weight"][0] / n / exact - 1 + bias).abs() < error).all()
    variance = model.posterior.covariance.variance()["weight"][0] / exact
    assert ((variance - 1).abs() < error * (1 + (n / rank) ** 0.5) / 2 + 2 * bias).all()
    # the output of a linear network: J is the input
    x = torch.eye(3)
    outputs = model.posterior.covariance.of_outputs({"weight": x.view(3, 1, 1, 3)})[:, 0, 0]
    torch.testing.assert_close(outputs, model.posterior.covariance.variance()["weight"][0])
    assert "normal by 2000 iterates, rank 500" in str(model.summary())


def test_draws_with_batch_norm_have_statistics_of_their_own(tmp_path: Path) -> None:
    model = made()
    fit(model)
    settled = model.posterior.settled
    assert "20 fixed draws, each with statistics of batch norm of its own" in str(model.summary())
    weights = model.posterior.draw(0, 3)
    assert weights["1.running_mean"].shape == (3, 12)
    # draw 4 through eight batches of the epoch that it was settled by
    plain = bf.bayesify(net(), bf.Point())
    first = {name: w[0] for name, w in model.posterior._settled([4]).items()}
    plain.net.load_state_dict({**plain.net.state_dict(), **first})
    settle_statistics(plain, loader(), 9, make_fabric("cpu", 1, 1, "auto", "32-true"), 8)
    for name, values in settled.statistics.items():
        torch.testing.assert_close(dict(plain.net.named_buffers())[name], values[4])
    x = data().inputs
    probs = model.predict(x, 5, batched=True).probs
    torch.testing.assert_close(model.predict(x, 5, batched=False).probs, probs)
    each = [
        torch.func.functional_call(
            model.net.eval(), {k: w[i] for k, w in model.posterior._settled([*range(5)]).items()}, x
        )
        for i in range(5)
    ]
    torch.testing.assert_close(probs, torch.stack(each).softmax(-1).mean(0))
    assert len(model.predict(x, 100, keep_samples=True).samples) == 20
    bf.save(model, tmp_path / "model.safetensors")
    again = bf.load(tmp_path / "model.safetensors", net())
    assert torch.equal(again.predict(x, 5, batched=True).probs, probs)
    merged = bf.merge([tmp_path / "model.safetensors"], net())
    assert torch.equal(merged.predict(x, 5, batched=True).probs, probs)
    with pytest.raises(ValueError, match=r"the statistics of \[3\] draws do not fit 20 of this network"):
        settled.take({name: value[:3] for name, value in settled.tensors().items()})
    off = made(num_settled=0)
    fit(off)
    assert not off.posterior.settled and "1.running_mean" not in off.posterior.draw(0, 1)
    model.collect()
    assert not settled
