"""The defaults of likelihoods, seen on likelihoods of a user's own."""

import math
from pathlib import Path

import pytest
import torch
from likelihood_cases import OWN, SLOPE, OwnClasses, OwnLabels, OwnStudentT, X, train
from scipy import stats
from torch import Tensor, nn

import bayesify as bf
from bayesify.likelihoods import LIKELIHOODS, Likelihood
from bayesify.moments import Gaussian
from bayesify.predict.calibration import calibrated

FAILURE_RATE = 1e-6


# -- training by moments --------------------------------------------------------------------------------
@pytest.mark.parametrize("full", [False, True])
def test_the_expected_log_likelihood_is_estimated_without_bias(full: bool) -> None:
    """Mean of 4,000 estimates against Gauss–Hermite quadrature (one output), within z standard errors."""
    torch.manual_seed(0)
    likelihood, target = OwnStudentT(), torch.tensor([[0.2], [-0.4]]).double()
    mean, var = torch.tensor([[0.0], [0.3]]).double(), torch.tensor([[0.04], [0.5]]).double()
    output = Gaussian(mean, var[:, :, None]) if full else bf.Moments(mean, var)
    with torch.no_grad():
        estimates = torch.stack([likelihood.expected_log_prob(output, target) for _ in range(4000)])
        grid = torch.linspace(-8, 8, 20001).double()[:, None]
        weight = torch.distributions.Normal(0.0, 1.0).log_prob(grid[:, 0]).exp() * (16 / 20000)
        exact = torch.stack(
            [
                (weight * likelihood.log_prob(m + v.sqrt() * grid, y)).sum()
                for m, v, y in zip(mean, var, target, strict=True)
            ]
        )
    z = stats.norm.isf(FAILURE_RATE / 4)
    error = estimates.std(0) / math.sqrt(len(estimates))
    assert (
        (estimates.mean(0) - exact).abs() <= z * error + 1e-4
    ).all()  # the root of a covariance is jittered


def test_the_gaussian_objective_takes_the_moments_of_the_prediction(monkeypatch: pytest.MonkeyPatch) -> None:
    """With many draws: the normal whose variance is that of the output and of the noise."""
    monkeypatch.setattr("bayesify.likelihoods.base.OUTPUT_DRAWS", 200_000)
    torch.manual_seed(0)
    likelihood, output = OwnStudentT(), bf.Moments(torch.tensor([[0.1]]), torch.tensor([[0.3]]))
    target = torch.tensor([[0.5]])
    noise = likelihood.summarize(output.mean)[1]
    expected = torch.distributions.Normal(0.1, (0.3 + noise).sqrt()).log_prob(target).sum(1)
    torch.testing.assert_close(likelihood.gaussian_log_prob(output, target), expected, rtol=0, atol=0.02)


