"""The loss and its scaling: total = nll + kl_weight · kl / num_data."""

import math

import pytest
import torch
from scipy import stats
from torch import Tensor, nn

import bayesify as bf
from bayesify.objectives import elbo

FAILURE_RATE = 1e-6


def make(num_data: int | None = 50, kl_weight: float = 1.0, **options: object) -> bf.BayesianModule:
    method = bf.MonteCarloVI(where=bf.where.all, kl_weight=kl_weight, init_std=0.5, **options)
    return bf.bayesify(nn.Linear(4, 3), method, num_data=num_data)


def batch(size: int = 8) -> tuple[Tensor, Tensor]:
    return torch.randn(size, 4), torch.randint(3, (size,))


@pytest.mark.parametrize("kl_weight", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("num_data", [1, 50, 10**6])
def test_total_is_nll_plus_the_scaled_kl(num_data: int, kl_weight: float) -> None:
    loss = make(num_data, kl_weight).loss(*batch())
    torch.testing.assert_close(loss.total, loss.nll + kl_weight * loss.kl / num_data)


def test_the_elbo_is_arithmetic_on_its_parts() -> None:
    loss = elbo(torch.tensor(2.0), torch.tensor(30.0), num_data=10, kl_weight=0.5)
    assert (loss.nll.item(), loss.kl.item(), loss.total.item()) == (2.0, 30.0, 3.5)


def test_kl_is_that_of_the_whole_posterior_whatever_the_batch() -> None:
    model = make()
    q = model.posterior.distributions(["weight", "bias"])
    expected = sum(bf.kl(d, bf.prior("normal")) for d in q.values())
    torch.testing.assert_close(model.kl(), expected)
    for size in (1, 8):
        torch.testing.assert_close(model.loss(*batch(size)).kl, expected)


def test_nll_is_a_mean_over_examples_and_a_sum_over_outputs() -> None:
    model = bf.bayesify(nn.Linear(4, 3), bf.Point(), bf.likelihood("normal", std=0.5))
    x, y = torch.randn(8, 4), torch.randn(8, 3)
    expected = -torch.distributions.Normal(model.net(x), 0.5).log_prob(y).sum(1).mean()
    torch.testing.assert_close(model.loss(x, y).nll, expected)
    twice = model.loss(torch.cat([x, x]), torch.cat([y, y])).nll
    torch.testing.assert_close(twice, expected)


def test_several_draws_are_averaged() -> None:
    """Five passes with one generator, one after the other, are what num_draws=5 averages."""
    model, (x, y) = make(), batch()
    model(x)
    loss = model.loss(x, y, num_draws=5, generator=torch.Generator().manual_seed(0))
    generator = torch.Generator().manual_seed(0)
    each = [model.loss(x, y, generator=generator) for _ in range(5)]
    torch.testing.assert_close(loss.nll, torch.stack([e.nll for e in each]).mean())
    torch.testing.assert_close(loss.kl, each[0].kl)
    torch.testing.assert_close(loss.total, loss.nll + loss.kl / 50)


def test_several_draws_leave_the_mean_and_divide_the_variance() -> None:
    """Means agree within z standard errors. The variance ratio of 300 averages of 4 draws and 1200 single
    draws is 4, with log-error √(((κ−1)/n)₁ + ((κ−1)/n)₄) from the kurtosis κ of each sample."""
    model, (x, y) = make(), batch()
    with torch.no_grad():
        single = torch.stack([model.loss(x, y).nll for _ in range(1200)]).double()
        four = torch.stack([model.loss(x, y, num_draws=4).nll for _ in range(300)]).double()
    z = stats.norm.isf(FAILURE_RATE / 4)
    assert abs(single.mean() - four.mean()) < z * math.sqrt(single.var() / 1200 + four.var() / 300)
    kurtosis = [stats.kurtosis(s, fisher=False) for s in (single, four)]
    error = math.sqrt((kurtosis[0] - 1) / 1200 + (kurtosis[1] - 1) / 300)
    assert abs(math.log(single.var() / four.var() / 4)) < z * error


def test_sample_weights_reach_the_likelihood() -> None:
    model, (x, y) = bf.bayesify(nn.Linear(4, 3), bf.Point()), batch()
    weight = torch.rand(8)
    expected = (weight * nn.functional.cross_entropy(model.net(x), y, reduction="none")).mean()
    torch.testing.assert_close(model.loss(x, y, sample_weight=weight).nll, expected)


def test_an_ensembles_loss_is_the_mean_over_members() -> None:
    model = bf.bayesify(
        nn.Linear(4, 3), bf.DeepEnsemble(bf.Point(prior="normal"), num_members=3), num_data=20
    )
    x, y = batch()
    members = model.posterior.nets(model.net)
    nll = torch.stack([nn.functional.cross_entropy(m(x), y) for m in members]).mean()
    log_prior = torch.stack(
        [sum(bf.prior("normal").log_prob(p).sum() for p in m.parameters()) for m in members]
    )
    loss = model.loss(x, y)
    torch.testing.assert_close(loss.nll, nll)
    torch.testing.assert_close(loss.kl, -log_prior.mean())
    torch.testing.assert_close(model.kl(), loss.kl)


def test_a_prior_may_depend_on_the_tensor() -> None:
    """−log p of N(0, ¼) weights and standard normal biases, by torch.distributions."""
    net = nn.Linear(4, 3)
    prior = bf.prior("per_layer", rules={"weight": bf.prior("normal", std=0.5)})
    model = bf.bayesify(net, bf.Point(prior=prior), num_data=20)
    log_prior = sum(
        torch.distributions.Normal(0.0, std).log_prob(p).sum()
        for p, std in ((net.weight, 0.5), (net.bias, 1.0))
    )
    torch.testing.assert_close(model.loss(*batch()).kl, -log_prior)


def test_a_point_without_a_prior_needs_no_num_data() -> None:
    loss = bf.bayesify(nn.Linear(4, 3), bf.Point()).loss(*batch())
    assert loss.kl.item() == 0
    assert torch.equal(loss.total, loss.nll)


def test_num_data_is_asked_for_where_it_is_needed() -> None:
    with pytest.raises(ValueError, match=r"num_data is missing.*num_data=len\(train_set\)"):
        make(num_data=None).loss(*batch())


# -- warm-up ------------------------------------------------------------------------------------------
def test_the_weight_rises_linearly_and_stays() -> None:
    model = make()
    warmup = bf.KLWarmup(model, num_steps=4)
    weights = []
    for _ in range(7):
        weights.append(model.kl_weight.item())
        warmup.step()
    assert weights == [0.0, 0.25, 0.5, 0.75, 1.0, 1.0, 1.0]


def test_the_warmup_acts_on_the_loss() -> None:
    model, (x, y) = make(), batch()
    warmup = bf.KLWarmup(model, num_steps=2, start=0.2, end=0.6)
    for expected in (0.2, 0.4, 0.6, 0.6):
        loss = model.loss(x, y)
        torch.testing.assert_close(loss.total, loss.nll + expected * loss.kl / 50)
        warmup.step()


def test_a_warmup_continues_from_its_state() -> None:
    model = make()
    warmup = bf.KLWarmup(model, num_steps=10)
    for _ in range(3):
        warmup.step()
    state = warmup.state_dict()
    other = make()
    resumed = bf.KLWarmup(other, num_steps=10)
    resumed.load_state_dict(state)
    assert other.kl_weight.item() == pytest.approx(0.3)
    resumed.step()
    assert other.kl_weight.item() == pytest.approx(0.4)
    assert warmup.kl_weight == pytest.approx(0.3)


@pytest.mark.parametrize("num_steps", [0, -1])
def test_a_warmup_needs_a_step(num_steps: int) -> None:
    with pytest.raises(ValueError, match=rf"num_steps={num_steps} must be a whole number of at least 1"):
        bf.KLWarmup(make(), num_steps)


def test_the_weight_is_stored_with_the_model() -> None:
    model = make()
    bf.KLWarmup(model, num_steps=2).step()
    other = make()
    other.load_state_dict(model.state_dict())
    assert other.kl_weight.item() == 0.5
