"""bf.export: a network that propagates moments as one file with two outputs, mean and variance."""

import importlib.util
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bayesify.atomic import write_atomically
from bayesify.batches import beside
from bayesify.model import BayesianModule
from bayesify.moments import Moments
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

    Outputs are the mean and the variance of what the network returns, for classes the logits before softmax; in ONNX
    they are called output_mean and output_var (with full covariance output_cov beside them). Variances are those of
    one pass, as with covariance="diagonal": the sweep of the default needs derivatives, which a program does not have.
    A warning says how much smaller they are on the example.

    >>> bf.export(model, x[:2], "model.onnx")
    >>> onnxruntime.InferenceSession("model.onnx").run(["output_mean", "output_var"], {"x": x.numpy()})
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
        own, found = flat.outputs(*flat.example), _of_one_pass(flat)
        outputs = _names("output", found)
        if model.posterior.swept:
            _tell_of_variances(found, own)
        shapes = {"tensors": ({0: torch.export.Dim("batch")},) * len(flat.example)}
        program = torch.export.export(flat.eval(), flat.example, dynamic_shapes=shapes)
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
        fields = [*value._fields, *(["cov"] if value.cov is not None else [])] if is_moments(value) else []
        names += [f"{name}_{field}" for field in fields] or [name]
    return names


def _of_one_pass(flat: _Flat) -> Any:
    """The outputs as the program has them."""
    posterior: Any = flat.model.posterior
    swept, posterior.swept = posterior.swept, False
    try:
        return flat.outputs(*flat.example)
    finally:
        posterior.swept = swept


def _tell_of_variances(written: Any, own: Any) -> None:
    """How the variances of one pass compare with those of the model."""
    pairs = zip(*([m.var.flatten() for m in _all_moments(each)] for each in (written, own)), strict=True)
    ratio = float(torch.cat([one / other.clamp_min(1e-30) for one, other in pairs]).median())
    if not 0.95 < ratio < 1.05:
        warnings.warn(
            f"the exported variances are those of one pass, {ratio:.2g} of the model's own on this example (median): "
            f"the sweep by which the model finds them needs derivatives, which a program does not have",
            stacklevel=3,
        )


def _all_moments(value: Any) -> list[Moments]:
    return [m for m in pytree.tree_leaves(value, is_leaf=is_moments) if is_moments(m)]


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
