"""Draws of outputs from their moments by noise that was made once."""

import torch

from bayesify.moments import Moments
from bayesify.predict.output_draws import _root, fixed_noise, with_noise


def test_the_root_is_that_of_the_covariance_also_without_full_rank() -> None:
    factor = torch.randn(4, 6, 3, dtype=torch.float64)
    for cov in (factor @ factor.mT, torch.eye(6, dtype=torch.float64).expand(2, 6, 6), torch.zeros(1, 6, 6)):
        root = _root(cov)
        torch.testing.assert_close(root @ root.mT, cov, rtol=1e-12, atol=1e-12)
    full = torch.randn(2, 5, 5, dtype=torch.float64)
    full = full @ full.mT
    torch.testing.assert_close(_root(full), torch.linalg.cholesky(full))


def test_drawn_outputs_have_mean_and_covariance_of_the_moments_exactly() -> None:
    root = torch.randn(4, 3, 3, dtype=torch.float64)
    cov = root @ root.mT
    output = Moments(torch.randn(4, 3, dtype=torch.float64), cov.diagonal(dim1=1, dim2=2), cov=cov)
    noise = fixed_noise(output, 20, torch.Generator().manual_seed(0))
    drawn = with_noise(output, noise)  # (draws, batch, outputs)
    centred = drawn - drawn.mean(0)
    torch.testing.assert_close(drawn.mean(0), output.mean)
    torch.testing.assert_close(torch.einsum("sbi,sbj->bij", centred, centred) / 20, cov)
    plain = with_noise(Moments(output.mean, output.var), noise)
    torch.testing.assert_close((plain - plain.mean(0)).square().mean(0), output.var)
