"""What bayesify takes of torch that torch does not promise to keep, each behind a guard.

`INTERNALS` says of each what it is for and what is lost with a torch that has it no longer. Then what stands here in
its place is slower, or an error when it is used; importing bayesify always works. The tables of `nn.Module`
(`_parameters`, `_buffers`, `_modules` and the hooks) are not in the list: modules of all kinds rely on them.

>>> from bayesify import torch_internals as internals
>>> internals.foreach_mul([torch.ones(2), torch.ones(3)], 2.0)
"""

import math
import pkgutil
from collections.abc import Callable, Iterable
from contextlib import nullcontext, suppress
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn


class Internal(NamedTuple):
    """Why bayesify takes it, and what is lost without it."""

    purpose: str
    lost: str


INTERNALS: dict[str, Internal] = {}


class MissingInternalError(NotImplementedError, AttributeError):
    """This torch lacks something that was asked for, and there is no other way."""


class Missing:
    """Stands for what this torch lacks; false, and an error when it is used."""

    def __init__(self, message: str) -> None:
        self.message = message

    def __bool__(self) -> bool:
        return False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise MissingInternalError(self.message)

    def __getattr__(self, name: str) -> Any:
        raise MissingInternalError(self.message)


def _internal(path: str, purpose: str, lost: str, instead: Any = None) -> Any:
    """The object at `path`; `instead` where torch has none, or what raises an error when it is used."""
    INTERNALS[path] = Internal(purpose, lost)
    try:
        return pkgutil.resolve_name(path)
    except (ImportError, AttributeError):
        message = (
            f"torch {torch.__version__} has no {path}, which bayesify needs for {purpose}. Lost without it: {lost}. "
            f"Use a version of torch that has it, e.g. 2.13"
        )
        return Missing(message) if instead is None else instead


