"""bf.save and bf.load: one self-contained file for every method. No pickle."""

import json
import re
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import torch
from torch import Tensor, nn

from bayesify.atomic import read_header, read_tensors, stored_shapes, write_tensors
from bayesify.checks import Count, NotNegativeCount, Positive, Range, check_content, fits, naming
from bayesify.files.differences import Shape, differences, first_few, shapes_of
from bayesify.files.packing import HOW, dense_shapes, pack, unpack
from bayesify.likelihoods import LIKELIHOODS, Likelihood
from bayesify.likelihoods.base import LEARNED
from bayesify.methods import Method, method
from bayesify.model import BayesianModule, bayesify
from bayesify.model.bayesian_module import SCRATCH
from bayesify.posteriors import without_guards
from bayesify.posteriors.chain.draw_files import DrawReference
from bayesify.posteriors.chain.stored_draws import listing
from bayesify.predict.conformal import ConformalRule
from bayesify.priors import prior
from bayesify.weights.units import NAME as UNITS
from bayesify.weights.units import like_stored, without_units

T = TypeVar("T")
#: what is raised where a header asks for what cannot be made
CANNOT_BE = (TypeError, LookupError, AttributeError, ArithmeticError, RuntimeError)
FORMAT = 4  # the newest that this version reads: a file of a run, which refers to draws beside it
SELF_CONTAINED = 3
#: draws of a chain, (draws, *shape), which are left in the file
DRAWS = re.compile(r"posterior\.(posteriors\.\d+\.)?draws\.")


def save(model: BayesianModule, path: str | Path) -> None:
    """Write `model` to one safetensors file: posterior, method, likelihood, what was random.

    Of weights that `bf.compress.prune` or `sparsify` has cut only the others are stored, so that the file is smaller.

    The write is atomic: a crash leaves the old file or the new one, never half of one. Under FSDP call
    it on every rank (the shards are gathered); rank 0 writes.
    """
    if not isinstance(model, BayesianModule):
        raise TypeError(f"model={type(model).__name__} must be what bf.bayesify returned")
    _write(model, as_path(path), None)


def save_in_run(model: BayesianModule, path: Path) -> None:
    """`save` to a file of a run: draws that lie in its folder already are named there and not copied."""
    _write(model, path, path.parent)


def _write(model: BayesianModule, path: Path, run: Path | None) -> None:
    with listing():
        state = nn.Module.state_dict(model)  # in which tied weights are one
    references = {f"posterior.{name}": found for name, found in model.posterior.references(run).items()}
    extra = {f"posterior.{name}": value for name, value in model.posterior.extra_tensors(run).items()}
    tensors = {name: _whole(name, value) for name, value in {**state, **extra}.items()}
    if torch.distributed.is_initialized() and torch.distributed.get_rank() != 0:
        return
    packed, sparse = pack(tensors, model.posterior.idle_entries())
    header = {**header_of(model), "sparse": sparse}
    if references:
        header |= {"format": FORMAT, "references": references}
    write_tensors(path, packed, header)


