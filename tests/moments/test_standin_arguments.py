"""How a network may call an operation: operands by name, TorchScript, mixtures of experts."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from propagation import by_jacobian, propagate, random_moments

import bayesify as bf
from bayesify.moments.foreign_functions import scripts_inlined


def test_random_operands_may_be_given_by_name() -> None:
    b, x, y = random_moments(2, 3, 5), random_moments(2, 3, 4), random_moments(2, 4, 5)
    expected = propagate(lambda b, x, y: torch.baddbmm(b, x, y, beta=0.5), b, x, y)
    named = propagate(lambda b, x, y: b.baddbmm(batch1=x, batch2=y, beta=0.5), b, x, y)
    all_named = propagate(lambda b, x, y: torch.baddbmm(input=b, batch1=x, batch2=y, beta=0.5), b, x, y)
    for result in (named, all_named):
        assert torch.equal(result.mean, expected.mean) and torch.equal(result.var, expected.var)


@torch.jit.script  # type: ignore[untyped-decorator]
def scaled(x: torch.Tensor, factor: float) -> torch.Tensor:
    return factor * x.relu() + torch.zeros(x.size(-1))


def test_a_torchscript_function_runs_as_the_python_it_was_made_from() -> None:
    x = random_moments(3, 4)
    result = propagate(lambda t: scaled(t, 2.0), x)
    torch.testing.assert_close(result.mean, 2 * x.mean.relu())
    torch.testing.assert_close(result.var, 4 * (x.mean > 0) * x.var)
    with torch.no_grad():
        assert torch.equal(scaled(x.mean, 2.0), 2 * x.mean.relu())  # itself again


def test_calls_of_two_threads_may_overlap() -> None:
    first, second = scripts_inlined(), scripts_inlined()
    before = torch.jit.ScriptFunction.__call__
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert torch.jit.ScriptFunction.__call__ is not before
    second.__exit__(None, None, None)
    assert torch.jit.ScriptFunction.__call__ is before


@pytest.mark.skipif(not hasattr(F, "grouped_mm"), reason="this torch has none")
def test_experts_take_the_rows_of_their_group() -> None:
    ends = torch.tensor([2, 2, 5], dtype=torch.int32)  # the second expert has no row

    def function(x: Any, w: Any) -> Any:
        return F.grouped_mm(x, w, offs=ends)

    x, w = (bf.Moments(*(t.float() for t in random_moments(*shape))) for shape in ((5, 8), (3, 8, 4)))
    result = propagate(function, x, w)
    rows = [
        propagate(torch.matmul, *(bf.Moments(*(t[i] for t in m)) for m, i in ((x, row), (w, e))))
        for row, e in ((slice(0, 2), 0), (slice(2, 5), 2))
    ]
    torch.testing.assert_close(result.mean, torch.cat([m.mean for m in rows]))
    torch.testing.assert_close(result.var, torch.cat([m.var for m in rows]))
    alone = propagate(lambda t: function(t, w.mean), x)
    torch.testing.assert_close(alone.var, by_jacobian(lambda t: function(t, w.mean), x).var)


def test_a_bound_may_be_random() -> None:
    x, low, high = random_moments(6), random_moments(6), torch.full((6,), 0.5).double()
    result = propagate(lambda x, low: x.clamp(min=low, max=high), x, low)
    expected = propagate(lambda x, low: torch.minimum(torch.maximum(x, low), high), x, low)
    assert torch.equal(result.mean, x.mean.clamp(low.mean, high))
    assert torch.equal(result.var, expected.var)
