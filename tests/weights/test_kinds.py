"""What kind of network one is."""

import pytest
from torch import nn

from bayesify import nets
from bayesify.weights.kinds import kind_of_network

IMAGE = {"num_outputs": 10, "input_shape": (3, 32, 32)}


@pytest.mark.parametrize(
    ("net", "kind"),
    [
        ("mlp", "plain"),
        ("lenet", "plain"),
        ("resnet20", "convolutional"),
        ("vit_tiny", "transformer"),
    ],
)
def test_networks_of_bayesify(net: str, kind: str) -> None:
    assert kind_of_network(nets.make(net, **IMAGE)) == kind


class Mixer(nn.Module):
    """Patches by a convolution, layer norm, no attention."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.norm = nn.Conv2d(3, 8, 4, 4), nn.LayerNorm(8)


class ChannelAttention(nn.Linear):
    """A gate of channels, as in CBAM."""


@pytest.mark.parametrize(
    ("net", "kind"),
    [
        (nn.LSTM(3, 4), "recurrent"),
        (nn.Sequential(nn.Embedding(5, 4), nn.GRU(4, 4)), "recurrent"),
        (nn.TransformerEncoderLayer(8, 2), "transformer"),
        (Mixer(), "transformer"),
        (nn.Sequential(nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4)), "convolutional"),
        (nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), ChannelAttention(4, 4)), "convolutional"),
        (nn.Sequential(nn.Conv2d(3, 4, 3), nn.Linear(4, 2)), "plain"),
        (nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)), "plain"),
        (nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4)), "plain"),
    ],
)
def test_other_networks(net: nn.Module, kind: str) -> None:
    assert kind_of_network(net) == kind
