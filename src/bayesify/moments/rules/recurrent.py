"""Recurrent layers and cells, written step by step in operations that have rules.

A weight's uses at several steps are taken as independent, as everywhere in the moments pass.
"""

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from bayesify.moments.carrier import rule
from bayesify.moments.missing import not_covered

State = tuple[Any, ...]  # (h,), or (h, c) of an LSTM


def lstm_step(gates: Any, state: State, w: Any, b: Any) -> State:
    """`gates` is what the input adds; w and b belong to h."""
    h, c = state
    i, f, g, o = (gates + F.linear(h, w, b)).chunk(4, -1)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


def gru_step(gates: Any, state: State, w: Any, b: Any) -> State:
    """h = n + z (h − n) as one operation: its variance has the difference of both, not their sizes."""
    (h,) = state
    i_r, i_z, i_n = gates.chunk(3, -1)
    h_r, h_z, h_n = F.linear(h, w, b).chunk(3, -1)
    n = (i_n + (i_r + h_r).sigmoid() * h_n).tanh()
    return (torch.lerp(n, h, (i_z + h_z).sigmoid()),)


def plain_step(activation: Any, gates: Any, state: State, w: Any, b: Any) -> State:
    return (activation(gates + F.linear(state[0], w, b)),)


STEPS: dict[str, Any] = {
    "lstm": lstm_step,
    "gru": gru_step,
    "rnn_tanh": partial(plain_step, torch.tanh),
    "rnn_relu": partial(plain_step, torch.relu),
}


def layers(
    name: str,
    x: Any,
    hx: Any,
    weights: Any,
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool = False,
) -> tuple[Any, ...]:
    """Outputs of the last layer and the last states; x is (steps, batch, features), or the batch comes first."""
    states = hx if name == "lstm" else (hx,)
    if isinstance(hx, Tensor) != (name != "lstm") or isinstance(weights, Tensor):
        raise NotImplementedError(not_covered(getattr(torch, name), "a packed sequence"))
    runs, each = num_layers * (2 if bidirectional else 1), 4 if has_biases else 2
    if len(weights) != runs * each:
        raise NotImplementedError(not_covered(getattr(torch, name), "proj_size"))
    x = x.transpose(0, 1) if batch_first else x
    last: list[State] = []
    for layer in range(num_layers):
        outputs = []
        for backward in (False, True)[: 2 if bidirectional else 1]:
            run = len(last)
            own = weights[run * each : (run + 1) * each]
            sequence, state = sequence_of(STEPS[name], x, tuple(s[run] for s in states), own, backward)
            outputs.append(sequence)
            last.append(state)
        x = torch.cat(outputs, -1) if bidirectional else outputs[0]
        if dropout and train and layer < num_layers - 1:
            x = F.dropout(x, dropout, True)
    x = x.transpose(0, 1) if batch_first else x
    return x, *(torch.stack(list(kind)) for kind in zip(*last, strict=True))


def sequence_of(step: Any, x: Any, state: State, weights: Any, backward: bool) -> tuple[Any, State]:
    """One layer in one direction: h of all steps, and the last state."""
    w_ih, w_hh, *biases = weights
    b_ih, b_hh = biases or (None, None)
    inputs = list(F.linear(x, w_ih, b_ih).unbind(0))
    hidden = []
    for gates in inputs[::-1] if backward else inputs:
        state = step(gates, state, w_hh, b_hh)
        hidden.append(state[0])
    return torch.stack(hidden[::-1] if backward else hidden), state


def cell(name: str, x: Any, hx: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None) -> Any:
    state = STEPS[name](F.linear(x, w_ih, b_ih), tuple(hx) if name == "lstm" else (hx,), w_hh, b_hh)
    return state if name == "lstm" else state[0]


for _name in STEPS:
    rule(getattr(torch, _name), composite=True)(partial(layers, _name))
    rule(getattr(torch, f"{_name}_cell"), composite=True)(partial(cell, _name))
