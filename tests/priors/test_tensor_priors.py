"""Priors that see a tensor: joint densities, and priors that depend on its shape or name."""

import math

import numpy as np
import pytest
import torch
from prior_cases import BY_TENSOR
from scipy import special, stats

import bayesify as bf


# -- priors of whole tensors ---------------------------------------------------------------------------------
@pytest.mark.parametrize("shape", [(), (1,), (4,), (2, 3)])
def test_the_radial_density(shape: tuple[int, ...]) -> None:
    p = bf.prior("radial", loc=0.2, scale=0.7)
    value = torch.randn(7, *shape, dtype=torch.float64)
    z = ((value - 0.2) / 0.7).reshape(7, -1).numpy()
    r, d = np.linalg.norm(z, axis=1), z.shape[1]
    area = math.log(2) + d / 2 * math.log(math.pi) - special.gammaln(d / 2) + (d - 1) * np.log(r)
    expected = stats.halfnorm.logpdf(r) - area - d * math.log(0.7)
    np.testing.assert_allclose(p.tensor_log_prob(value, len(shape)), expected, rtol=1e-12)
    assert not p.independent and p.terms() is None


def test_the_dirichlet_density() -> None:
    p = bf.prior("dirichlet", concentration=[0.5, 2.0, 3.0])
    value = torch.tensor([[0.2, 0.3, 0.5], [0.6, 0.3, 0.1]], dtype=torch.float64)
    expected = torch.distributions.Dirichlet(torch.tensor([0.5, 2.0, 3.0], dtype=torch.float64)).log_prob(
        value
    )
    torch.testing.assert_close(p.log_prob(value), expected)
    one = torch.distributions.Dirichlet(torch.full((3,), 2.0, dtype=torch.float64)).log_prob(value)
    torch.testing.assert_close(bf.prior("dirichlet", concentration=2.0).log_prob(value), one)
    assert p.log_prob(torch.tensor([0.2, 0.3, 0.7])) == -math.inf
    assert p.log_prob(torch.tensor([-0.2, 0.7, 0.5])) == -math.inf
    assert "simplex" in p.refusal and bf.prior("normal").refusal == ""
    with pytest.raises(ValueError, match=r"concentration has 3 entries, the last dimension of the value 2"):
        p.log_prob(torch.tensor([0.5, 0.5]))


# -- priors by tensor ----------------------------------------------------------------------------------------
def test_other_priors_are_the_same_for_every_tensor() -> None:
    p = bf.prior("laplace")
    assert p.at("conv.weight", torch.zeros(3)) is p


@pytest.mark.parametrize(("shape", "std"), [((4, 25), 2 / 5), ((8, 4, 3, 3), 2 / 6), ((4,), 0.3), ((), 0.3)])
def test_fan_in_takes_the_width_from_the_shape(shape: tuple[int, ...], std: float) -> None:
    p = bf.prior("fan_in", gain=2.0, bias_std=0.3).at("weight", torch.zeros(shape))
    assert p == bf.prior("normal", std=std)


def test_per_layer_takes_the_first_rule_that_matches() -> None:
    rules = {"bias$": "laplace", "^conv": bf.prior("fan_in", gain=3.0), "conv1": "student_t"}
    p = bf.prior("per_layer", rules=rules, default=bf.prior("normal", std=0.5))
    like = torch.zeros(2, 9)
    assert p.at("conv1.bias", torch.zeros(2)) == bf.prior("laplace")
    assert p.at("conv1.weight", like) == bf.prior("normal", std=1.0)
    assert p.at("block.conv1.weight", like) == bf.prior("student_t")
    assert p.at("head.weight", like) == bf.prior("normal", std=0.5)
    assert bf.prior("per_layer").at("head.weight", like) == bf.prior("normal")


@pytest.mark.parametrize("name", BY_TENSOR)
def test_priors_by_tensor_have_no_density_of_their_own(name: str) -> None:
    with pytest.raises(
        ValueError, match=rf"the {name} prior depends on the tensor.*use prior.at\(name, like\)"
    ):
        bf.prior(name).log_prob(torch.zeros(2))
