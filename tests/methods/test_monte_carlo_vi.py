"""MonteCarloVI over families, priors and estimators: it trains, groups priors, and refuses what cannot work."""

from pathlib import Path

import pytest
import torch
from torch import nn

import bayesify as bf
from bayesify.divergences import kl
from bayesify.divergences.support import estimators
from bayesify.families import FAMILIES, RandomTensor
from bayesify.priors import Prior

X, Y = torch.randn(6, 4, generator=torch.Generator().manual_seed(0)), torch.arange(6) % 3

GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))


def model(**options: object) -> bf.BayesianModule:
    return bf.bayesify(network(), bf.MonteCarloVI(**options), num_data=60)  # type: ignore[arg-type]


def a_prior_for(family: str) -> str:
    q = RandomTensor(FAMILIES[family], torch.rand(3), own_centre=True).distribution()
    return next(p for p in ("normal", "student_t") if estimators(q, bf.prior(p))[0])


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_trains(family: str) -> None:
    bayesian = model(family=family, prior=a_prior_for(family), num_kl_draws=10)
    optimizer = bayesian.optimizer(lr=1e-3)
    for _ in range(2):
        loss = bayesian.loss(X, Y)
        optimizer.zero_grad()
        loss.total.backward()
        optimizer.step()
    assert torch.isfinite(loss.total)
    assert all(p.grad is not None for p in bayesian.parameters() if p.requires_grad)


@pytest.mark.parametrize(
    ("where", "num_kl_draws", "device"),
    [
        pytest.param(bf.where.output, 1000, "cpu", id="last layer"),
        pytest.param(
            bf.where.all, 10, "cpu", id="all, 10 draws"
        ),  # 2.5 M weights × 1,000 draws take a CPU a minute
        pytest.param(bf.where.all, 1000, "cuda", id="all", marks=GPU),
    ],
)
def test_the_paper_s_api_in_one_line(where: bf.where.Where, num_kl_draws: int, device: str) -> None:
    """Paper 1, Fig. 3: a network by name, a family, an estimator and its number of draws."""
    torch.manual_seed(0)
    method = bf.MonteCarloVI(family="radial", kl="repar", num_kl_draws=num_kl_draws, where=where)
    bayesian = bf.bayesify(bf.nets.alexnet(10), method, num_data=50_000).to(device)
    x, y = torch.randn(2, 3, 32, 32, device=device), torch.tensor([1, 3], device=device)
    loss = bayesian.loss(x, y)
    loss.total.backward()
    assert torch.isfinite(loss.total)
    assert loss.kl > 0
    assert all(p.grad is not None and p.grad.isfinite().all() for p in bayesian.parameters())


@pytest.mark.parametrize("kl_estimator", ["exact", "repar", "stream", "direct"])
def test_estimators_of_the_kl_agree(kl_estimator: str) -> None:
    """67 weights × 2,000 draws: the relative error of Σ w²/2 is below 0.4 %, so that of the KL is far below 2 %."""
    exact = model().loss(X, Y).kl.item()
    assert model(kl=kl_estimator, num_kl_draws=2000).loss(X, Y).kl.item() == pytest.approx(exact, rel=0.02)


def test_taylor_takes_its_options() -> None:
    options = {"kl": "taylor", "prior": "logistic", "num_kl_draws": 2000}
    reference = model(kl="stream", prior="logistic", num_kl_draws=2000).loss(X, Y).kl.item()
    value = model(kl_options={"order": 6, "about": 0.1}, **options).loss(X, Y).kl.item()
    assert value == pytest.approx(reference, rel=0.02)


@pytest.mark.parametrize(
    ("prior", "of_bias"),
    [
        (bf.prior("fan_in", gain=2.0, bias_std=0.5), bf.prior("normal", std=0.5)),
        (
            bf.prior("per_layer", rules={"bias$": bf.prior("laplace", scale=0.3)}),
            bf.prior("laplace", scale=0.3),
        ),
    ],
)
def test_every_tensor_has_its_own_prior(prior: Prior, of_bias: Prior) -> None:
    bayesian = model(prior=prior)
    posterior = bayesian.posterior
    distributions = posterior.distributions(list(posterior.slots))  # type: ignore[operator, arg-type]
    expected = torch.stack([kl(q, prior.at(name, q.mean)) for name, q in distributions.items()]).sum()
    torch.testing.assert_close(bayesian.loss(X, Y).kl, expected)
    assert prior.at("0.bias", torch.zeros(8)) == of_bias


