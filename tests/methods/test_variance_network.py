"""bf.VarianceNetwork: local reparameterization, what becomes random, files, swaps, inference modes, training."""

import copy
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from scipy import integrate, special
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

import bayesify as bf
from bayesify.methods.variance_network import NOISES, PARAMETERIZATIONS
from bayesify.nets.parts import Abs
from bayesify.studies.diagnostics.variance import log_alpha

LAYERS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "linear": (lambda: nn.Linear(7, 4), (7,)),
    "conv1d": (lambda: nn.Conv1d(3, 4, 3, padding=1), (3, 6)),
    "conv2d": (lambda: nn.Conv2d(4, 6, 3, stride=2, groups=2), (4, 7, 7)),
    "conv3d": (lambda: nn.Conv3d(2, 3, 2), (2, 4, 4, 4)),
    "conv_transpose1d": (lambda: nn.ConvTranspose1d(4, 6, 3, groups=2), (4, 5)),
    "conv_transpose2d": (lambda: nn.ConvTranspose2d(3, 4, 3, stride=2), (3, 4, 4)),
    "conv_transpose3d": (lambda: nn.ConvTranspose3d(2, 3, 2), (2, 3, 3, 3)),
}


def exact_kl(log_alpha: float) -> float:
    """2 ∫₀^{√u} of Dawson's function, u = 1/(2α)."""
    return integrate.quad(lambda s: 2 * special.dawsn(s), 0, math.sqrt(0.5 * math.exp(-log_alpha)))[0]


def mlp(num_inputs: int = 64, num_outputs: int = 10) -> nn.Sequential:
    hidden = (nn.Linear(num_inputs, 100), nn.BatchNorm1d(100), nn.ReLU())
    return nn.Sequential(*hidden, nn.Linear(100, num_outputs))


def model_of(net: nn.Module, **options: Any) -> bf.BayesianModule:
    return bf.bayesify(net, bf.VarianceNetwork(**options), num_data=100)


FAILURE_RATE = 1e-6  # of one test
NOISE_OPTIONS: dict[str, dict[str, Any]] = {
    **{name: {"parameterization": name, "init_log_alpha": 0.5} for name in PARAMETERIZATIONS},
    **{name: {"parameterization": "zero_mean", "noise": name} for name in NOISES if name != "normal"},
}


def assert_moments(outputs: Tensor, mean: Tensor, var: Tensor, num_compared: int) -> None:
    """The rows of `outputs` are independent, of this mean and variance, the law of y = Σ w x entry by entry.

    Normal, uniform and ±σ weights have E e^{s(w − E w)} ≤ e^{s² Var w/2} and a fourth moment of 3 Var² at most, and
    so have their sums y. With z = (y − E y)/√Var y over n rows, each event has probability e^{−ℓ} at most where

        |mean z| > √(2(ℓ + log 2)/n),   mean z² > 1 + 2√(ℓ/n) + 2ℓ/n,   mean z² < 1 − √(6ℓ/n)

    (Chernoff; E e^{s z²} ≤ (1 − 2s)^{−½} above, E e^{−s z²} ≤ e^{−s + 3s²/2} below).
    """
    n = len(outputs)
    logs = math.log(3 * num_compared * mean.numel() / FAILURE_RATE)  # ℓ: three events for each entry
    z = (outputs - mean) / var.sqrt()
    assert z.mean(0).abs().max() <= math.sqrt(2 * (logs + math.log(2)) / n)
    squares = z.square().mean(0)
    assert squares.max() <= 1 + 2 * math.sqrt(logs / n) + 2 * logs / n
    assert squares.min() >= 1 - math.sqrt(6 * logs / n)


@pytest.mark.parametrize("noise", NOISE_OPTIONS)
@pytest.mark.parametrize("layer", LAYERS)
def test_local_outputs_have_the_moments_of_drawn_weights(layer: str, noise: str) -> None:
    """Passes and drawn weights against E y = E w·x + b, Var y = Var w·x². Flipout shares a draw among the examples of
    a batch: there every call has one example."""
    make, shape = LAYERS[layer]
    torch.manual_seed(1)
    model = model_of(make().double(), where=bf.where.all, **NOISE_OPTIONS[noise])
    x = torch.randn(1, *shape, dtype=torch.float64)
    q = model.posterior.distributions(["weight"])["weight"]
    generator = torch.Generator().manual_seed(0)

    def run(values: dict[str, Tensor], inputs: Tensor) -> Tensor:
        return torch.func.functional_call(model.net, values, (inputs,))[0]

    with torch.no_grad():
        mean = run({"weight": q.mean}, x)
        var = run({"weight": q.variance, "bias": torch.zeros_like(model.net.bias)}, x.square())
        if model.posterior.sampling == "flipout":
            passes = torch.cat([model(x, generator=generator) for _ in range(2_000)])
        else:
            passes = model(x.expand(6_000, *shape), generator=generator)
        weights = model.posterior.draw(0, 6_000, generator)["weight"]
        drawn = torch.func.vmap(lambda w: run({"weight": w}, x))(weights)
    for outputs in (passes, drawn):
        assert_moments(outputs, mean, var, num_compared=2)


