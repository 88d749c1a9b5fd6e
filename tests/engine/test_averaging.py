"""Averaged networks have batch-norm statistics of their own, and so has every component at the end of a run."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import bayesify as bf
from bayesify.data import Loader, Split

X = torch.randn(80, 4, generator=torch.Generator().manual_seed(0)) * 3 + 1
Y = (X[:, 0] > 1).long()


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 2))


def loader(kind: str = "own") -> Any:
    if kind == "own":
        return Loader(Split(X, Y), 20, shuffle=True)
    order = torch.Generator().manual_seed(1) if kind == "generator" else None
    return DataLoader(TensorDataset(X, Y), 20, shuffle=True, generator=order)


def fitted(kind: str = "own", val: bool = True, **options: Any) -> tuple[bf.BayesianModule, bf.History]:
    made = bf.bayesify(net(), "point")
    given: dict[str, Any] = {
        "epochs": 3,
        "lr": 0.05,
        "seed": 0,
        "progress": False,
        "compile": False,
        **options,
    }
    return made, bf.fit(made, loader(kind), [(X, Y)] if val else None, **given)


def activations(layer: nn.Module) -> Tensor:
    with torch.no_grad():
        return layer(X)


@pytest.mark.parametrize("kind", ["own", "generator", "global"])
def test_statistics_are_those_of_the_averaged_weights(kind: str) -> None:
    """Four batches of equal size: the running mean is the mean over all examples. What training does, which batches it
    sees and whether there is a validation make no difference."""
    averaged, history = fitted(kind, ema=0.9)
    plain, other = fitted(kind)
    assert [row["loss"] for row in history] == [row["loss"] for row in other]
    assert not torch.equal(averaged.net[0].weight, plain.net[0].weight)
    mean = activations(averaged.net[0]).mean(0)
    torch.testing.assert_close(averaged.net[1].running_mean, mean, rtol=1e-4, atol=1e-5)
    assert averaged.net[1].momentum == 0.1 and averaged.net[1].num_batches_tracked == 4
    assert (plain.net[1].running_mean - activations(plain.net[0]).mean(0)).abs().max() > 1e-2
    alone, _ = fitted(kind, val=False, ema=0.9)
    torch.testing.assert_close(alone.net.state_dict(), averaged.net.state_dict(), rtol=1e-5, atol=1e-6)
    found = bf.evaluate(averaged, [(X, Y)])
    assert found["nll"] == pytest.approx(history[-1]["val_nll"], rel=1e-4)


def test_statistics_that_stand_still_are_left_alone() -> None:
    averaged, _ = fitted(ema=0.9, frozen_norm=0.5)
    assert (averaged.net[1].running_mean - activations(averaged.net[0]).mean(0)).abs().max() > 1e-2


def test_every_component_is_settled_at_the_end() -> None:
    """40 batches of the same examples: the statistics of a member are exactly those of its weights."""
    x, y = X[:8].repeat(40, 1), Y[:8].repeat(40)
    model = bf.bayesify(net(), bf.EnsemblePatching(2, "member", spread=1.0))
    batches = DataLoader(TensorDataset(x, y), 8)
    bf.fit(model, batches, epochs=1, lr=0.01, seed=0, progress=False, compile=False)
    for k in range(2):
        member = model.member(k)
        with torch.no_grad():
            z = member[0](X[:8])
        torch.testing.assert_close(member[1].running_mean, z.mean(0), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(member[1].running_var, z.var(0), rtol=1e-4, atol=1e-5)


def test_members_of_an_ensemble_are_settled_each() -> None:
    made = bf.bayesify(net(), bf.DeepEnsemble(bf.Point(), 2))
    bf.fit(made, loader(), epochs=2, lr=0.05, seed=0, ema=0.9, progress=False, compile=False)
    for k in range(2):
        member = made.member(k)
        mean = activations(member[0]).mean(0)
        torch.testing.assert_close(member[1].running_mean, mean, rtol=1e-4, atol=1e-5)


NOISY = {
    "mc_vi": bf.MonteCarloVI(init_std=0.05),
    "emp": bf.EnsemblePatching(3, spread=0.2),
    "emp everywhere": bf.EnsemblePatching(3, "element", where=bf.where.all, spread=0.2),
    "ivon": bf.IVON(),
}


@pytest.mark.parametrize("name", NOISY)
def test_statistics_of_draws_around_averaged_weights(name: str) -> None:
    """Four batches settle them, each with a draw of its own, so that their mean is within 6 standard errors of that of
    400 passes over all examples: of 6 units 1e-8 leave it by chance."""
    made = bf.bayesify(net(), NOISY[name], num_data=len(X))
    bf.fit(made, loader(), epochs=6, lr=0.05, seed=0, ema=0.9, progress=False, compile=False)
    means: list[Tensor] = []
    hook = made.net[0].register_forward_hook(lambda *call: means.append(call[-1].mean(0)))
    settled = made.net[1].running_mean.clone()
    with torch.no_grad():
        for _ in range(400):
            made(X)
    hook.remove()
    drawn = torch.stack(means)
    error = (drawn.var(0) * (1 / 4 + 1 / 400)).sqrt()
    assert ((settled - drawn.mean(0)).abs() <= 6 * error + 1e-5).all()


def test_a_mean_network_gets_statistics_of_its_own_from_a_loader() -> None:
    """What the guide says to do: those of training are of draws."""
    made = bf.bayesify(net(), bf.IVON(), num_data=len(X))
    bf.fit(made, loader(), epochs=3, seed=0, progress=False, compile=False)
    centre = made.mean_net()
    mean = activations(centre[0]).mean(0)
    assert not torch.allclose(centre[1].running_mean, mean, rtol=1e-3)
    torch.optim.swa_utils.update_bn(loader(), centre)
    torch.testing.assert_close(centre[1].running_mean, mean, rtol=1e-4, atol=1e-5)


def test_a_finished_run_is_finished_alike(tmp_path: Any) -> None:
    states = [fitted("generator", ema=0.9, folder=tmp_path)[0].net.state_dict() for _ in range(2)]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
