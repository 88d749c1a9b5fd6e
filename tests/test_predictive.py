"""Predictive: hand-computed cases, streaming, loaders, reproducibility, and what it refuses."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from scipy import optimize, special, stats
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import bayesify as bf
from bayesify.posteriors import Call
from bayesify.prediction import _chunk, outputs
from bayesify.predictive import Accumulator

FAILURE_RATE = 1e-6
P1, P2 = (0.7, 0.2, 0.1), (0.1, 0.6, 0.3)  # two draws' probabilities for one example


def predictive(
    likelihood: bf.likelihoods.Likelihood, draws: Sequence[Any], keep: bool = False
) -> bf.Predictive:
    accumulator = Accumulator(likelihood, keep)
    for output in draws:
        accumulator.add(pytree.tree_map(lambda t: t[None], output))
    return accumulator.result()


def two_draws(keep: bool = False) -> bf.Predictive:
    return predictive(bf.likelihood("categorical"), [torch.tensor([p]).log() for p in (P1, P2)], keep)


def entropy(*probs: float) -> float:
    return float(stats.entropy(probs))


# -- classification, by hand --------------------------------------------------------------------------
def test_probabilities_are_averaged_not_logits() -> None:
    pred = two_draws()
    torch.testing.assert_close(pred.probs, torch.tensor([[0.4, 0.4, 0.2]]))
    assert pred.mean is pred.probs
    assert pred.num_draws == 2
    assert len(pred) == 1


def test_entropy_splits_into_expected_entropy_and_mutual_information() -> None:
    pred = two_draws()
    total, expected = entropy(0.4, 0.4, 0.2), (entropy(*P1) + entropy(*P2)) / 2
    assert pred.entropy.item() == pytest.approx(total, rel=1e-5)
    assert pred.aleatoric.item() == pytest.approx(expected, rel=1e-5)
    assert pred.mutual_information.item() == pytest.approx(total - expected, rel=1e-4)
    assert torch.equal(pred.epistemic, pred.mutual_information)


def test_variance_of_the_probabilities_over_draws() -> None:
    pred = two_draws()
    torch.testing.assert_close(pred.variance, torch.tensor([[0.3**2, 0.2**2, 0.1**2]]))
    torch.testing.assert_close(pred.std, torch.tensor([[0.3, 0.2, 0.1]]))


def test_agreement_is_the_share_of_votes_for_the_winner() -> None:
    logits = [torch.tensor([p]).log() for p in (P1, P1, P2)]
    pred = predictive(bf.likelihood("categorical"), logits)
    torch.testing.assert_close(pred.agreement, torch.tensor([2 / 3]))
    assert pred.label.tolist() == [0]
    torch.testing.assert_close(pred.confidence, torch.tensor([0.5]))


def test_identical_draws_have_no_epistemic_uncertainty() -> None:
    pred = predictive(bf.likelihood("categorical"), [torch.tensor([P1]).log()] * 3)
    torch.testing.assert_close(pred.mutual_information, torch.zeros(1), rtol=0, atol=1e-6)
    assert torch.equal(pred.agreement, torch.ones(1))


def test_opposite_certain_draws_have_only_epistemic_uncertainty() -> None:
    draws = [torch.tensor([[50.0, -50.0]]), torch.tensor([[-50.0, 50.0]])]
    pred = predictive(bf.likelihood("categorical"), draws)
    torch.testing.assert_close(pred.mutual_information, torch.tensor([math.log(2)]))
    torch.testing.assert_close(pred.aleatoric, torch.zeros(1))


def test_log_prob_is_that_of_the_averaged_probabilities() -> None:
    pred = two_draws()
    torch.testing.assert_close(pred.log_prob(torch.tensor([2])), torch.tensor([0.2]).log())


def test_log_prob_is_not_changed_by_training_weights() -> None:
    likelihood = bf.likelihood("categorical", class_weight=[1.0, 2.0, 3.0])
    pred = predictive(likelihood, [torch.tensor([p]).log() for p in (P1, P2)])
    torch.testing.assert_close(pred.log_prob(torch.tensor([2])), torch.tensor([0.2]).log())


@pytest.mark.parametrize("class_dim", [1, -1])
def test_positions_of_an_example_have_their_own_uncertainty(class_dim: int) -> None:
    draws = [torch.randn(2, 5, 3) for _ in range(4)]  # (batch, positions, classes)
    likelihood = bf.likelihood("categorical", class_dim=class_dim)
    pred = predictive(likelihood, [d.movedim(-1, class_dim) for d in draws], keep=True)
    flat = predictive(bf.likelihood("categorical"), [d.reshape(10, 3) for d in draws])
    for field in ("entropy", "mutual_information", "agreement", "confidence", "label"):
        torch.testing.assert_close(getattr(pred, field).reshape(-1), getattr(flat, field))
    target = torch.randint(3, (2, 5))
    torch.testing.assert_close(pred.log_prob(target), flat.log_prob(target.reshape(-1)).reshape(2, 5).sum(1))


def test_bernoulli_by_hand() -> None:
    draws = [torch.tensor([[0.9], [0.2]]).logit(), torch.tensor([[0.4], [0.3]]).logit()]
    pred = predictive(bf.likelihood("bernoulli"), draws)
    torch.testing.assert_close(pred.probs, torch.tensor([[0.65], [0.25]]))
    assert pred.label.tolist() == [[1], [0]]
    torch.testing.assert_close(pred.confidence, torch.tensor([[0.65], [0.75]]))
    torch.testing.assert_close(pred.agreement, torch.tensor([[0.5], [1.0]]))
    expected = (entropy(0.9, 0.1) + entropy(0.4, 0.6)) / 2
    assert pred.aleatoric[0].item() == pytest.approx(expected, rel=1e-5)
    assert pred.mutual_information[0].item() == pytest.approx(entropy(0.65, 0.35) - expected, rel=1e-4)
    torch.testing.assert_close(pred.log_prob(torch.tensor([1, 0])), torch.tensor([0.65, 0.75]).log())


def test_bernoulli_predicts_one_above_a_half() -> None:
    pred = predictive(bf.likelihood("bernoulli"), [torch.tensor([0.49, 0.5, 0.51]).logit()])
    assert pred.label.tolist() == [0, 0, 1]
    torch.testing.assert_close(pred.confidence, torch.tensor([0.51, 0.5, 0.51]))


@pytest.mark.parametrize("logit", [20.0, 40.0, 200.0])
def test_a_saturated_bernoulli_has_a_finite_log_prob_of_what_it_predicts(logit: float) -> None:
    pred = predictive(bf.likelihood("bernoulli"), [torch.tensor([[logit], [-logit]])])
    log_prob = pred.log_prob(torch.tensor([[1.0], [0.0]]))
    torch.testing.assert_close(log_prob, torch.zeros(2), rtol=0, atol=1e-6)
    assert (pred.log_prob(torch.tensor([[0.0], [1.0]])) < -15).all()


def test_a_certain_classifier_has_a_finite_log_prob() -> None:
    pred = predictive(bf.likelihood("categorical"), [torch.tensor([[300.0, 0.0]])])
    assert pred.log_prob(torch.tensor([0])).item() == 0
    assert -100 < pred.log_prob(torch.tensor([1])).item() < -80


# -- regression, by hand ------------------------------------------------------------------------------
MEANS, LOG_VARS = torch.randn(
    2, 7, 4, 2, generator=torch.Generator().manual_seed(0)
)  # (draws, batch, outputs)


def regression(keep: bool = False) -> bf.Predictive:
    draws = list(zip(MEANS, LOG_VARS, strict=True))
    return predictive(bf.likelihood("heteroscedastic"), draws, keep)


def test_the_law_of_total_variance() -> None:
    pred = regression()
    torch.testing.assert_close(pred.mean, MEANS.mean(0))
    torch.testing.assert_close(pred.aleatoric, LOG_VARS.exp().mean(0))
    torch.testing.assert_close(pred.epistemic, MEANS.var(0, correction=0))
    torch.testing.assert_close(pred.variance, pred.aleatoric + pred.epistemic)
    second = (MEANS.square() + LOG_VARS.exp()).mean(0)  # of the mixture
    torch.testing.assert_close(pred.variance, second - pred.mean.square(), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(pred.std, pred.variance.sqrt())


def test_entropy_of_the_normal_with_the_total_variance() -> None:
    pred = regression()
    np.testing.assert_allclose(pred.entropy.numpy(), stats.norm.entropy(scale=pred.std.numpy()), rtol=1e-5)


def test_log_prob_with_samples_is_the_mixture_over_draws() -> None:
    target = torch.randn(4, 2)
    per_draw = stats.norm.logpdf(target.numpy(), MEANS.numpy(), (LOG_VARS / 2).exp().numpy()).sum(2)
    expected = special.logsumexp(per_draw, axis=0) - math.log(len(MEANS))
    np.testing.assert_allclose(regression(keep=True).log_prob(target).numpy(), expected, rtol=1e-5)


def test_log_prob_without_samples_is_the_normal() -> None:
    target, pred = torch.randn(4, 2), regression()
    expected = stats.norm.logpdf(target.numpy(), pred.mean.numpy(), pred.std.numpy()).sum(1)
    np.testing.assert_allclose(pred.log_prob(target).numpy(), expected, rtol=1e-5)


@pytest.mark.parametrize("keep", [False, True])
def test_log_prob_refuses_a_target_of_another_shape(keep: bool) -> None:
    with pytest.raises(ValueError, match="shape"):
        regression(keep).log_prob(torch.randn(2, 4))


def test_log_prob_takes_a_target_without_the_last_size_of_one() -> None:
    pred = predictive(bf.likelihood("normal"), [torch.randn(5, 1) for _ in range(3)])
    target = torch.randn(5)
    assert torch.equal(pred.log_prob(target), pred.log_prob(target[:, None]))


@pytest.mark.parametrize("mass", [0.05, 0.5, 0.9, 0.999])
def test_interval_holds_the_mass_of_the_mixture(mass: float) -> None:
    lower, upper = regression(keep=True).interval(mass)
    means, stds = MEANS.double().numpy(), (LOG_VARS.double() / 2).exp().numpy()
    for index in np.ndindex(4, 2):
        each, widths = means[(slice(None), *index)], stds[(slice(None), *index)]

        def cdf(x: float, each: np.ndarray = each, widths: np.ndarray = widths) -> float:
            return float(stats.norm.cdf(x, each, widths).mean())

        for level, bound in (((1 - mass) / 2, lower), ((1 + mass) / 2, upper)):
            root = optimize.brentq(lambda x, level=level: cdf(x) - level, -60, 60, xtol=1e-10)
            assert float(bound[index]) == pytest.approx(root, rel=1e-4, abs=1e-4)


def test_interval_of_one_draw_is_the_normals() -> None:
    pred = predictive(bf.likelihood("normal", std=2.0), [torch.tensor([[3.0]])], keep=True)
    lower, upper = pred.interval(0.9)
    expected = stats.norm.interval(0.9, 3.0, 2.0)
    assert (lower.item(), upper.item()) == pytest.approx(expected, rel=1e-5)


def test_interval_of_a_classifier_holds_the_draws_probabilities() -> None:
    draws = [torch.randn(3, 4) for _ in range(21)]
    lower, upper = predictive(bf.likelihood("categorical"), draws, keep=True).interval(0.8)
    probs = torch.stack(draws).softmax(2).numpy()
    np.testing.assert_allclose(lower.numpy(), np.quantile(probs, 0.1, axis=0), rtol=1e-5)
    np.testing.assert_allclose(upper.numpy(), np.quantile(probs, 0.9, axis=0), rtol=1e-5)


@pytest.mark.parametrize("mass", [0.0, 1.0, -0.1, 90.0])
def test_interval_needs_a_share(mass: float) -> None:
    with pytest.raises(ValueError, match=rf"mass={mass} must lie between 0 and 1"):
        regression(keep=True).interval(mass)


# -- what it refuses ----------------------------------------------------------------------------------
@pytest.mark.parametrize("field", ["probs", "label", "confidence", "agreement", "mutual_information"])
def test_fields_of_classification_are_refused_for_regression(field: str) -> None:
    with pytest.raises(AttributeError, match=rf"\.{field} is for classification; this is regression: use \."):
        getattr(regression(), field)


@pytest.mark.parametrize("pred", [two_draws, regression])
def test_fields_that_need_the_draws_say_so(pred: Any) -> None:
    with pytest.raises(
        ValueError, match=r"\.samples needs the draws: call predict\(\.\.\., keep_samples=True\)"
    ):
        _ = pred().samples
    with pytest.raises(ValueError, match=r"\.interval needs the draws"):
        pred().interval(0.9)


# -- from a model -------------------------------------------------------------------------------------
def make(likelihood: str = "categorical", outputs: int = 3, **options: Any) -> bf.BayesianModule:
    net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, outputs))
    return bf.bayesify(net, bf.MonteCarloVI(init_std=0.5, **options), likelihood, num_data=10)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


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
    torch.testing.assert_close(kept.spread, kept.samples.var(0, correction=0))
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


def test_a_generator_makes_predict_reproducible() -> None:
    model, x = make(), torch.randn(6, 4)
    first = model.predict(x, 5, generator=generator(1))
    torch.manual_seed(123)
    state = torch.get_rng_state()
    assert torch.equal(first.probs, model.predict(x, 5, generator=generator(1)).probs)
    assert not torch.equal(first.probs, model.predict(x, 5, generator=generator(2)).probs)
    assert torch.equal(state, torch.get_rng_state())


def loader(*tensors: Tensor, batch_size: int) -> torch.utils.data.DataLoader:
    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*tensors), batch_size)


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


def assert_equal_means(a: Tensor, b: Tensor) -> None:
    """Two samples (draws, ...) of the same law: the difference of means within z standard errors."""
    z = stats.norm.isf(FAILURE_RATE / 2 / a[0].numel())
    error = (a.var(0) / len(a) + b.var(0) / len(b)).sqrt()
    assert ((a.mean(0) - b.mean(0)).abs() <= z * error).all()


def test_a_loader_of_a_random_model_has_the_same_distribution_as_one_call() -> None:
    model, x = make("normal", 1), torch.randn(7, 4)
    batched = model.predict(loader(x, batch_size=3), 400, keep_samples=True, generator=generator(1))
    whole = model.predict(x, 400, keep_samples=True, generator=generator(2))
    assert_equal_means(batched.samples, whole.samples)
    assert_equal_means(batched.samples.square(), whole.samples.square())


@pytest.mark.parametrize("sampling", ["draw", "local", "flipout"])
def test_batched_draws_have_the_same_distribution_as_looped_ones(sampling: str) -> None:
    model, x = make("normal", 1, sampling=sampling), torch.randn(7, 4)
    batched = model.predict(x, 400, keep_samples=True, generator=generator(1), batched=True)
    looped = model.predict(x, 400, keep_samples=True, generator=generator(2), batched=False)
    assert_equal_means(batched.samples, looped.samples)
    assert_equal_means(batched.samples.square(), looped.samples.square())


def test_batched_draws_equal_looped_ones_with_the_same_weights() -> None:
    model, x = make().eval(), torch.randn(7, 4)
    with torch.no_grad():
        (batched,) = outputs(model, Call((x,), {}, generator(3)), 0, 6, batched=True)
        assert model.posterior.vmap_refusal == ""
        weights = model.posterior.draw(0, 6, generator(3))
        for i, output in enumerate(batched):
            one = {name: value[i] for name, value in weights.items()}
            torch.testing.assert_close(output, model.posterior.run_draw(model.net, Call((x,), {}), one))


def test_predict_agrees_with_averaging_forward_passes() -> None:
    """The mean of 400 draws by predict and of 400 plain forward passes."""
    model, x = make("normal", 1).eval(), torch.randn(7, 4)
    pred = model.predict(x, 400, keep_samples=True, generator=generator(1))
    with torch.no_grad():
        passes = torch.stack([model(x, generator=generator(1000 + i)) for i in range(400)])
    assert_equal_means(pred.samples, passes)


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


def test_streaming_keeps_as_many_numbers_for_many_draws_as_for_few() -> None:
    def held(value: object) -> int:
        """Numbers in all tensors that can be reached from `value`."""
        if isinstance(value, Tensor):
            return value.numel()
        parts = value.values() if isinstance(value, dict) else value
        return sum(held(part) for part in parts) if isinstance(value, dict | list | tuple) else 0  # type: ignore[union-attr]

    def held_after(num_draws: int) -> int:
        accumulator = Accumulator(bf.likelihood("categorical"))
        for _ in range(num_draws):
            accumulator.add(torch.randn(1, 2, 3))
        return held(vars(accumulator))

    assert held_after(30) == held_after(3) > 0


@pytest.mark.parametrize("batched", [False, True])
def test_a_prediction_is_as_large_for_many_draws_as_for_few(batched: bool) -> None:
    model, x = make(), torch.randn(6, 4)

    def numbers(num_draws: int) -> int:
        pred = model.predict(x, num_draws, batched=batched)
        return sum(t.numel() for t in (pred.mean, pred.spread, pred.noise, pred.votes))

    assert numbers(40) == numbers(2)
    assert model.predict(x, 40).kept is None


@pytest.mark.parametrize("num_draws", [0, -1])
def test_predict_needs_a_draw(num_draws: int) -> None:
    with pytest.raises(ValueError, match=rf"num_draws={num_draws} must be at least 1"):
        make().predict(torch.randn(6, 4), num_draws)


def test_an_empty_loader_is_refused() -> None:
    with pytest.raises(ValueError, match="the loader is empty: nothing to predict"):
        make().predict(loader(torch.randn(0, 4), batch_size=3))


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


@pytest.mark.parametrize("name", ["categorical", "bernoulli", "normal", "heteroscedastic"])
def test_draws_one_by_one_or_in_chunks_give_the_same(name: str) -> None:
    outputs_ = torch.randn(7, 5, 4, dtype=torch.float64)
    one_by_one, chunks = Accumulator(bf.likelihood(name)), Accumulator(bf.likelihood(name))
    for i in range(7):
        one_by_one.add(outputs_[i : i + 1])
    for part in outputs_.split((3, 1, 3)):
        chunks.add(part)
    a, b = one_by_one.result(), chunks.result()
    assert a.num_draws == b.num_draws == 7
    for field in ("mean", "spread", "noise"):
        torch.testing.assert_close(getattr(a, field), getattr(b, field))
    if a.votes is not None:
        torch.testing.assert_close(a.votes, b.votes)


def test_compiled_prediction_refuses_a_generator() -> None:
    model = make()
    with pytest.raises(ValueError, match="compile=True cannot take a generator"):
        model.predict(torch.randn(2, 4), 3, compile=True, generator=generator(1))


@pytest.mark.parametrize("batched", [False, True])
def test_compiled_prediction_agrees_with_the_plain_one(
    batched: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Means of 400 draws each, by the traced function (not by Inductor, which costs minutes)."""
    compile_ = torch.compile
    monkeypatch.setattr(
        torch,
        "compile",
        lambda f, mode, dynamic: compile_(f, backend="eager", dynamic=dynamic, fullgraph=True),
    )
    model, x = make("normal", 1).eval(), torch.randn(7, 4)
    compiled = model.predict(x, 400, keep_samples=True, compile=True, batched=batched)
    plain = model.predict(x, 400, keep_samples=True, batched=batched)
    assert_equal_means(compiled.samples, plain.samples)
    assert compiled.spread.min() > 0


