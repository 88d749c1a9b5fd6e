"""Recurrent layers and cells, written step by step in operations that have rules.

A weight's uses at several steps are taken as independent, as everywhere in the moments pass.
"""

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from bayesify import torch_internals as internals
from bayesify.moments.registry import rule
from bayesify.moments.values import Moments

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
    """h ← activation(gates + W h + b)."""
    return (activation(gates + F.linear(state[0], w, b)),)


STEPS: dict[str, Any] = {
    "lstm": lstm_step,
    "gru": gru_step,
    "rnn_tanh": partial(plain_step, torch.tanh),
    "rnn_relu": partial(plain_step, torch.relu),
}


def layers(name: str, x: Any, *args: Any) -> tuple[Any, ...]:
    """Outputs of the last layer and the last states; x is (steps, batch, features), or the batch comes first.

    Of a packed sequence x has all rows of the first step, then those of the second, …, and `args` begin with how many.
    """
    packed = isinstance(args[0], Tensor) and args[0].dtype == torch.int64
    sizes = args[0].tolist() if packed else None
    rest = args[1:] if packed else args
    hx, weights, has_biases, num_layers, dropout, train, bidirectional, *batch_first = rest
    states = hx if name == "lstm" else (hx,)
    runs = num_layers * (2 if bidirectional else 1)
    each = len(weights) // runs
    x = x.transpose(0, 1) if any(batch_first) else x
    last: list[State] = []
    for layer in range(num_layers):
        outputs = []
        for backward in (False, True)[: 2 if bidirectional else 1]:
            run = len(last)
            own = list(weights[run * each : (run + 1) * each])
            projection = own.pop() if each % 2 else None
            step = partial(projected, STEPS[name], projection) if each % 2 else STEPS[name]
            sequence, state = sequence_of(step, x, tuple(s[run] for s in states), own, backward, sizes)
            outputs.append(sequence)
            last.append(state)
        x = torch.cat(outputs, -1) if bidirectional else outputs[0]
        if dropout and train and layer < num_layers - 1:
            x = F.dropout(x, dropout, True)
    x = x.transpose(0, 1) if any(batch_first) else x
    return x, *(torch.stack(list(kind)) for kind in zip(*last, strict=True))


def projected(step: Any, weight: Any, gates: Any, state: State, w: Any, b: Any) -> State:
    """h of an LSTM with proj_size."""
    h, c = step(gates, state, w, b)
    return F.linear(h, weight), c


def sequence_of(
    step: Any, x: Any, state: State, weights: Any, backward: bool, sizes: list[int] | None = None
) -> tuple[Any, State]:
    """One layer in one direction: h of all steps, and the last state. Of a packed sequence a step moves its rows."""
    w_ih, w_hh, *biases = weights
    b_ih, b_hh = biases or (None, None)
    gates = F.linear(x, w_ih, b_ih)
    inputs = list(gates.unbind(0) if sizes is None else gates.split(sizes))
    hidden = []
    for rows in inputs[::-1] if backward else inputs:
        n = len(rows)
        new = step(rows, tuple(s[:n] for s in state) if sizes else state, w_hh, b_hh)
        hidden.append(new[0])
        state = tuple(torch.cat([a, s[n:]]) for a, s in zip(new, state, strict=True)) if sizes else new
    return (torch.cat if sizes else torch.stack)(hidden[::-1] if backward else hidden), state


@rule(internals.pack_padded_sequence)
def pack_padded_sequence(x: Moments, lengths: Tensor, batch_first: bool) -> tuple[Moments, Tensor]:
    """Moves mean and variance alike."""
    (mean, sizes), (var, _) = (internals.pack_padded_sequence(t, lengths, batch_first) for t in x)
    return Moments(mean, var), sizes


@rule(internals.pad_packed_sequence)
def pad_packed_sequence(x: Moments, sizes: Tensor, batch_first: bool, value: float, length: int) -> Any:
    """Moves mean and variance alike; padding has no variance."""
    mean, lengths = internals.pad_packed_sequence(x.mean, sizes, batch_first, value, length)
    var, _ = internals.pad_packed_sequence(x.var, sizes, batch_first, 0.0, length)
    return Moments(mean, var), lengths


def cell(name: str, x: Any, hx: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None) -> Any:
    """One step of a recurrent cell."""
    state = STEPS[name](F.linear(x, w_ih, b_ih), tuple(hx) if name == "lstm" else (hx,), w_hh, b_hh)
    return state if name == "lstm" else state[0]


for _name in STEPS:
    rule(getattr(torch, _name), composite=True)(partial(layers, _name))
    rule(getattr(torch, f"{_name}_cell"), composite=True)(partial(cell, _name))
