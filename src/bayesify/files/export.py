"""bf.export: a model's frozen predictor as a program that needs no bayesify."""

import importlib.util
import json
import warnings
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Generator, Tensor, nn

from bayesify.atomic import write_atomically
from bayesify.batches import beside
from bayesify.checks import check_whole
from bayesify.execution import compiling
from bayesify.files.derivatives import traced
from bayesify.files.storage import as_path
from bayesify.model import BayesianModule
from bayesify.passes.joined import Joined
from bayesify.passes.moments import is_moments
from bayesify.predict.fixed_linear import FixedLinear
from bayesify.predict.fixed_moments import FixedMoments
from bayesify.predict.frozen import Frozen
from bayesify.predict.views import AUTO
from bayesify.torch_internals import pytree
from bayesify.weights import Call, as_arguments, as_call

SUFFIXES = (".pt2", ".onnx")
ONE_FILE = 2**30  # bytes of weights up to which an ONNX file holds them itself
MOST = 2**31  # bytes that an ONNX file can hold
METADATA = "bayesify.json"  # among the extra files of a program


def export(
    model: Any,
    x: Any,
    path: str | Path,
    num_draws: int = 20,
    seed: int = 0,
    class_names: Sequence[str] | None = None,
    normalise: Any = None,
    augment: Any = AUTO,
) -> torch.export.ExportedProgram:
    """Write what `model.freeze(num_draws)` predicts as a program that needs no bayesify; also returned.

    model:     of any method, or a frozen predictor, which has its draws already
    x:         an example input, as for `model(x)`; the program takes its tensors in order (of a `Moments` mean and
               variance). The size of their first dimension, the batch, stays free where the network allows it
    path:      "….pt2" for `torch.export.load(path).module()`, which returns a dict, "….onnx" for ONNX runtimes (needs
               the packages onnx and onnxscript)
    num_draws: draws of the weights in the program, made with this `seed`
    class_names: written into the file with method, likelihood, draws, seed and version: in ONNX as its metadata, in
               a program as its extra file "bayesify.json"
    normalise: a `bf.data.Normalisation` of the training data: the first tensor is taken in original units, in `x` and
               in the program, and mean and variance of numbers come in those of the targets
    augment:   as of `model.freeze`; a frozen predictor has been told

    Outputs by name: of classes probs, entropy and mutual_information, in nats; of numbers mean, variance (in all) and
    epistemic (the draws' part of it). `bf.DensityPropagation` has the moments of the network's output beside them, for
    classes of the logits before softmax: output_mean, output_var and output_cov (of more than 100 classes
    output_top_indices and output_top_cov in its place; with covariance="diagonal" mean and variance alone). The
    derivatives by which the covariance is found are part of the program, written out for every output.

    >>> bf.export(model, x[:2], "model.onnx")
    >>> onnxruntime.InferenceSession("model.onnx").run(["probs", "mutual_information"], {"x": x.numpy()})
    """
    check_whole(num_draws, "num_draws", 1)
    check_whole(seed, "seed", 0)
    path = as_path(path)
    if not isinstance(model, Frozen | BayesianModule):
        raise TypeError(f"model={type(model).__name__} must be what bf.bayesify returned, or model.freeze()")
    if not (normalise is None or hasattr(normalise, "inputs")):
        raise TypeError(
            f"normalise={normalise!r} must be a bf.data.Normalisation, e.g. that of the training data"
        )
    if path.suffix not in SUFFIXES:
        raise ValueError(f"path={str(path)!r} must end in {' or '.join(SUFFIXES)}, which says the format")
    if path.suffix == ".onnx":
        _check_packages()
    random = Generator().manual_seed(seed)
    frozen = model if isinstance(model, Frozen) else model.freeze(num_draws, random, augment)
    x = beside(frozen, x)
    _check_size(frozen, path)
    program, outputs = _program(frozen, x, normalise)
    about = _about(frozen, seed, class_names)
    if path.suffix == ".pt2":
        write_atomically(path, lambda partial: _save_program(program, partial, about))
    else:
        args, kwargs = as_arguments(x)
        _save_onnx(program, path, [*_names("x", args), *kwargs], outputs, about, frozen.num_bytes)
    return program