def test_compiled_prediction_of_draws_at_once_returns_statistics(monkeypatch: pytest.MonkeyPatch) -> None:
    """One function per number of draws, whatever the values: it is traced once for inputs of one shape."""
    compile_, traced = torch.compile, []

    def backend(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        traced.append(graph)
        return graph.forward

    monkeypatch.setattr(
        torch,
        "compile",
        lambda f, mode, dynamic: compile_(f, backend=backend, dynamic=dynamic, fullgraph=True),
    )
    torch.manual_seed(0)
    model = make("categorical", 3)
    predictions = [model.predict(torch.randn(2, 4), 50, compile=True, batched=True) for _ in range(3)]
    assert len(traced) == 1
    for prediction in predictions:
        assert prediction.num_draws == 50
        assert prediction.kept is None
        torch.testing.assert_close(prediction.probs.sum(1), torch.ones(2))
        assert prediction.votes is not None
        torch.testing.assert_close(prediction.votes.sum(1), torch.ones(2))
        assert prediction.spread.min() > 0
    assert not torch.equal(predictions[0].mean, predictions[1].mean)


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


def test_draws_that_share_most_weights_run_as_a_larger_batch_on_an_accelerator() -> None:
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(8 * 900, 3))
    patched = bf.bayesify(net, bf.EnsemblePatching(where=bf.where.norm)).to("meta")
    for batch, chunk in [(1, 20), (128, 20), (512, 5), (4096, 1)]:
        x = torch.empty(batch, 3, 32, 32, device="meta")
        for compiled in (False, True):
            assert _chunk(patched, Call((x,), {}), 20, None, compiled) == chunk
    assert _chunk(patched, Call((torch.empty(128, 3, 32, 32),), {}), 20, None) == 1
