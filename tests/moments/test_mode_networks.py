"""The moments pass through whole networks, by a posterior with sampling="moments"."""

import copy
import math

import pytest
import torch
from scipy import stats
from torch import Tensor, nn

import bayesify as bf
from bayesify.families import Normal
from bayesify.posteriors import Call, Factorized
from bayesify.weights import select

FAILURE_RATE = 1e-6
NUM_DRAWS = 20_000


def posterior_of(net: nn.Module, std: float, where: bf.weights.where.Where = bf.where.all) -> Factorized:
    """Random weights with this std around the network's own."""
    posterior = Factorized(net, select(net, where), Normal, bf.prior("normal"), sampling="moments")
    with torch.no_grad():
        for parameter in posterior.parameters():
            parameter.fill_(math.log(std) if std else -math.inf)
    return posterior


def moments_of(
    net: nn.Module, x: Tensor, std: float, where: bf.weights.where.Where = bf.where.all
) -> bf.Moments:
    with torch.no_grad():
        return posterior_of(net, std, where).run(net, Call((x,), {}))


def monte_carlo(net: nn.Module, x: Tensor, std: float) -> Tensor:
    """Outputs with every parameter drawn around its value: (draws, *output)."""
    names = [name for name, _ in net.named_parameters()]
    centre = {name: p.detach() for name, p in net.named_parameters()}

    def output(*noise: Tensor) -> Tensor:
        weights = {n: centre[n] + std * e for n, e in zip(names, noise, strict=True)}
        return torch.func.functional_call(net, weights, (x,))

    noise = [torch.randn(NUM_DRAWS, *centre[name].shape, dtype=x.dtype) for name in names]
    return torch.func.vmap(output)(*noise).detach()


def make_cnn(kernel: int) -> nn.Module:
    """conv, batch norm, relu, flatten, linear on 4 × 4 images; a kernel of 4 leaves one position."""
    net = nn.Sequential(
        nn.Conv2d(2, 3, kernel),
        nn.BatchNorm2d(3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(3 * (5 - kernel) ** 2, 2),
    ).double()
    with torch.no_grad():
        net[1].running_mean.copy_(torch.randn(3) / 4)
        net[1].running_var.copy_(torch.rand(3) + 0.5)
    return net.eval()


@pytest.mark.parametrize("kernel", [2, 4])
def test_without_variance_the_mean_is_the_deterministic_output(kernel: int) -> None:
    net, x = make_cnn(kernel), torch.randn(5, 2, 4, 4).double()
    result = moments_of(net, x, std=0.0)
    torch.testing.assert_close(result.mean, net(x).detach(), rtol=1e-12, atol=1e-12)
    assert torch.equal(result.var, torch.zeros_like(result.var))


def test_only_the_chosen_weights_bring_variance() -> None:
    net, x = make_cnn(2), torch.randn(5, 2, 4, 4).double()
    result = moments_of(net, x, 0.1, bf.where.matching(r"^4\.bias$"))
    torch.testing.assert_close(result.var, torch.full_like(result.var, 0.01))


def test_a_cnn_with_independent_activations_agrees_with_monte_carlo() -> None:
    """With one position per channel the activations are independent, and no relu input comes near its kink
    (all are further than 8 standard deviations from it). What first order then leaves out are products of
    three deviations, of relative size fan-in × std² ≈ 1e-4: a bias stated as 0.1 %."""
    torch.manual_seed(2)
    net, x, std, bias = make_cnn(4), torch.randn(3, 2, 4, 4).double(), 0.002, 0.001
    before_relu = moments_of(net[:2], x, std)
    assert (before_relu.mean.abs() > 8 * before_relu.var.sqrt()).all()
    result, draws = moments_of(net, x, std), monte_carlo(net, x, std)
    z = stats.norm.isf(FAILURE_RATE / 4 / result.mean.numel())
    errors = (draws.mean(0) - result.mean).abs() / result.var.sqrt()
    assert errors.max() <= z / math.sqrt(NUM_DRAWS) + bias
    ratio = draws.var(0) / result.var
    assert (ratio - 1).abs().max() <= z * math.sqrt(2 / NUM_DRAWS) + bias


def test_with_shared_kernels_the_bias_is_the_neglected_covariance() -> None:
    """Positions of a channel share a kernel. Diagonal propagation leaves out their covariance, which the
    Jacobian in the weights knows: Monte Carlo agrees with the diagonal result plus that part."""
    torch.manual_seed(2)
    net, x = make_cnn(2), torch.randn(1, 2, 4, 4).double()
    std = 1e-3
    result = moments_of(net, x, std)

    def by_weights(function: nn.Module) -> Tensor:
        parameters = {name: p.detach() for name, p in function.named_parameters()}
        jacobians = torch.func.jacrev(lambda p: torch.func.functional_call(function, p, (x,))[0])(parameters)
        return torch.cat([j.flatten(1) for j in jacobians.values()], 1)  # (outputs, weights)

    front = by_weights(net[:4])
    covariance = std**2 * front @ front.T  # of the flattened activations, first order
    neglected = covariance - covariance.diagonal().diag()
    weight = net[4].weight.detach()
    missing = (weight @ neglected @ weight.T).diagonal()
    assert (missing.abs() > 0.05 * result.var[0]).any()  # the bias is real
    draws = monte_carlo(net, x, std)[:, 0]
    expected = result.var[0] + missing
    z = stats.norm.isf(FAILURE_RATE / 2 / expected.numel())
    assert ((draws.var(0) - expected).abs() <= (z * math.sqrt(2 / NUM_DRAWS) + 0.001) * expected).all()


def test_an_input_with_variance_of_its_own() -> None:
    net = nn.Linear(3, 2).double()
    x = bf.Moments(torch.randn(4, 3).double(), torch.rand(4, 3).double())
    posterior = posterior_of(net, 0.3)
    with torch.no_grad():
        result = posterior.run(net, Call((x,), {}))
        expected = (
            0.09 * (x.mean.square() + x.var).sum(1, keepdim=True) + x.var @ net.weight.T.square() + 0.09
        )
    torch.testing.assert_close(result.mean, net(x.mean).detach())
    torch.testing.assert_close(result.var, expected)


def test_random_batch_norm_on_a_deterministic_input() -> None:
    net = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 2)).double().eval()
    x = torch.randn(4, 3).double()
    result = moments_of(net[:1], x, 0.3)
    expected = 0.09 * (x / math.sqrt(1 + 1e-5)).square() + 0.09
    torch.testing.assert_close(result.var, expected)


