"""The heteroscedastic likelihood against scipy."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

import bayesify as bf

BATCH = 6


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
