"""A chain keeps its draws, predicts with them, and survives files."""

import copy
import math
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bayesify as bf
from bayesify.posteriors.chain.stored_draws import DrawKey, StoredDraws, spread


def make_net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


def make(**options: Any) -> bf.BayesianModule:
    return bf.bayesify(make_net(), bf.ThermostatMCMC(**options), num_data=32)


DATA = torch.randn(32, 3, generator=torch.Generator().manual_seed(1)), torch.arange(32) % 2


def sample(model: bf.BayesianModule, steps: int, sampler: Any = None) -> Any:
    sampler = model.optimizer(lr=1e-2, seed=0, num_steps=None) if sampler is None else sampler
    for _ in range(steps):
        sampler.zero_grad()
        model.loss(*DATA).total.backward()
        sampler.step()
    return sampler


def weights(net: nn.Module) -> Tensor:
    return torch.cat([p.detach().flatten() for p in net.parameters()])


def test_the_loss_is_minus_log_posterior_per_example() -> None:
    model = make()
    loss = model.loss(*DATA)
    w = weights(model.net)
    prior = 0.5 * w.square().sum().item() + 0.5 * len(w) * math.log(2 * math.pi)
    assert loss.kl.item() == pytest.approx(prior, rel=1e-5)
    assert loss.total.item() == pytest.approx((loss.nll + loss.kl / 32).item(), rel=1e-6)


@pytest.mark.parametrize(
    "prior",
    [
        bf.prior("normal", mean=0.3, std=0.7),
        bf.prior("laplace"),
        bf.prior("student_t"),
        bf.prior("horseshoe"),
    ],
)
def test_the_gradient_of_the_prior(prior: Any) -> None:
    """The multi-tensor form for quadratic priors against autograd of log_prob, and other priors as they are."""
    model = bf.bayesify(make_net(), bf.ThermostatMCMC(prior=prior), num_data=1)
    model.kl().backward()
    for p in model.net.parameters():
        w = p.detach().clone().requires_grad_()
        (-prior.log_prob(w).sum()).backward()
        torch.testing.assert_close(p.grad, w.grad)


def test_draws_are_kept_at_their_times_and_by_hand() -> None:
    model = make(burn_in=4, every=3)
    sample(model, 12)
    chain = model.posterior
    assert [key.step for key in chain.store.keys] == [7, 10]
    by_hand = make()
    sample(by_hand, 5)
    assert by_hand.posterior.num_draws == 0  # nobody knows how long this run is
    by_hand.collect()
    assert torch.equal(weights(by_hand.draw()), weights(by_hand.net))
    shares = make(burn_in=0.5, num_kept=5)
    sampler = shares.optimizer(lr=1e-2, num_steps=20)
    sample(shares, 20, sampler)
    assert [key.step for key in shares.posterior.store.keys] == [12, 14, 16, 18, 20]


def test_prediction_averages_all_stored_draws_once() -> None:
    model = make(burn_in=0, every=2)
    sample(model, 10)
    x = DATA[0]
    nets = [plain(model, i) for i in range(5)]
    expected = torch.stack([net(x).softmax(-1).detach() for net in nets]).mean(0)
    for batched in (True, False):
        pred = model.predict(x, num_draws=20, batched=batched)
        assert pred.num_draws == 5
        torch.testing.assert_close(pred.probs, expected)
    assert model.predict(x, num_draws=3).num_draws == 3
    mean = torch.stack([weights(net) for net in nets])
    torch.testing.assert_close(weights(model.mean_net()), mean.mean(0))
    variance = torch.cat([v.flatten() for v in model.posterior.variance().values()])
    torch.testing.assert_close(variance, mean.var(0, correction=0), rtol=1e-4, atol=1e-9)
    drawn = weights(model.draw(generator=torch.Generator().manual_seed(0)))
    assert any(torch.equal(drawn, row) for row in mean)


def one(model: bf.BayesianModule, index: int) -> dict[str, Tensor]:
    store = model.posterior.store
    return store.memory[store.keys[index]]


@torch.no_grad()
def plain(model: bf.BayesianModule, index: int) -> nn.Module:
    return model.posterior.install(copy.deepcopy(model.net), one(model, index))


def test_spread_takes_the_middles() -> None:
    places = [DrawKey(0, step) for step in range(10)]
    assert [p.step for p in spread(places, 2)] == [2, 7]
    assert spread(places, 50) == places


