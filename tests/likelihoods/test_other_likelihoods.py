"""Bernoulli, normal and heteroscedastic likelihoods against scipy and torch.distributions."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor, nn

import bayesify as bf

BATCH = 6


# -- bernoulli ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("extra", [(), (1,), (3,), (2, 3)])
def test_bernoulli_equals_scipy(extra: tuple[int, ...]) -> None:
    output, target = torch.randn(BATCH, *extra), torch.randint(2, (BATCH, *extra))
    expected = stats.bernoulli.logpmf(target.numpy(), output.double().sigmoid().numpy())
    value = bf.likelihood("bernoulli").log_prob(output, target.float())
    np.testing.assert_allclose(value.numpy(), expected.reshape(BATCH, -1).sum(1), rtol=1e-5)


def test_bernoulli_takes_targets_without_the_last_size_of_one() -> None:
    output, target = torch.randn(BATCH, 1), torch.randint(2, (BATCH,))
    likelihood = bf.likelihood("bernoulli")
    assert torch.equal(likelihood.nll(output, target), likelihood.nll(output, target[:, None]))


def test_bernoulli_takes_probabilities_as_targets() -> None:
    output, target = torch.randn(BATCH), torch.rand(BATCH)
    p = output.sigmoid()
    expected = -(target * p.log() + (1 - target) * (1 - p).log()).mean()
    torch.testing.assert_close(bf.likelihood("bernoulli").nll(output, target), expected)


def test_bernoulli_summary_is_probability_and_entropy() -> None:
    output = torch.tensor([-60.0, -2.0, 0.0, 3.0, 60.0])
    probs, entropy = bf.likelihood("bernoulli").summarize(output)
    torch.testing.assert_close(probs, output.sigmoid())
    expected = stats.bernoulli.entropy(output.double().sigmoid().numpy())
    np.testing.assert_allclose(entropy.numpy(), expected, rtol=1e-5, atol=1e-12)


@pytest.mark.parametrize("wrong", [-1.0, 2.0, math.nan])
def test_bernoulli_refuses_targets_outside_zero_to_one(wrong: float) -> None:
    with pytest.raises(ValueError, match=r"target holds values .* in \[0, 1\]"):
        bf.likelihood("bernoulli").nll(torch.zeros(2), torch.tensor([0.0, wrong]))


# -- normal -------------------------------------------------------------------------------------------
@pytest.mark.parametrize("extra", [(), (1,), (3,), (2, 3)])
@pytest.mark.parametrize("learn_std", [False, True])
def test_normal_equals_scipy(extra: tuple[int, ...], learn_std: bool) -> None:
    output, target = torch.randn(BATCH, *extra), torch.randn(BATCH, *extra)
    expected = stats.norm.logpdf(target.numpy(), output.numpy(), 0.3).reshape(BATCH, -1).sum(1)
    likelihood = bf.likelihood("normal", std=0.3, learn_std=learn_std)
    np.testing.assert_allclose(likelihood.log_prob(output, target).detach().numpy(), expected, rtol=1e-5)
    assert float(likelihood.nll(output, target).detach()) == pytest.approx(-expected.mean(), rel=1e-5)


def test_a_fixed_std_is_no_parameter_and_a_learned_one_is() -> None:
    assert list(bf.likelihood("normal").parameters()) == []
    assert len(list(bf.likelihood("normal", learn_std=True).parameters())) == 1


def test_the_gradient_of_a_learned_std_is_that_of_torch_distributions() -> None:
    output, target = torch.randn(BATCH), torch.randn(BATCH)
    likelihood = bf.likelihood("normal", std=0.7, learn_std=True)
    log_std = torch.tensor(math.log(0.7), requires_grad=True)
    reference = -torch.distributions.Normal(output, log_std.exp()).log_prob(target).mean()
    (ours,) = torch.autograd.grad(likelihood.nll(output, target), list(likelihood.parameters()))
    torch.testing.assert_close(ours, torch.autograd.grad(reference, log_std)[0])


def test_a_learned_std_finds_the_residuals_own() -> None:
    """The maximum likelihood estimate of the std is the root mean square of the residuals."""
    output, target = torch.zeros(50), 2.5 * torch.randn(50)
    likelihood = bf.likelihood("normal", learn_std=True)
    optimizer = torch.optim.LBFGS(likelihood.parameters(), line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = likelihood.nll(output, target)
        loss.backward()
        return loss

    optimizer.step(closure)
    torch.testing.assert_close(likelihood.std.detach(), target.square().mean().sqrt(), rtol=1e-4, atol=0)


def test_normal_summary_is_mean_and_noise_variance() -> None:
    output = torch.randn(BATCH, 2)
    mean, var = bf.likelihood("normal", std=0.3).summarize(output)
    assert torch.equal(mean, output)
    torch.testing.assert_close(var, torch.full((BATCH, 2), 0.09))


@pytest.mark.parametrize("std", [0.0, -1.0, math.nan])
def test_normal_needs_a_positive_std(std: float) -> None:
    with pytest.raises(ValueError, match=r"likelihood std=.* must be positive"):
        bf.likelihood("normal", std=std)


def test_normal_options_make_it_again() -> None:
    options = bf.likelihood("normal", std=0.25, learn_std=True).options
    assert options == {"std": pytest.approx(0.25), "learn_std": True}
    assert bf.likelihood("normal", **options).options == options


# -- heteroscedastic ----------------------------------------------------------------------------------
@pytest.mark.parametrize("form", ["pair", "list", "chunk"])
@pytest.mark.parametrize("extra", [(1,), (3,), (2, 3)])
def test_heteroscedastic_equals_scipy(form: str, extra: tuple[int, ...]) -> None:
    mean, log_var, target = (torch.randn(BATCH, *extra) for _ in range(3))
    outputs: dict[str, Any] = {
        "pair": (mean, log_var),
        "list": [mean, log_var],
        "chunk": torch.cat([mean, log_var], -1),
    }
    std = (0.5 * log_var).exp()
    expected = stats.norm.logpdf(target.numpy(), mean.numpy(), std.numpy()).reshape(BATCH, -1).sum(1)
    likelihood = bf.likelihood("heteroscedastic")
    np.testing.assert_allclose(likelihood.log_prob(outputs[form], target).numpy(), expected, rtol=1e-4)
    assert float(likelihood.nll(outputs[form], target)) == pytest.approx(-expected.mean(), rel=1e-5)
    summary = likelihood.summarize(outputs[form])
    assert torch.equal(summary[0], mean)
    torch.testing.assert_close(summary[1], log_var.exp())


def test_heteroscedastic_with_a_constant_variance_is_the_normal() -> None:
    mean, target = torch.randn(BATCH, 2), torch.randn(BATCH, 2)
    log_var = torch.full((BATCH, 2), 2 * math.log(0.3))
    ours = bf.likelihood("heteroscedastic").nll((mean, log_var), target)
    torch.testing.assert_close(ours, bf.likelihood("normal", std=0.3).nll(mean, target))


def test_heteroscedastic_heads_are_not_broadcast() -> None:
    with pytest.raises(ValueError, match="log_var"):
        bf.likelihood("heteroscedastic").nll((torch.zeros(4, 1), torch.zeros(4)), torch.zeros(4, 1))


@pytest.mark.parametrize("output", [torch.zeros(4), torch.zeros(4, 3), (torch.zeros(4),) * 3])
def test_heteroscedastic_needs_two_heads(output: Any) -> None:
    with pytest.raises(ValueError, match=r"needs a pair \(mean, log_var\) or an even last dimension"):
        bf.likelihood("heteroscedastic").nll(output, torch.zeros(4))


# -- all ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["bernoulli", "normal"])
@pytest.mark.parametrize("shape", [(4,), (3, 4), (4, 3, 2), ()])
def test_shapes_must_agree_and_nothing_is_broadcast(name: str, shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"target has shape .*output \(4, 3\): they must agree"):
        bf.likelihood(name).nll(torch.zeros(4, 3), torch.zeros(shape))


@pytest.mark.parametrize("name", bf.likelihoods.LIKELIHOODS)
def test_an_empty_batch_is_refused(name: str) -> None:
    target = torch.zeros(0).long() if name == "categorical" else torch.zeros(0, 1)
    with pytest.raises(ValueError, match="the batch is empty"):
        bf.likelihood(name).nll(torch.zeros(0, 2 if name != "normal" and name != "bernoulli" else 1), target)


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
