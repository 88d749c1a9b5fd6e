"""Values under the dotted names of another network."""

import torch
from torch import nn

from bayesify.weights.dotted_names import put


def test_a_value_is_registered_by_its_kind_and_found_at_its_place() -> None:
    root, layer = nn.Module(), nn.Linear(2, 2)
    weight, count = nn.Parameter(torch.ones(3)), torch.zeros(())
    slots = [put(root, "a.b.weight", weight), put(root, "a.b.count", count), put(root, "a.layer", layer)]
    assert [slot.get() for slot in slots] == [weight, count, layer]
    assert dict(root.named_parameters()).keys() == {"a.b.weight", "a.layer.weight", "a.layer.bias"}
    assert dict(root.named_buffers()).keys() == {"a.b.count"}


def test_a_place_follows_what_is_put_there_later() -> None:
    root = nn.Module()
    slot = put(root, "weight", nn.Parameter(torch.ones(3)))
    root.double()
    root.weight = other = nn.Parameter(torch.zeros(3))
    assert slot.get() is other