class _Flat(nn.Module):
    """The predictor as a function of the tensors of an input, in order, to tensors in order, called `names`."""

    def __init__(self, frozen: Frozen, x: Any, normalise: Any) -> None:
        super().__init__()
        self.frozen = frozen
        self.normalise = normalise
        leaves, self.structure = pytree.tree_flatten(as_arguments(x))
        self.example = tuple(leaf for leaf in leaves if isinstance(leaf, Tensor))
        self.fixed = [None if isinstance(leaf, Tensor) else (leaf,) for leaf in leaves]
        # what is learned of layouts in the first pass of moments holds for more than one example
        first = map(_at_least_two, self.example) if isinstance(frozen.core, FixedMoments) else self.example
        given = tuple(first)
        with torch.no_grad():
            frozen.prepare_for(self._call(*given))
            self.names = [*self.named(*given)]

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        return tuple(self.named(*tensors).values())

    def named(self, *tensors: Tensor) -> dict[str, Tensor]:
        call, core = self._call(*tensors), self.frozen.core
        if not isinstance(core, FixedMoments):
            with Joined() if self.frozen.batched and compiling() else nullcontext():
                outputs = core.outputs(call, self.frozen.batched)
            return self._in_units(self.frozen.summarized(outputs)._asdict())
        moments = [core.moments(call, member) for member in range(core.members)]
        found = self._in_units(self.frozen.summarized(core.drawn(moments))._asdict())
        for i, each in enumerate(moments):
            name = "output" if len(moments) == 1 else f"member{i}_output"
            found |= zip(_names(name, each), pytree.tree_leaves(each), strict=True)
        return found

    def _call(self, *tensors: Tensor) -> Call:
        """What the network gets."""
        if self.normalise is not None:
            tensors = (self.normalise.inputs(tensors[0]), *tensors[1:])
        given = iter(tensors)
        leaves = [next(given) if fixed is None else fixed[0] for fixed in self.fixed]
        args, kwargs = pytree.tree_unflatten(leaves, self.structure)
        return as_call(args, kwargs)

    def _in_units(self, found: dict[str, Tensor]) -> dict[str, Tensor]:
        """Numbers in the units of the targets."""
        n = self.normalise
        if n is None or "mean" not in found:
            return found
        return {
            k: n.original_mean(v) if k == "mean" else n.original_std(n.original_std(v))
            for k, v in found.items()
        }


class _Named(nn.Module):
    """A program with a dict of outputs."""

    def __init__(self, program: Any, names: list[str]) -> None:
        super().__init__()
        self.program, self.names = program, names

    def forward(self, *tensors: Tensor) -> dict[str, Tensor]:
        return dict(zip(self.names, self.program(*tensors), strict=True))


def _program(frozen: Frozen, x: Any, normalise: Any) -> tuple[Any, list[str]]:
    """For a batch of any size, with the draws at once, which is the shortest program, or one after the other; else for
    batches of this size."""
    flat = _Flat(frozen, x, normalise).eval()
    single = isinstance(frozen.core, FixedMoments) or frozen.num_draws == 1
    tries: list[tuple[bool | None, bool]] = [(None, True)] if single else [(True, True), (False, True)]
    tries += [(batched, False) for batched, _ in tries]
    errors: list[Exception] = []
    before = frozen.batched
    try:
        for frozen.batched, free in tries:
            try:
                return _traced(flat, free), flat.names
            except Exception as error:  # torch has many kinds for what it cannot trace
                errors.append(error)
    finally:
        frozen.batched = before
    told = next((line for line in str(errors[-1]).splitlines() if line.strip()), "")
    raise RuntimeError(
        f"torch.export cannot write this network as a program ({type(errors[-1]).__name__}: {told[:200]}): serve "
        f"model.freeze({frozen.num_draws}) in Python instead"
    ) from errors[0]


