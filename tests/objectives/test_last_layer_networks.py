"""Many draws of the last layer in networks: what they cost, which networks they serve, and which they refuse."""

from typing import Any

import pytest
import torch
from last_layer_cases import TARGETS, X, Y, make, network
from torch import Tensor, nn

import bayesify as bf


@pytest.mark.parametrize("likelihood", TARGETS)
def test_the_graph_does_not_grow_with_the_draws(likelihood: str) -> None:
    sizes = []
    for num_draws in (2, 500):
        model = make(num_draws, likelihood, network(2))
        y = TARGETS[likelihood]
        sizes.append(bf.graph_size(lambda model=model, y=y: model.loss(X, y).nll))
    assert sizes[0] == sizes[1]


class Dense(nn.Module):
    """A class per pixel by a 1 × 1 convolution, returned in a dict, as segmentation networks do."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Conv2d(1, 4, 3, padding=1)
        self.head = nn.Conv2d(4, 3, 1)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"logits": self.head(self.body(x).relu())}


class TwoHeads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return self.head(x).float().chunk(2, dim=-1)


class Scalar(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x)[:, 0]


NETWORKS: dict[str, Any] = {
    "pixels": (Dense, "categorical", (5, 1, 4, 4), torch.randint(3, (5, 4, 4))),
    "two heads": (TwoHeads, "heteroscedastic", (5, 4), torch.randn(5, 1)),
    "squeezed": (Scalar, "normal", (5, 4), torch.randn(5)),
    "logits squeezed": (Scalar, "bernoulli", (5, 4), torch.ones(5)),
}


@pytest.mark.parametrize("family", ["normal", "laplace"])
@pytest.mark.parametrize("name", NETWORKS)
def test_networks_train_in_eager_and_compiled_code(name: str, family: str) -> None:
    build, likelihood, shape, y = NETWORKS[name]
    model = make(4, likelihood, build(), family=family)
    x = torch.randn(shape)
    model.loss(x, y).total.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    model.zero_grad()
    compiled(x[:3], target=y[:3])  # another size makes the sizes symbols
    loss = compiled(x, target=y)
    loss.total.backward()
    assert torch.isfinite(loss.total)
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters())
    with torch.autocast("cpu", torch.bfloat16):
        assert model.loss(x, y).nll.dtype == torch.float32


def test_a_plain_call_and_a_prediction_give_what_the_network_gives() -> None:
    model = make(10)
    assert isinstance(model(X), Tensor)
    assert model.predict(X).probs.shape == (6, 3)


def test_generators_and_ensembles() -> None:
    model = make(10)
    losses = [model.loss(X, Y, generator=torch.Generator().manual_seed(5)).nll for _ in range(2)]
    assert torch.equal(*losses)
    method = bf.DeepEnsemble(bf.MonteCarloVI(num_likelihood_draws=10), num_members=2)
    assert torch.isfinite(bf.bayesify(network(), method, num_data=60).loss(X, Y, num_draws=2).total)


# -- refusals ------------------------------------------------------------------------------------------------
class Softmax(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Linear(4, 3), nn.Softmax(1))


class Joined(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 1), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.a(x), self.b(x)], 1)


class Auxiliary(nn.Module):
    """The output is made first, an unused head afterwards."""

    def __init__(self) -> None:
        super().__init__()
        self.head, self.other = nn.Linear(4, 3), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        output = self.head(x)
        self.other(x)
        return output


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.head = nn.Linear(4, 4), nn.Linear(4, 3)
        self.head.weight = nn.Parameter(torch.randn(3, 4))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layer(x)) + 0 * self.head(x)


@pytest.mark.parametrize(
    ("net", "where", "message"),
    [
        (
            Softmax,
            bf.where.all,
            "puts it through 'F.softmax' in module '1' .Softmax.: return the output itself",
        ),
        (Joined, bf.where.all, "puts it through 'torch.cat' in module 'net' .Joined."),
        (Auxiliary, bf.where.all, "is not that of the last random layer: make one linear layer the last"),
        (Twice, bf.where.all, "'head.bias', is of a layer that is tied, parametrized or used more than once"),
        (lambda: nn.Linear(4, 3), bf.where.matching("bias"), "'bias', is of a layer without a random weight"),
        (
            lambda: nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3)),
            bf.where.all,
            "'1.bias', is not of a linear or convolutional layer .kind: norm.: choose other random parameters",
        ),
    ],
)
def test_a_network_that_it_cannot_serve_is_refused(net: Any, where: Any, message: str) -> None:
    model = make(10, net=net(), where=where)
    start = "num_likelihood_draws=10 draws the last layer's output, but "
    with pytest.raises(ValueError, match=f"^{start}.*{message}.*num_draws=10"):
        model.loss(X.float(), Y)


def test_a_sharded_network_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make(10)
    model.loss(X, Y)
    monkeypatch.setattr("bayesify.posteriors.factorized.is_sharded", lambda net: True)
    with pytest.raises(ValueError, match="but the network is sharded .FSDP2.: train it with DDP"):
        model.loss(X, Y)


def test_compiled_code_must_know_the_last_layer() -> None:
    model = make(10)
    torch._dynamo.reset()
    with pytest.raises(Exception, match="give bayesify.*example=x"):
        torch.compile(model, fullgraph=True, backend="aot_eager")(X, target=Y)


def test_the_number_is_checked() -> None:
    with pytest.raises(ValueError, match="num_likelihood_draws=0 must be a whole number of at least 1"):
        bf.MonteCarloVI(num_likelihood_draws=0)
