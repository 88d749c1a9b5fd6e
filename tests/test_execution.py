"""How code is being run: eagerly, compiled, inside torch.func."""

import torch
from torch import Tensor

from bayesify.execution import can_read_values, compiling, inside_functorch, transformed


def answers(x: Tensor) -> Tensor:
    """(compiling, inside torch.func, one of both, values may be read), as traced code returns a tensor."""
    return x * torch.tensor([compiling(), inside_functorch(), transformed(), can_read_values()])


def test_eager_code() -> None:
    assert answers(torch.ones(4)).tolist() == [0, 0, 0, 1]


def test_compiled_code() -> None:
    compiled = torch.compile(answers, backend="eager", fullgraph=True)
    assert compiled(torch.ones(4)).tolist() == [1, 0, 1, 0]


def test_inside_torch_func() -> None:
    assert torch.func.vmap(answers)(torch.ones(2, 4))[1].tolist() == [0, 1, 1, 0]


def test_a_function_that_the_compiler_gives_up_is_not_compiled() -> None:
    """A graph break inside try runs the whole function eagerly, in the midst of compiled code."""
    seen = []

    def given_up(x: Tensor) -> Tensor:
        try:
            seen.append(compiling())
            torch._dynamo.graph_break()
            return x + 1
        finally:
            seen.append(compiling())

    torch.compile(lambda x: given_up(x * 2), backend="eager")(torch.ones(2))
    assert seen[-2:] == [False, False]