@pytest.mark.parametrize("noise", ["normal", "uniform", "bernoulli"])
@pytest.mark.parametrize("layer", LAYERS)
def test_zero_mean_layers_multiply_once(layer: str, noise: str) -> None:
    """As many multiplications as the plain layer: the product of the means, which are zero, is left out."""
    make, shape = LAYERS[layer]
    options = {"parameterization": "zero_mean", "where": bf.where.all, "noise": noise}
    x = torch.randn(2, *shape)
    counts = []
    for module in (make(), model_of(make(), **options), model_of(make(), where=bf.where.all)):
        module(x)  # the first call looks which weights are used
        with FlopCounterMode(display=False) as counter:
            module(x)
        counts.append(counter.get_total_flops())
    assert counts == [counts[0], counts[0], 2 * counts[0]]


@pytest.mark.parametrize("biases", [False, True])
@pytest.mark.parametrize("layer", ["linear", "conv2d", "conv_transpose3d"])
def test_zero_mean_outputs_are_the_bias_and_noise(layer: str, biases: bool) -> None:
    """y = b + √(σ²·x²) ξ; for a random bias of mean zero y = √(σ²·x² + b²) ξ."""
    make, shape = LAYERS[layer]
    module = make().double()
    model = model_of(copy.deepcopy(module), parameterization="zero_mean", where=bf.where.all, biases=biases)
    x = torch.randn(3, *shape, dtype=torch.float64)
    y = model(x, generator=torch.Generator().manual_seed(0))
    noise = torch.randn(y.shape, dtype=y.dtype, generator=torch.Generator().manual_seed(0))
    square = copy.deepcopy(module)
    with torch.no_grad():
        square.weight.square_()
        square.bias.square_().mul_(float(biases))
    shift = module.bias.view(-1, *(1,) * (len(shape) - 1)) * (not biases)
    torch.testing.assert_close(y, shift + square(x.square()).sqrt() * noise)


def test_parameterizations_with_one_alpha_give_the_same_outputs() -> None:
    net = nn.Linear(5, 3)
    outputs = []
    for parameterization in ("layer", "neuron", "weight", "additive"):
        model = model_of(copy.deepcopy(net), parameterization=parameterization, init_log_alpha=-1.0)
        if parameterization == "additive":
            with torch.no_grad():
                leaf = model.posterior.random_tensor("weight")
                leaf.log_std.copy_(-0.5 + net.weight.abs().log())
        outputs.append(model(torch.ones(4, 5), generator=torch.Generator().manual_seed(3)))
        assert float(model.kl().detach()) == pytest.approx(15 * exact_kl(-1.0), rel=1e-5)
    for output in outputs[1:]:
        torch.testing.assert_close(output, outputs[0])


def test_after_a_swap_the_zero_mean_model_is_the_same() -> None:
    """N(0, α μ²) by the swap and by σ = √α μ."""
    net = nn.Linear(5, 3)
    swapped = model_of(copy.deepcopy(net), init_log_alpha=2.0)
    assert bf.zero_mean(swapped) == ["weight"]
    scaled = copy.deepcopy(net)
    with torch.no_grad():
        scaled.weight.mul_(math.e)
    zero = model_of(scaled, parameterization="zero_mean", where=bf.where.all)
    x = torch.randn(4, 5)
    outputs = [m(x, generator=torch.Generator().manual_seed(3)) for m in (swapped, zero)]
    torch.testing.assert_close(*outputs)
    assert float(swapped.kl().detach()) == float(zero.kl().detach()) == 0
    assert (swapped.mean_net().weight == 0).all()


def test_what_becomes_random() -> None:
    names = {
        "layer": ["0.weight", "3.weight"],
        "zero_mean": ["0.weight"],  # not the output layer, whose outputs would be mere noise
    }
    for parameterization, expected in names.items():
        model = model_of(mlp(), parameterization=parameterization)
        assert [w.name for w in model.selection.random] == expected
    with_biases = model_of(mlp(), where=bf.where.matching("^0"), biases=True)
    assert [w.name for w in with_biases.selection.random] == ["0.weight", "0.bias"]
    decided = model_of(mlp()).method
    assert (str(decided.where), decided.kl_weight) == ("(linear | conv)", 1.0)
    assert decided.decided(where=None, kl_weight=None) == bf.VarianceNetwork()
    assert bf.bayesify(mlp(), "variance").method.name == "variance"


@pytest.mark.parametrize("layer", ["conv_transpose1d", "conv_transpose2d"])
def test_neurons_of_transposed_convolutions(layer: str) -> None:
    net = LAYERS[layer][0]()
    model = model_of(net, parameterization="neuron")
    assert model.posterior.random_tensor("weight").log_alpha.numel() == net.out_channels


