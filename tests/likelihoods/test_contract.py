"""What every registered likelihood promises."""

import json
import math
from pathlib import Path

import pytest
import torch
from likelihood_cases import OWN, X, case, train
from torch import nn

import bayesify as bf
from bayesify.posteriors import Call
from bayesify.predict.prediction import evaluating, outputs

BATCH = 6


@pytest.mark.parametrize("name", ["bernoulli", "normal"])
@pytest.mark.parametrize("shape", [(4,), (3, 4), (4, 3, 2), ()])
def test_shapes_must_agree_and_nothing_is_broadcast(name: str, shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"target has shape .*output \(4, 3\): they must agree"):
        bf.likelihood(name).nll(torch.zeros(4, 3), torch.zeros(shape))


@pytest.mark.parametrize("name", bf.likelihoods.LIKELIHOODS)
def test_an_empty_batch_is_refused(name: str) -> None:
    likelihood, target, outputs_needed = case(name)
    with pytest.raises(ValueError, match="the batch is empty"):
        likelihood.nll(torch.zeros(0, outputs_needed), target[:0])


@pytest.mark.parametrize("name", ["bernoulli", "normal"])
def test_sample_weights_multiply_the_examples(name: str) -> None:
    output, target, weight = torch.randn(BATCH, 3), torch.rand(BATCH, 3), torch.rand(BATCH)
    likelihood = bf.likelihood(name)
    expected = -(weight * likelihood.log_prob(output, target)).mean()
    torch.testing.assert_close(likelihood.nll(output, target, sample_weight=weight), expected)


def test_there_is_one_sample_weight_per_example() -> None:
    with pytest.raises(ValueError, match=r"sample_weight has shape \(4, 1\), but there are 4 examples"):
        bf.likelihood("normal").nll(torch.zeros(4, 1), torch.zeros(4, 1), torch.ones(4, 1))


def test_an_unknown_likelihood_is_named_with_the_choices() -> None:
    with pytest.raises(ValueError, match=r"likelihood='gauss' does not exist; choose from bernoulli, cat"):
        bf.likelihood("gauss")


@pytest.mark.parametrize("name", ["normal", "heteroscedastic"])
def test_a_target_that_is_not_a_number_is_named(name: str) -> None:
    model = bf.bayesify(nn.Linear(3, 2 if name == "heteroscedastic" else 1), bf.Point(), name)
    with pytest.raises(ValueError, match="target"):
        model.loss(torch.randn(2, 3), torch.tensor([[0.0], [math.nan]]))


@pytest.mark.parametrize("name", bf.likelihoods.LIKELIHOODS)
def test_a_float64_network_is_summarized_in_float64(name: str) -> None:
    for part in bf.likelihood(name).summarize(torch.randn(3, 2, dtype=torch.float64)):
        assert part.dtype == torch.float64


# -- end to end: the registered ones, and likelihoods of a user's own with the six members alone -----------------
ALL = [*bf.likelihoods.LIKELIHOODS, *OWN]


@pytest.mark.parametrize("name", ALL)
def test_training_evaluation_and_prediction_agree(name: str) -> None:
    model, target = train("point", name)
    trained = float(model.loss(X, target).nll.detach())
    assert bf.evaluate(model, [(X, target)], num_draws=1)["nll"] == pytest.approx(trained, rel=1e-5)
    for keep in (False, True):
        log_prob = model.predict(X, keep_samples=keep).log_prob(target)
        assert -float(log_prob.mean()) == pytest.approx(trained, rel=1e-5)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("method", ["mc_vi", "vdp"])
def test_it_trains_and_its_evaluation_is_finite(name: str, method: str) -> None:
    before, target = train(method, name, steps=0)
    after, _ = train(method, name)
    start, end = (float(model.loss(X, target, num_draws=16).nll.detach()) for model in (before, after))
    assert end < start
    assert all(math.isfinite(value) for value in bf.evaluate(after, [(X, target)], num_draws=4).values())


