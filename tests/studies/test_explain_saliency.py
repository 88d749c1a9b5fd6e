"""Saliency of a network that carries its full covariance."""

import torch
from torch import nn

import bayesify as bf
from bayesify.likelihoods.draws import _root
from bayesify.studies import explain


def test_the_map_is_the_gradient_of_the_score() -> None:
    """Central differences in float64: an error of h² times third derivatives, about 1e-9 here."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 4)).double()
    model = bf.bayesify(net, bf.DensityPropagation(covariance="full", init_std=0.3))
    x = torch.randn(2, 3, dtype=torch.float64)
    score = explain.probability_of(model, torch.tensor([0, 3]), num_draws=4)
    found = explain.saliency(score, x)
    h = 1e-5
    for i in range(3):
        step = h * torch.eye(3, dtype=torch.float64)[i]
        with torch.no_grad():
            slope = (score(x + step) - score(x - step)) / (2 * h)
        torch.testing.assert_close(found[:, i], slope, rtol=1e-6, atol=1e-8)


def test_a_covariance_without_full_rank_has_a_root() -> None:
    factor = torch.randn(3, 6, 2, generator=torch.Generator().manual_seed(0))
    cov = factor @ factor.mT
    root = _root(cov)
    torch.testing.assert_close(root @ root.mT, cov, rtol=0, atol=1e-4 * cov.abs().max().item())