def _traced(flat: _Flat, free: bool) -> Any:
    example = tuple(map(_at_least_two, flat.example)) if free else flat.example
    core = flat.frozen.core
    swept = isinstance(core, FixedMoments) and getattr(core.posterior, "swept", False)
    plain = swept or flat.frozen.batched or isinstance(core, FixedLinear)
    with torch.no_grad():
        # derivatives and vmap end in plain operations
        module = _Named(traced(flat, example) if plain else flat, flat.names)
        batch = ({0: torch.export.Dim("batch")},) * len(example)
        program = torch.export.export(
            module,
            example,
            dynamic_shapes={"tensors": batch} if free else None,
            prefer_deferred_runtime_asserts_over_guards=True,
        )
        if free:
            _check_batches(program, flat, example)
    if not free:
        warnings.warn(
            f"the exported program is for batches of exactly {len(example[0])} examples: what the network does with "
            f"the batch does not allow another size. Give an example of the size that you will serve"
        )
    return program


def _check_batches(program: Any, flat: _Flat, example: tuple[Tensor, ...]) -> None:
    """A batch of another size must give what the predictor gives."""
    rows = tuple(torch.cat([t, t[:1]]) for t in example)
    found, wanted = program.module()(*rows), flat(*rows)
    for name, value in zip(flat.names, wanted, strict=True):
        torch.testing.assert_close(found[name], value, rtol=1e-3, atol=1e-3 * float(value.abs().max()))


def _at_least_two(value: Tensor) -> Tensor:
    """A batch of one would be taken as fixed."""
    return value.expand(2, *value.shape[1:]) if len(value) == 1 else value


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


def _about(frozen: Frozen, seed: int, class_names: Sequence[str] | None) -> dict[str, str]:
    """What a file says of itself, as text."""
    from bayesify import __version__

    about = {
        "method": frozen.method,
        "likelihood": frozen.likelihood.name,
        "num_draws": str(frozen.num_draws),
        "seed": str(seed),
        "bayesify": __version__,
    }
    return about | ({} if class_names is None else {"class_names": json.dumps([*class_names])})


def _check_size(frozen: Frozen, path: Path) -> None:
    """A person should know of a large file before it is written."""
    gigabytes, size = frozen.num_bytes / 2**30, f"{frozen.num_draws} draws"
    if path.suffix == ".onnx" and frozen.num_bytes >= MOST:
        raise ValueError(
            f"{path} would hold {gigabytes:.1f} GiB of weights ({size}), and ONNX files end at 2 GiB: export fewer "
            f"draws, num_draws={max(1, int(frozen.num_draws * MOST / frozen.num_bytes / 1.1))}, or a program, "
            f"{path.with_suffix('.pt2').name}"
        )
    if path.suffix == ".onnx" and frozen.num_bytes >= ONE_FILE:
        warnings.warn(
            f"{path} holds {gigabytes:.1f} GiB of weights ({size}) in a second file, {path.name}.data: keep both "
            f"together"
        )


def _check_packages() -> None:
    missing = [name for name in ("onnx", "onnxscript") if importlib.util.find_spec(name) is None]
    if missing:
        raise ImportError(f"writing ONNX needs {' and '.join(missing)}: pip install onnx onnxscript")


def _save_program(program: Any, path: Path, about: dict[str, str]) -> None:
    with path.open("wb") as file:  # a path would have to end in .pt2
        torch.export.save(program, file, extra_files={METADATA: json.dumps(about)})


def _save_onnx(
    program: Any, path: Path, inputs: list[str], outputs: list[str], about: dict[str, str], num_bytes: int
) -> None:
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
    onnx.model.metadata_props.update(about)
    if num_bytes < ONE_FILE:
        write_atomically(path, onnx.save)
    else:
        onnx.save(path)  # the weights go to a second file, by the name of the first