@pytest.mark.parametrize("name", [name for name in ALL if name not in ("normal", "heteroscedastic")])
def test_a_prediction_is_scored_by_the_density_averaged_over_draws(name: str) -> None:
    """Also without keep_samples, where only normal likelihoods take a normal with the total variance."""
    model, target = train("mc_vi", name, steps=5)
    pred = model.predict(X, num_draws=7, generator=torch.Generator().manual_seed(1), batched=False)
    call, law = Call((X,), {}, torch.Generator().manual_seed(1)), model.likelihood
    with torch.no_grad(), evaluating(model):
        drawn = torch.cat(list(outputs(model, call, 0, 7, False)))
        each = torch.stack([law.log_prob(z, law.check(z, target, True)) for z in drawn])
    torch.testing.assert_close(pred.log_prob(target), each.logsumexp(0) - math.log(7), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ALL)
def test_a_file_brings_back_what_it_learned(name: str, tmp_path: Path) -> None:
    model, target = train("mc_vi", name)
    bf.save(model, tmp_path / "m.safetensors")
    own, _, outputs_needed = case(name)
    net = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, outputs_needed))
    again = bf.load(tmp_path / "m.safetensors", net, likelihood=own if name in OWN else None)
    generators = [torch.Generator().manual_seed(0) for _ in range(2)]
    first, second = (
        m.predict(X, generator=g).log_prob(target) for m, g in zip((model, again), generators, strict=True)
    )
    assert torch.equal(first, second)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("covariance", ["diagonal", "full"])
@pytest.mark.parametrize("objective", ["expected", "gaussian"])
def test_density_propagation_reaches_every_parameter(name: str, covariance: str, objective: str) -> None:
    torch.manual_seed(0)
    likelihood, target, outputs_needed = case(name)
    net = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, outputs_needed))
    method = bf.DensityPropagation(covariance=covariance, objective=objective)
    model = bf.bayesify(net, method, likelihood, num_data=40)
    model.loss(X, target).nll.backward()
    for parameter in (*model.net.parameters(), *model.posterior.parameters()):
        assert parameter.grad is not None and parameter.grad.isfinite().all()


@pytest.mark.parametrize("name", ALL)
def test_loss_compiles_in_one_graph(name: str) -> None:
    torch._dynamo.reset()
    model, target = train("vdp", name, steps=1)
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    assert compiled(X, target=target).total.isfinite()


@pytest.mark.parametrize("name", bf.likelihoods.LIKELIHOODS)
def test_its_options_are_plain_and_make_it_again(name: str) -> None:
    options = bf.likelihood(name).options
    again = bf.likelihood(name, **json.loads(json.dumps(options))).options
    assert again == pytest.approx(options)
    assert set(bf.likelihood(name).learned) <= set(options)


@pytest.mark.parametrize(
    "name", [n for n, law in bf.likelihoods.LIKELIHOODS.items() if law.task == "regression"]
)
def test_the_distribution_function_has_the_mean_and_variance_of_the_summary(name: str) -> None:
    """E y = ∫₀^∞ 1 − F − ∫_{−∞}^0 F, and E y² likewise, on a fine grid; noise std about 0.5 about 1."""
    likelihood = bf.likelihood(name, **({"df": 20.0, "scale": 0.5} if name == "student_t" else {}))
    output = torch.tensor([[0.9, -1.4]] if name == "heteroscedastic" else [[0.9]], dtype=torch.float64)
    grid = torch.linspace(-60, 60, 1_200_001, dtype=torch.float64)[:, None]
    with torch.no_grad():
        cdf = likelihood.cdf(output.expand(len(grid), -1), grid)
        mean, var = likelihood.summarize(output)
    below, step = (grid < 0).double(), 1e-4
    first = step * float((1 - below - cdf).sum())
    second = step * float((2 * grid * (1 - below - cdf)).sum())
    assert first == pytest.approx(float(mean), abs=1e-3)
    assert second - first**2 == pytest.approx(float(var), abs=1e-2)
