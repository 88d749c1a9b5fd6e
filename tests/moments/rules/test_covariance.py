"""Full covariance propagation against Monte Carlo with correlations, and against the diagonal method."""

import copy
import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from propagation import Lambda, assert_moments_of, propagate, random_moments
from torch import Tensor, nn

import bayesify as bf
from bayesify.moments import Gaussian
from bayesify.moments.rules import covariance

NUM_DRAWS = 40_000


def small_cnn() -> nn.Module:
    net = nn.Sequential(
        nn.Conv2d(2, 3, 3, padding=1),
        nn.BatchNorm2d(3),
        nn.Tanh(),
        nn.MaxPool2d(2),
        nn.Conv2d(3, 4, 2, groups=1),
        nn.ReLU(),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(4, 3),
        nn.Softmax(-1),
    ).double()
    with torch.no_grad():
        net[1].running_var.uniform_(0.5, 1.5)
    return net.eval()


def model_of(net: nn.Module, std: float, **options: object) -> bf.BayesianModule:
    model = bf.bayesify(copy.deepcopy(net), bf.DensityPropagation(**options), num_data=10)  # type: ignore[arg-type]
    with torch.no_grad():
        for parameter in model.posterior.parameters():
            parameter.fill_(math.log(std))
    return model


def draws_of(net: nn.Module, x: Tensor, std: float) -> Tensor:
    centre = {n: p.detach() for n, p in net.named_parameters()}
    random = [n for n in centre if not n.startswith("1.")]  # batch norm stays as it is

    def output(*noise: Tensor) -> Tensor:
        weights = {n: centre[n] + std * e for n, e in zip(random, noise, strict=True)}
        return torch.func.functional_call(net, weights, (x,))

    noise = [torch.randn(NUM_DRAWS, *centre[n].shape, dtype=torch.float64) for n in random]
    return torch.func.vmap(output, chunk_size=4000)(*noise).detach()


def test_a_small_cnn_has_the_covariance_of_monte_carlo() -> None:
    """Std 0.005: what first order leaves out is below 1 %, Monte Carlo's own error is √(2/40000) = 0.7 % per entry.
    The diagonal method neglects what positions share, and is off by far more."""
    net, x = small_cnn(), torch.randn(2, 2, 6, 6).double()
    draws = draws_of(net, x, 0.005)
    centred = draws - draws.mean(0)
    expected = torch.einsum("sbi,sbj->bij", centred, centred) / NUM_DRAWS
    full = model_of(net, 0.005, covariance="full", activation="first_order")(x)
    assert full.cov is not None
    assert (full.cov - expected).norm() < 0.03 * expected.norm()
    diagonal = model_of(net, 0.005, covariance="diagonal")(x)
    off = expected.diagonal(dim1=1, dim2=2)
    assert (full.var / off - 1).abs().max() < 0.05
    assert (diagonal.var / off - 1).abs().max() > 0.1
    torch.testing.assert_close(full.mean, net(x).detach())


class Residual(nn.Module):
    """Two blocks, the second with a shortcut of its own: x + F(x) and P(z) − G(z), and a sum across both."""

    def __init__(self, activation: Any) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(5))
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        first, inner, shortcut, other, last = self.layers
        x = self.activation(first(x))
        z = x + 0.5 * self.activation(inner(x))
        z = shortcut(z) - self.activation(other(z))
        z += x
        return last(1 - z)


def spread(net: nn.Module, x: Tensor, std: float) -> tuple[Tensor, Tensor]:
    """Mean and covariance over draws of all weights."""
    draws = draws_of(net, x, std)
    centred = draws - draws.mean(0)
    return draws.mean(0), torch.einsum("sbi,sbj->bij", centred, centred) / (NUM_DRAWS - 1)


@pytest.mark.parametrize("activation", [F.relu, F.gelu, torch.tanh, F.leaky_relu, torch.abs])
def test_residual_sums_have_the_covariance_of_monte_carlo(activation: Any) -> None:
    """Widths of .01, 40,000 draws: 5 standard errors √(2/40000) are 3.5 % of a variance, and as much of √(v v′) for a
    covariance; 1.5 % for what is not linear. With sums of independent terms it would be off by tens of per cent."""
    torch.manual_seed(1)
    net, x = Residual(activation).double(), torch.randn(2, 4).double()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter *= 2  # so that the last layer's own noise does not cover up the others
    _, expected = spread(net, x, 0.01)
    full = model_of(net, 0.01, covariance="full")(x)
    scale = expected.diagonal(dim1=1, dim2=2).sqrt()
    assert full.cov is not None
    off = (full.cov - expected).abs() / (scale[:, :, None] * scale[:, None, :])
    assert off.max() < 0.05
    with_sums = model_of(net, 0.01, covariance="diagonal")(x)
    assert (with_sums.var / scale.square()).log().abs().max() > 0.2