def _attribute(path: str, purpose: str, lost: str, instead: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A function that reads the attribute at `path` of an object."""
    found = _internal(path, purpose, lost, instead)
    return instead if found is instead else attrgetter(path.rpartition(".")[2])


# trees of tensors: batches and outputs
pytree = _internal(
    "torch.utils._pytree",
    "batches and outputs that are tuples, lists and dicts",
    "every such batch and output",
)


# many tensors in one kernel
def _each(method: Callable[..., Any], tensors: Any, *others: Any, **options: Any) -> list[Any]:
    lists = (o if isinstance(o, list | tuple) else [o] * len(tensors) for o in others)
    return [method(*each, **options) for each in zip(tensors, *lists, strict=True)]


def _foreach(name: str) -> Any:
    return _internal(
        f"torch._foreach_{name}",
        "the tensors of a list in one kernel",
        "speed: each tensor has a kernel of its own",
        partial(_each, getattr(Tensor, name)),
    )


foreach_add_, foreach_copy_, foreach_lerp_ = _foreach("add_"), _foreach("copy_"), _foreach("lerp_")
foreach_mul, foreach_mul_, foreach_div = _foreach("mul"), _foreach("mul_"), _foreach("div")
foreach_sub, foreach_sub_, foreach_addcmul = _foreach("sub"), _foreach("sub_"), _foreach("addcmul")
foreach_exp, foreach_norm = _foreach("exp"), _foreach("norm")


def non_finite_by_norms(tensors: list[Tensor], found: Tensor, scale: Tensor) -> None:
    """Add NaN to `found` where one of the tensors holds NaN or infinite values."""
    norms = torch.stack(list(foreach_norm(tensors, math.inf)))
    found.add_((norms - norms).sum())


non_finite_check = _internal(
    "torch._amp_foreach_non_finite_check_and_unscale_",
    "looking for gradients that are not finite in one kernel",
    "a little speed: norms are taken instead",
    non_finite_by_norms,
)

# torch.func, the dispatcher and autograd
peek_interpreter_stack = _internal(
    "torch._C._functorch.peek_interpreter_stack",
    "knowing that a call runs inside torch.func (vmap, grad)",
    "speed, and checks that read values: every call is taken for one inside torch.func",
    lambda: True,
)
DisableTorchFunction = _internal(
    "torch._C.DisableTorchFunction",
    "rules of moments that are not asked for moments again",
    "speed: every operation of a rule is looked at",
    nullcontext,
)
make_wrapper_subclass = _internal(
    "torch.Tensor._make_wrapper_subclass",
    "random activations for which isinstance(x, Tensor) holds",
    "networks that ask for it, in the moments pass",
)
base_of = _attribute(
    "torch.Tensor._base",
    "knowing of which tensor another is a view",
    "random values that a network writes into a view of a plain tensor",
    lambda tensor: None,
)
version_of = _attribute(
    "torch.Tensor._version",
    "knowing that a kept output was written into",
    "speed: what comes before the random weights is computed for every draw",
    lambda tensor: object(),  # never the same
)


def versions_of(tensors: Iterable[Tensor]) -> list[int]:
    """What counts writes into each of them; [] where torch does not tell."""
    found = [version_of(t) for t in tensors if not t.is_inference()]
    return [version for version in found if isinstance(version, int)]


current_graph_task_id = _internal(
    "torch._C._current_graph_task_id",
    "refusing activation checkpointing inside a network, which runs it again in backward",
    "calls of the plain network inside a checkpoint, which are refused too",
)

# operations
standard_gamma = _internal(
    "torch._standard_gamma", "gamma draws with a generator", "families and priors that draw gamma variates"
)
operator_schemas = _internal(
    "torch._C._jit_get_schemas_for_operator",
    "the order of an operation's arguments",
    "rules of moments for random operands that are given by name",
    lambda name: [],
)
weight_norm = _internal("torch._weight_norm", "the rule for weight norm", "that rule")
grouped_mm = _internal("torch._grouped_mm", "the rule for F.grouped_mm", "that rule")
pack_padded_sequence = _internal(
    "torch._C._VariableFunctions._pack_padded_sequence", "the rule for packed sequences", "that rule"
)
pad_packed_sequence = _internal(
    "torch._C._VariableFunctions._pad_packed_sequence", "the rule for packed sequences", "that rule"
)
nested_tensor_from_mask_left_aligned = _internal(
    "torch._nested_tensor_from_mask_left_aligned",
    "keeping nn.TransformerEncoder in eval mode off its fast path, which has no rules",
    "the moments pass of such an encoder with a padding mask",
)

# layers by kind; torch's own public ones stand for them
_BATCH = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
_INSTANCE = (nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)
_DROPOUT = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)
_OTHERS = "layers of other packages that are derived from it"
BatchNorm = _internal("torch.nn.modules.batchnorm._BatchNorm", "knowing batch norm", _OTHERS, _BATCH)
NormBase = _internal(
    "torch.nn.modules.batchnorm._NormBase", "norms with running statistics", _OTHERS, _BATCH + _INSTANCE
)
InstanceNorm = _internal(
    "torch.nn.modules.instancenorm._InstanceNorm", "knowing instance norm", _OTHERS, _INSTANCE
)
DropoutNd = _internal("torch.nn.modules.dropout._DropoutNd", "knowing dropout", _OTHERS, _DROPOUT)
WeightNorm = _internal(
    "torch.nn.utils.parametrizations._WeightNorm",
    "dropping the weights of a weight-normalised layer",
    "weight norm as a parametrization: its direction alone is dropped",
    (),
)
ScriptModule = _internal(
    "torch.jit.ScriptModule", "refusing TorchScript networks", "nothing: there are none", ()
)
ScriptFunction = _internal(
    "torch.jit.ScriptFunction", "moments through TorchScript functions", "nothing: there are none"
)


# the compiler; found when asked for, because loading it takes seconds
def lookup_backend(name: str) -> Any:
    """What compiles a graph, by its name."""
    found = _internal(
        "torch._dynamo.backends.registry.lookup_backend",
        "recording a compiled step as a CUDA graph",
        "speed: steps are compiled with mode='reduce-overhead' instead",
    )
    return found(name)


def graph_breaks() -> int:
    """How often the compiler has left a graph in the middle of a network, since it was loaded."""
    found = _internal(
        "torch._dynamo.utils.counters",
        "seeing that a network is compiled whole",
        "the recording of compiled steps as CUDA graphs",
    )
    return sum(found.get("graph_break", {}).values())


functorch_config = _internal(
    "torch._functorch.config",
    "keeping compiled steps of density propagation in torch's cache",
    "time: they are compiled anew in every process",
)


INTERNALS["torch._dynamo.config"] = Internal(
    "compiling the sweep of density propagation, which takes derivatives in the forward pass",
    "compiled code with covariance='outputs' or logits='probe'",
)


def let_derivatives_be_traced() -> None:
    """Versions since 2.11 can trace torch.autograd.grad, but do not by default. Asked late: it loads the compiler."""
    with suppress(ImportError, AttributeError):
        config = pkgutil.resolve_name("torch._dynamo.config")
        if hasattr(config, "trace_autograd_ops"):
            config.trace_autograd_ops = True


def traced_with_derivatives(function: Any, example: tuple[Tensor, ...], table: dict[Any, Any]) -> nn.Module:
    """`function` as a graph of plain operations, for any size of the first dimension of `example`: derivatives that it
    takes are in it, which torch.export does not do. `table` replaces operations."""
    purpose, lost = "exporting the covariance of the outputs", "bf.export with covariance='outputs'"

    def internal(path: str) -> Any:
        return _internal(path, purpose, lost)

    shapes = "torch.fx.experimental.symbolic_shapes"
    context, dynamic = internal(f"{shapes}.StatelessSymbolicContext"), internal(f"{shapes}.DimDynamic")
    mode = internal("torch._subclasses.FakeTensorMode")(
        shape_env=internal(f"{shapes}.ShapeEnv")(), allow_non_fake_inputs=True
    )
    free = [
        mode.from_tensor(
            t,
            symbolic_context=context(dynamic_sizes=[dynamic.DYNAMIC, *[dynamic.STATIC] * (t.dim() - 1)]),
        )
        for t in example
    ]
    make_fx = internal("torch.fx.experimental.proxy_tensor.make_fx")
    with internal("torch._export.utils._compiling_state_context")():
        graph = make_fx(function, table, tracing_mode="symbolic", _allow_non_fake_inputs=True)(*free)
    for node in graph.graph.nodes:  # a batch of another size may have other strides
        if node.target in (torch.ops.aten.view.default, torch.ops.aten._unsafe_view.default):
            node.target = torch.ops.aten.reshape.default
    graph.graph.eliminate_dead_code()
    used = {node.target for node in graph.graph.nodes if node.op == "get_attr"}
    for name in {**dict(graph.named_parameters()), **dict(graph.named_buffers())}.keys() - used:
        delattr(
            graph, name
        )  # a leftover of the derivative of batch norm has no storage, and no file takes it
    graph.recompile()
    return graph


def derivative_forms(operations: list[Any]) -> dict[Any, Any]:
    """How torch writes derivatives of operations in others."""
    return _internal(
        "torch._decomp.get_decompositions",
        "exporting the covariance of the outputs",
        "bf.export with covariance='outputs'",
    )(operations)


functorch = _internal(
    "torch._C._functorch",
    "exporting the draws of a frozen predictor at once",
    "bf.export writes the draws one after the other: longer programs",
)


eval_frame = _internal(
    "torch._C._dynamo.eval_frame",
    "running the sweep of density propagation eagerly where a compiled network has graph breaks",
    "compiled networks with graph breaks: variances with covariance='outputs' may be wrong",
    instead=False,
)


def whole_or_eager(function: Any) -> Any:
    """Compiled as a part of the code around it, or not at all: where a graph broke above, torch.compile goes on with
    what is called below, frame by frame, and derivatives between the pieces would be lost."""
    if eval_frame and hasattr(eval_frame, "set_code_exec_strategy"):
        skip = eval_frame._FrameAction.SKIP
        eval_frame.set_code_exec_strategy(function.__code__, eval_frame._FrameExecStrategy(skip, skip))
    return function


def constant_when_traced(function: Any) -> Any:
    """What torch.compiler.assume_constant_result does; calling it would load the compiler with bayesify."""
    function._dynamo_marked_constant = True
    return function
