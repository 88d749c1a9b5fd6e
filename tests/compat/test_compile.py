"""torch.compile, fullgraph: the training step traces through, in every pass."""

from typing import Any

import pytest
import torch
from torch import nn
from zoo import ZOO

import bayesify as bf

EXEMPT = {"nn.LSTM, 2 layers, bidirectional", "nn.GRU"}  # dynamo refuses recurrent layers itself
EXEMPT |= {"monai BasicUNet"}  # and the torch.jit.isinstance in it
NETS = [name for name in ZOO if name not in EXEMPT]


def small_cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8 * 9, 5)
    )


@pytest.fixture(autouse=True)
def _fresh_dynamo() -> None:
    torch._dynamo.reset()


@pytest.mark.parametrize("sampling", ["draw", "local", "flipout"])
def test_a_compiled_training_step_trains(sampling: str) -> None:
    model = bf.bayesify(small_cnn(), bf.MonteCarloVI(sampling=sampling), num_data=64)
    step = torch.compile(model, fullgraph=True, backend="aot_eager")
    x, y = torch.randn(16, 3, 8, 8), torch.randint(5, (16,))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    start = step(x, target=y)
    for _ in range(30):
        optimizer.zero_grad()
        loss = step(x, target=y)
        loss.total.backward()
        optimizer.step()
    assert loss.total < start.total
    assert loss.nll < start.nll
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
    assert isinstance(model.net[0].weight, nn.Parameter)


@pytest.mark.parametrize("sampling", ["draw", "local"])
@pytest.mark.parametrize("name", NETS)
def test_every_network_compiles_whole(name: str, sampling: str) -> None:
    case = ZOO[name]()
    method = bf.MonteCarloVI(sampling=sampling, where=case.where or bf.where.all)
    model = bf.bayesify(case.net, method, num_data=100, output=case.output, example=case.x)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    first, second = model.pick(compiled(case.x)), model.pick(compiled(case.x))
    assert not torch.equal(first, second)
    first.sum().backward()
    assert any(p.grad is not None for p in model.posterior.parameters())


def test_compiled_and_eager_agree_without_noise() -> None:
    model = bf.bayesify(small_cnn().eval(), bf.MonteCarloVI(init_std=1e-9), num_data=64)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    x, y = torch.randn(16, 3, 8, 8), torch.randint(5, (16,))
    for eager, traced in zip(model(x, target=y), compiled(x, target=y), strict=True):
        assert torch.allclose(eager, traced, rtol=1e-5)


def test_a_changed_kl_weight_does_not_recompile() -> None:
    model = bf.bayesify(small_cnn(), bf.MonteCarloVI(), num_data=64)
    counter: list[Any] = []

    def backend(graph: Any, inputs: Any) -> Any:
        counter.append(graph)
        return graph

    compiled = torch.compile(model, fullgraph=True, backend=backend)
    warmup = bf.KLWarmup(model, num_steps=3)
    x, y = torch.randn(16, 3, 8, 8), torch.randint(5, (16,))
    totals = []
    for _ in range(4):
        loss = compiled(x, target=y)
        totals.append((loss.total - loss.nll).item())
        warmup.step()
    assert len(counter) == 1
    assert totals[0] == 0 and totals[3] == pytest.approx(loss.kl.item() / 64, rel=1e-4)


def test_a_weight_used_twice_in_compiled_local_code_is_refused_without_an_example() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(self.layer(x))

    model = bf.bayesify(Twice(), bf.MonteCarloVI(sampling="local"), num_data=10)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    with pytest.raises(Exception, match=r"used more than once|example="):
        compiled(torch.randn(2, 4))
    torch._dynamo.reset()
    model(torch.randn(2, 4))  # one eager call finds out
    assert compiled(torch.randn(2, 4)).shape == (2, 4)


@pytest.mark.inductor
@pytest.mark.parametrize("sampling", ["draw", "local", "flipout"])
def test_inductor_trains(sampling: str) -> None:
    model = bf.bayesify(small_cnn(), bf.MonteCarloVI(sampling=sampling), num_data=64)
    step = torch.compile(model, fullgraph=True)
    x, y = torch.randn(16, 3, 8, 8), torch.randint(5, (16,))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    start = step(x, target=y).total.item()
    for _ in range(30):
        optimizer.zero_grad()
        loss = step(x, target=y)
        loss.total.backward()
        optimizer.step()
    assert loss.total.item() < start
