"""Small tensors assigned together in one flat row, large ones by themselves."""

import pytest
import torch
from torch import nn

import bayesify as bf
from bayesify.posteriors.patched.choices import Assigned, weights_for


@pytest.mark.parametrize("assignment", ["layer", "element", "member"])
def test_small_tensors_together_and_one_by_one(assignment: str) -> None:
    """The flat form (assignments on the device) gives the weights, the KL and the gradients of the plain one."""
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    model = bf.bayesify(net.double(), bf.EnsemblePatching(3, assignment, spread=1.0), num_data=10)
    q = model.posterior
    z = q.mixing.draw(torch.device("cpu"))
    chosen = Assigned(q.mixing.by_unit(z), z)
    held = q.held(list(q.slots))
    kl, again, row = q.divergence.carried(q, held, q.flat)
    together = weights_for(q, again, chosen, row, None)
    assert q.flat is not None and set(q.flat.names) == set(q.patches)
    torch.testing.assert_close(kl, q.divergence(q, held))
    apart = weights_for(q, held, chosen, None, None)
    parameters = list(model.parameters())
    gradients = []
    for value, weights in ((kl, together), (q.divergence(q, held), apart)):
        total = 3 * value + sum((w * w.detach().cos()).sum() for w in weights.values())
        gradients.append(torch.autograd.grad(total, parameters))
    for name, weight in apart.items():
        torch.testing.assert_close(together[name], weight)
    for a, b in zip(*gradients, strict=True):
        torch.testing.assert_close(a, b)
    draws = weights_for(q, held, Assigned(q.mixing.by_unit(z[None]), z[None]), row, None, 1)
    for name in q.patches:
        torch.testing.assert_close(draws[name][0], apart[name])


def test_large_and_mixed_tensors_keep_their_own_form() -> None:
    net = nn.Sequential(nn.Linear(300, 200), nn.LayerNorm(200), nn.Linear(200, 2))
    model = bf.bayesify(net, bf.EnsemblePatching(where=bf.where.all, assignment="element"), num_data=10)
    assert set(model.posterior.patches) - set(model.posterior.flat.names) == {"0.weight"}
    assert model(torch.randn(2, 300)).shape == (2, 2)
    mixed = nn.Sequential(nn.Linear(3, 3).double(), nn.Linear(3, 3))
    assert bf.bayesify(mixed, bf.EnsemblePatching(where=bf.where.all), num_data=10).posterior.flat is None
