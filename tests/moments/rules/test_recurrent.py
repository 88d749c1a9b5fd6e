"""Recurrent layers and cells: the means are the plain layer's, variances those of drawn weights and inputs."""

from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from propagation import draws_of, propagate, random_moments
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import bayesify as bf
from bayesify.moments.rules.recurrent import STEPS, cell

KINDS: dict[str, Any] = {"lstm": nn.LSTM, "gru": nn.GRU, "tanh": nn.RNN, "relu": nn.RNN}
OPTIONS: list[dict[str, Any]] = [
    {},
    {"batch_first": True, "bias": False},
    {"num_layers": 2, "bidirectional": True, "dropout": 0.5},
]


def layer_of(kind: str, **options: Any) -> nn.Module:
    if kind == "relu":
        options["nonlinearity"] = "relu"
    return KINDS[kind](3, 4, **options).double().eval()


def leaves(value: Any) -> list[Any]:
    """Outputs and states in order."""
    if isinstance(value, Tensor | bf.Moments):
        return [value]
    return [leaf for part in value for leaf in leaves(part)]


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_outputs_and_states_of_certain_inputs_are_the_plain_layers(
    kind: str, options: dict[str, Any]
) -> None:
    layer, x = layer_of(kind, **options), torch.randn(2, 5, 3).double()
    results = leaves(propagate(layer, bf.Moments(x, torch.zeros_like(x))))
    for result, expected in zip(results, leaves(layer(x)), strict=True):
        torch.testing.assert_close(result.mean, expected)
        assert not result.var.any()


def off(result: bf.Moments, draws: Tensor) -> Tensor:
    """Mean distance of both stds, relative to the mean std."""
    return (result.var.sqrt() - draws.std(0)).abs().mean() / draws.std(0).mean()


@pytest.mark.parametrize("name", STEPS)
def test_one_step_with_random_weights_agrees_with_monte_carlo(name: str) -> None:
    """Every gate has weights of its own, so first order has all: the std of 20,000 draws is off by 0.5 %."""
    x, state = torch.randn(3, 3).double(), torch.randn(2, 3, 4).double()
    hx: Any = tuple(state) if name == "lstm" else state[0]
    rows = {"lstm": 16, "gru": 12}.get(name, 4)
    weights = [random_moments(*shape, var=1e-4) for shape in ((rows, 3), (rows, 4), (rows,), (rows,))]

    def step(operation: Any, *weights: Any) -> Any:
        result = operation(x, hx, *weights)
        return result[0] if name == "lstm" else result

    torch_cell = getattr(torch, f"{name}_cell")
    result = propagate(partial(step, torch_cell), *weights)
    torch.testing.assert_close(result.mean, step(torch_cell, *(w.mean for w in weights)))
    draws = torch.func.vmap(partial(step, partial(cell, name)))(*(draws_of(w, 20_000) for w in weights))
    assert off(result, draws) < 0.01


@pytest.mark.parametrize("kind", KINDS)
def test_the_std_over_random_weights_is_that_of_drawn_ones(kind: str) -> None:
    """Within 20 % on average: gates share inputs, and steps share weights."""
    layer, x = layer_of(kind).float(), torch.randn(4, 6, 3)
    method = bf.DensityPropagation(init_std=1e-2, covariance="diagonal")
    model = bf.bayesify(layer, method, num_data=10, output=lambda out: out[0]).eval()
    stds = {
        name: model.get_parameter(f"posterior.q.{name}.log_scale").exp() for name in model.summary().random
    }
    means = {name: p.detach().clone() for name, p in model.net.named_parameters()}
    plain = layer_of(kind).float()
    with torch.no_grad():
        result = model.pick(model(x))
        draws = [
            functional_call(plain, {n: m + stds[n] * torch.randn_like(m) for n, m in means.items()}, x)[0]
            for _ in range(400)
        ]
    assert off(result, torch.stack(draws)) < 0.2


def test_dropout_between_layers_adds_variance() -> None:
    layer, x = nn.GRU(3, 4, 2, dropout=0.5).double(), random_moments(2, 5, 3)
    assert (propagate(layer.train(), x)[0].var > propagate(layer.eval(), x)[0].var).all()


@pytest.mark.parametrize("options", [{}, {"num_layers": 2, "bidirectional": True}])
@pytest.mark.parametrize("kind", KINDS)
def test_each_row_of_a_packed_sequence_is_as_by_itself(kind: str, options: dict[str, Any]) -> None:
    layer, x, lengths = layer_of(kind, batch_first=True, **options), random_moments(3, 5, 3), [2, 5, 3]

    def function(x: Any) -> Any:
        packed = pack_padded_sequence(x, torch.tensor(lengths), batch_first=True, enforce_sorted=False)
        out, state = layer(packed)
        return pad_packed_sequence(out, batch_first=True)[0], state

    out, *states = leaves(propagate(function, x))
    expected = leaves(function(x.mean))
    for result, mean in zip(
        leaves(propagate(function, bf.Moments(x.mean, 0 * x.var))), expected, strict=True
    ):
        torch.testing.assert_close(result.mean, mean)
    for row, length in enumerate(lengths):
        alone = bf.Moments(*(t[row : row + 1, :length] for t in x))
        own_out, *own_states = leaves(propagate(layer, alone))
        torch.testing.assert_close(tuple(t[row, :length] for t in out), tuple(t[0] for t in own_out))
        assert not out.var[row, length:].any()
        for state, own in zip(states, own_states, strict=True):
            torch.testing.assert_close(tuple(t[:, row] for t in state), tuple(t[:, 0] for t in own))


@pytest.mark.parametrize("bias", [True, False])
def test_an_lstm_with_projections(bias: bool) -> None:
    """The first step, from a state of zeros, is that of an LSTM without them, and a linear map of its h."""
    layer, plain = (nn.LSTM(3, 4, proj_size=size, bias=bias).double() for size in (2, 0))
    weights = {n: w for n, w in layer.state_dict().items() if n not in ("weight_hh_l0", "weight_hr_l0")}
    plain.load_state_dict(weights, strict=False)
    x = random_moments(5, 2, 3)
    out, h, c = leaves(propagate(layer, x))
    torch.testing.assert_close(propagate(layer, bf.Moments(x.mean, 0 * x.var))[0].mean, layer(x.mean)[0])
    first = propagate(lambda x: F.linear(plain(x[:1])[0], layer.weight_hr_l0), x)
    torch.testing.assert_close(tuple(t[:1] for t in out), tuple(first))
    assert h.mean.shape == (1, 2, 2) and c.mean.shape == (1, 2, 4)
