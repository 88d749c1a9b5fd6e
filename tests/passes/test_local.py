"""Local reparameterization and flipout: the law of one example's output, for every linear operation.

With independent normal weights an output y = J w + c is exactly normal, with mean J E w + c and variance
J² Var w; J is the layer's Jacobian in its weights, by autograd. So the mean of n outputs is normal and the
sum of their squared deviations is χ² with n degrees of freedom: the tolerances are quantiles of those laws
at a failure rate of 1e-6 per test, shared among its entries.
"""

import math
from collections.abc import Callable

import pytest
import torch
from scipy import stats
from torch import Tensor, nn

import bayesify as bf

FAILURE_RATE = 1e-6
NUM_LOCAL = 4000  # copies of one example in one batch
NUM_FLIPOUT = 2000  # calls
NUM_WEIGHTS = 2000  # sampled weights in the brute-force reference

#: name -> (layer, shape of one example)
LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "linear": (lambda: nn.Linear(5, 3), (5,)),
    "linear without bias": (lambda: nn.Linear(5, 3, bias=False), (5,)),
    "linear on tokens": (lambda: nn.Linear(4, 2), (3, 4)),
    "linear on a grid": (lambda: nn.Linear(3, 2), (2, 2, 3)),
    "conv1d": (lambda: nn.Conv1d(4, 4, 3, stride=2, padding=1, dilation=2, groups=2), (4, 9)),
    "conv2d": (lambda: nn.Conv2d(4, 2, (3, 2), stride=(2, 1), padding=(1, 0), groups=2), (4, 5, 4)),
    "conv2d dilated": (lambda: nn.Conv2d(2, 3, 2, dilation=(2, 1), padding="same"), (2, 4, 4)),
    "conv2d reflect": (lambda: nn.Conv2d(2, 2, 3, padding=1, padding_mode="reflect"), (2, 4, 3)),
    "conv2d circular": (
        lambda: nn.Conv2d(2, 2, 3, padding=1, padding_mode="circular", bias=False),
        (2, 3, 3),
    ),
    "conv3d": (lambda: nn.Conv3d(2, 2, 2, stride=2, padding=1, groups=2), (2, 3, 3, 2)),
    "conv_transpose1d": (
        lambda: nn.ConvTranspose1d(4, 4, 3, stride=2, padding=1, output_padding=1, groups=2, dilation=2),
        (4, 3),
    ),
    "conv_transpose2d": (lambda: nn.ConvTranspose2d(2, 3, (3, 2), stride=(1, 2), padding=1), (2, 3, 3)),
    "conv_transpose3d": (lambda: nn.ConvTranspose3d(2, 2, 2, stride=2, bias=False), (2, 2, 2, 2)),
}
EVERY_LAYER = pytest.mark.parametrize("name", LAYERS)


def make(
    name: str, sampling: str, where: bf.weights.where.Where = bf.where.all
) -> tuple[bf.BayesianModule, Tensor]:
    """A layer with a different variance for every weight, and one example."""
    torch.manual_seed(0)
    build, shape = LAYERS[name]
    method = bf.MonteCarloVI(sampling=sampling, where=where)
    model = bf.bayesify(build().double(), method, bf.likelihood("normal", std=1.0), num_data=1)
    with torch.no_grad():
        for parameter in model.posterior.parameters():
            parameter.copy_(-1 + 0.5 * torch.randn_like(parameter))
    return model, torch.randn(shape, dtype=torch.float64)


