"""A chain that has not arrived is pulled one way by its gradients; one in the posterior is not."""

import warnings

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import bayesify as bf
from bayesify.samplers.pull import COUNT, STRONG, Pull, on_its_way


def strengths(curvature: float, start: float, chains: int = 200) -> torch.Tensor:
    """Of Langevin chains in a normal of 3 coordinates with noisy gradients, the last of another curvature, after 1,000
    steps from `start`."""
    torch.manual_seed(0)
    w, curvatures = nn.Parameter(torch.randn(chains, 3)), torch.tensor([1.0, 1.0, curvature])
    with torch.no_grad():
        w.div_(curvatures.sqrt())[:, 2] += start
    sampler, pull = bf.samplers.SGLD([w], lr=0.1, num_data=1), Pull(0, 1000, chains)
    for step in range(1, 1001):
        w.grad = w.detach() * curvatures + 0.1 * torch.randn_like(w)
        pull.look(step, sampler, {w: sampler.param_groups[0]})
        sampler.step()
    return pull.found(sampler, {"w": w})


def test_right_chains_are_not_pulled_and_far_ones_are() -> None:
    assert int((strengths(0.3, 0.0) > STRONG).sum()) <= 1
    assert int((strengths(1e-3, 1000.0) > STRONG).sum()) >= 180


def test_one_of_many_chains_may_be_beyond_the_limit_by_chance() -> None:
    assert on_its_way(torch.tensor([7.0]))
    assert not on_its_way(torch.tensor([7.0, *[0.0] * 39]))
    assert "7 standard errors" in on_its_way(torch.full((40,), 7.0))["pulled"]


class Own(nn.Module):
    """A layer that nobody knows for one."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(0.5 * torch.randn(4, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight


@pytest.mark.parametrize("loop", ["fit", "own", "own, of unknown length"])
def test_features_far_from_0_are_not_silent(loop: str) -> None:
    """In `bf.fit`, and in a loop of one's own before a prediction; layers of torch's are right (`axes`)."""
    x = 30 + torch.randn(200, 4, generator=torch.Generator().manual_seed(0))
    y = x @ torch.tensor([[0.5], [-1.0], [1.5], [-2.0]])
    torch.manual_seed(0)
    likelihood = bf.likelihood("normal", std=0.1)
    method = bf.ThermostatMCMC(burn_in=600, every=30)
    model = bf.bayesify(Own(), method, likelihood, num_data=200)
    loader = DataLoader(TensorDataset(x, y), batch_size=50, shuffle=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bf.SamplingWarning)
        if loop != "fit":
            sampler = model.optimizer(**({"num_steps": 1200} if loop == "own" else {}))
            for _ in range(300):
                for inputs, target in loader:
                    sampler.zero_grad()
                    model(inputs, target=target).total.backward()
                    sampler.step()
        else:
            bf.fit(model, loader, epochs=300, progress=False, seed=0, accelerator="cpu")
    assert "pulled" in model.posterior.findings
    with pytest.warns(bf.SamplingWarning, match="pulled the weights the same way"):
        model.predict(x)


def test_the_numbers_of_a_pull_go_through_a_state() -> None:
    w = nn.Parameter(torch.zeros(2, 3))
    sampler, pull = bf.samplers.SGLD([w], lr=0.1, num_data=1), Pull(0, 400, 2)
    for step in range(1, 301):
        w.grad = torch.ones_like(w)
        pull.look(step, sampler, {w: sampler.param_groups[0]})
    again = bf.samplers.SGLD([w], lr=0.1, num_data=1)
    again.load_state_dict(sampler.state_dict())
    assert again.state[w]["pull_blocks"].shape == (2, COUNT)
