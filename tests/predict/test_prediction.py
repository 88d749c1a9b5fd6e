"""model.predict: streaming, eval mode, loaders, ensembles, reproducibility, and what it refuses."""

from typing import Any

import pytest
import torch
from predictive_cases import assert_equal_means, generator, loader, make
from torch import Tensor, nn

import bayesify as bf


@pytest.mark.parametrize(
    ("likelihood", "size"), [("categorical", 3), ("bernoulli", 2), ("heteroscedastic", 4)]
)
def test_streaming_equals_keeping_the_samples(likelihood: str, size: int) -> None:
    model, x = make(likelihood, size), torch.randn(6, 4)
    streamed = model.predict(x, 25, generator=generator())
    kept = model.predict(x, 25, generator=generator(), keep_samples=True)
    assert kept.samples.shape == (25, 6, size // 2 if likelihood == "heteroscedastic" else size)
    torch.testing.assert_close(streamed.mean, kept.samples.mean(0))
    torch.testing.assert_close(streamed.mean, kept.mean)
    torch.testing.assert_close(kept.spread, kept.samples.var(0))
    for field in ("entropy", "aleatoric", "epistemic", "variance"):
        assert torch.equal(getattr(streamed, field), getattr(kept, field))


def test_samples_are_the_probabilities_of_drawn_networks() -> None:
    model, x = make().eval(), torch.randn(6, 4)
    pred = model.predict(x, 1, keep_samples=True, generator=generator(5))
    with torch.no_grad():
        expected = model.draw(generator(5))(x).softmax(1)
    torch.testing.assert_close(pred.samples[0], expected)


def test_predict_runs_in_eval_mode_and_puts_the_mode_back() -> None:
    model, x = make().train(), torch.randn(6, 4)
    model.net[0].eval()
    before = {name: b.clone() for name, b in model.named_buffers()}
    model.predict(x, 3)
    assert model.training
    assert model.net[1].training
    assert not model.net[0].training
    assert all(torch.equal(b, before[name]) for name, b in model.named_buffers())


def test_predictions_leave_every_module_in_its_mode() -> None:
    class Frozen(nn.BatchNorm1d):
        def train(self, mode: bool = True) -> "Frozen":
            return super().train(False)

    net = nn.Sequential(nn.Linear(4, 5), nn.Dropout(), Frozen(5), nn.BatchNorm1d(5), nn.Linear(5, 3))
    net.train()
    net[1].eval()
    model = bf.bayesify(net, bf.MonteCarloVI())
    seen = []
    net.register_forward_pre_hook(lambda *_: seen.append([m.training for m in net.modules()]))
    modes = [m.training for m in model.modules()]
    model.predict(torch.randn(2, 4), 2)
    assert [m.training for m in model.modules()] == modes
    assert seen
    assert not any(any(modes) for modes in seen)


def test_a_generator_makes_predict_reproducible() -> None:
    model, x = make(), torch.randn(6, 4)
    first = model.predict(x, 5, generator=generator(1))
    torch.manual_seed(123)
    state = torch.get_rng_state()
    assert torch.equal(first.probs, model.predict(x, 5, generator=generator(1)).probs)
    assert not torch.equal(first.probs, model.predict(x, 5, generator=generator(2)).probs)
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize("method", [bf.Point(), bf.DeepEnsemble(num_members=3)])
@pytest.mark.parametrize("with_targets", [False, True])
def test_a_loader_gives_what_one_call_gives(method: Any, with_targets: bool) -> None:
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    model, x = bf.bayesify(net, method, num_data=10), torch.randn(7, 4)
    tensors = (x, torch.zeros(7)) if with_targets else (x,)
    batched = model.predict(loader(*tensors, batch_size=3), keep_samples=True)
    whole = model.predict(x, keep_samples=True)
    assert len(batched) == 7
    assert batched.num_draws == whole.num_draws
    for field in ("probs", "variance", "entropy", "mutual_information", "agreement", "samples", "label"):
        torch.testing.assert_close(getattr(batched, field), getattr(whole, field))


def test_a_loader_of_a_random_model_has_the_same_distribution_as_one_call() -> None:
    model, x = make("normal", 1), torch.randn(7, 4)
    batched = model.predict(loader(x, batch_size=3), 400, keep_samples=True, generator=generator(1))
    whole = model.predict(x, 400, keep_samples=True, generator=generator(2))
    assert_equal_means(batched.samples, whole.samples)
    assert_equal_means(batched.samples.square(), whole.samples.square())


def test_an_ensemble_gives_every_member_the_same_number_of_draws() -> None:
    method = bf.DeepEnsemble(bf.MonteCarloVI(), num_members=3)
    model, x = bf.bayesify(nn.Linear(4, 3), method, num_data=10), torch.randn(5, 4)
    assert model.predict(x, 10).num_draws == 12
    point = bf.bayesify(nn.Linear(4, 3), bf.DeepEnsemble(num_members=3)).predict(x, 10)
    assert point.num_draws == 3


def test_an_ensemble_averages_its_members_probabilities() -> None:
    model, x = bf.bayesify(nn.Linear(4, 3), bf.DeepEnsemble(num_members=3)), torch.randn(5, 4)
    members = model.posterior.nets(model.net)
    expected = torch.stack([member(x).softmax(1) for member in members]).mean(0)
    torch.testing.assert_close(model.predict(x).probs, expected.detach())


@pytest.mark.parametrize("batched", [False, True])
def test_a_prediction_is_as_large_for_many_draws_as_for_few(batched: bool) -> None:
    model, x = make(), torch.randn(6, 4)

    def numbers(num_draws: int) -> int:
        pred = model.predict(x, num_draws, batched=batched)
        return sum(t.numel() for t in (pred.mean, pred.spread, pred.noise, pred.votes))

    assert numbers(40) == numbers(2)
    assert model.predict(x, 40).per_draw is None


def test_a_network_with_two_heads_predicts_mean_and_noise() -> None:
    class Heads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mean, self.log_var = nn.Linear(4, 2), nn.Linear(4, 2)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return self.mean(x), self.log_var(x)

    net = Heads()
    pred = bf.bayesify(net, bf.Point(), "heteroscedastic").predict(x := torch.randn(5, 4))
    torch.testing.assert_close(pred.mean, net.mean(x).detach())
    torch.testing.assert_close(pred.aleatoric, net.log_var(x).exp().detach())
    model = bf.bayesify(Heads(), bf.MonteCarloVI(), "heteroscedastic", num_data=10)
    assert model.predict(x, 5, batched=True).num_draws == 5


@pytest.mark.parametrize("num_draws", [0, -1])
def test_predict_needs_a_draw(num_draws: int) -> None:
    with pytest.raises(ValueError, match=rf"num_draws={num_draws} must be a whole number of at least 1"):
        make().predict(torch.randn(6, 4), num_draws)


def test_an_empty_loader_is_refused() -> None:
    with pytest.raises(ValueError, match="the loader is empty: nothing to predict"):
        make().predict(loader(torch.randn(0, 4), batch_size=3))