def exact_moments(model: bf.BayesianModule, x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance of the output for one example, by the Jacobian in the weights."""
    names = list(model.posterior.slots)
    q = model.posterior.distributions(names)
    means = {name: q[name].mean.detach() for name in names}

    def output(weights: dict[str, Tensor]) -> Tensor:
        return torch.func.functional_call(model.net, weights, (x[None],))[0]

    mean = output(means).detach()
    jacobians = torch.func.jacrev(output)(means)
    var = torch.zeros_like(mean)
    for name in names:
        squares = jacobians[name].detach().square() * q[name].variance.detach()
        var += squares.flatten(mean.dim()).sum(-1)
    return mean, var


def brute_force(model: bf.BayesianModule, x: Tensor) -> Tensor:
    """Outputs for one example with sampled weights: (draws, *output)."""
    weights = {}
    for name, q in model.posterior.distributions(list(model.posterior.slots)).items():
        noise = torch.randn(NUM_WEIGHTS, *q.mean.shape, dtype=torch.float64)
        weights[name] = (q.mean + q.variance.sqrt() * noise).detach()
    rows = [{name: value[i] for name, value in weights.items()} for i in range(NUM_WEIGHTS)]
    return torch.stack([torch.func.functional_call(model.net, row, (x[None],))[0] for row in rows]).detach()


def assert_normal(outputs: Tensor, mean: Tensor, var: Tensor) -> None:
    """The rows of `outputs` are independent N(mean, var)."""
    num = len(outputs)
    rate = FAILURE_RATE / 2 / mean.numel()  # half for the means, half for the variances
    random = var > 0  # a transposed convolution without bias leaves some positions empty
    torch.testing.assert_close(outputs[:, ~random], mean[~random].expand(num, -1), rtol=0, atol=1e-6)
    deviations = ((outputs - mean) / var.sqrt())[:, random]
    assert deviations.mean(0).abs().max() < stats.norm.isf(rate / 2) / math.sqrt(num)
    squares = deviations.square().sum(0)
    assert squares.min() > stats.chi2.ppf(rate / 2, num)
    assert squares.max() < stats.chi2.isf(rate / 2, num)


def assert_same_law(a: Tensor, b: Tensor, var: Tensor) -> None:
    """Two samples of the same normal: the difference of means is normal, the ratio of variances is F."""
    random = var > 0
    rate = FAILURE_RATE / 2 / int(random.sum())
    a, b, var = a[:, random], b[:, random], var[random]
    std = (var * (1 / len(a) + 1 / len(b))).sqrt()
    assert ((a.mean(0) - b.mean(0)).abs() / std).max() < stats.norm.isf(rate / 2)
    ratio = a.var(0) / b.var(0)
    assert ratio.min() > stats.f.ppf(rate / 2, len(a) - 1, len(b) - 1)
    assert ratio.max() < stats.f.isf(rate / 2, len(a) - 1, len(b) - 1)


@torch.no_grad()
def local_outputs(model: bf.BayesianModule, x: Tensor) -> Tensor:
    """Outputs for many copies of one example in one batch: independent if the pass is right."""
    return model(x.expand(NUM_LOCAL, *x.shape).contiguous())


@torch.no_grad()
def flipout_outputs(model: bf.BayesianModule, batch: Tensor) -> Tensor:
    """(calls, batch, *output)."""
    return torch.stack([model(batch) for _ in range(NUM_FLIPOUT)])


@EVERY_LAYER
def test_local_outputs_have_the_exact_moments(name: str) -> None:
    model, x = make(name, "local")
    assert_normal(local_outputs(model, x), *exact_moments(model, x))


@pytest.mark.parametrize("name", ["linear", "conv2d", "conv_transpose1d"])
@pytest.mark.parametrize("sampling", ["local", "flipout"])
def test_a_deterministic_bias_adds_no_noise(name: str, sampling: str) -> None:
    model, x = make(name, sampling, bf.where.matching("weight"))
    outputs = local_outputs(model, x) if sampling == "local" else flipout_outputs(model, x[None])[:, 0]
    assert_normal(outputs, *exact_moments(model, x))


@pytest.mark.parametrize("sampling", ["local", "flipout"])
def test_a_random_bias_alone_gives_its_own_noise(sampling: str) -> None:
    model, x = make("linear", sampling, bf.where.matching("bias"))
    with torch.no_grad():
        outputs = torch.stack([model(x[None])[0] for _ in range(NUM_FLIPOUT)])
    assert_normal(outputs, *exact_moments(model, x))


@EVERY_LAYER
def test_flipout_outputs_have_the_exact_moments(name: str) -> None:
    model, x = make(name, "flipout")
    batch = torch.stack([x, torch.randn_like(x)])
    outputs = flipout_outputs(model, batch)
    for i, example in enumerate(batch):
        assert_normal(outputs[:, i], *exact_moments(model, example))


@pytest.mark.parametrize(
    "name", ["linear", "linear on tokens", "conv1d", "conv2d reflect", "conv_transpose2d"]
)
def test_local_and_flipout_agree_with_sampled_weights(name: str) -> None:
    model, x = make(name, "local")
    reference, (_, var) = brute_force(model, x), exact_moments(model, x)
    assert_same_law(local_outputs(model, x), reference, var)
    model, x = make(name, "flipout")
    assert_same_law(flipout_outputs(model, x[None])[:, 0], reference, var)


@pytest.mark.parametrize("name", ["linear", "conv1d", "conv2d reflect", "conv3d", "conv_transpose2d"])
@pytest.mark.parametrize("sampling", ["local", "flipout"])
def test_unbatched_inputs_have_the_exact_moments(name: str, sampling: str) -> None:
    model, x = make(name, sampling)
    with torch.no_grad():
        outputs = torch.stack([model(x) for _ in range(NUM_FLIPOUT)])
    assert outputs.dim() == x.dim() + 1
    assert_normal(outputs, *exact_moments(model, x))


@pytest.mark.parametrize("name", ["linear", "linear on tokens", "conv2d", "conv_transpose1d"])
@pytest.mark.parametrize("sampling", ["local", "flipout"])
def test_examples_of_a_batch_are_uncorrelated(name: str, sampling: str) -> None:
    """The product of two equal examples' unit noises has mean 0. Given the weight draw that flipout
    shares, both are independent with the same variance c, so the product's variance is E c² ≤ 3."""
    model, x = make(name, sampling)
    mean, var = exact_moments(model, x)
    noise = (flipout_outputs(model, torch.stack([x, x])) - mean)[..., var > 0] / var[var > 0].sqrt()
    z = stats.norm.isf(FAILURE_RATE / 2 / noise.shape[-1])
    assert (noise[:, 0] * noise[:, 1]).mean(0).abs().max() < z * math.sqrt(3 / NUM_FLIPOUT)


@pytest.mark.parametrize("name", ["linear", "linear on tokens", "conv2d", "conv_transpose1d"])
def test_in_a_draw_pass_equal_examples_get_equal_outputs(name: str) -> None:
    model, x = make(name, "draw")
    with torch.no_grad():
        first, second = model(torch.stack([x, x]))
    torch.testing.assert_close(first, second, rtol=0, atol=1e-12)


def test_tokens_of_one_example_share_flipout_noise_but_not_local_noise() -> None:
    x = torch.ones(2, 3, 4, dtype=torch.float64)  # (batch, tokens, features), all tokens equal
    flipout = make("linear on tokens", "flipout")[0](x)
    torch.testing.assert_close(flipout, flipout[:, :1].expand_as(flipout))
    assert not torch.allclose(flipout[0], flipout[1])
    local = make("linear on tokens", "local")[0](x)
    assert not torch.allclose(local[:, 0], local[:, 1])


def test_flipout_signs_differ_between_the_outputs_of_an_example() -> None:
    """With one active feature, whether two examples agree in sign is a coin for every output of its own."""
    model, x = make("linear without bias", "flipout")
    x = torch.zeros_like(x).index_fill(0, torch.tensor(0), 1.0)
    noise = flipout_outputs(model, torch.stack([x, x])) - exact_moments(model, x)[0]
    agree = (noise[:, 0] * noise[:, 1]).sign()  # (calls, outputs)
    pairs = torch.stack([agree[:, 0] * agree[:, 1], agree[:, 0] * agree[:, 2], agree[:, 1] * agree[:, 2]])
    assert pairs.mean(1).abs().max() < stats.norm.isf(FAILURE_RATE / 2 / 3) / math.sqrt(NUM_FLIPOUT)


def test_flipout_signs_differ_between_the_inputs_of_an_example() -> None:
    """Else two equal examples would have noise of the same size."""
    model, x = make("linear without bias", "flipout")
    noise = flipout_outputs(model, torch.stack([x, x])) - exact_moments(model, x)[0]
    same_size = torch.isclose(noise[:, 0].abs(), noise[:, 1].abs(), rtol=1e-9).double().mean(0)
    chance = 2 / 2**5  # all five signs equal, or all opposite
    z = stats.norm.isf(FAILURE_RATE / 2 / 3)
    assert (same_size - chance).abs().max() < z * math.sqrt(chance * (1 - chance) / NUM_FLIPOUT)


@pytest.mark.parametrize("sampling", ["local", "flipout"])
def test_the_gradient_of_the_output_variance_is_that_of_the_closed_form(sampling: str) -> None:
    """E (y − E y)² = Σ x² exp(2 log_scale): the mean pathwise gradient is 2 x² exp(2 log_scale)."""
    model, x = make("linear without bias", sampling)
    log_scale = model.posterior.q.get_submodule("weight").log_scale
    mean = model.net(x[None]).detach()
    gradients = torch.stack(
        [torch.autograd.grad((model(x[None]) - mean).square().sum(), log_scale)[0] for _ in range(1000)]
    )
    expected = 2 * x.square() * (2 * log_scale.detach()).exp()
    z = stats.norm.isf(FAILURE_RATE / 2 / expected.numel())
    assert ((gradients.mean(0) - expected).abs() <= z * gradients.std(0) / math.sqrt(1000)).all()


@pytest.mark.parametrize("sampling", ["draw", "local", "flipout"])
def test_a_generator_makes_the_pass_reproducible(sampling: str) -> None:
    model, x = make("conv2d", sampling)
    model(x[None])  # the first call also watches the network
    state = torch.get_rng_state()
    first = model(x[None], generator=torch.Generator().manual_seed(1))
    assert torch.equal(first, model(x[None], generator=torch.Generator().manual_seed(1)))
    assert not torch.equal(first, model(x[None], generator=torch.Generator().manual_seed(2)))
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_an_input_of_zeros_has_finite_gradients(dtype: torch.dtype) -> None:
    """There the output has no variance, where the square root has no gradient."""
    method = bf.MonteCarloVI(sampling="local", where=bf.where.all)
    model = bf.bayesify(
        nn.Linear(3, 2, bias=False).to(dtype), method, bf.likelihood("normal", std=1.0), num_data=1
    )
    model(torch.zeros(2, 3, dtype=dtype)).sum().backward()
    assert all(bool(torch.isfinite(p.grad).all()) for p in model.parameters() if p.grad is not None)
