"""The moments pass: random weights are swapped in as carriers, the output comes back as Moments."""

import copy
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from bayesify import torch_internals as internals
from bayesify.execution import compiling
from bayesify.families import Family
from bayesify.moments import Carrier, CarrierMode, Moments, carried, unwrap
from bayesify.moments.foreign_functions import scripts_inlined
from bayesify.moments.gains import Running
from bayesify.moments.rules.covariance import independent
from bayesify.moments.tape import Tape
from bayesify.torch_internals import pytree
from bayesify.weights.calls import Call, CheckpointGuard, Slots, Values, call_with

FIRST_ORDER = ("",)  # forms of the rules: first order everywhere


def carriers(
    distributions: Mapping[str, Family],
    forms: tuple[str, ...] = FIRST_ORDER,
    tape: Tape | Running | None = None,
) -> dict[str, Carrier]:
    """A carrier of the moments of every distribution, by name."""
    moments = {name: Moments(q.mean, q.variance) for name, q in distributions.items()}
    return {name: _carried(each, forms, tape, is_weight=True) for name, each in moments.items()}


def _carried(
    moments: Moments, forms: tuple[str, ...], tape: Tape | Running | None, is_weight: bool = False
) -> Carrier:
    """A carrier; for residual sums with their cross term one whose mean can be differentiated by."""
    if "cross" in forms and not moments.mean.requires_grad:
        moments = Moments(moments.mean.detach().requires_grad_(), moments.var)
    if isinstance(tape, Tape) and not is_weight and not tape.beside:
        moments = tape.entered(Moments(moments.mean, moments.var.detach()))
    return carried(moments, forms, tape, is_weight)


def call_with_moments(
    net: nn.Module,
    slots: Slots,
    values: Values,
    call: Call,
    guard: CheckpointGuard | None = None,
    forms: tuple[str, ...] = FIRST_ORDER,
    tape: Tape | Running | None = None,
) -> Any:
    """The call with moments; a `Moments` in an argument carries variance of its own (sensor noise)."""

    def wrapped(value: Any) -> Any:
        if not isinstance(value, Moments):
            return value
        return carried(independent(value), forms) if "full" in forms else _carried(value, forms, tape)

    args = pytree.tree_map(wrapped, call.args, is_leaf=is_moments)
    call = call._replace(args=args, kwargs=pytree.tree_map(wrapped, dict(call.kwargs), is_leaf=is_moments))
    if tape is not None:
        try:
            return _with_tape(tape, net, slots, values, call, guard)
        finally:
            tape.let_go()
    if "cross" not in forms or torch.is_grad_enabled():
        return _called(net, slots, values, call, guard)
    with torch.enable_grad():  # the cross term of residual sums takes derivatives
        output = _called(net, slots, values, call, guard)
    return pytree.tree_map(Tensor.detach, output)


@internals.whole_or_eager
def _with_tape(
    tape: Tape | Running,
    net: nn.Module,
    slots: Slots,
    values: Values,
    call: Call,
    guard: CheckpointGuard | None,
) -> Any:
    if isinstance(tape, Tape):
        tape.eager = not compiling()
    return _called(net, slots, values, call, guard)


def _called(net: nn.Module, slots: Slots, values: Values, call: Call, guard: CheckpointGuard | None) -> Any:
    def outside(names: list[str]) -> Any:
        with (
            internals.DisableTorchFunction()
        ):  # the mode has no business with the KL and the weights' moments
            return values(names)

    mode = CarrierMode()
    with nullcontext() if compiling() else scripts_inlined(), mode:
        output = call_with(net, slots, outside, call, guard)
    mode.leave()
    return _unwrapped(mode, output)


def _unwrapped(mode: CarrierMode, output: Any) -> Any:
    """`output` with moments in the place of carriers, also in the attributes of objects: a dataclass, a cache."""
    copies: dict[int, tuple[Any, Any]] = {}  # of objects, by id, which may hold each other

    def one(value: Any) -> Any:
        value = unwrap(mode.standing_for(value))
        if isinstance(value, Moments | Tensor | nn.Module):  # dynamo knows no __dict__ of these
            return value
        held = getattr(value, "__dict__", None)
        if not isinstance(held, dict):
            return value
        if not any(isinstance(v, Tensor | list | tuple | dict) for v in held.values()):
            return value
        if id(value) not in copies:
            copies[id(value)] = value, copy.copy(value)
            vars(copies[id(value)][1]).update(pytree.tree_map(one, held))
        return copies[id(value)][1]

    return pytree.tree_map(one, output)


def is_moments(value: Any) -> bool:
    """Is it the moments of a tensor, as one value?"""
    return isinstance(value, Moments)


def batch_of(call: Call) -> int:
    """Examples in a call: the first dimension of its first tensor."""
    for value in (*call.args, *call.kwargs.values()):
        for each in pytree.tree_leaves(value):
            if isinstance(each, Tensor) and each.dim():
                return each.shape[0]
    return 1
