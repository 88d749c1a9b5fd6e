"""The laplace likelihood against scipy and quadrature."""

import numpy as np
import pytest
import torch
from likelihood_cases import X
from scipy import integrate, stats
from torch import nn

import bayesify as bf

BATCH = 6


@pytest.mark.parametrize("extra", [(), (1,), (2, 3)])
def test_log_prob_equals_scipy(extra: tuple[int, ...]) -> None:
    output, target = torch.randn(BATCH, *extra), 3 * torch.randn(BATCH, *extra)
    likelihood = bf.likelihood("laplace", scale=0.3)
    expected = stats.laplace.logpdf(target.numpy(), output.numpy(), 0.3).reshape(BATCH, -1).sum(1)
    found = likelihood.log_prob(output, likelihood.check(output, target, True))
    np.testing.assert_allclose(found.detach().numpy(), expected, rtol=1e-5)


def test_summary_and_distribution_function_equal_scipys() -> None:
    law, value = stats.laplace(0.7, 0.3), torch.linspace(-20, 20, 101).double()
    likelihood = bf.likelihood("laplace", scale=0.3).double()
    mean, var = likelihood.summarize(torch.tensor([[0.7]], dtype=torch.float64))
    assert (float(mean), float(var.detach())) == pytest.approx(law.stats(), rel=1e-6)
    found = likelihood.cdf(torch.full_like(value, 0.7), value).detach().numpy()
    np.testing.assert_allclose(found, law.cdf(value.numpy()), atol=1e-8)


@pytest.mark.parametrize("var", [1e-30, 0.04, 4.0])
def test_expectation_under_a_normal_output(var: float) -> None:
    """∫ N(z; 0.2, var) log p(y | z) dz, by quadrature from both sides of the kink."""
    likelihood = bf.likelihood("laplace", scale=0.5).double()
    moments = bf.Moments(torch.tensor([[0.2]]).double(), torch.tensor([[var]]).double())
    found = float(likelihood.expected_log_prob(moments, torch.tensor([[1.0]]).double()).detach())
    if var < 1e-20:
        assert found == pytest.approx(stats.laplace.logpdf(1.0, 0.2, 0.5), rel=1e-6)
        return
    normal = stats.norm(0.2, var**0.5)

    def integrand(z: float) -> float:
        return normal.pdf(z) * stats.laplace.logpdf(1.0, z, 0.5)

    far = 12 * var**0.5
    parts = [integrate.quad(integrand, *ends)[0] for ends in ((0.2 - far, 1.0), (1.0, 0.2 + far + 1))]
    assert found == pytest.approx(sum(parts), rel=1e-6)


def test_an_outlier_moves_it_less_than_a_normal() -> None:
    """The constant that fits best is the median: of 0, 0, 0, 0, 100 it is 0; the mean is 20."""
    target = torch.tensor([[0.0], [0.0], [0.0], [0.0], [100.0]])
    found = {}
    for name in ("laplace", "normal"):
        centre, law = nn.Parameter(torch.tensor(5.0)), bf.likelihood(name)
        optimizer = torch.optim.Adam([centre], lr=0.3)
        for _ in range(400):
            optimizer.zero_grad()
            law.nll(centre.expand(5, 1), target).backward()
            optimizer.step()
        found[name] = float(centre.detach())
    assert abs(found["laplace"]) < 1 and found["normal"] == pytest.approx(20, abs=0.5)


def test_the_scale_starts_from_the_data() -> None:
    """At the mean absolute error about the mean of normal targets: std / √2."""
    model = bf.bayesify(nn.Linear(3, 1), bf.Point(), "laplace")
    batches = [(0.001 * X, 50 + 10 * torch.randn(40, 1))]
    bf.fit(model, batches, epochs=1, recipe=None, lr=1e-6, progress=False)
    assert float(model.likelihood.scale.detach()) == pytest.approx(10 / 2**0.5, rel=0.5)


@pytest.mark.parametrize("scale", [0.0, -1.0, float("nan")])
def test_a_scale_must_be_positive(scale: float) -> None:
    with pytest.raises(ValueError, match="likelihood scale=.* must be positive"):
        bf.likelihood("laplace", scale=scale)


def test_its_curvature_is_the_fisher_information() -> None:
    """E (∂ log p / ∂ loc)² = 1/scale²: |∂ log p| is 1/scale everywhere, while the Hessian is 0."""
    law = bf.likelihood("laplace", scale=0.3)
    root = law.curvature_root(torch.zeros(4, 2), torch.ones(4, 2), torch.ones(3, 4, 2))
    output = torch.zeros(1, 1, requires_grad=True)
    law.log_prob(output, torch.ones(1, 1)).sum().backward()
    assert output.grad is not None
    torch.testing.assert_close(root.square(), output.grad.square().expand(3, 4, 2))