def test_the_gaussian_objective_of_labels_is_that_of_their_probabilities(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bayesify.likelihoods.base.OUTPUT_DRAWS", 200_000)
    torch.manual_seed(0)
    output = bf.Moments(torch.tensor([[0.2]]), torch.tensor([[0.5]]))
    p = torch.special.ndtr(0.2 + 0.5**0.5 * torch.randn(400_000))
    expected = torch.distributions.Normal(p.mean(), (p.var() + 1e-3).sqrt()).log_prob(torch.tensor(1.0))
    found = OwnLabels().gaussian_log_prob(output, torch.tensor([[1.0]]))
    torch.testing.assert_close(found[0], expected, rtol=0, atol=0.02)


# -- prediction -----------------------------------------------------------------------------------------
def test_intervals_of_a_law_without_distribution_function_are_those_of_its_mean_and_variance() -> None:
    model, _ = train("point", "regression")
    pred = model.predict(X, keep_samples=True)
    lower, upper = pred.interval(0.9)
    z = stats.norm.ppf(0.95)
    torch.testing.assert_close(upper, pred.mean + z * pred.std, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(lower, pred.mean - z * pred.std, rtol=1e-4, atol=1e-5)


def test_classes_need_no_class_dim() -> None:
    model, target = train("mc_vi", "classes", steps=100)
    pred = model.predict(X)
    assert pred.label.shape == pred.confidence.shape == pred.agreement.shape == target.shape
    torch.testing.assert_close(pred.probs.sum(1), torch.ones(len(X)))
    assert bf.evaluate(model, [(X, target)])["accuracy"] > 0.7


class NoClasses(OwnLabels):
    name = "no_classes"
    class_dim = 1


def test_probabilities_without_classes_say_what_to_set() -> None:
    model = bf.bayesify(nn.Linear(3, 1), bf.Point(), NoClasses())
    message = r"likelihood 'no_classes' .* shape \(40, 1\).* class_dim=1: set its class_dim .* None where"
    with pytest.raises(ValueError, match=message):
        model.predict(X)


def test_labels_are_compared_with_targets_of_their_shape() -> None:
    model, target = train("point", "labels")
    pred = model.predict(X)
    assert torch.equal(pred.log_prob(target[:, 0]), pred.log_prob(target))
    with pytest.raises(ValueError, match="nothing is broadcast"):
        pred.log_prob(target[:5])


def test_a_calibrated_prediction_is_its_own_law_stretched_about_the_mean() -> None:
    model, target = train("point", "regression")
    pred = model.predict(X)
    scale = float(model.likelihood.log_scale.exp().detach())
    law = stats.t(3.0, pred.mean.numpy(), 2 * scale)
    torch.testing.assert_close(
        calibrated(pred, 4.0).log_prob(target), torch.tensor(law.logpdf(target.numpy())).sum(1).float()
    )


def test_calibration_maximises_the_likelihoods_own_density() -> None:
    torch.manual_seed(0)
    net = nn.Linear(3, 1)
    model = bf.bayesify(net, bf.Point(), OwnStudentT())
    y = net(X).detach() + torch.distributions.StudentT(3.0, 0.0, 0.2).sample((len(X), 1))
    with torch.no_grad():
        model.likelihood.log_scale.fill_(math.log(0.4))
    before = bf.evaluate(model, [(X, y)], 1)["nll"]
    best = bf.calibrate(model, [(X, y)], num_draws=1)
    assert best is not None and best < 1
    after = bf.evaluate(model, [(X, y)], 1)["nll"]
    assert after < before
    for factor in (0.98, 1.02):
        model.calibration = best * factor
        assert bf.evaluate(model, [(X, y)], 1)["nll"] >= after


# -- conversion and files -------------------------------------------------------------------------------
def test_what_is_no_likelihood_is_refused() -> None:
    with pytest.raises(
        TypeError, match=r"likelihood=.*must be a name \(categorical, .*bf.likelihoods.Likelihood"
    ):
        bf.bayesify(nn.Linear(3, 1), bf.Point(), OwnStudentT)  # type: ignore[arg-type]


def test_a_task_that_does_not_exist_is_named() -> None:
    class Ranking(OwnStudentT):
        task = "ranking"

    with pytest.raises(
        ValueError, match=r"likelihood 'own_student_t': task='ranking' does not exist.*regression"
    ):
        bf.bayesify(nn.Linear(3, 1), bf.Point(), Ranking())


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    model, _ = train("point", "regression")
    bf.save(model, tmp_path / "own.safetensors")
    return tmp_path / "own.safetensors"


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1))


def test_a_likelihood_that_is_not_known_asks_for_one(saved: Path) -> None:
    net = network()
    message = r"own_student_t', which is not known here.*likelihood=.*LIKELIHOODS\['own_student_t'\] ="
    with pytest.raises(ValueError, match=message):
        bf.load(saved, net)
    bf.bayesify(net, bf.Point())  # it is as it was


