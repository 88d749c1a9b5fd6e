"""bf.export: a network that propagates moments as one file with its outputs: mean, variance and covariance."""

import importlib.util
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bayesify.atomic import write_atomically
from bayesify.batches import beside
from bayesify.files.derivatives import traced
from bayesify.model import BayesianModule
from bayesify.passes.moments import is_moments
from bayesify.predict.prediction import evaluating
from bayesify.torch_internals import pytree
from bayesify.weights import as_arguments

SUFFIXES = (".pt2", ".onnx")
ONE_FILE = 2**30  # bytes of weights up to which an ONNX file holds them itself


class _Flat(nn.Module):
    """The model as a function of the tensors of an input, in order, to the tensors of its moments."""

    def __init__(self, model: BayesianModule, x: Any) -> None:
        super().__init__()
        self.model = model
        leaves, self.structure = pytree.tree_flatten(as_arguments(x))
        self.example = tuple(_at_least_two(leaf) for leaf in leaves if isinstance(leaf, Tensor))
        self.fixed = [None if isinstance(leaf, Tensor) else (leaf,) for leaf in leaves]

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        return tuple(pytree.tree_leaves(self.outputs(*tensors)))

    def outputs(self, *tensors: Tensor) -> Any:
        given = iter(tensors)
        leaves = [next(given) if fixed is None else fixed[0] for fixed in self.fixed]
        args, kwargs = pytree.tree_unflatten(leaves, self.structure)
        return self.model.pick(self.model(args, **kwargs))


def export(model: BayesianModule, x: Any, path: str | Path) -> torch.export.ExportedProgram:
    """Write the prediction of `bf.DensityPropagation` as a program that needs no bayesify; also returned.

    x:     an example input, as for `model(x)`; the program takes its tensors in order (of a `Moments` mean and
           variance). The size of their first dimension, the batch, stays free
    path:  "….pt2" for `torch.export.load(path).module()`, "….onnx" for ONNX runtimes (needs the packages onnx and
           onnxscript)

    Outputs are those of `model(x)`, for classes of the logits before softmax; in ONNX they are called output_mean,
    output_var and output_cov (of more than 100 classes output_top_indices and output_top_cov in its place; with
    covariance="diagonal" mean and variance alone). The derivatives by which the covariance is found are part of the
    program, written out for every output: it grows with their number, and so does the time to write it.

    >>> bf.export(model, x[:2], "model.onnx")
    >>> onnxruntime.InferenceSession("model.onnx").run(["output_mean", "output_cov"], {"x": x.numpy()})
    """
    path = Path(path)
    if path.suffix not in SUFFIXES:
        raise ValueError(f"path={str(path)!r} must end in {' or '.join(SUFFIXES)}, which says the format")
    if model.posterior.sampling != "moments":
        raise ValueError(
            f"export() writes the two outputs of bf.DensityPropagation; method {model.method.name!r} draws its "
            f"weights: export a plain network, torch.export.export(model.mean_net().eval(), (x,))"
        )
    if path.suffix == ".onnx":
        _check_packages()
    x = beside(model, x)
    flat = _Flat(model, x)
    with evaluating(model), torch.no_grad():
        outputs = _names("output", flat.outputs(*flat.example))
        program = _program(flat)
    if path.suffix == ".pt2":
        write_atomically(path, lambda partial: _save_program(program, partial))
    else:
        args, kwargs = as_arguments(x)
        _save_onnx(program, path, [*_names("x", args), *kwargs], outputs)
    return program


def _at_least_two(value: Any) -> Any:
    """A batch of one would be taken as fixed."""
    return value.expand(2, *value.shape[1:]) if isinstance(value, Tensor) and len(value) == 1 else value


def _names(single: str, values: Any) -> list[str]:
    """One name per tensor: `single`, or single0, single1, …, with _mean and _var for moments."""
    if is_moments(values) or isinstance(values, Tensor):
        values = (values,)
    names = []
    for i, value in enumerate(values):
        name = single if len(values) == 1 else f"{single}{i}"
        fields = [*value._fields] if is_moments(value) else []
        fields += ["cov"] if fields and value.cov is not None else []
        fields += ["top_indices", "top_cov"] if fields and value.top is not None else []
        names += [f"{name}_{field}" for field in fields] or [name]
    return names


def _program(flat: _Flat) -> Any:
    """For a batch of any size."""
    posterior: Any = flat.model.posterior
    module = traced(flat.eval(), flat.example) if posterior.swept else flat.eval()
    batch = {0: torch.export.Dim("batch")}
    shapes: Any = (
        (batch,) * len(flat.example) if posterior.swept else {"tensors": (batch,) * len(flat.example)}
    )
    return torch.export.export(
        module, flat.example, dynamic_shapes=shapes, prefer_deferred_runtime_asserts_over_guards=True
    )


def _check_packages() -> None:
    missing = [name for name in ("onnx", "onnxscript") if importlib.util.find_spec(name) is None]
    if missing:
        raise ImportError(f"writing ONNX needs {' and '.join(missing)}: pip install onnx onnxscript")


def _save_program(program: Any, path: Path) -> None:
    with path.open("wb") as file:  # a path would have to end in .pt2
        torch.export.save(program, file)


def _save_onnx(program: Any, path: Path, inputs: list[str], outputs: list[str]) -> None:
    named = ({0: "batch"}, *({},) * (len(inputs) - 1))  # the free dimension, which all inputs share
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of torch's own code
        onnx = torch.onnx.export(
            program,
            dynamo=True,
            input_names=inputs,
            output_names=outputs,
            dynamic_shapes=named,
            verbose=False,
        )
    assert onnx is not None
    if sum(t.nbytes for t in program.state_dict.values()) < ONE_FILE:
        write_atomically(path, onnx.save)
    else:
        onnx.save(path)  # the weights go to a second file, by the name of the first
