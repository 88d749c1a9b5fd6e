"""Every estimator of the KL, for every pair of a family and a prior that has it."""

import math

import pytest
import torch
from kl_pairs import (
    FAMILY_OPTIONS,
    LIKE,
    POSSIBLE,
    by_quadrature,
    estimators_of,
    like_of,
    make_family,
    make_prior,
    pairs_with,
)
from scipy.stats import linregress, norm
from torch import Tensor

import bayesify as bf
from bayesify.families import FAMILIES
from bayesify.priors import PRIORS

FAILURE_RATE = 1e-6  # of every statistical test here
SIGMAS = norm.isf(FAILURE_RATE / 2)
COPIES = 20_000  # entries of a tensor: as many independent estimates
SAMPLED = [(f, p) for f, p in POSSIBLE if "stream" in estimators_of(f, p)]


@pytest.mark.parametrize(("family", "prior"), pairs_with("exact"))
def test_exact_equals_quadrature(family: str, prior: str) -> None:
    value = bf.kl(make_family(family, like_of(family, prior)), make_prior(prior), "exact").item()
    assert value == pytest.approx(by_quadrature(family, prior).kl, rel=1e-7, abs=1e-7)


def mean_of_estimates(family: str, prior: str, estimator: str) -> tuple[float, int]:
    """The mean of COPIES estimates with 3 draws each (half where the tensor has one entry), and their number.

    Entries of one tensor are independent, so a tensor of many copies of `like_of` is as many estimates. Where entries
    are not independent, the estimates are those of tensors of one entry.
    """
    like, generator = like_of(family, prior), torch.Generator().manual_seed(0)
    p = make_prior(prior)
    with torch.no_grad():
        if len(like) == 1:
            parts = [
                bf.kl(make_family(family, like), p, estimator, num_draws=3000, generator=generator)
                for _ in range(4)
            ]
            return torch.stack(parts).mean().item(), 4000
        q = make_family(family, like.repeat(COPIES))
        value = bf.kl(q, p, estimator, num_draws=3, generator=generator)
        return value.item() / COPIES, COPIES


@pytest.mark.parametrize(("family", "prior"), pairs_with("repar"))
def test_the_mean_of_repar_equals_quadrature(family: str, prior: str) -> None:
    value, number = mean_of_estimates(family, prior, "repar")
    expected = by_quadrature(family, prior)
    error = math.sqrt(max(expected.sampled_var, 0) / (3 * number))
    assert abs(value - expected.kl) <= SIGMAS * error + 1e-7 * (1 + abs(expected.kl))


@pytest.mark.parametrize(("family", "prior"), SAMPLED)
def test_the_mean_of_stream_equals_quadrature(family: str, prior: str) -> None:
    value, number = mean_of_estimates(family, prior, "stream")
    expected = by_quadrature(family, prior)
    error = math.sqrt(expected.log_prior_var / (3 * number))
    assert abs(value - expected.kl) <= SIGMAS * error + 1e-7 * (1 + abs(expected.kl))


def value_and_gradients(family: str, prior: str, estimator: str, noise: Tensor) -> list[Tensor]:
    like = torch.tensor([[0.7, -0.4, 0.2], [0.9, 1.3, -0.8]], dtype=torch.float64)
    q = bf.family(family, like=like, **FAMILY_OPTIONS.get(family, {"init_std": 0.4}))
    value = bf.kl(q, make_prior(prior), estimator, noise=noise)
    value.backward()
    return [value.detach(), *(p.grad for p in q.parameters() if p.grad is not None)]


