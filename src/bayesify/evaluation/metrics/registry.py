"""The registry of metrics: what `bf.evaluate` computes, and what every table says about the numbers."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

from torch import Tensor

from bayesify.names import lookup

#: what `register` takes, and the arguments of the function there
TASKS = {
    "classification": "f(probs, target)",
    "regression": "f(predictive, target)",
    "ood": "f(known, unknown)",
}
Better = Literal["higher", "lower"] | None
Unit = Literal["%", "count", ""]
Way = bool | str | Callable[[Any], Tensor | None] | None


@dataclass(frozen=True)
class Fact:
    """meaning: a few words; better: which way; unit: "%" (stored as a share), "count" or "" (as it is)."""

    meaning: str
    better: Better = None
    unit: Unit = ""
    short: str = ""  # header of a table; the key where it is empty


@dataclass(frozen=True)
class Metric:
    """One number about predictions, with its fact; a metric is called as its function is.

    function: the formula, on everything at once; arguments as its docstring says
    classification, regression, ood: how `bf.evaluate` gets it there. True: by the function, from the whole set
              (see TASKS); a function of the tally that took the set batch by batch; a word: the mean of what the tally
              keeps per example under it. None: it is not reported there
    """

    function: Callable[..., Any]
    meaning: str
    better: Better = None
    unit: Unit = ""
    short: str = ""
    classification: Way = None
    regression: Way = None
    ood: Way = None

    def __call__(self, *args: Any, **options: Any) -> Any:
        return self.function(*args, **options)

    @property
    def about(self) -> str:
        """One line for `bayesify show metrics`."""
        return self.meaning

    @property
    def __wrapped__(self) -> Callable[..., Any]:
        """What `inspect.signature` looks at."""
        return self.function


#: name -> metric, in the order in which they are reported
METRICS: dict[str, Metric] = {}


def register(
    name: str,
    f: Callable[..., Any],
    task: str = "classification",
    *,
    better: Better = None,
    about: str = "",
    unit: Unit = "",
) -> None:
    """Put a metric into `bf.evaluate`, the suite calibration (for "ood": ood), the report and the command line.

    name:    its key among the results
    f:       a function that returns one number, called once with the whole set on the CPU:
             "classification"  f(probs, target), (N, classes) averaged over draws, and (N,) class indices
             "regression"      f(predictive, target), a `bf.Predictive` with its samples, and targets of its shape
             "ood"             f(known, unknown), uncertainties of test inputs and of inputs of another kind
    better:  "higher" or "lower": tables mark the best; None: no way is better
    about:   one line for tables, by default the first line of f's docstring
    unit:    "%" writes a share as percent

    `bf.metrics.METRICS.pop(name)` takes it out again.

    >>> def worst_class(probs, target):
    ...     return min((probs.argmax(1) == target)[target == c].double().mean() for c in target.unique())
    >>> bf.metrics.register("worst_class", worst_class, better="higher", about="accuracy of the hardest class")
    >>> bf.evaluate(model, loader)["worst_class"]
    """
    from bayesify.evaluation.metrics.facts import FACTS

    if not isinstance(name, str) or not re.fullmatch(r"[\w.+-]+", name):
        raise ValueError(f"name={name!r} must be a word without '/' or blanks, e.g. name='worst_class'")
    if name in METRICS or name in FACTS:
        raise ValueError(
            f"name={name!r} exists: choose another name, or take a metric of your own out first with "
            f"bf.metrics.METRICS.pop({name!r})"
        )
    lookup(TASKS, task, "task")
    if not callable(f):
        raise TypeError(f"f={f!r} must be a function, {TASKS[task]}")
    if better not in ("higher", "lower", None):
        raise ValueError(f"better={better!r} must be 'higher', 'lower' or None")
    if unit not in get_args(Unit):
        raise ValueError(f"unit={unit!r} must be '%', 'count' or ''")
    words = about if about else (f.__doc__ or "").strip().split("\n")[0]
    METRICS[name] = Metric(f, words, better, unit, **{task: True})  # type: ignore[arg-type]


def reported(task: str) -> dict[str, Metric]:
    """The metrics of a task."""
    return {name: metric for name, metric in METRICS.items() if getattr(metric, task) is not None}


def needs_whole(task: str) -> bool:
    """Does a metric of this task need all predictions at once?"""
    return any(getattr(metric, task) is True for metric in METRICS.values())


def measured(name: str, *args: Any) -> float:
    """What the metric of this name gives for `args`, as a number."""
    try:
        value = METRICS[name](*args)
    except Exception as error:
        raise RuntimeError(f"metric {name!r} failed: {error} ({type(error).__name__})") from error
    shape = getattr(value, "shape", ())
    try:
        if isinstance(value, str):
            raise TypeError
        return float(value)
    except (TypeError, ValueError, RuntimeError):
        what = f"{type(value).__name__} of shape {tuple(shape)}" if shape else repr(value)
        raise TypeError(f"metric {name!r} returned {what}: return one number, e.g. values.mean()") from None
