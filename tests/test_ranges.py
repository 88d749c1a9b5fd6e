"""Every number that a user can set has a range: a new one is tested by being registered."""

import inspect
import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from types import NoneType
from typing import Annotated, Any, get_type_hints

import pytest
import torch
from torch import Tensor, nn

import bayesify as bf
from bayesify.checks import (
    Count,
    Positive,
    Range,
    accepted,
    check_fields,
    checked,
    fits,
    holds_numbers,
    is_plain,
    kinds_of,
)
from bayesify.engine.options import FitOptions
from bayesify.nets import NETS

NONE_TAKEN = "None is a value of its own"
SIZES = ("num_outputs", "input_shape")  # of a network, which come from the data


@dataclass(frozen=True)
class Number:
    """One number of something registered: how that is made with it, and what it is then used for."""

    label: str
    name: str
    kind: Any
    make: Callable[[Any], Any]
    use: Callable[[Any], Tensor]

    def __str__(self) -> str:
        return f"{self.label}.{self.name}"


def numbers_of(
    label: str, function: Callable[..., Any], use: Callable[[Any], Tensor], **given: Any
) -> Iterator[Number]:
    """The arguments of `function` that take numbers."""
    made = function.func if isinstance(function, partial) else function
    kinds = get_type_hints(made.__init__ if isinstance(made, type) else made, include_extras=True)
    for name in inspect.signature(function).parameters:
        if holds_numbers(kinds.get(name)) and name not in SIZES:
            yield Number(label, name, kinds[name], lambda v, n=name: function(**{**given, n: v}), use)


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 4), nn.LayerNorm(4), nn.ReLU(), nn.Linear(4, 2))


def trained(method: bf.methods.Method) -> Tensor:
    torch.manual_seed(0)
    model = bf.bayesify(net(), method, num_data=4)
    optimizer = model.optimizer(num_steps=None) if method.name in ("atmc", "swag") else model.optimizer()
    for _ in range(2):
        loss = model.loss(torch.ones(4, 2), torch.tensor([0, 1, 0, 1])).total
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss


def stepped(sampler: Any) -> Tensor:
    (theta,) = sampler.param_groups[0]["params"]
    for _ in range(2):
        theta.grad = theta.detach().clone()
        sampler.step()
    return theta.detach()


def density(prior: bf.priors.Prior) -> Tensor:
    like = torch.full((2, 3), 0.5)
    return (
        prior.at("direction", like).tensor_log_prob(like, 2).nan_to_num(math.nan, 0, 0)
    )  # 0: not in the support


def scored(likelihood: bf.likelihoods.Likelihood) -> Tensor:
    if likelihood.task == "regression":
        return likelihood.nll(torch.ones(3, 2), torch.zeros(3, 4 if likelihood.has_flags else 2))
    return likelihood.nll(torch.ones(3, 3), torch.tensor([0, 1, 2]))


def numbers() -> list[Number]:
    found = [n for key, m in bf.methods.METHODS.items() for n in numbers_of(key, m, trained)]
    for key, sampler in bf.samplers.SAMPLERS.items():
        weights = [nn.Parameter(torch.ones(2))]
        found += numbers_of(f"sampler {key}", sampler, stepped, params=weights, lr=1e-3, num_data=10)
    for key, prior in bf.priors.PRIORS.items():
        found += numbers_of(f"prior {key}", prior, density)
    for key, likelihood in bf.likelihoods.LIKELIHOODS.items():
        found += numbers_of(f"likelihood {key}", likelihood, scored)
    for key, entry in NETS.items():
        sizes = {"num_outputs": 3, "input_shape": entry.smallest}
        found += numbers_of(f"net {key}", entry.build, lambda made: torch.zeros(()), **sizes)
    return found


NUMBERS = numbers()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("number", NUMBERS, ids=str)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, "a", True, None], ids=repr)
def test_what_is_no_number_is_refused_by_name(number: Number, value: Any) -> None:
    if value is None and NoneType in kinds_of(number.kind):
        pytest.skip(NONE_TAKEN)
    if isinstance(value, str) and str in kinds_of(number.kind):
        pytest.skip("a text is a value of its own")
    with pytest.raises((ValueError, TypeError), match=rf"{number.name}={value!r} .*must"):
        number.make(value)