def test_moments_instead_of_draws() -> None:
    """The same chain, kept as moments: mean and variance agree, draws are normal."""
    draws, moments = make(burn_in=0, every=1), make(burn_in=0, every=1, keep="moments")
    for model in (draws, moments):
        sample(model, 20)
    torch.testing.assert_close(weights(moments.mean_net()), weights(draws.mean_net()))
    ours, theirs = (
        torch.cat([v.flatten() for v in m.posterior.variance().values()]) for m in (moments, draws)
    )
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-8)
    x = DATA[0]
    assert moments.predict(x, num_draws=7).num_draws == 7
    generator = torch.Generator().manual_seed(3)
    assert not torch.equal(weights(moments.draw(generator)), weights(moments.draw(generator)))
    with pytest.raises(TypeError, match="keep='moments' holds no draws"):
        moments.posterior.add_folder("anywhere")


def test_moments_of_half_precision_weights() -> None:
    """Weights 1 + k/128, which bfloat16 holds exactly: the sums must not be rounded to it."""
    net = nn.Linear(1, 1, bias=False).bfloat16()
    model = bf.bayesify(net, bf.ThermostatMCMC(keep="moments"), num_data=1)
    values = 1 + (torch.arange(500) % 32) / 128
    for value in values:
        net.weight.data.fill_(value)
        model.collect()
    store = model.posterior.store
    assert store.mean()["weight"].item() == pytest.approx(values.mean().item(), rel=1e-5)
    assert store.variance()["weight"].item() == pytest.approx(values.var(correction=0).item(), rel=1e-4)


@pytest.mark.parametrize("folder", [False, True])
@pytest.mark.parametrize("keep", ["draws", "moments"])
def test_one_file_holds_all_draws(keep: str, folder: bool, tmp_path: Path) -> None:
    model = make(burn_in=0, every=2, keep=keep, sampler="sgnht", prior=bf.prior("laplace"))
    if folder:
        model.posterior.begin(folder=tmp_path / "draws")
    sample(model, 8)
    bf.save(model, tmp_path / "model.safetensors")
    again = bf.load(tmp_path / "model.safetensors", make_net())
    x = DATA[0]
    generators = [torch.Generator().manual_seed(0) for _ in range(2)]
    first, second = (m.predict(x, generator=g).probs for m, g in zip((model, again), generators, strict=True))
    assert torch.equal(first, second)
    assert torch.equal(weights(again.mean_net()), weights(model.mean_net()))
    assert again.posterior.steps == 8
    assert again.method.sampler == "sgnht"
    torch.testing.assert_close(again.kl(), model.kl())


def test_an_empty_chain_is_saved_too(tmp_path: Path) -> None:
    bf.save(make(), tmp_path / "m.safetensors")
    with pytest.raises(RuntimeError, match="no draws yet"):
        bf.load(tmp_path / "m.safetensors", make_net()).draw()


def test_half_precision_draws(tmp_path: Path) -> None:
    model = make(burn_in=0, every=2, draw_dtype="bfloat16")
    sample(model, 4)
    assert {w.dtype for w in one(model, 0).values()} == {torch.bfloat16}
    assert {p.dtype for p in model.draw().parameters()} == {torch.float32}
    bf.save(model, tmp_path / "m.safetensors")
    again = bf.load(tmp_path / "m.safetensors", make_net())
    assert torch.equal(again.predict(DATA[0]).probs, model.predict(DATA[0]).probs)


def test_chains_as_members_and_merged_from_files(tmp_path: Path) -> None:
    """Two chains at once: each moves as alone, because the loss is the mean over members."""
    ensemble = bf.bayesify(make_net(), bf.DeepEnsemble(bf.ThermostatMCMC(burn_in=0, every=5), 2), num_data=32)
    sampler = sample(ensemble, 10)
    assert sampler.num_data == 64
    assert [p.num_draws for p in ensemble.posterior.posteriors] == [2, 2]
    assert ensemble.predict(DATA[0]).num_draws == 4
    assert "one chain cannot tell" not in str(ensemble.summary())
    paths = []
    for seed in range(2):
        model = make(burn_in=0, every=5)
        sample(model, 10, model.optimizer(lr=1e-2, seed=seed, num_steps=None))
        paths.append(tmp_path / f"{seed}.safetensors")
        bf.save(model, paths[-1])
    merged = bf.merge(paths, make_net())
    assert merged.predict(DATA[0]).num_draws == 4


def test_a_diverged_chain_is_refused_and_keeps_its_draws() -> None:
    model = make(burn_in=0, every=1)
    sample(model, 2)
    with torch.no_grad():
        model.net[2].weight[0, 0] = torch.nan
    with pytest.raises(
        RuntimeError, match=r"diverged: 2.weight is not finite after 2 steps. The 2 earlier draws"
    ):
        model.collect()
    assert model.posterior.num_draws == 2


