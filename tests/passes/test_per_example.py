"""A choice of component for every example, without a loop: the same as running each example by itself."""

from typing import Any

import pytest
import torch
from scipy import stats
from torch import nn

import bayesify as bf
from bayesify.posteriors.base import Call
from bayesify.posteriors.patched.choices import assign, value_at

FAILURE_RATE = 1e-6

CASES: dict[str, tuple[Any, tuple[int, ...]]] = {
    "linear": (lambda: nn.Linear(3, 4), (5, 3)),
    "linear, no bias": (lambda: nn.Linear(3, 4, bias=False), (5, 3)),
    "linear on tokens": (lambda: nn.Linear(3, 4), (5, 7, 3)),
    "conv 1d": (lambda: nn.Conv1d(4, 6, 3, padding=1), (5, 4, 8)),
    "conv 2d, stride and dilation": (lambda: nn.Conv2d(4, 6, 3, 2, 1, 2), (5, 4, 9, 9)),
    "conv, same padding": (lambda: nn.Conv2d(4, 6, 3, padding="same"), (5, 4, 6, 6)),
    "conv, reflect padding": (lambda: nn.Conv2d(4, 6, 3, padding=1, padding_mode="reflect"), (5, 4, 6, 6)),
    "grouped conv": (lambda: nn.Conv2d(4, 6, 3, groups=2, bias=False), (5, 4, 6, 6)),
    "conv 3d": (lambda: nn.Conv3d(2, 3, 2), (5, 2, 4, 4, 4)),
    "transposed conv": (lambda: nn.ConvTranspose2d(4, 6, 3, 2, 1, 1, groups=2, dilation=1), (5, 4, 6, 6)),
    "batch norm 1d": (lambda: nn.BatchNorm1d(4).eval(), (5, 4)),
    "batch norm 2d": (lambda: nn.BatchNorm2d(4).eval(), (5, 4, 3, 3)),
    "instance norm": (lambda: nn.InstanceNorm2d(4, affine=True), (5, 4, 3, 3)),
    "group norm": (lambda: nn.GroupNorm(2, 4), (5, 4, 3, 3)),
    "layer norm": (lambda: nn.LayerNorm((3, 4)), (5, 2, 3, 4)),
    "rms norm": (lambda: nn.RMSNorm(4), (5, 3, 4)),
}


@pytest.mark.parametrize("assignment", ["layer", "element", "dropout"])
@pytest.mark.parametrize("case", CASES)
def test_each_example_has_the_weights_of_its_own_assignment(case: str, assignment: str) -> None:
    build, shape = CASES[case]
    if assignment == "dropout" and "norm" in case:
        pytest.skip("dropout takes weight matrices only")
    method = bf.EnsemblePatching(
        3, assignment, per_example=True, spread=1.0, drop_prob=0.4, where=bf.where.all
    )
    model = bf.bayesify(build(), method, num_data=10)
    x = torch.randn(shape)
    y = model(x, generator=torch.Generator().manual_seed(3))
    chosen = assign(model.posterior, Call((x,), {}, torch.Generator().manual_seed(3))).by_unit
    for i in range(len(x)):
        q = model.posterior
        held = q.held(list(q.slots))
        weights = {
            name: value_at(patch, q.centroids(name, held), chosen[patch.unit][i])
            for name, patch in q.patches.items()
        }
        alone = torch.func.functional_call(model.net, weights, (x[i : i + 1],))
        torch.testing.assert_close(y[i : i + 1], alone, rtol=1e-4, atol=1e-5)
    y.sum().backward()
    assert all(p.grad is not None for p in model.net.parameters())


def test_more_examples_than_components_and_fewer() -> None:
    """A linear layer computes all K outputs, or a product per example, whichever is less."""
    model = bf.bayesify(nn.Linear(3, 2), bf.EnsemblePatching(4, per_example=True, spread=1.0), num_data=10)
    for batch in (2, 3, 4, 50):
        x = torch.randn(batch, 3)
        y = model(x, generator=torch.Generator().manual_seed(0))
        z = model.posterior.mixing.draw(x.device, batch, torch.Generator().manual_seed(0))
        members = torch.stack([model.member(k)(x) for k in range(4)])  # (K, batch, out)
        torch.testing.assert_close(y, members[z[:, 0], torch.arange(batch)])


def test_examples_choose_independently_with_the_given_probabilities() -> None:
    """4000 examples in one pass."""
    method = bf.EnsemblePatching(2, mixing=(0.3, 0.7), per_example=True, where=bf.where.all)
    model = bf.bayesify(nn.Linear(1, 1, bias=False), method, num_data=10)
    with torch.no_grad():
        model.net.weight.fill_(0.0)
        model.get_parameter("posterior.components.weight").fill_(1.0)
    count = model(torch.ones(4000, 1)).sum().item()
    assert abs(count - 2800) < stats.norm.isf(FAILURE_RATE / 2) * (4000 * 0.21) ** 0.5


def test_batch_statistics_are_those_of_the_batch() -> None:
    model = bf.bayesify(nn.BatchNorm1d(3), bf.EnsemblePatching(per_example=True), num_data=10)
    plain = nn.BatchNorm1d(3)
    x = torch.randn(8, 3)
    model(x), plain(x)
    torch.testing.assert_close(model.net.running_mean, plain.running_mean)
    torch.testing.assert_close(model.net.running_var, plain.running_var)


def test_other_uses_take_one_choice_for_the_batch() -> None:
    """Embeddings, attention and rows that are not examples; the summary says which."""
    net = nn.Sequential(
        nn.Embedding(10, 4), nn.TransformerEncoderLayer(4, 2, 8, batch_first=True, dropout=0.0)
    )
    method = bf.EnsemblePatching(3, per_example=True, spread=1.0, where=bf.where.all)
    model = bf.bayesify(net, method, num_data=10)
    assert model(torch.randint(10, (6, 5))).shape == (6, 5, 4)
    became = {row.name: row.reason for row in model.summary().rows}
    assert became["1.linear1.weight"] == "3 components, by layer and example"
    assert became["0.weight"] == "3 components, by layer"
    windows = bf.bayesify(
        nn.Sequential(nn.Unflatten(0, (3, 2)), nn.Flatten(1), nn.Linear(8, 2)), method, num_data=10
    )
    assert windows(torch.randn(6, 4)).shape == (3, 2)


def test_a_call_without_a_tensor_is_named() -> None:
    class Nothing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(2, 2)

        def forward(self, n: int) -> torch.Tensor:
            return self.layer(torch.ones(n, 2))

    model = bf.bayesify(Nothing(), bf.EnsemblePatching(per_example=True), num_data=10)
    with pytest.raises(ValueError, match="per_example=True needs an input tensor"):
        model(3)
