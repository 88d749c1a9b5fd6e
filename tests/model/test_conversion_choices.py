"""What a method decides by the network is said by `summary()`."""

import pytest
from torch import nn

import bayesify as bf

CHOSEN: dict[str, tuple[bf.methods.Method, str]] = {
    "last layer": (
        bf.MonteCarloVI(),
        "chosen for this network (convolutions with batch or group norm): where=output (where: random conv",
    ),
    "a prior": (
        bf.IVON(),
        "chosen for this network (convolutions with batch or group norm): prior=normal(mean=0.0, ",
    ),
    "by size": (bf.DensityPropagation(), "kl_weight=0.518, prior=fan_in"),
    "why": (bf.DensityPropagation(), " (kl_weight: the KL of so many weights would outweigh the data; "),
    "of members": (bf.DeepEnsemble(bf.MonteCarloVI(), 2), "where=output"),
}


@pytest.mark.parametrize("case", CHOSEN)
def test_what_was_chosen_for_the_network_is_said(case: str) -> None:
    method, said = CHOSEN[case]
    net = bf.nets.make("resnet20", num_outputs=10, input_shape=(3, 32, 32))
    assert said in str(bf.bayesify(net, method, num_data=100).summary())


GIVEN = [bf.Point(), bf.MonteCarloVI(where=bf.where.linear, kl_weight=0.1), bf.IVON(prior="normal")]


@pytest.mark.parametrize("method", GIVEN)
def test_what_was_given_was_not_chosen(method: bf.methods.Method) -> None:
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(144, 2))
    assert "chosen for this network" not in str(bf.bayesify(net, method, num_data=100).summary())