def test_a_saved_model_keeps_family_prior_and_estimator(tmp_path: Path) -> None:
    prior = bf.prior("per_layer", rules={"bias$": "laplace"}, default=bf.prior("logistic", scale=0.4))
    saved = model(family="laplace", prior=prior, kl="stream", num_kl_draws=7)
    bf.save(saved, tmp_path / "model.safetensors")
    loaded = bf.load(tmp_path / "model.safetensors", network())
    assert loaded.method.options() == saved.method.options()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_kl_draws": 0}, "num_kl_draws=0 must be a whole number of at least 1, e.g. num_kl_draws=1000"),
        ({"num_kl_draws": -5}, "num_kl_draws=-5 must be a whole number"),
        ({"init_std": -1}, "init_std=-1 must be a number above 0, e.g. init_std=0.05"),
        ({"prior": "gamma"}, "do not go together: .*negative values.*use prior='normal'"),
        ({"family": "horseshoe"}, "do not go together: E .ξ.*use prior='student_t'"),
        ({"family": "gamma", "prior": "dirichlet"}, "simplex"),
        (
            {"family": "gamma", "prior": "inverse_gamma", "family_options": {"concentration": 0.5}},
            "do not go together: E .ξ.*infinite",
        ),
        ({"kl": "repar", "prior": "student_t"}, "'repar' does not apply .* use 'exact' or 'stream'"),
        ({"kl": "taylor"}, "taylor' is not needed"),
        ({"kl": "exakt"}, "kl='exakt' does not exist"),
        ({"kl_options": {"order": 3}}, "order=3: the estimator 'auto' has no such option"),
        ({"kl": "taylor", "prior": "logistic", "kl_options": {"order": -1}}, "order=-1 must be"),
        (
            {"family": "radial", "sampling": "local"},
            "'local' is not valid .*.* weights are not independent.*'draw'",
        ),
        (
            {"family": "radial", "sampling": "flipout"},
            "'flipout' is not valid .*: its weights are not independent",
        ),
        (
            {"family": "gamma", "sampling": "local"},
            "'local' is not valid .* gamma family: its weights are not normal",
        ),
        (
            {"family": "gamma", "sampling": "flipout"},
            "'flipout' is not valid .* not symmetric about their mean",
        ),
        ({"family": "laplace", "sampling": "local"}, "'local' is not valid for the laplace family"),
    ],
)
def test_what_cannot_work_is_refused_at_once(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        bf.MonteCarloVI(**options)  # type: ignore[arg-type]


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # torch's own, between graphs
def test_taylor_is_left_out_of_compiled_code() -> None:
    """It takes derivatives of derivatives: one graph is refused, several have it between them."""
    bayesian = model(kl="taylor", prior="logistic", num_kl_draws=50)
    bayesian.loss(X, Y)
    torch._dynamo.reset()
    with pytest.raises(Exception, match="'taylor' differentiates derivatives .* use kl='stream'"):
        torch.compile(bayesian, fullgraph=True, backend="aot_eager")(X, target=Y)
    torch._dynamo.reset()
    loss = torch.compile(bayesian, backend="aot_eager")(X, target=Y)
    loss.total.backward()
    assert torch.isfinite(loss.total)
    assert all(p.grad is not None and p.grad.isfinite().all() for p in bayesian.parameters())


def test_a_prior_of_one_layer_that_cannot_work_is_refused_with_the_network() -> None:
    method = bf.MonteCarloVI(prior=bf.prior("per_layer", rules={"bias$": "gamma"}))
    net = network()
    with pytest.raises(ValueError, match="normal family and the gamma prior do not go together"):
        bf.bayesify(net, method, num_data=60)
    bf.bayesify(net, bf.MonteCarloVI(), num_data=60)  # nothing of the first try stays on the network


@pytest.mark.parametrize(
    ("family", "kl_estimator"), [("normal", "repar"), ("laplace", "repar"), ("gamma", "exact")]
)
def test_the_whole_loss_traces_as_one_graph(family: str, kl_estimator: str) -> None:
    bayesian = model(family=family, kl=kl_estimator, num_kl_draws=100)
    bayesian.loss(X, Y)
    torch._dynamo.reset()
    loss = torch.compile(bayesian, fullgraph=True, backend="aot_eager")(X, target=Y)
    loss.total.backward()
    assert torch.isfinite(loss.total)