def load(
    path: str | Path,
    net: nn.Module,
    map_location: Any = None,
    output: Callable[[Any], Any] | None = None,
    likelihood: Likelihood | None = None,
) -> BayesianModule:
    """The model in `path` around `net`, a network of the architecture it was saved with.

    likelihood:  an object of the class the model was saved with, where its name is not in
                 `bf.likelihoods.LIKELIHOODS`; what it had learned comes back

    Everything is checked first: a file that is damaged, truncated, foreign or newer, or a network with
    other keys or shapes, raises, names the difference, and leaves `net` as it was.
    """
    path = as_path(path)
    if not isinstance(net, nn.Module):
        raise TypeError(
            f"net={net!r} must be a network of the architecture that {path} was saved with: the file holds "
            f"weights, not code"
        )
    if isinstance(net, BayesianModule):
        raise TypeError("net is a model: give the plain network to bf.load, which makes a model of it")
    device = None if map_location is None else _device(map_location)
    header = _read_header(path)
    sparse, shapes = header.get("sparse", {}), stored_shapes(path, header)
    dense = dense_shapes(shapes, sparse)
    _compare(path, "network", _own(net.state_dict()), _own(_inside(dense, "net.")))
    if header["custom_output"] and output is None:
        warnings.warn(f"{path} was saved from a model with output=: give bf.load(..., output=...) again")
    law = _likelihood(path, header["likelihood"], likelihood)
    with naming(path, *CANNOT_BE):
        rule = ConformalRule(**header["conformal"]) if "conformal" in header else None
    try:
        with naming(path, *CANNOT_BE):
            like_stored([net], dense, "net.")
            most = max((t.numel() for t in net.state_dict().values()), default=1) * _longest(shapes)
            rows = read_tensors(path, header, lambda name: bool(DRAWS.match(name)) and name not in sparse)
            tensors = unpack(rows, sparse, most)
            model = _made(net, header, law, output, max(len(shapes), _longest(shapes)))
            outside = {
                name: DrawReference.read(path, at) for name, at in header.get("references", {}).items()
            }
            model.posterior.make_room(_inside({**tensors, **outside}, "posterior."))
            with listing():
                mine = model.state_dict()
        tensors = {name: t for name, t in tensors.items() if name in mine or not DRAWS.match(name)}
        _compare(path, "model", shapes_of(mine), shapes_of(tensors))
        with naming(path, *CANNOT_BE):
            model.load_state_dict(tensors)
            model.posterior.take_plain_data(header.get("posterior"))
    except (ValueError, OSError):
        without_units(without_guards(net))
        raise
    _warn_of_nonfinite(path, tensors, {name for name, _ in model.named_parameters()})
    model.calibration = header.get("calibration")  # files of 0.1 have none, nor the next
    model.conformal = rule
    model.start = header.get("start", SCRATCH)
    if "augment" in header:
        from bayesify.data.augment import CropFlip  # a room that is loaded where it is needed

        model.augment = CropFlip.of(header["augment"])
    return model if device is None else model.to(device)


#: what the header of a model says; files of 0.1 have less
HEADER: dict[str, Any] = {
    "format?": NotNegativeCount,
    "method": {"name": str, "options": dict},
    "likelihood": {"name": str, "options": dict},
    "num_data": Count | None,
    "random": list[str],
    "custom_output": bool,
    "calibration?": Positive | None,
    "conformal?": dict,
    "start?": Literal["scratch", "pretrained"],
    "augment?": {"padding": Annotated[int, Range(least=0, most=64)], "fill": float | list[float]},
    "sparse?": HOW,
    "references?": dict,
}


def _read_header(path: Path) -> dict[str, Any]:
    """The header of a model of a format that we know, every entry of its kind."""
    header = read_header(path)
    if "checkpoint" in header:
        raise ValueError(
            f"{path} is a checkpoint of a run: load the run's model.safetensors or best.safetensors"
        )
    if fits(header.get("format"), Annotated[int, Range(above=FORMAT)]):
        raise ValueError(
            f"{path} has format {header['format']}, this bayesify ({FORMAT}) is older: upgrade bayesify"
        )
    check_content(header, HEADER, path)
    return header


def check_network(path: Path, net: nn.Module) -> None:
    """Raise where the model in `path` is not of a network like `net`, which may be on the device "meta"."""
    header = _read_header(path)
    shapes = dense_shapes(stored_shapes(path, header), header.get("sparse", {}))
    _compare(path, "network", _own(net.state_dict()), _own(_inside(shapes, "net.")))


def _own(tensors: Mapping[str, Any]) -> dict[str, Shape]:
    """What a network has without the units of the targets, which it gets from its file."""
    return {name: tuple(getattr(t, "shape", t)) for name, t in tensors.items() if name != UNITS}


def _longest(shapes: Mapping[str, tuple[int, ...]]) -> int:
    return max((size for shape in shapes.values() for size in shape), default=1)


def _made(
    net: nn.Module, header: Mapping[str, Any], law: Likelihood, output: Callable[[Any], Any] | None, most: int
) -> BayesianModule:
    """The model of a header around `net`, its numbers still to come; of at most so many members or components."""
    made = make_method(header["method"]).fixed_to(header["random"])
    for name in ("num_members", "num_components"):
        if getattr(made, name, 0) > most:
            raise ValueError(f"method.options.{name} is more than the tensors are for")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # members are overwritten: how they started does not matter
        return bayesify(net, made, law, header["num_data"], output=output)


def _device(map_location: Any) -> torch.device:
    try:
        device = torch.device(map_location)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, TypeError) as error:
        raise ValueError(
            f"map_location={map_location!r} cannot be used here ({str(error).splitlines()[0]}): give 'cpu', or leave "
            f"it out"
        ) from None
    return device


def as_path(path: Any) -> Path:
    """`path` as a path; anything that is none is named."""
    if not isinstance(path, str | Path) or not str(path):
        raise TypeError(f"path={path!r} must be the name of a file, e.g. 'model.safetensors'")
    return Path(path)