def test_residual_sums_compile() -> None:
    torch.manual_seed(1)
    model, x = model_of(Residual(F.relu).double(), 0.1, covariance="full"), torch.randn(2, 4).double()
    with torch.no_grad():
        compiled = torch.compile(model, fullgraph=True, backend="aot_eager")(x)
        torch.testing.assert_close(compiled.cov, model(x).cov)


def test_wide_posteriors_have_exact_means_gates_and_remainders() -> None:
    """Behind a relu whose inputs change sign from draw to draw. 40,000 draws: 5 standard errors are 3.5 % of a
    variance and 2.5 % of a std; to first order variances are off by far more."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3)).double()
    x = torch.randn(3, 4).double()
    mean, expected = spread(net, x, 0.5)
    var = expected.diagonal(dim1=1, dim2=2)
    full = model_of(net, 0.5, covariance="full")(x)
    assert (full.var / var - 1).abs().max() < 0.035
    assert ((full.mean - mean).square() / var).max() < 0.025**2
    first = model_of(net, 0.5, covariance="full", activation="first_order")(x)
    assert (first.var / var - 1).abs().max() > 0.1
    torch.testing.assert_close(first.mean, net(x).detach())


@pytest.mark.parametrize("function", [F.relu, F.leaky_relu, F.gelu, torch.exp, torch.square, torch.abs])
def test_gated_activations_have_the_moments_of_correlated_normal_inputs(function: Any) -> None:
    """Exact on the diagonal. Off it the next term of the series, ½ E f″ E f″ Cov², is left out: .05 correlation."""
    root = torch.tensor([[0.6, 0.0], [0.03, 0.6]]).double()
    x = Gaussian(torch.tensor([[0.3, -0.2]]).double(), (root @ root.T)[None])
    draws = function(x.mean + torch.randn(400_000, 2).double() @ root.T)
    found = covariance.FORMS["full_exact"][function](x)
    assert_moments_of(draws, bf.Moments(found.mean[0], found.var[0]))
    scale = found.var[0].prod().sqrt()
    assert abs(found.cov[0, 0, 1] - torch.cov(draws.T)[0, 1]) / scale < 5 / 400_000**0.5 + 0.05**2
    first = covariance.FORMS["full"][function](x)
    torch.testing.assert_close(first.mean, function(x.mean))


@pytest.mark.parametrize("function", [torch.add, torch.mul])
def test_operands_it_cannot_hold_are_refused_by_name(function: Any) -> None:
    net = nn.Sequential(nn.Linear(3, 3), Lambda(lambda x: function(x, function(x, x[:, :1]))))
    with pytest.raises(NotImplementedError, match=r"no rule for 'torch.Tensor.__getitem__'"):
        model_of(net, 0.1, covariance="full")(torch.randn(2, 3))
    x = Gaussian(torch.ones(2, 3), torch.eye(3).expand(2, 3, 3))
    y = Gaussian(torch.ones(2, 3), 2 * torch.eye(3).expand(2, 3, 3))
    rule = covariance.FORMS["full"][function]
    with pytest.raises(NotImplementedError, match=rf"torch.{function.__name__}.*in full covariance"):
        rule(x, torch.ones(2, 2, 3)) if function is torch.add else rule(x, y)


def test_where_nothing_is_shared_the_diagonal_method_has_the_same_variance() -> None:
    """One linear layer: outputs are independent, and both methods are exact."""
    net, x = nn.Linear(4, 3).double(), torch.randn(5, 4).double()
    full, diagonal = model_of(net, 0.3, covariance="full")(x), model_of(net, 0.3)(x)
    torch.testing.assert_close(full.var, diagonal.var)
    torch.testing.assert_close(full.cov, diagonal.var.diag_embed())


def test_the_second_layer_has_correlated_outputs() -> None:
    """Cov(y_n, y_n′) = μ_nᵀ Cov(a) μ_n′: what the paper takes as zero."""
    net, x = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2)).double(), torch.randn(5, 4).double()
    first = model_of(net[:1], 0.3, covariance="full")(x)
    both = model_of(net, 0.3, covariance="full")(x)
    w = net[1].weight.detach()
    torch.testing.assert_close(both.cov[:, 0, 1], torch.einsum("i,bij,j->b", w[0], first.cov, w[1]))
    assert both.cov[:, 0, 1].abs().min() > 0


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.Conv1d(2, 4, 3, stride=2, padding=1, groups=2), (2, 7)),
        (nn.Conv2d(1, 2, (2, 3), dilation=(1, 2)), (1, 4, 6)),
        (nn.Conv3d(1, 2, 2), (1, 3, 2, 3)),
    ],
)
def test_convolutions_equal_linear_layers_with_shared_weights(
    layer: nn.Module, shape: tuple[int, ...]
) -> None:
    """Of y = A(w) x with random w and x: exact second moments by the Jacobians, which are linear in w and in x."""
    layer = layer.double()
    n = torch.Size(shape).numel()
    root = torch.randn(n, n).double() / n
    x = Gaussian(torch.randn(1, *shape).double(), (root @ root.T)[None])
    w, b = layer.weight.detach(), layer.bias.detach()
    w_var, b_var = torch.rand_like(w), torch.rand_like(b)

    def apply(w: Tensor, x: Tensor) -> Tensor:
        return layer._conv_forward(x.view(1, *shape), w, b).flatten()

    by_x = torch.autograd.functional.jacobian(lambda t: apply(w, t), x.mean.flatten())
    columns = torch.stack(
        [apply(e.view(w.shape), x.mean) - apply(0 * w, x.mean) for e in torch.eye(w.numel()).double()]
    )
    expected = by_x @ x.cov[0] @ by_x.T + columns.T @ w_var.flatten().diag() @ columns
    for i, e in enumerate(torch.eye(w.numel()).double()):  # Var w · Cov x
        slope = torch.autograd.functional.jacobian(lambda t, e=e: apply(e.view(w.shape), t), x.mean.flatten())
        expected = expected + w_var.flatten()[i] * slope @ x.cov[0] @ slope.T
    outputs = layer._conv_forward(x.mean, w, b).shape[1:]
    same = torch.block_diag(
        *[torch.ones(outputs[1:].numel(), outputs[1:].numel()) for _ in range(outputs[0])]
    )
    expected = expected + same.double() * b_var.repeat_interleave(outputs[1:].numel())
    conv = covariance.FORMS["full"][{3: F.conv1d, 4: F.conv2d, 5: F.conv3d}[w.dim()]]
    options = (layer.stride, layer.padding, layer.dilation, layer.groups)
    result = conv(x, bf.Moments(w, w_var), bf.Moments(b, b_var), *options)
    torch.testing.assert_close(result.cov[0], expected)


def test_dropout_adds_to_the_diagonal() -> None:
    x = Gaussian(torch.randn(2, 3).double(), torch.eye(3).double().expand(2, 3, 3))
    result = covariance.dropout(x, 0.25, True)
    torch.testing.assert_close(result.var, (1 + 0.25 * x.mean.square()) / 0.75)


@pytest.mark.parametrize("objective", ["expected", "gaussian"])
def test_it_trains_and_predicts(objective: str) -> None:
    net = small_cnn()[:-1].train().float()
    model = bf.bayesify(net, bf.DensityPropagation(covariance="full", objective=objective), num_data=16)
    x, y = torch.randn(16, 2, 6, 6), torch.randint(3, (16,))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    losses = []
    for _ in range(15):
        optimizer.zero_grad()
        loss = model.loss(x, y)
        loss.total.backward()
        optimizer.step()
        losses.append(loss.nll.item())
    assert losses[-1] < losses[0]
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
    assert model.predict(x, num_draws=50).probs.sum(1).allclose(torch.ones(16))


def test_a_layer_that_takes_too_much_memory_is_refused_with_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    model = bf.bayesify(nn.Conv2d(1, 8, 3), bf.DensityPropagation(covariance="full"))
    with pytest.raises(MemoryError, match=r"7200 outputs at batch size 30 takes 5\.8 GB, the limit is 4 GB"):
        model(torch.randn(30, 1, 32, 32))
    monkeypatch.setattr(covariance, "MAX_GIGABYTES", 1e-5)
    with pytest.raises(MemoryError, match="MAX_GIGABYTES"):
        model(torch.randn(1, 1, 8, 8))


def test_what_it_does_not_cover_is_named() -> None:
    model = bf.bayesify(
        nn.Sequential(nn.Linear(3, 3), nn.LayerNorm(3)), bf.DensityPropagation(covariance="full")
    )
    with pytest.raises(NotImplementedError, match=r"full covariance.*layer_norm.*module '1' \(LayerNorm\)"):
        model(torch.randn(2, 3))
    assert propagate(lambda x: F.layer_norm(x, (3,)), random_moments(2, 3)).var.shape == (2, 3)


@pytest.mark.parametrize("activation", [nn.Identity, nn.Tanh, nn.SiLU])
def test_noise_of_the_input_is_propagated(activation: type[nn.Module]) -> None:
    """With weights that are all but certain, against Monte Carlo of the input: std and covariance of 20,000 draws
    have errors of 0.5 %, first order in noise of std 0.03 leaves out less than 3 %."""
    net = nn.Sequential(nn.Flatten(), nn.Linear(6, 5), activation(), nn.Linear(5, 3))
    model = model_of(net, 1e-6, covariance="full")
    x = torch.randn(1, 2, 3)
    with torch.no_grad():
        result = model(bf.Moments(x, torch.full_like(x, 1e-3)))
        draws = model.net(x + 1e-3**0.5 * torch.randn(20_000, 2, 3))
    assert result.cov is not None
    expected = torch.cov(draws.T)
    assert (result.cov[0] - expected).norm() < 0.05 * expected.norm()
    assert model.predict(bf.Moments(x, torch.full_like(x, 1e-3))).input_noise is not None