def test_gradients_reach_means_and_standard_deviations() -> None:
    net, x = make_cnn(2), torch.randn(2, 2, 4, 4).double()
    posterior = posterior_of(net, 0.1)
    result = posterior.run(net, Call((x,), {}))
    (result.mean.sum() + result.var.sum()).backward()
    assert all(p.grad is not None for p in [*net.parameters(), *posterior.parameters()])


def test_the_networks_own_parameters_come_back() -> None:
    net, x = make_cnn(2), torch.randn(2, 2, 4, 4).double()
    before = dict(net.named_parameters())
    moments_of(net, x, 0.1)
    assert all(p is before[name] for name, p in net.named_parameters())
    failing = nn.Sequential(nn.Linear(3, 2), nn.LPPool1d(2, 2)).double()
    weight = failing[0].weight
    with pytest.raises(NotImplementedError, match=r"lp_pool1d.*module '1' \(LPPool1d\)"):
        moments_of(failing, torch.randn(2, 3).double(), 0.1)
    assert failing[0].weight is weight


class Encoder(nn.Module):
    def __init__(self, nested: bool) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True)
        self.first = nn.Linear(4, 8)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=nested)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor, padding: Tensor) -> Tensor:
        return self.head(self.encoder(self.first(x), src_key_padding_mask=padding)[:, 0])


def test_an_encoder_with_a_padding_mask_predicts_in_eval_mode() -> None:
    """torch's own fast path for padded sequences, which it would take here, has no rules."""
    x, padding = torch.randn(4, 5, 4), torch.zeros(4, 5, dtype=torch.bool)
    padding[1, 3:] = True
    found = []
    for nested in (True, False):
        torch.manual_seed(0)
        model = bf.bayesify(Encoder(nested), bf.DensityPropagation(), num_data=10)
        found.append(model.predict((x, padding), generator=torch.Generator().manual_seed(0)).probs)
    torch.testing.assert_close(*found)


def test_a_pass_without_a_random_weight_has_no_variance() -> None:
    net = Encoder(False)
    net.unused = nn.Linear(2, 2)
    model = bf.bayesify(net, bf.DensityPropagation(where=bf.where.matching("unused")), num_data=10)
    x, padding = torch.randn(4, 5, 4), torch.zeros(4, 5, dtype=torch.bool)
    loss = model.loss((x, padding), torch.zeros(4).long())
    expected = nn.functional.cross_entropy(net(x, padding), torch.zeros(4).long())
    torch.testing.assert_close(loss.nll, expected)
    assert float(model.predict((x, padding)).variance.max()) < 1e-12


@pytest.mark.parametrize("covariance", ["diagonal", "full"])
def test_the_prediction_may_be_picked_as_from_a_tensor(covariance: str) -> None:
    """A function that slices what the network returns works with every method."""
    net = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 6))
    method = bf.DensityPropagation(covariance=covariance)
    whole = bf.bayesify(copy.deepcopy(net), method, num_data=10).eval()
    picked = bf.bayesify(net, method, num_data=10, output=lambda out: out.flatten(1).relu())
    x = torch.randn(4, 3)
    assert torch.equal(picked.pick(whole(x)).mean.relu(), picked.pick(whole(x)).mean)
    if covariance == "diagonal":
        sliced = bf.bayesify(
            copy.deepcopy(net), method, num_data=10, output=lambda out: 2 * out[:, 1:4]
        ).eval()
        result, expected = sliced.pick(sliced(x)), whole(x)
        torch.testing.assert_close(result.mean, 2 * expected.mean[:, 1:4])
        torch.testing.assert_close(result.var, 4 * expected.var[:, 1:4])
        assert sliced.predict(x).probs.shape == (4, 3)
        sliced.loss(x, torch.zeros(4).long()).total.backward()
