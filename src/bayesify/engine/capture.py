"""The gradients of a step as one CUDA graph, so that no step waits for the processor beside the GPU."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from bayesify import torch_internals as internals
from bayesify.engine.randomness import random_state, untouched
from bayesify.objectives import Loss
from bayesify.torch_internals import pytree

#: (x, y) -> the detached loss; adds to the gradients of the parameters
Gradients = Callable[[Any, Tensor], Loss]
WARM_UP = 3  # calls before a recording
MAX_GRAPHS = 4  # the usual batch and the last of an epoch, before and after something was changed


class CapturedGradients:
    """Records the gradients of each kind of batch once, and replays them.

    A replay repeats the kernels alone. So a step is recorded only where the code around them has nothing to do: the
    network is compiled whole, is not compiled anew from call to call (as with a number that counts them), and takes no
    number, random or not, from the processor; else `refusal` says why not. And it is replayed only where `compiled`
    would run the code that was recorded: what that depends on (a dropout rate, a frozen parameter) is looked at before
    every step. Draws come from the GPU's own generator, which a replay moves on as the call itself does.
    """

    def __init__(self, model: nn.Module, device: torch.device, backend: str = "inductor") -> None:
        self.model, self.device, self.backend = model, device, backend
        self.parameters = list(model.parameters())
        self.compiled = torch.compile(model, backend=self._compile, dynamic=False)
        self.record: Any = CudaGraphs()
        self.refusal: str | None = None
        self.recorded: dict[Any, _Recorded] = {}
        self.foreign: list[bool] = []  # of every compiled graph: does it take numbers from the processor?
        self.ran: list[int] = []  # the graphs that a call ran
        self.asking = False  # a call ends where it would run its first graph

    def _compile(self, graph: Any, inputs: list[Any]) -> Callable[..., Any]:
        number, compiled = len(self.foreign), internals.lookup_backend(self.backend)(graph, inputs)
        here = (isinstance(i, Tensor) and i.device.type == self.device.type for i in inputs)
        self.foreign.append(not all(here))

        def call(*arguments: Any) -> Any:
            self.ran.append(number)
            if self.asking:
                raise _Asked
            return compiled(*arguments)

        return call

    def __call__(self, function: Gradients, x: Any, y: Tensor) -> Loss | None:
        """The loss of this batch, its gradients in the parameters; None where the step is not recorded.

        function: calls `compiled` once.
        """
        leaves, structure = pytree.tree_flatten((x, y))
        other = [type(leaf).__name__ for leaf in leaves if not _has_a_kind(leaf)]
        if other:
            self.refusal = f"its batches hold {other[0]}, not tensors and numbers alone"
            return None
        try:
            # a call that runs no graph at all runs here
            with nullcontext() if self.recorded else untouched(self.model):
                graph = self._next_graph(function, x, y)
            # torch 2.11 does not compile anew for a parameter that was frozen meanwhile
            trained = tuple(parameter.requires_grad for parameter in self.parameters)
            kind = (graph, structure, tuple(_kind(leaf) for leaf in leaves), trained)
            if kind not in self.recorded:
                if len(self.recorded) == MAX_GRAPHS:
                    return None
                self.recorded[kind] = self._recorded(function, leaves, structure)
        except Exception as error:  # the same call, not recorded, says itself what is wrong
            self.refusal = " ".join(str(error).strip().splitlines()[:2])
            return None
        return self.recorded[kind].replay(leaves)

    def _next_graph(self, function: Gradients, x: Any, y: Tensor) -> int | None:
        """Which graph `function` would run first."""
        self.ran, self.asking = [], True
        try:
            function(x, y)
        except _Asked:
            return self.ran[0]
        finally:
            self.asking = False
        return None

    def _recorded(self, function: Gradients, leaves: list[Any], structure: Any) -> "_Recorded":
        """`function` recorded on copies of the leaves; model and random numbers stay as they are."""
        held = [leaf.clone() if isinstance(leaf, Tensor) else leaf for leaf in leaves]
        x, y = pytree.tree_unflatten(held, structure)
        self.parameters = list(self.model.parameters())  # frozen ones too: their last gradients must not stay

        def step() -> Loss:
            for parameter in self.parameters:
                parameter.grad = None
            return function(x, y)

        with untouched(self.model):
            with self.record.aside():
                self._warm_up(step)
            replay, loss = self.record(step)
        return _Recorded(held, replay, loss, self.parameters)

    def _host_randomness(self) -> Any:
        """The state of the generators that a replay does not move on, to be compared."""
        tensors, plain = random_state()
        device = "torch" if self.device.type == "cpu" else self.device.type
        return plain, {name: t.tolist() for name, t in tensors.items() if not name.startswith(device)}

    def _warm_up(self, step: Callable[[], Loss]) -> None:
        breaks = internals.graph_breaks()
        for _ in range(WARM_UP):
            self.ran, before, compilations = [], self._host_randomness(), len(self.foreign)
            step()
        if len(self.ran) != 1 or internals.graph_breaks() > breaks:
            raise ValueError("torch does not compile it whole")
        if len(self.foreign) > compilations:
            raise ValueError("it is compiled anew in every step: something in it counts the calls")
        if self.foreign[self.ran[0]] or self._host_randomness() != before:
            raise ValueError("it takes numbers from the processor in every step")


class _Asked(BaseException):
    """The end of a call that was made to see which graph it would run."""


class _Recorded:
    """Where a recording reads its batch and leaves its loss and gradients."""

    def __init__(
        self, held: list[Any], run: Callable[[], None], loss: Loss, parameters: list[nn.Parameter]
    ) -> None:
        self.held, self.run, self.loss = held, run, loss
        self.gradients = [(parameter, parameter.grad) for parameter in parameters]

    def replay(self, leaves: list[Any]) -> Loss:
        for mine, given in zip(self.held, leaves, strict=True):
            if isinstance(mine, Tensor):
                mine.copy_(given)
        self.run()
        for parameter, gradient in self.gradients:
            parameter.grad = gradient
        return self.loss


class CudaGraphs:
    """Records functions as CUDA graphs. They share their memory: results are used before the next one runs."""

    def __init__(self) -> None:
        self.pool: Any = None

    @contextmanager
    def aside(self) -> Iterator[None]:
        """On another stream, as torch wants the calls before a recording."""
        stream, current = torch.cuda.Stream(), torch.cuda.current_stream()
        stream.wait_stream(current)
        with torch.cuda.stream(stream):
            yield
        current.wait_stream(stream)

    def __call__(self, function: Callable[[], Loss]) -> tuple[Callable[[], None], Loss]:
        graph = torch.cuda.CUDAGraph()
        # "thread_local": a loader's thread may pin memory meanwhile
        with torch.cuda.graph(graph, pool=self.pool, capture_error_mode="thread_local"):
            loss = function()
        self.pool = self.pool or graph.pool()
        return graph.replay, loss


def _has_a_kind(leaf: Any) -> bool:
    if isinstance(leaf, Tensor):
        return leaf.layout == torch.strided and not leaf.is_nested
    return leaf is None or isinstance(leaf, bool | int | float | str)


def _kind(leaf: Any) -> Any:
    return (leaf.shape, leaf.stride(), leaf.dtype) if isinstance(leaf, Tensor) else leaf
