"""χ² draws in vector operations have the law of χ², for few and many degrees."""

import numpy as np
import pytest
import torch
from scipy import stats

from bayesify.laws.chi_squared import MANY, SOME, chi_squared, from_normal

FAILURE_RATE = 1e-6


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("degrees", [1, 2, 3, SOME - 1, SOME, MANY - 1, MANY, 99, 999, 10**5])
def test_the_law(degrees: int, dtype: torch.dtype) -> None:
    """Kolmogorov–Smirnov, 20,000 draws."""
    drawn = chi_squared(
        degrees, (20_000,), torch.empty(0, dtype=dtype), torch.Generator().manual_seed(degrees)
    )
    assert drawn.dtype == dtype
    assert stats.kstest(drawn.double().numpy(), stats.chi2(degrees).cdf).pvalue > FAILURE_RATE


@pytest.mark.parametrize(
    "degrees", [MANY, 60, 198, *(n + d for n in (199, 498, 998, 9998) for d in (-1, 0)), 10**6]
)
def test_the_polynomial_is_the_quantile_to_float32(degrees: int) -> None:
    assert largest_error(degrees) < 1e-7


@pytest.mark.parametrize("degrees", [SOME, SOME + 1, 20, MANY - 1])
def test_the_cube_of_a_polynomial_is_the_quantile(degrees: int) -> None:
    assert largest_error(degrees) < 1e-5


def largest_error(degrees: int) -> float:
    """Of the quantile, relative, where all but 1e-10 of the draws lie."""
    z = np.linspace(-6.5, 6.5, 2001)
    law = stats.chi2(degrees)
    exact = np.where(z < 0, law.ppf(stats.norm.cdf(z)), law.isf(stats.norm.sf(z)))
    return float(np.max(np.abs(from_normal(degrees, torch.tensor(z)).numpy() / exact - 1)))


def test_no_degrees_are_zero_and_half_precision_stays() -> None:
    assert not chi_squared(0, (5,), torch.empty(0)).any()
    assert chi_squared(100, (5,), torch.empty(0, dtype=torch.bfloat16)).dtype == torch.bfloat16