@pytest.mark.parametrize("number", NUMBERS, ids=str)
@pytest.mark.parametrize("value", [-1, 0, 1e-3])
def test_what_is_taken_works(number: Number, value: float) -> None:
    """A number is refused by its name, or what is made with it gives finite numbers."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            made = number.make(value)
        except (ValueError, TypeError) as error:
            refused = str(error)
        else:
            assert torch.as_tensor(number.use(made)).isfinite().all()
            return
    assert number.name in refused


@pytest.mark.parametrize("name", [n for n, each in FitOptions.options().items() if holds_numbers(each.kind)])
def test_options_of_training(name: str) -> None:
    kind = FitOptions.options()[name].kind
    for value in (math.nan, math.inf, 1e300, True, [] if name != "devices" else {}):
        with pytest.raises(ValueError, match=f"{name}=.* must be {accepted(kind).split()[0]}"):
            FitOptions(**{"epochs": 1, name: value})


def public_functions() -> Iterator[tuple[str, Any]]:
    """Functions and rooms of functions that `bf.` has."""
    for name in bf.__all__:
        entry = getattr(bf, name)
        if inspect.isfunction(entry):
            yield name, entry
        elif inspect.ismodule(entry) and name not in ("data", "nets", "report"):
            listed = getattr(entry, "__all__", ())
            yield from (
                (f"{name}.{n}", f) for n, f in vars(entry).items() if n in listed and inspect.isfunction(f)
            )


#: functions that check their numbers themselves
THEMSELVES = {
    "bayesify",
    "fit",
    "kl",
    "compress.pruning_curve",
    "corruptions.common_corruptions",
    "diagnostics.verdict",
    "families.standard_normal",
    "metrics.calibration_curve",
    "metrics.calibration_error",
    "metrics.confidence_sets",
    "metrics.disagreement",
    "metrics.relative_corruption_errors",
    "metrics.relative_mean_corruption_error",
}


@pytest.mark.parametrize(("name", "function"), public_functions())
def test_functions_hold_their_numbers_to_a_range(name: str, function: Any) -> None:
    """Every public function with a number is `checked`: NaN, infinity, texts and truth values are named."""
    kinds = get_type_hints(function, include_extras=True)
    parameters = inspect.signature(function).parameters
    needed = [n for n, p in parameters.items() if p.default is p.empty and p.kind is not p.VAR_KEYWORD]
    given = {n: "a" if kinds.get(n) is str else None for n in needed}
    for argument in [n for n in parameters if name not in THEMSELVES and holds_numbers(kinds.get(n))]:
        if not is_plain(kinds[argument]):
            continue
        for other in [n for n in needed if holds_numbers(kinds.get(n))]:
            given[other] = 1
        for value in (math.nan, math.inf, "a", True):
            with pytest.raises(ValueError, match=rf"{argument}={value!r} must be"):
                function(**{**given, argument: value})


@checked
def scale(
    x: Any, factor: Positive = 2.0, *, times: Count | None = None, generator: torch.Generator | None = None
) -> Any:
    """A function that says its ranges."""
    return x * factor ** (times or 1)


def test_arguments_are_held_to_their_annotations() -> None:
    assert scale(3, 2, times=2) == 12 and scale("a", factor=2) == "aa"
    with pytest.raises(ValueError, match="factor=0 must be a number above 0, e.g. factor=2.0"):
        scale(3, 0)
    with pytest.raises(ValueError, match="times=1.5 must be a whole number of at least 1 or None"):
        scale(3, times=1.5)  # type: ignore[arg-type]
    with pytest.raises(
        ValueError, match=r"generator=3 must be a torch.Generator \(torch.Generator\(\).manual_seed"
    ):
        scale(3, generator=3)  # type: ignore[arg-type]
    assert inspect.signature(scale).parameters["factor"].default == 2.0


def test_ranges_in_words() -> None:
    part = Annotated[float, Range(above=0, most=1)]
    assert accepted(part) == "a number above 0 and at most 1"
    assert fits(1, part) and not fits(0, part) and not fits(1.01, part) and not fits(True, part)
    assert accepted(dict[str, int]) == "a dict"


def test_fields_take_numbers_of_numpys() -> None:
    import numpy as np

    method = bf.MonteCarloVI(init_std=np.float32(0.5), num_kl_draws=np.int64(3))
    assert type(method.init_std) is float and type(method.num_kl_draws) is int
    check_fields(method)


def test_a_whole_number_that_is_written_as_a_float() -> None:
    with pytest.raises(ValueError, match="num_members=3.0 must be a whole number .*; write num_members=3$"):
        bf.DeepEnsemble(num_members=3.0)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"epochs=3.0 must be a whole number .*\); write epochs=3$"):
        FitOptions(epochs=3.0)  # type: ignore[arg-type]