def test_batch_norm_warns_and_keeps_its_statistics_with_each_draw() -> None:
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    with pytest.warns(UserWarning, match="batch norm: .* draws are biased"):
        model = bf.bayesify(net, bf.ThermostatMCMC(burn_in=0, every=1), num_data=32)
    sample(model, 3)
    assert set(one(model, 0)) >= {"1.running_mean", "1.running_var", "0.weight"}
    expected = plain(model, 0).eval()(DATA[0]).softmax(-1)
    before = net[1].running_mean.clone()
    model.posterior.store.keys[1:] = []
    torch.testing.assert_close(model.predict(DATA[0]).probs, expected.detach())
    assert torch.equal(net[1].running_mean, before)
    assert any("batch norm" in note for note in model.summary().notes)


@pytest.mark.filterwarnings("ignore:batch norm")
def test_statistics_of_a_draw_are_those_of_its_own_weights() -> None:
    """An average over steps would lag behind. Those of the network itself go on as they were."""
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    model = bf.bayesify(net, bf.ThermostatMCMC(burn_in=0, every=1), num_data=32)
    model.train()
    model.loss(*DATA)
    before = {name: buffer.clone() for name, buffer in net[1].named_buffers()}
    model.collect()
    hidden = net[0](DATA[0]).detach()
    torch.testing.assert_close(one(model, 0)["1.running_mean"], hidden.mean(0))
    torch.testing.assert_close(one(model, 0)["1.running_var"], hidden.var(0))
    assert all(torch.equal(buffer, before[name]) for name, buffer in net[1].named_buffers())
    assert net[1].momentum == 0.1


def test_other_methods_have_nothing_to_collect() -> None:
    model = bf.bayesify(make_net(), bf.Point())
    with pytest.raises(TypeError, match="collect.. keeps a draw of a chain"):
        model.collect()


def test_copies_are_chains_of_their_own() -> None:
    model = make(burn_in=0, every=1)
    sample(model, 2)
    twin = copy.deepcopy(model)
    sample(twin, 3)
    assert (model.posterior.num_draws, twin.posterior.num_draws) == (2, 5)


def test_stored_draws_of_nothing() -> None:
    with pytest.raises(RuntimeError, match="no draws yet"):
        StoredDraws({}).mean()


@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("keep", ["draws", "moments"])
@pytest.mark.usefixtures("compile_by_tracing")
def test_compiled_prediction_takes_every_stored_draw_once(
    batched: bool, keep: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Draws that came after compiling are seen. Five draws do not fill chunks of three."""
    monkeypatch.setattr("bayesify.predict.prediction.VMAP_NUMBERS", 3 * 26)  # of 26 weights
    model = make(burn_in=0, every=2, keep=keep)
    sampler = sample(model, 4)
    x, options = DATA[0][:5], {"keep_samples": True, "batched": batched}
    for steps in (0, 6):
        sample(model, steps, sampler)
        torch.manual_seed(0)
        plain = model.predict(x, 20, **options)
        torch.manual_seed(0)
        compiled = model.predict(x, 20, compile=True, **options)
        assert keep == "moments" or len(plain.samples) == (4 + steps) // 2
        torch.testing.assert_close(compiled.samples, plain.samples, rtol=1e-5, atol=1e-6)


def test_draws_of_two_precisions_are_saved_in_the_wider_one() -> None:
    """As when the folder of a run with other `draw_dtype` was added."""
    like = {"w": torch.zeros(2)}
    kept, values = StoredDraws(like), torch.tensor([[1.0, 2.0], [math.pi, math.e]])
    kept.add(DrawKey(0, 1), {"w": values[0].bfloat16()})
    kept.add(DrawKey(1, 1), {"w": values[1]})
    found = kept.tensors(whole=True)
    assert found["draws.w"].dtype == torch.float32
    assert torch.equal(found["draws.w"], values)


@pytest.mark.parametrize(("lr", "drifts"), [(1e-5, True), (0.05, False)])
def test_a_loop_of_ones_own_has_its_draws_looked_at_when_it_predicts(lr: float, drifts: bool) -> None:
    """From weights of 5 in a posterior of width 0.2 to 1: with steps that are too short they fall all the time."""
    model = make(sampler="sgld", burn_in=100, every=20)
    sampler = model.optimizer(lr=lr, seed=0, num_steps=None)
    sampler.warm = None  # it would find a step that suits
    with torch.no_grad():
        for p in model.net.parameters():
            p.fill_(5.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bf.SamplingWarning)  # of the gradients on the way
        sample(model, 900, sampler)
    model.posterior.findings.clear()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        model.predict(DATA[0])
    assert ("the log prior has not settled" in " ".join(str(w.message) for w in said)) is drifts
    assert ("drift" in model.posterior.findings) is drifts
    assert not model.posterior.unjudged
