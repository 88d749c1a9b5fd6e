"""Which pairs have a KL, why others have none, and what an error proposes."""

import pytest
import torch
from kl_pairs import PAIRS, POSSIBLE, make_family, make_prior

import bayesify as bf
from bayesify.divergences import support
from bayesify.families import FAMILIES
from bayesify.priors import PRIORS

IMPOSSIBLE = [pair for pair in PAIRS if pair not in POSSIBLE]


@pytest.mark.parametrize(("family", "prior"), IMPOSSIBLE)
def test_impossible_pairs_raise_a_reason_and_what_works(family: str, prior: str) -> None:
    p = make_prior(prior)
    with pytest.raises(
        ValueError, match=f"the {family} family and the {p.name} prior do not go together: "
    ) as error:
        bf.kl(make_family(family), p)
    assert "; use prior=" in str(error.value) or "; use family=" in str(error.value)


@pytest.mark.parametrize(
    ("family", "prior", "status"),
    [
        ("normal", "normal", "exact"),
        ("normal", "logistic", "stream"),
        ("log_gamma", "error", "exact"),
        ("normal", "gamma", "impossible"),
    ],
)
def test_status(family: str, prior: str, status: str) -> None:
    assert support(family, prior).status == status


def test_a_pair_without_closed_form_of_its_moments_is_drawn() -> None:
    pair = support("log_gamma", bf.prior("error", tail=0.5))
    assert pair.status == "repar O(M)"
    assert "exact" not in pair.estimators


@pytest.mark.parametrize(
    ("family", "prior", "sampled"),
    [
        ("normal", "normal", "repar O(1)"),
        ("std_wald", "inverse_gaussian", "repar O(1)"),
        ("log_normal", "log_normal", "repar O(1)"),
        ("radial", "normal", "repar O(M)"),
        ("gamma", "normal", "repar O(M)"),
        ("normal", "laplace", "stream"),
        ("normal", "log_uniform", "none"),
    ],
)
def test_the_cost_of_draws(family: str, prior: str, sampled: str) -> None:
    assert support(family, prior).sampled == sampled


@pytest.mark.parametrize(
    ("family", "options", "prior", "message"),
    [
        ("normal", {}, "exponential", "weights reach negative values"),
        ("gamma", {}, "pareto", "weights reach magnitudes below 1"),
        ("gamma", {}, "dirichlet", "do not lie on the simplex"),
        ("error", {}, "gamma", "weights reach negative values"),
        ("exponential", {}, "inverse_gamma", r"E \|ξ\|\^-1 of the family's noise ξ is infinite"),
        ("gamma", {"concentration": 0.9}, "std_wald", r"E \|ξ\|\^-1"),
        ("weibull", {"concentration": 1.0}, "inverse_gaussian", r"E \|ξ\|\^-1"),
        ("inverse_gamma", {"concentration": 1.5}, "normal", r"E \|ξ\|\^2"),
        ("inverse_gamma", {"concentration": 0.5}, "exponential", r"E \|ξ\|\^1"),
        ("horseshoe", {}, "normal", "is infinite"),
        ("horseshoe", {}, "laplace", r"E \|ξ\|\^1"),
        ("horseshoe", {}, "logistic", r"E \|ξ\|\^1"),
        ("horseshoe", {}, "normal_mixture", r"E \|ξ\|\^2"),
        ("laplace", {}, "log_uniform", "has no finite mean"),
    ],
)
def test_reasons(family: str, options: dict[str, float], prior: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        bf.kl(bf.family(family, like=torch.ones(2), **options), bf.prior(prior))


def test_what_is_proposed_works() -> None:
    pair = support("normal", "gamma")
    assert pair.nearest == "use prior='normal' with this family or family='gamma' with this prior"
    assert support("exp_gamma", "pareto").status == "exact"
    assert "scale" in support("exp_gamma", "normal").reason


@pytest.mark.parametrize(
    ("estimator", "prior", "message"),
    [
        (
            "repar",
            "logistic",
            "'repar' does not apply to the normal family with the logistic prior; use 'stream'",
        ),
        ("exact", "logistic", "'exact' does not apply .*; use 'stream'"),
        ("stream", "log_uniform", "'stream' does not apply .* has no finite mean; use 'exact'"),
        ("direct", "log_uniform", "'direct' does not apply .* has no finite mean; use 'exact'"),
    ],
)
def test_an_estimator_that_does_not_apply_names_those_that_do(
    estimator: str, prior: str, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        bf.kl(make_family("normal"), make_prior(prior), estimator)


@pytest.mark.parametrize("num_draws", [0, -3, 2.5, True])
def test_bad_numbers_of_draws(num_draws: int) -> None:
    with pytest.raises(
        ValueError, match=rf"num_draws={num_draws!r} must be a positive whole number, e.g. num_"
    ):
        bf.kl(make_family("normal"), make_prior("normal"), "repar", num_draws=num_draws)


def test_noise_of_another_shape_is_refused() -> None:
    with pytest.raises(ValueError, match=r"noise has shape \(5, 3\), it must be \(num_draws, \*shape\)"):
        bf.kl(make_family("normal"), make_prior("normal"), "repar", noise=torch.zeros(5, 3))


@pytest.mark.parametrize("prior", ["normal", "exponential", "logistic", "rayleigh"])
def test_a_kl_that_has_become_infinite_raises_the_pair_s_condition(prior: str) -> None:
    """|w| = exp(scale ξ), ξ ~ Gamma(k): E |w|^p is finite for p scale < 1, and the scale is log |w|/k."""
    q = bf.family("exp_gamma", like=torch.tensor([1.1, -9.0, 0.3]), concentration=1.0)
    assert "exp_gamma" in FAMILIES and support("exp_gamma", prior).reason.startswith("finite only while")
    for estimator in ("auto", *support("exp_gamma", prior).estimators[:2]):
        with pytest.raises(
            ValueError,
            match=r"is infinite for 1 of 3 weights: it is finite only while .*larger `concentration`",
        ):
            bf.kl(q, bf.prior(prior), estimator)
    assert bf.kl(q, bf.prior("log_normal")).isfinite()
    small = bf.family("exp_gamma", like=torch.tensor([1.1, -9.0, 0.3]), concentration=9.0)
    assert bf.kl(small, bf.prior(prior)).isfinite()


def test_a_loss_whose_kl_has_become_infinite_blames_the_pair_and_not_the_network() -> None:
    net = torch.nn.Linear(2, 2)
    with torch.no_grad():
        net.weight[0, 0] = 30.0
    method = bf.MonteCarloVI(family="exp_gamma", family_options={"concentration": 1.0})
    model = bf.bayesify(net, method, num_data=10)
    with pytest.raises(ValueError, match="the exp_gamma family and the normal prior is infinite for 1 of "):
        model.loss(torch.randn(3, 2), torch.tensor([0, 1, 0]))


def test_unknown_names_are_listed() -> None:
    with pytest.raises(ValueError, match="family='gama' does not exist; .* Did you mean 'gamma'"):
        support("gama", "normal")


@pytest.mark.parametrize("family", ["radial", "laplace", "logistic", "horseshoe"])
def test_families_whose_draws_cost_time_with_every_prior(family: str) -> None:
    """The sentence of the page: no pair of theirs has the statistics of M draws at once."""
    assert all(support(family, prior).sampled != "repar O(1)" for prior in PRIORS)
