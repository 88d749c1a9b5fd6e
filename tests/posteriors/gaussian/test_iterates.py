"""Mean and covariance of iterates against a dense computation."""

import math

import pytest
import torch
from torch import Tensor

from bayesify.posteriors.gaussian.iterates import IterateCovariance

SHAPES = {"a.weight": (3, 2), "b": (4,)}
SIGMAS = 4.9  # a normal number is further off in one of a million


def iterates(n: int, dtype: torch.dtype = torch.float64) -> list[dict[str, Tensor]]:
    generator = torch.Generator().manual_seed(0)
    path = [torch.randn(10, generator=generator, dtype=dtype).cumsum(0) + 3 for _ in range(n)]
    return [{"a.weight": w[:6].view(3, 2), "b": w[6:]} for w in path]


def flat(weights: dict[str, Tensor]) -> Tensor:
    return torch.cat([weights[name].flatten(1) for name in SHAPES], 1)


def made(n: int, rank: int, **options: object) -> IterateCovariance:
    seen = iterates(n)
    found = IterateCovariance(seen[0], list(SHAPES), rank, **options)  # type: ignore[arg-type]
    for each in seen:
        found.add(each)
    return found


def dense(n: int, rank: int) -> Tensor:
    """½ diag v + D Dᵀ / (2 (K − 1)) as in the paper, from moments and running means."""
    path = torch.stack([torch.cat([w["a.weight"].flatten(), w["b"]]) for w in iterates(n)])
    v = path.square().mean(0) - path.mean(0).square()
    running = path.cumsum(0) / torch.arange(1, n + 1)[:, None]
    d = (path - running)[-rank:]
    return v.diag() / 2 + d.T @ d / (2 * (len(d) - 1))


@pytest.mark.parametrize(("n", "rank"), [(2, 2), (3, 20), (7, 5), (31, 5)])
def test_the_covariance_is_that_of_the_paper(n: int, rank: int) -> None:
    found, sigma = made(n, rank), dense(n, rank)
    variance = found.variance()
    assert {name: tuple(v.shape) for name, v in variance.items()} == SHAPES
    torch.testing.assert_close(torch.cat([variance[name].flatten() for name in SHAPES]), sigma.diagonal())
    generator = torch.Generator().manual_seed(1)
    jacobian = {
        name: torch.randn(5, 3, *shape, generator=generator).double() for name, shape in SHAPES.items()
    }
    j = torch.cat([jacobian[name].flatten(2) for name in SHAPES], 2)
    torch.testing.assert_close(found.of_outputs(jacobian), j @ sigma @ j.mT)
    part = {"b": jacobian["b"]}  # an output that does not depend on the rest
    torch.testing.assert_close(found.of_outputs(part), j[..., 6:] @ sigma[6:, 6:] @ j[..., 6:].mT)


def test_draws_have_that_covariance() -> None:
    """200,000 draws of a normal law: Var of an entry of the sample covariance is (Σ_ij² + Σ_ii Σ_jj)/n. Of 110
    numbers the furthest is within `SIGMAS` + 1 standard errors but for one seed of a million."""
    found, n = made(31, 5), 200_000
    drawn = flat(found.deviations(n, torch.Generator().manual_seed(2)))
    sigma = dense(31, 5)
    variance = sigma.diagonal()
    assert (drawn.mean(0).abs() < (SIGMAS + 1) * (variance / n).sqrt()).all()
    error = ((sigma.square() + variance[:, None] * variance) / n).sqrt()
    assert ((drawn.T @ drawn / n - sigma).abs() < (SIGMAS + 1) * error).all()
    again = flat(found.deviations(n, torch.Generator().manual_seed(2)))
    assert torch.equal(drawn, again)


def test_long_runs_in_float32_keep_small_variances() -> None:
    """10,000 iterates of weights of 30 that vary by 0.01. A step moves the mean by d/n, which may be rounded away, so
    that it is off by √Σ (k/n)² (d_k/k)² = std/√n at most, six times that but for one seed of a million; the variance
    by the square of that, and by √n roundings of 2⁻²⁴. E w² − (E w)² in float32 is off by more than half of it."""
    generator = torch.Generator().manual_seed(3)
    n, std = 10_000, 1e-2
    path = 30 + std * torch.randn(n, 3, generator=generator)
    found = IterateCovariance({"w": path[0]}, ["w"], 2)
    for w in path:
        found.add({"w": w})
    exact = path.double()
    assert ((found.means["w"] - exact.mean(0)).abs() < 6 * std / n**0.5).all()
    v, best = found.squares["w"].double() / n, exact.var(0, correction=0)
    torch.testing.assert_close(v, best, rtol=36 / n + n**0.5 * 2**-24, atol=0)
    rounded = path.square().sum(0) / n - (path.sum(0) / n).square()
    assert ((rounded - best).abs() > best / 2).any()


def test_weights_without_a_covariance_have_a_mean() -> None:
    found = IterateCovariance(iterates(1)[0], ["b"], 3)
    for each in iterates(9):
        found.add(each)
    expected = torch.stack([each["a.weight"] for each in iterates(9)]).mean(0)
    torch.testing.assert_close(found.means["a.weight"], expected)
    assert found.variance().keys() == {"b"} == found.deviations(2).keys()


def test_columns_may_be_rounded_and_moments_are_not() -> None:
    whole, rounded = made(31, 5), made(31, 5, dtype=torch.bfloat16)
    assert all(d.dtype == torch.bfloat16 for d in rounded.columns.values())
    for name in SHAPES:
        assert torch.equal(whole.squares[name], rounded.squares[name])
        # bfloat16 has 8 bits: squares are off by at most 2^-8
        torch.testing.assert_close(rounded.variance()[name], whole.variance()[name], rtol=2**-8, atol=0)
    low = IterateCovariance({"w": torch.zeros(2, dtype=torch.bfloat16)}, ["w"], 2)
    assert low.means["w"].dtype == torch.float32


def test_what_does_not_fit_is_refused() -> None:
    found = made(7, 5)
    kept = found.tensors()
    other = made(3, 5)
    other.take(kept, 7)
    assert all(torch.equal(kept[name], value) for name, value in other.tensors().items())
    assert math.isclose(other.variance()["b"][0], found.variance()["b"][0])
    for name, count in (("columns.b", 7), ("mean.b", 7), ("squares.a.weight", 7)):
        with pytest.raises(ValueError, match=r"does not fit 7 iterates at rank 5"):
            other.take({**kept, name: kept[name][:1]}, count)
    with pytest.raises(ValueError, match=r"does not fit 3 iterates"):
        other.take(kept, 3)