def test_log_alpha_starts_moves_and_has_its_own_learning_rate() -> None:
    model = model_of(mlp(), log_alpha_lr=10.0)
    assert all((a == -5).all() for a in log_alpha(model).values())
    groups = model.optimizer(lr=0.01).param_groups
    assert [(len(g["params"]), g["lr"]) for g in groups] == [(6, 0.01), (2, 0.1)]
    optimizer = model.optimizer(lr=0.01)
    model.loss(torch.randn(8, 64), torch.randint(10, (8,))).total.backward()
    optimizer.step()
    assert all((a > -5).all() for a in log_alpha(model).values())  # the KL drives α up


def test_the_optimiser_forgets_the_first_gradients_of_log_alpha() -> None:
    """600 steps on the KL alone, whose gradient falls as 1/α: with Adam's own memory log α stays far behind."""
    ends = {}
    for betas in ({}, {"betas": (0.9, 0.999)}):
        model = model_of(nn.Linear(20, 10), log_alpha_lr=30.0)
        optimizer = model.optimizer(lr=1e-3, **betas)
        assert optimizer.param_groups[0]["betas"] == (0.9, 0.999)
        for _ in range(600):
            optimizer.zero_grad()
            model.kl().backward()
            optimizer.step()
        ends[len(betas)] = float(log_alpha(model)["weight"].mean())
    assert ends[0] > 6 and ends[1] < 3, ends


@pytest.mark.parametrize("parameterization", PARAMETERIZATIONS)
def test_files_keep_everything(parameterization: str, tmp_path: Path) -> None:
    model = model_of(mlp(), parameterization=parameterization, prior="student_t")
    if parameterization != "zero_mean":
        bf.zero_mean(model, bf.where.matching("^0"))
    bf.save(model, tmp_path / "m.safetensors")
    loaded = bf.load(tmp_path / "m.safetensors", mlp())
    x = torch.randn(3, 64)
    a, b = (m.predict(x, 3, generator=torch.Generator().manual_seed(0)).probs for m in (model, loaded))
    torch.testing.assert_close(a, b)
    assert loaded.method.options() == model.method.options()


@pytest.mark.parametrize("noise", ["normal", "uniform", "bernoulli"])
def test_other_noises(noise: str) -> None:
    model = model_of(mlp(), parameterization="zero_mean", noise=noise)
    loss = model.loss(torch.randn(8, 64), torch.randint(10, (8,)))
    loss.total.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
    assert model.posterior.sampling == ("local" if noise == "normal" else "flipout")
    assert (model.mean_net()[0].weight == 0).all()


@pytest.mark.parametrize(("backend", "prior"), [("aot_eager", "log_uniform"), ("eager", "student_t")])
def test_the_whole_step_traces_in_one_graph(backend: str, prior: str) -> None:
    torch.compiler.reset()
    model = model_of(nn.Linear(6, 3), prior=prior)
    compiled = torch.compile(model, backend=backend, fullgraph=True)
    loss = compiled(torch.randn(8, 6), target=torch.randint(3, (8,)))
    loss.total.backward()
    assert all(p.grad is not None for p in model.parameters())
    assert float(loss.kl.detach()) == pytest.approx(float(model.kl().detach()), rel=1e-5)


def test_ensembles_of_variance_networks() -> None:
    method = bf.DeepEnsemble(bf.VarianceNetwork(parameterization="zero_mean"), num_members=2)
    model = bf.bayesify(mlp(), method, num_data=100)
    model.loss(torch.randn(8, 64), torch.randint(10, (8,))).total.backward()
    assert model.predict(torch.randn(3, 64), 4).num_draws == 4
    assert model.posterior.predicts_by_pass


# -- training ----------------------------------------------------------------------------------------------
def digits(part: slice) -> list[tuple[Tensor, Tensor]]:
    data = load_digits()
    x = torch.tensor(data.data[part] / 16, dtype=torch.float32)
    return list(zip(x.split(100), torch.tensor(data.target[part]).split(100), strict=True))


def test_a_zero_mean_network_knows_its_classes_by_variance_alone() -> None:
    """Digits: the mean network guesses (about 10 %), the ensemble is right for 88 to 90 % over seeds."""
    net = mlp()
    net[2] = Abs()
    model = bf.bayesify(net, bf.VarianceNetwork(parameterization="zero_mean"), num_data=1400)
    optimizer = model.optimizer(lr=1e-2)
    for _ in range(15):
        for x, y in digits(slice(0, 1400)):
            optimizer.zero_grad()
            model.loss(x, y).total.backward()
            optimizer.step()
    modes = bf.inference_modes(model, digits(slice(1400, 1797)), num_draws=20)
    assert modes["deterministic"]["accuracy"] < 0.2
    assert modes["ensemble"]["accuracy"] > 0.85
    assert modes["ensemble"]["accuracy"] >= modes["stochastic"]["accuracy"]
    assert set(modes) == {"deterministic", "stochastic", "ensemble"}
    assert "nll" in modes["stochastic"]
