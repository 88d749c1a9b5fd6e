"""Natural-gradient variational inference: exact optima, the loss, files, runs, and what is refused."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import bayesify as bf
from bayesify.data import Loader, Split
from bayesify.recipes import KINDS, recipe
from bayesify.samplers.variational_newton import LONG, VariationalNewton


def small() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 16), nn.LayerNorm(16), nn.ReLU(), nn.Linear(16, 3))


def batch(size: int = 32) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(size, 4, generator=generator)
    return x, (x[:, 0] > 0).long() + (x[:, 1] > 0.5).long()


def moments(model: bf.BayesianModule) -> tuple[Tensor, Tensor]:
    """Means and stds of all random weights, as one vector each."""
    found = model.posterior.distributions(list(model.posterior.slots)).values()
    both = [
        torch.cat([getattr(q, what).detach().double().flatten() for q in found])
        for what in ("mean", "variance")
    ]
    return both[0], both[1].sqrt()


def train(
    model: bf.BayesianModule, x: Tensor, y: Tensor, num_steps: int, lr: float, num_draws: int = 1
) -> None:
    """Full batches, with a rate that falls to 0."""
    optimizer = model.optimizer(lr=lr, num_steps=num_steps)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, num_steps)
    torch.manual_seed(2)
    for _ in range(num_steps):
        optimizer.zero_grad()
        model.loss(x, y, num_draws=num_draws).total.backward()
        optimizer.step()
        schedule.step()


# -- exact optima -----------------------------------------------------------------------------------------
def problem(num: int = 60) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    mixing = torch.tensor([[1.0, 0.6, 0.0], [0.0, 1.0, -0.4], [0.0, 0.0, 1.0]])
    return torch.randn(num, 3, generator=generator) @ mixing


@pytest.mark.parametrize("sampling", ["draw", "local", "flipout"])
def test_linear_regression_reaches_the_best_factorized_posterior(sampling: str) -> None:
    """m that of the exact posterior, σ² = 1/diag(precision). With averages over n = 1/ρ steps of d draws, log σ² has
    the variance ρ Var(λ ∂loss/∂log σ) / 2d, below 4/(2·400·4) here; five times the root of it is 18 % of σ²."""
    x, prior_std, noise_std = problem(), 1.5, 0.5
    y = x @ torch.tensor([[1.5], [-1.0], [0.8]]) + noise_std * torch.randn(
        60, 1, generator=torch.Generator().manual_seed(1)
    )
    precision = (x.T @ x / noise_std**2 + torch.eye(3) / prior_std**2).double()
    mean = torch.linalg.solve(precision, (x.T @ y / noise_std**2).double())[:, 0]
    method = bf.IVON(prior=bf.prior("normal", std=prior_std), sampling=sampling, beta2=1 - 1 / 400)
    torch.manual_seed(1)
    model = bf.bayesify(
        nn.Linear(3, 1, bias=False), method, bf.likelihood("normal", std=noise_std), num_data=60
    )
    train(model, x, y, num_steps=1500, lr=0.1, num_draws=4)
    found, std = moments(model)
    best = precision.diagonal().rsqrt()
    assert ((found - mean).abs() < 0.1 * best).all()
    assert ((std / best).square() - 1).abs().max() < 0.18


def best_logistic(x: Tensor, y: Tensor, prior_std: float) -> tuple[Tensor, Tensor]:
    """Means and stds of the mean-field normal with the largest ELBO: xᵀw is normal, so E log p is an integral over
    one number, by 60 Gauss–Hermite nodes; LBFGS."""
    nodes, weights = (torch.from_numpy(a) for a in np.polynomial.hermite_e.hermegauss(60))
    weights = weights / weights.sum()
    theta = torch.zeros(2, x.shape[1], dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([theta], max_iter=500, tolerance_grad=1e-10, line_search_fn="strong_wolfe")
    prior = torch.distributions.Normal(torch.zeros(3).double(), prior_std)

    def negative_elbo() -> Tensor:
        optimizer.zero_grad()
        m, std = theta[0], theta[1].exp()
        logits = (x @ m)[:, None] + (x.square() @ std.square()).sqrt()[:, None] * nodes
        nll = -(nn.functional.logsigmoid((2 * y - 1)[:, None] * logits) * weights).sum()
        value = nll + torch.distributions.kl_divergence(torch.distributions.Normal(m, std), prior).sum()
        value.backward()
        return value

    optimizer.step(negative_elbo)
    return theta[0].detach(), theta[1].exp().detach()


def test_logistic_regression_reaches_the_best_mean_field_posterior() -> None:
    """Against quadrature, with the tolerances of linear regression."""
    x = problem()
    generator = torch.Generator().manual_seed(3)
    y = torch.bernoulli((x @ torch.tensor([2.0, -1.0, 0.0])).sigmoid(), generator=generator)[:, None]
    mean, std = best_logistic(x.double(), y[:, 0].double(), prior_std=2.0)
    method = bf.IVON(prior=bf.prior("normal", std=2.0), sampling="local", init_std=1.0, beta2=1 - 1 / 400)
    torch.manual_seed(1)
    model = bf.bayesify(nn.Linear(3, 1, bias=False), method, "bernoulli", num_data=60)
    train(model, x, y, num_steps=1500, lr=0.1, num_draws=4)
    found, found_std = moments(model)
    assert ((found - mean).abs() < 0.1 * std).all()
    assert ((found_std / std).square() - 1).abs().max() < 0.18


# -- the loss and what trains -----------------------------------------------------------------------------
def test_the_loss_is_the_data_term_and_the_kl_is_reported() -> None:
    model = bf.bayesify(small(), bf.IVON(prior=bf.prior("normal", std=0.5)), num_data=32)
    model.optimizer()
    loss = model.loss(*batch())
    mean, std = moments(model)
    kl = torch.distributions.kl_divergence(
        torch.distributions.Normal(mean, std), torch.distributions.Normal(0.0, 0.5)
    ).sum()
    assert loss.total is loss.nll and not loss.kl.requires_grad
    assert loss.kl.item() == pytest.approx(kl.item(), rel=1e-5)
    assert model.kl().item() == pytest.approx(kl.item(), rel=1e-5)


def test_what_the_optimizer_is_told() -> None:
    """σ₀ = init_std · rms · √T, λ = num_data / (kl_weight · T), δ = kl_weight / (num_data · std²), h₀ of 1/(λ σ²)."""
    method = bf.IVON(
        prior=bf.prior("normal", mean=0.1, std=0.5), init_std=0.2, temperature=0.5, kl_weight=0.8
    )
    model = bf.bayesify(small(), method, num_data=100)
    mean, std = moments(model)
    start = 0.2 * mean.square().mean().sqrt() * 0.5**0.5
    torch.testing.assert_close(std, start.expand(131), rtol=1e-5, atol=0)
    lam = 100 / (0.8 * 0.5)
    group = model.optimizer().param_groups[0]
    assert group["centre"] == 0.1
    assert group["num_data"] == pytest.approx(lam)
    assert group["weight_decay"] == pytest.approx(0.8 / (100 * 0.25))
    assert group["h0"].item() == pytest.approx(1 / (lam * start.item() ** 2), rel=1e-5)
    model.posterior.q.get_submodule("0.weight").log_scale.data.add_(1.0)
    moved = model.optimizer().param_groups[0]["h0"]
    assert moved.item() == pytest.approx(group["h0"].item() * math.exp(-2 * 64 / 131), rel=1e-5)


def test_norm_layers_and_a_learned_noise_train_beside_it() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 16), nn.LayerNorm(16), nn.Tanh(), nn.Linear(16, 1))
    model = bf.bayesify(net, bf.IVON(), bf.likelihood("normal", std=1.0, learn_std=True), num_data=200)
    x = torch.randn(200, 4)
    y = x[:, :1] + 0.1 * torch.randn(200, 1)
    before = net[1].weight.detach().clone()
    groups = model.method.groups(model)
    assert [group.get("random", False) for group in groups] == [True, False, False]
    train(model, x, y, num_steps=600, lr=0.2)
    assert not torch.equal(net[1].weight, before)
    assert 0.05 < model.likelihood.std.item() < 0.3


def test_priors_of_their_own_are_groups_of_their_own() -> None:
    model = bf.bayesify(small(), bf.IVON(prior="fan_in"), num_data=50)
    groups = [group for group in model.method.groups(model) if group.get("random")]
    assert {round(50 * group["weight_decay"], 6) for group in groups} == {4.0, 16.0, 1.0}


@pytest.mark.parametrize("sampling", ["draw", "local"])
def test_a_mean_over_members_trains_each_as_it_would_alone(sampling: str) -> None:
    """But for h₀, which all members share: the steps of member 0 are those of the network by itself."""
    x, y = batch()
    method = bf.IVON(sampling=sampling, beta2=0.9)
    alone = bf.bayesify(small(), method, num_data=32)
    both = bf.bayesify(small(), bf.DeepEnsemble(method, 2), num_data=32)
    assert both.method.optimizer_adds_kl
    optimizers = alone.optimizer(), both.optimizer()
    optimizers[0].param_groups[0]["h0"] = optimizers[1].param_groups[0]["h0"]
    for model, optimizer in zip((alone, both), optimizers, strict=True):
        loss = model.loss(x, y, generator=torch.Generator().manual_seed(0))
        assert loss.total is loss.nll
        loss.total.backward()
        optimizer.step()
    first = both.posterior.nets(both.net)[0]
    for p, q in zip(alone.net.parameters(), first.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-6)


def test_it_compiles_whole() -> None:
    model = bf.bayesify(small(), "ivon", num_data=32)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    optimizer = model.optimizer(num_steps=40)
    for _ in range(40):
        optimizer.zero_grad()
        loss = compiled(batch()[0], target=batch()[1])
        loss.total.backward()
        optimizer.step()
    assert loss.nll < 0.5 and not loss.kl.requires_grad


# -- runs and files ---------------------------------------------------------------------------------------
def run(folder: Path | None, epochs: int, made: bf.BayesianModule | None = None, **options: Any) -> Any:
    model = bf.bayesify(small(), bf.IVON(beta2=0.99)) if made is None else made
    loader = Loader(Split(*batch(60)), 16, shuffle=True, seed=3)
    settings = {"lr": 0.05, "seed": 5, "progress": False, "folder": folder, **options}
    return model, bf.fit(model, loader, epochs=epochs, **settings)


def test_a_run_resumes_bit_for_bit(tmp_path: Path) -> None:
    whole, _ = run(tmp_path / "whole", 4)
    run(tmp_path / "parts", 2)
    parts, history = run(tmp_path / "parts", 4)
    assert any("resumed at epoch 3" in note for note in history.notes)
    for (name, p), q in zip(whole.state_dict().items(), parts.state_dict().values(), strict=True):
        assert torch.equal(p, q), name


def test_training_goes_on_in_a_second_fit_and_after_loading(tmp_path: Path) -> None:
    model, first = run(None, 4)
    bf.save(model, tmp_path / "model.safetensors")
    loaded = bf.load(tmp_path / "model.safetensors", small())
    assert loaded.method.options() == model.method.options()
    assert torch.equal(moments(loaded)[1], moments(model)[1])
    x = torch.randn(3, 4)
    draws = [m.predict(x, 4, generator=torch.Generator().manual_seed(0)).probs for m in (model, loaded)]
    assert torch.equal(*draws)
    _, more = run(None, 1, made=loaded)
    assert more[-1]["nll"] < first[0]["nll"]


def test_the_length_of_the_run_is_that_of_the_average_of_h() -> None:
    model = bf.bayesify(small(), "ivon", num_data=32)
    assert model.optimizer().param_groups[0]["betas"] == (0.9, LONG)
    assert model.optimizer(num_steps=100).param_groups[0]["betas"] == (0.9, 0.99)
    assert model.optimizer(num_steps=10**7).param_groups[0]["betas"] == (0.9, LONG)
    seen = []
    run(None, 2, made=model, on_epoch=lambda m, epoch: seen.append(epoch) or {})
    given = bf.bayesify(small(), bf.IVON(beta2=0.5), num_data=32)
    assert given.optimizer(num_steps=100).param_groups[1]["betas"] == (0.9, 0.5)


@pytest.mark.parametrize("precision", ["32-true", "64-true", "bf16-mixed"])
@pytest.mark.parametrize(
    "options", [{}, {"accumulate": 2, "clip_norm": 1.0}, {"ema": 0.9, "schedule": "onecycle"}], ids=str
)
def test_it_trains_by_fit(precision: str, options: dict[str, Any]) -> None:
    _, history = run(None, 8, precision=precision, **options)
    assert history[-1]["nll"] < history[0]["nll"]
    assert history[-1]["loss"] == history[-1]["nll"]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
@pytest.mark.parametrize("compile", [False, pytest.param(True, marks=pytest.mark.inductor)])
@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_it_trains_by_the_kernel_on_a_gpu(precision: str, compile: bool, tmp_path: Path) -> None:
    options = {"precision": precision, "compile": compile, "accelerator": "cuda", "schedule": "cosine"}
    model, history = run(tmp_path, 8, **options)
    assert model.optimizer()._step_supports_amp_scaling
    assert history[-1]["nll"] < history[0]["nll"]
    _, more = run(tmp_path, 10, **options)
    assert more.column("nll")[:8] == history.column("nll")


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_network_has_a_recipe_for_it(kind: str) -> None:
    found = recipe(kind, bf.IVON())
    assert found.optimizer == "own" and found.schedule in ("cosine", "onecycle") and found.lr is not None


# -- refusals ---------------------------------------------------------------------------------------------
def test_refusals() -> None:
    model = bf.bayesify(small(), "ivon")
    with pytest.raises(ValueError, match=r"num_data is missing: it scales the mean loss"):
        model.optimizer()
    with pytest.raises(ValueError, match=r"prior=laplace\(.* must be normal, it is laplace"):
        bf.bayesify(small(), bf.IVON(prior="laplace"))
    with pytest.raises(ValueError, match="kl_weight=0 must be a number above 0"):
        bf.IVON(kl_weight=0)
    with pytest.raises(ValueError, match="sampling='moments'"):
        bf.IVON(sampling="moments")
    for optimizer in ("sgd", lambda params: torch.optim.Adam(params)):
        with pytest.raises(
            ValueError, match="does not train the widths of 'ivon', whose loss is the data term"
        ):
            run(None, 1, optimizer=optimizer, lr=None if callable(optimizer) else 0.1)
    with pytest.raises(ValueError, match="KL warm-up .* changes nothing of 'ivon'"):
        run(None, 1, kl_warmup=1)
    with pytest.raises(TypeError, match="torch.bfloat16 cannot hold"):
        run(None, 1, precision="bf16-true")
    assert isinstance(bf.bayesify(small(), "ivon", num_data=3).optimizer(), VariationalNewton)


def test_a_regression_stays_with_nothing_set() -> None:
    """Steps of the noise are as large as residuals, those of weights as 1 / noise²: both are bounded."""
    ds = bf.data.load("diabetes").with_validation(0.2)
    for seed in (0, 1):
        torch.manual_seed(seed)
        net = bf.nets.make("mlp", num_outputs=1, input_shape=ds.input_shape)
        model = bf.bayesify(net, "ivon", "normal", num_data=len(ds.train))
        train = Loader(ds.train, 128, shuffle=True, seed=seed, normalise=ds.normalisation)
        bf.fit(model, train, progress=False, seed=seed)
        held_out = Loader(ds.val, 128, normalise=ds.normalisation)
        found = bf.evaluate(model, held_out, generator=torch.Generator().manual_seed(0))
        assert found["rmse"] < 1.2  # of standardised targets; it left by factors of thousands
        assert 0.2 < found["std"] / found["rmse"] < 5