def test_a_registered_name_loads_by_itself(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LIKELIHOODS, "own_student_t", OwnStudentT)
    model = bf.load(saved, network())
    assert isinstance(model.likelihood, OwnStudentT)
    assert float(model.likelihood.log_scale.detach()) != pytest.approx(-2.3, abs=1e-4)  # it had learned


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (OwnStudentT(df=5.0), r"is not the one of .*own\.safetensors: it has df 5\.0 \(in the file 3\.0\)"),
        (OwnClasses(), r"it has name 'own_classes' \(in the file 'own_student_t'\)"),
    ],
)
def test_another_likelihood_than_the_files_is_refused(saved: Path, given: Likelihood, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        bf.load(saved, network(), likelihood=given)


def test_a_class_instead_of_an_object_is_refused(saved: Path) -> None:
    with pytest.raises(TypeError, match=r"must be a likelihood object, made with the options \{'df': 3\.0\}"):
        bf.load(saved, network(), likelihood=OwnStudentT)  # type: ignore[arg-type]


def test_merged_models_pool_what_their_likelihoods_learned(tmp_path: Path) -> None:
    scales = (-1.0, -2.0)
    for i, scale in enumerate(scales):
        torch.manual_seed(i)
        model = bf.bayesify(network(), bf.Point(), OwnStudentT())
        with torch.no_grad():
            model.likelihood.log_scale.fill_(scale)
        bf.save(model, tmp_path / f"{i}.safetensors")
    paths = [tmp_path / f"{i}.safetensors" for i in range(2)]
    merged = bf.merge(paths, network(), likelihood=OwnStudentT())
    assert float(merged.likelihood.log_scale.detach()) == pytest.approx(-1.5)


@pytest.mark.parametrize("name", OWN)
def test_a_likelihood_of_ones_own_takes_many_draws_of_the_last_layer(name: str) -> None:
    torch.manual_seed(0)
    law, target, outputs = OWN[name]
    model = bf.bayesify(
        nn.Linear(3, outputs), bf.MonteCarloVI(num_likelihood_draws=20), law(), 40, example=X[:2]
    )
    model.loss(X, target).total.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_several_heads_reach_a_likelihood_that_takes_them() -> None:
    class Ratio(OwnStudentT):
        name = "ratio"
        takes_heads = True

        def log_prob(self, output: tuple[Tensor, Tensor], target: Tensor) -> Tensor:
            return super().log_prob(output[0] / output[1].exp(), target)

        def summarize(self, output: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
            return super().summarize(output[0] / output[1].exp())

    class Heads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Linear(3, 1), nn.Linear(3, 1)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return self.one(x), self.two(x)

    model = bf.bayesify(Heads(), bf.MonteCarloVI(), Ratio(), 40)
    model.loss(X, SLOPE).total.backward()
    pred = model.predict([(X[:25]), (X[25:])].__iter__(), num_draws=3)
    assert pred.log_prob(SLOPE).shape == (40,)


class Ordinal(Likelihood):
    """Four classes in their order, from one number: P(y ≤ k) = sigmoid(k − 1 − output)."""

    name, task, options = "own_ordinal", "classification", {}  # type: ignore[assignment]

    def check(self, output: Tensor, target: Tensor, values: bool) -> Tensor:
        assert output.shape[1:] == (1,), f"an output is (batch, 1), not {tuple(output.shape)}"
        return target

    def log_prob(self, output: Tensor, target: Tensor) -> Tensor:
        return self.summarize(output)[0].gather(1, target[:, None])[:, 0].log()

    def summarize(self, output: Tensor) -> tuple[Tensor, Tensor]:
        below = (torch.arange(3) - 1 - output).sigmoid()
        ends = torch.zeros_like(output), torch.ones_like(output)
        probs = torch.cat([ends[0], below, ends[1]], 1).diff(dim=1)
        return probs, torch.special.entr(probs).sum(1)


def test_probabilities_need_not_have_the_shape_of_an_output() -> None:
    model = bf.bayesify(nn.Linear(2, 1), bf.MonteCarloVI(), likelihood=Ordinal(), num_data=8)
    x, y = torch.randn(8, 2), torch.arange(8) % 4
    pred = model.predict(x, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(pred.log_prob(y), pred.probs.gather(1, y[:, None])[:, 0].log())
    assert bf.evaluate(model, [(x, y)])["nll"] > 0 and bf.calibrate(model, [(x, y)]) is not None
    with pytest.raises(ValueError, match=r"classes 0 to 4, but 4 are predicted.*0\.\.3"):
        pred.log_prob(torch.tensor([0, 1, 2, 3, 4, 0, 0, 0]))
    with pytest.raises(ValueError, match="they must agree"):
        pred.log_prob(y[:5])