@pytest.mark.parametrize(("family", "prior"), SAMPLED)
def test_repar_stream_and_direct_agree_on_given_noise(family: str, prior: str) -> None:
    """7 draws; the error of float64 in sums of 42 terms is far below 1e-10."""
    noise = make_family(family, torch.ones(2, 3).double()).noise((7,), torch.Generator().manual_seed(1))
    expected = value_and_gradients(family, prior, "direct", noise)
    for estimator in {"repar", "stream"} & set(estimators_of(family, prior)):
        found = value_and_gradients(family, prior, estimator, noise)
        assert len(found) == len(expected) > 1
        for a, b in zip(found, expected, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("estimator", ["exact", "repar", "stream"])
@pytest.mark.parametrize(
    ("family", "prior"),
    [("normal", "laplace"), ("gamma", "gamma"), ("log_normal", "log_normal"), ("radial", "normal")],
)
def test_estimators_trace_as_one_graph(family: str, prior: str, estimator: str) -> None:
    if estimator not in estimators_of(family, prior):
        pytest.skip("the pair has no such estimator")
    q, p = bf.family(family, like=LIKE, **FAMILY_OPTIONS.get(family, {})), make_prior(prior)
    torch._dynamo.reset()
    compiled = torch.compile(
        lambda: bf.kl(q, p, estimator, num_draws=50), fullgraph=True, backend="aot_eager"
    )
    value = compiled()
    value.backward()
    assert torch.isfinite(value)
    assert all(
        torch.isfinite(parameter.grad).all() for parameter in q.parameters() if parameter.grad is not None
    )
    if estimator == "exact":
        torch.testing.assert_close(value, bf.kl(q, p, "exact"))


@pytest.mark.parametrize("estimator", ["exact", "repar", "stream"])
@pytest.mark.parametrize("num_draws", [10, 1000])
def test_estimators_run_under_vmap(estimator: str, num_draws: int) -> None:
    prior = bf.prior("normal")

    def one(loc: Tensor, log_scale: Tensor) -> Tensor:
        return bf.kl(FAMILIES["normal"](loc, log_scale=log_scale), prior, estimator, num_draws)

    locs, log_scales = torch.randn(5, 3), torch.zeros(5, 3)
    values = torch.func.vmap(one, randomness="different")(locs, log_scales)
    assert values.shape == (5,)
    if estimator == "exact":
        torch.testing.assert_close(
            values, torch.stack([one(a, b) for a, b in zip(locs, log_scales, strict=True)])
        )


def test_auto_is_exact_where_that_exists_else_repar_else_stream() -> None:
    q = make_family("normal")
    exact, stream = make_prior("normal"), make_prior("logistic")
    assert torch.equal(bf.kl(q, exact), bf.kl(q, exact, "exact"))
    seeds = [torch.Generator().manual_seed(3) for _ in range(2)]
    assert torch.equal(bf.kl(q, stream, generator=seeds[0]), bf.kl(q, stream, "stream", generator=seeds[1]))


@pytest.mark.parametrize("entries", [2, 5])
def test_radial_to_normal_has_a_closed_form(entries: int) -> None:
    """FORMULAS 2.1: KL = E log q + Σ [½ log 2πs² + ((μ − m)² + σ²/D)/(2s²)]; and the mean of 40 × 500 draws."""
    like = torch.linspace(-1, 1, entries, dtype=torch.float64)
    q = bf.family("radial", like=like, init_std=0.5).distribution()
    m, s, size = 0.3, 0.8, entries
    area = math.log(2) + size / 2 * math.log(math.pi) - math.lgamma(size / 2)
    neg_entropy = (
        0.5 * math.log(2 / math.pi) - 0.5 - area + (size - 1) * (0.5772156649015329 + math.log(2)) / 2
    )
    cross = 0.5 * math.log(2 * math.pi * s**2) + ((q.loc - m).square() + q.scale.square() / size) / (2 * s**2)  # type: ignore[attr-defined]
    expected = neg_entropy - q.log_scale.sum() + cross.sum()  # type: ignore[attr-defined]
    p = bf.prior("normal", mean=m, std=s)
    torch.testing.assert_close(bf.kl(q, p, "exact"), expected)
    with torch.no_grad():
        generator = torch.Generator().manual_seed(0)
        parts = torch.stack([bf.kl(q, p, "repar", 500, generator) for _ in range(40)])
    assert (parts.mean() - expected).abs() < 6 * parts.std() / math.sqrt(40)


@pytest.mark.parametrize("family", ["normal", "radial"])
def test_stream_to_a_radial_prior_is_right_in_two_dimensions(family: str) -> None:
    """E log p of a joint prior, against 200,000 draws of the whole tensor; both have a standard error."""
    q, p = make_family(family), make_prior("radial")
    with torch.no_grad():
        generator = torch.Generator().manual_seed(0)
        w = q.rsample(200_000, generator)
        differences = q.log_prob(w).reshape(len(w), -1).sum(1) - p.tensor_log_prob(w, 1)
        error = differences.std() / math.sqrt(len(w))
        value = bf.kl(q, p, "stream", 200_000, generator)
    assert (value - differences.mean()).abs() < SIGMAS * math.sqrt(2) * error


@pytest.mark.parametrize("std", [0.1, 1.0, 3.0])
def test_the_error_falls_with_the_root_of_the_number_of_draws(std: float) -> None:
    """Paper 1, Fig. 2 left: root mean square error of 1,000 estimates at M = 1 … 1,000, slope −½ in log M.

    Σ ξ² has kurtosis 3 + 12/M, so the log of the error at M has a standard error of at most √((2 + 12/M)/4000), and
    the slope over three decades one of 0.009; 0.05 is more than five of them.
    """
    q = FAMILIES["normal"](torch.tensor([0.5]), log_scale=torch.tensor([math.log(std)]))
    p, generator = bf.prior("normal"), torch.Generator().manual_seed(0)
    exact = bf.kl(q, p, "exact")
    numbers, errors = [1, 10, 100, 1000], []
    for m in numbers:
        estimates = torch.stack([bf.kl(q, p, "repar", m, generator) for _ in range(1000)])
        errors.append((estimates - exact).square().mean().sqrt().log().item())
    slope = linregress([math.log(m) for m in numbers], errors).slope
    assert slope == pytest.approx(-0.5, abs=0.05)


def test_every_family_and_prior_is_in_some_pair_or_refused() -> None:
    assert {f for f, _ in POSSIBLE} == set(FAMILIES)
    assert {p for _, p in POSSIBLE} == {name for name, kind in PRIORS.items() if not kind.refusal}
