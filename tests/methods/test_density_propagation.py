"""bf.DensityPropagation: one pass gives a predictive distribution; it trains, predicts, is saved and compiled."""

import copy
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bayesify as bf
from bayesify.families.shared_normal import SHARINGS


def small_cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 3)
    )


def mlp(inputs: int = 4, outputs: int = 3, hidden: int = 20) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, outputs))


def blobs(n: int = 120) -> tuple[Tensor, Tensor]:
    y = torch.arange(n) % 3
    centres = torch.tensor([[2.0, 0, 0, 1], [0, 2, 1, 0], [-2, -2, 0, 0]])
    return centres[y] + 0.6 * torch.randn(n, 4), y


def train(model: bf.BayesianModule, x: Any, y: Tensor, steps: int = 150, lr: float = 0.02) -> list[float]:
    optimizer = model.optimizer(lr=lr)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model.loss(x, y)
        loss.total.backward()
        optimizer.step()
        losses.append(loss.total.item())
    return losses


OPTIONS: dict[str, dict[str, Any]] = {
    "default": {},
    "first order": {"activation": "first_order"},
    "per row": {"variance": "row"},
    "per layer": {"variance": "layer"},
    "second order": {"logits": "second_order"},
    "mean logits": {"logits": "mean"},
    "gaussian": {"objective": "gaussian", "var_floor": 0.05},
    "full": {"covariance": "full"},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_every_variant_learns(name: str) -> None:
    x, y = blobs()
    model = bf.bayesify(mlp(), bf.DensityPropagation(kl_weight=0.1, **OPTIONS[name]), num_data=len(x))
    losses = train(model, x, y)
    assert losses[-1] < losses[0]
    prediction = model.predict(x, num_draws=100)
    assert (prediction.label == y).float().mean() > 0.9
    assert prediction.probs.sum(1).allclose(torch.ones(len(x)), atol=1e-5)
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_the_model_returns_moments_and_the_name_makes_the_method() -> None:
    model = bf.bayesify(small_cnn(), "vdp")
    output = model(torch.randn(2, 1, 8, 8))
    assert isinstance(output, bf.Moments)
    assert output.mean.shape == output.var.shape == (2, 3)
    assert (output.var > 0).all()
    assert model.method == bf.DensityPropagation(prior="normal", kl_weight=1.0)


def test_one_pass_whatever_the_number_of_draws() -> None:
    model = bf.bayesify(mlp(), bf.DensityPropagation())
    model(torch.randn(2, 4))
    calls = []
    model.net.register_forward_hook(lambda *_: calls.append(1))
    model.predict(torch.randn(5, 4), num_draws=500)
    assert len(calls) == 1


def test_a_regression_prediction_is_the_moments_themselves() -> None:
    model = bf.bayesify(mlp(4, 1), bf.DensityPropagation(), likelihood=bf.likelihood("normal", std=0.5))
    x = torch.randn(6, 4)
    with torch.no_grad():
        output = model.eval()(x)
    prediction = model.predict(x, num_draws=10)
    torch.testing.assert_close(prediction.mean, output.mean)
    torch.testing.assert_close(prediction.epistemic, output.var)
    torch.testing.assert_close(prediction.variance, output.var + 0.25)


def test_a_heteroscedastic_network_with_two_heads() -> None:
    class Heads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mean, self.log_var = mlp(4, 1), mlp(4, 1)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return self.mean(x), self.log_var(x)

    x = torch.randn(80, 4)
    y = x[:, :1] + 0.1 * torch.randn(80, 1)
    model = bf.bayesify(
        Heads(), bf.DensityPropagation(kl_weight=0.1), likelihood="heteroscedastic", num_data=80
    )
    losses = train(model, x, y)
    assert losses[-1] < losses[0]
    assert model.predict(x, num_draws=20).variance.shape == (80, 1)


def test_training_moves_the_running_statistics_of_batch_norm() -> None:
    model = bf.bayesify(small_cnn(), bf.DensityPropagation(), num_data=32)
    x, y = torch.randn(32, 1, 8, 8), torch.randint(3, (32,))
    before = model.net[1].running_mean.clone()
    train(model, x, y, steps=3)
    assert not torch.equal(model.net[1].running_mean, before)
    assert model.net[1].num_batches_tracked == 3


@pytest.mark.parametrize("variance", SHARINGS)
def test_the_kl_is_that_of_every_weight(variance: str) -> None:
    """½ Σ (σ²/s² + μ²/s² − 1 − log σ²/s²), with the constant that equation 12 lost; biases too."""
    prior = bf.prior("normal", std=0.7)
    model = bf.bayesify(mlp(), bf.DensityPropagation(variance=variance, prior=prior), num_data=10)
    total = 0.0
    for name, q in model.posterior.distributions(list(model.posterior.slots)).items():
        expected = torch.distributions.Normal(
            model.net.get_parameter(name).double(), q.variance.double().sqrt()
        )
        total += (
            torch.distributions.kl_divergence(expected, torch.distributions.Normal(0.0, 0.7)).sum().item()
        )
    assert model.kl().item() == pytest.approx(total, rel=1e-5)
    assert model.loss(*blobs()).kl.item() == pytest.approx(total, rel=1e-5)


@pytest.mark.parametrize(("variance", "numbers"), [("weight", 12 + 3), ("row", 3 + 3), ("layer", 2)])
def test_shared_variances_have_fewer_parameters_and_agree_with_draws(variance: str, numbers: int) -> None:
    net, x = nn.Linear(4, 3), torch.randn(2, 4)
    model = bf.bayesify(net, bf.DensityPropagation(variance=variance, init_std=0.3))
    assert sum(p.numel() for p in model.posterior.parameters()) == numbers
    with torch.no_grad():
        output = model(x)
        draws = torch.stack([model.draw()(x) for _ in range(4000)])
    # 6 outputs, failure rate 1e-6: z = 5.1 standard errors √(2/4000) = 0.114
    assert ((draws.var(0) / output.var - 1).abs() < 0.12).all()


def test_draws_of_the_weights_have_the_propagated_moments() -> None:
    """An MLP at three widths of the posterior: mean error of the std, as in the table of the documents."""
    torch.manual_seed(1)
    net, x = (
        nn.Sequential(nn.Linear(20, 50), nn.ReLU(), nn.Linear(50, 50), nn.ReLU(), nn.Linear(50, 5)),
        torch.randn(8, 20),
    )
    for width, exact_limit in ((0.05, 0.05), (0.1, 0.06), (0.2, 0.08)):
        off = {}
        for activation in ("exact", "first_order"):
            model = bf.bayesify(
                copy.deepcopy(net), bf.DensityPropagation(activation=activation, init_std=width)
            )
            with torch.no_grad():
                output = model(x)
                weights = model.posterior.draw(0, 3000)
                draws = torch.func.vmap(lambda w: torch.func.functional_call(net, w, (x,)))(weights)
            off[activation] = (output.var.sqrt() / draws.std(0) - 1).abs().mean().item()
        assert off["exact"] < exact_limit
        assert off["exact"] < off["first_order"]


def test_a_noisy_input_adds_to_the_variance() -> None:
    model = bf.bayesify(mlp(), bf.DensityPropagation()).eval()
    x = torch.randn(4, 4)
    with torch.no_grad():
        clean, noisy = model(x), model(bf.Moments(x, torch.full_like(x, 0.3)))
    assert (noisy.var > clean.var).all()
    weights, inputs = bf.moments.sources(model, bf.Moments(x, torch.full_like(x, 0.3)))
    torch.testing.assert_close(weights, clean.var)
    torch.testing.assert_close(weights + inputs, noisy.var)
    assert model.predict(bf.Moments(x, torch.full_like(x, 0.3)), num_draws=50).probs.shape == (4, 3)


@pytest.mark.parametrize("name", ["default", "per row", "per layer", "gaussian", "full"])
def test_save_load_and_copy(name: str, tmp_path: Path) -> None:
    net = mlp() if name == "full" else small_cnn()
    x = torch.randn(3, 4) if name == "full" else torch.randn(3, 1, 8, 8)
    model = bf.bayesify(net, bf.DensityPropagation(**OPTIONS[name]), num_data=10).eval()
    bf.save(model, tmp_path / "model.safetensors")
    loaded = bf.load(tmp_path / "model.safetensors", mlp() if name == "full" else small_cnn()).eval()
    with torch.no_grad():
        expected, result, copied = model(x), loaded(x), copy.deepcopy(model)(x)
    assert loaded.method.options() == model.method.options()
    for other in (result, copied):
        assert torch.equal(other.mean, expected.mean) and torch.equal(other.var, expected.var)


@pytest.mark.parametrize("name", ["default", "first order", "per row", "gaussian"])
def test_a_compiled_training_step_trains(name: str) -> None:
    torch._dynamo.reset()
    model = bf.bayesify(small_cnn(), bf.DensityPropagation(**OPTIONS[name]), num_data=16)
    step = torch.compile(model, fullgraph=True, backend="aot_eager")
    x, y = torch.randn(16, 1, 8, 8), torch.randint(3, (16,))
    eager = copy.deepcopy(model).loss(x, y)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        loss = step(x, target=y)
        loss.total.backward()
        optimizer.step()
        losses.append(loss.total.item())
    assert losses[0] == pytest.approx(eager.total.item(), rel=1e-4)
    assert losses[-1] < losses[0]


def test_an_ensemble_of_propagated_networks() -> None:
    x, y = blobs()
    model = bf.bayesify(mlp(), bf.DeepEnsemble(bf.DensityPropagation(kl_weight=0.1), 3), num_data=len(x))
    losses = train(model, x, y, steps=80)
    assert losses[-1] < losses[0]
    assert (model.predict(x, num_draws=30).label == y).float().mean() > 0.9


def test_it_exports() -> None:
    model = bf.bayesify(small_cnn(), bf.DensityPropagation(covariance="diagonal")).eval()
    x = torch.randn(2, 1, 8, 8)
    with torch.no_grad():
        expected = model(x)
        program = torch.export.export(model, (x,))
        result = program.module()(x)
    torch.testing.assert_close(result.mean, expected.mean, rtol=0, atol=1e-5)
    torch.testing.assert_close(result.var, expected.var, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"covariance": "banded"}, "covariance"),
        ({"objective": "mse"}, "objective"),
        ({"activation": "second"}, "activation"),
        ({"variance": "channel"}, "variance"),
        ({"logits": "median"}, "logits"),
        ({"norm": "none"}, "norm"),
        ({"init_std": 0.0}, "init_std=0.0 must be a number above 0"),
        ({"var_floor": -1.0}, "var_floor=-1.0 must be a number above 0"),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        bf.DensityPropagation(**options)


def test_the_starting_std_is_a_fraction_of_each_tensor() -> None:
    model = bf.bayesify(mlp(), bf.DensityPropagation(init_std=0.1))
    for name, q in model.posterior.distributions(list(model.posterior.slots)).items():
        rms = model.net.get_parameter(name).square().mean().sqrt()
        torch.testing.assert_close(q.variance, torch.full_like(q.variance, (0.1 * rms.item()) ** 2))
    assert math.isfinite(model.kl().item())
