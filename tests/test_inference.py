"""bf.inference_modes on ensembles: every member at its own mean."""

import copy

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import bayesify as bf


def batches() -> DataLoader:
    torch.manual_seed(0)
    return DataLoader(TensorDataset(torch.randn(40, 6), torch.randint(3, (40,))), 20)


def net() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3))


def test_the_modes_of_an_ensemble_without_noise_are_one() -> None:
    modes = bf.inference_modes(bf.bayesify(net(), bf.DeepEnsemble(bf.Point(), 4), num_data=40), batches())
    assert modes["deterministic"]["nll"] == pytest.approx(modes["ensemble"]["nll"], abs=1e-6)


def test_deterministic_is_the_average_over_the_members_at_their_means() -> None:
    model = bf.bayesify(net(), bf.DeepEnsemble(bf.MonteCarloVI(init_std=0.3), 3), num_data=40)
    before = copy.deepcopy(model.state_dict())
    found = bf.inference_modes(model, batches(), num_draws=5)["deterministic"]["nll"]
    x, y = (torch.cat(parts) for parts in zip(*batches(), strict=True))
    probs = torch.stack([model.member(i).eval()(x).softmax(-1) for i in range(3)]).mean(0)
    expected = -probs.gather(1, y[:, None]).log().mean().item()
    assert found == pytest.approx(expected, abs=1e-5)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
