"""Roots of the Hessian of −log p by the output, of every likelihood."""

import pytest
import torch
from likelihood_cases import DATA, X

import bayesify as bf
from bayesify.likelihoods.curvature import MOST_OUTPUTS, root_by_autograd


@pytest.mark.parametrize("name", [name for name in DATA if name != "laplace"])  # whose Hessian is 0
def test_the_root_squared_is_the_hessian_without_its_negative_part(name: str) -> None:
    target, outputs = DATA[name]()
    law = bf.likelihood(name)
    output = torch.randn(len(X), outputs, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    target = law.matched(output, target, True)
    eye = torch.eye(outputs).double()[:, None].expand(outputs, len(X), outputs)
    root = law.curvature_root(output, target, eye)  # (columns, batch, outputs)
    found = torch.einsum("sbi,sbj->bij", root, root)
    for n in range(5):
        exact = torch.autograd.functional.hessian(
            lambda z, n=n: -law.log_prob(z[None], target[n : n + 1]).sum(), output[n]
        )
        values, vectors = torch.linalg.eigh(exact.double())
        assert torch.allclose(found[n], vectors * values.clamp_min(0) @ vectors.mT, atol=1e-6), n


def test_classes_of_several_positions_with_weights_ignored_and_soft_targets() -> None:
    """Of (batch, classes, positions), beside the Hessian by autograd."""
    generator = torch.Generator().manual_seed(0)
    output = torch.randn(4, 3, 2, generator=generator, dtype=torch.float64)
    eye = torch.eye(6).double()[:, None].expand(6, 4, 6)
    hard = torch.tensor([[0, 1], [2, -100], [1, 1], [0, 2]])
    soft = torch.randn(4, 3, 2, generator=generator).double().softmax(1)
    for target, options in (
        (hard, {"class_weight": [1.0, 2.0, 0.5]}),
        (hard, {"label_smoothing": 0.2}),
        (soft, {}),
    ):
        law = bf.likelihood("categorical", **options)
        matched = law.matched(output, target, True)
        mine = law.curvature_root(output, matched, eye)
        exact = root_by_autograd(law.log_prob, output, matched, eye)
        for root in (mine, exact):
            assert torch.allclose(
                torch.einsum("sbi,sbj->bij", root, root),
                torch.einsum("sbi,sbj->bij", exact, exact),
                atol=1e-7,
            )


def test_too_many_outputs_for_a_dense_hessian_are_refused() -> None:
    size = MOST_OUTPUTS + 1
    law, output = bf.likelihood("poisson"), torch.zeros(1, size)
    with pytest.raises(ValueError, match=f"returns {size} numbers for each example.*curvature_root"):
        law.curvature_root(output, torch.zeros(1, size), torch.zeros(1, 1, size))