def header_of(model: BayesianModule) -> dict[str, Any]:
    """Everything about a model that is not a tensor, as plain data."""
    return {
        "format": SELF_CONTAINED,
        "method": {"name": model.method.name, "options": model.method.options()},
        "likelihood": {"name": model.likelihood.name, "options": model.likelihood.options},
        "num_data": model.num_data,
        "random": [w.name for w in model.selection.random],
        "custom_output": model.output is not None,
        "calibration": model.calibration,
        **({} if model.conformal is None else {"conformal": model.conformal.data()}),
        **({} if model.start == SCRATCH else {"start": model.start}),
        **({} if model.augment is None else {"augment": model.augment.data()}),
        "posterior": model.posterior.plain_data(),
    }


def settings_of(model: BayesianModule) -> dict[str, Any]:
    """What was chosen for a model and does not change in training, as it comes back from a file."""
    header = {
        key: value for key, value in header_of(model).items() if key in ("method", "likelihood", "random")
    }
    options = header["likelihood"]["options"]
    fixed = {key: value for key, value in options.items() if key not in model.likelihood.learned}
    chosen = {**header, "likelihood": {**header["likelihood"], "options": fixed}}
    return json.loads(json.dumps(chosen, default=repr))


def make_method(data: Mapping[str, Any]) -> Method:
    """A method from its plain data; priors and inner methods are built back."""
    options = dict(data["options"])
    for key, value in options.items():
        if isinstance(value, dict) and set(value) == {"prior", "options"}:
            options[key] = prior(value["prior"], **value["options"])
        if isinstance(value, dict) and set(value) == {"method", "options"}:
            options[key] = make_method({"name": value["method"], "options": value["options"]})
    return method(data["name"], **options)


def _likelihood(path: Path, data: Mapping[str, Any], given: Likelihood | None) -> Likelihood:
    """The likelihood of a file: the one given, which must be the file's, or by its name."""
    name, options = data["name"], data["options"]
    if given is None and name not in LIKELIHOODS:
        raise ValueError(
            f"{path} was saved with likelihood {name!r}, which is not known here: give an object of its class, "
            f"bf.load(..., likelihood=...), or register the class, bf.likelihoods.LIKELIHOODS[{name!r}] = ..."
        )
    if given is None:
        with naming(path, *CANNOT_BE):
            return LIKELIHOODS[name](**options)
    if not isinstance(given, Likelihood):
        raise TypeError(
            f"likelihood={given!r} must be a likelihood object, made with the options {options!r}"
        )
    mine = {"name": given.name, **json.loads(json.dumps(given.options))}
    stored = {"name": name, **options}
    other = [key for key in mine if key not in given.learned and mine[key] != stored.get(key)]
    if other:
        found = ", ".join(f"{key} {mine[key]!r} (in the file {stored.get(key)!r})" for key in other)
        raise ValueError(f"likelihood={given.name!r} is not the one of {path}: it has {found}{LEARNED}")
    return given


def _whole(name: str, value: Any) -> Tensor:
    if not isinstance(value, Tensor):
        raise TypeError(f"state {name!r} is a {type(value).__name__}: only tensors can be saved")
    return value.full_tensor() if hasattr(value, "full_tensor") else value


def _warn_of_nonfinite(path: Path, tensors: Mapping[str, Tensor], parameters: set[str]) -> None:
    """NaN anywhere, infinite parameters; other tensors may hold −∞, as masks do."""
    wrong = [
        name
        for name, t in tensors.items()
        if t.is_floating_point() and (t.isnan() | t.isinf() if name in parameters else t.isnan()).any()
    ]
    if wrong:
        warnings.warn(
            f"{path} holds NaN or infinite numbers in {first_few(wrong, 3)}: the training had diverged, and "
            f"predictions will be refused. Load an earlier file of the run",
            stacklevel=3,
        )


def _inside(tensors: Mapping[str, T], prefix: str) -> dict[str, T]:
    return {name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)}


def _compare(path: Path, what: str, mine: Mapping[str, Shape], stored: Mapping[str, Shape]) -> None:
    """Raise where the tensors of the file are not those of the network or model."""
    found = differences(
        mine,
        stored,
        only_mine=f"only in the {what}: ",
        only_stored="only in the file: ",
        shapes="{name} is {mine}, in the file {stored}",
        num_named=5,
    )
    if found:
        raise ValueError(f"{path} does not fit this {what}: {found}")
