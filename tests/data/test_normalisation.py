"""Standardising, and back."""

import pytest
import torch

from bayesify.data import Normalisation


def test_bytes_agree_with_a_plain_computation() -> None:
    images = torch.randint(
        0, 256, (50, 3, 5, 4), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
    )
    n = Normalisation.of(images)
    x = images.double() / 255
    assert torch.allclose(n.mean, x.mean((0, 2, 3)), rtol=1e-13)
    assert torch.allclose(n.std, x.std((0, 2, 3), correction=0), rtol=1e-13)
    z = n.inputs(images, torch.float64)
    assert torch.allclose(z, (x - n.mean.view(3, 1, 1)) / n.std.view(3, 1, 1), atol=1e-12)
    assert n.inputs(images).dtype == torch.float32
    assert n.inputs(images, torch.bfloat16).dtype == torch.bfloat16


def test_volumes_and_features() -> None:
    volume = torch.randint(0, 256, (6, 1, 3, 3, 3), dtype=torch.uint8)
    z = Normalisation.of(volume).inputs(volume, torch.float64)
    assert abs(z.mean().item()) < 1e-12
    assert abs(z.std(correction=0).item() - 1) < 1e-12
    x = torch.randn(30, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 7 + 100
    z = Normalisation.of(x).inputs(x, torch.float64)
    assert torch.allclose(z.mean(0), torch.zeros(4).double(), atol=1e-12)
    assert torch.allclose(z.std(0, correction=0), torch.ones(4).double())


@pytest.mark.parametrize(
    "inputs",
    [torch.full((7, 1), 0.1), torch.full((7, 1, 2, 2), 9, dtype=torch.uint8)],
    ids=["float", "bytes"],
)
def test_a_constant_column_gets_std_one(inputs: torch.Tensor) -> None:
    n = Normalisation.of(inputs)
    assert n.std.item() == 1
    assert n.inputs(inputs, torch.float64).abs().max() < 1e-12


def test_targets_go_to_standard_units_and_back() -> None:
    y = torch.tensor([[1.0, 100.0], [3.0, 100.0]], dtype=torch.float64)
    n = Normalisation.of(y, y)
    t = n.targets(y)
    assert t.tolist() == [[-1.0, 0.0], [1.0, 0.0]]  # the second column is constant
    assert torch.equal(n.original_mean(t), y)
    assert n.original_std(torch.tensor([0.5, 0.5])).tolist() == [0.5, 0.5]
    assert Normalisation.of(10 * y, 10 * y).original_std(torch.ones(1, 2)).tolist() == [[10.0, 1.0]]


def test_classification_targets_pass_through() -> None:
    n = Normalisation.of(torch.randn(4, 2))
    y = torch.tensor([0, 1])
    assert n.targets(y) is y
    assert n.original_mean(y) is y
    assert n.original_std(y) is y


def test_identity_divides_bytes_only() -> None:
    n = Normalisation.identity()
    assert n.inputs(torch.full((1, 3, 1, 1), 255, dtype=torch.uint8)).flatten().tolist() == [1, 1, 1]
    assert n.inputs(torch.tensor([[5.0, 6.0]])).tolist() == [[5.0, 6.0]]


def test_to_moves_every_number() -> None:
    y = torch.randn(5, 2)
    n = Normalisation.of(y, y).to("cpu", torch.float32)
    assert {v.dtype for v in (n.mean, n.std, n.target_mean, n.target_std)} == {torch.float32}
