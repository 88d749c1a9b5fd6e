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


#: numbers that are no metrics of their own; those are in METRICS
FACTS: dict[str, Fact] = {
    "ece_20bins": Fact("the same over 20 bins with more than 5 examples", "lower", "%", "ECE (20 bins)"),
    "mce_20bins": Fact("largest gap of those 20 bins", "lower", "%", "MCE (20 bins)"),
    "ece_8bins": Fact("the same over 8 bins of equally many examples", "lower", "%", "ECE (8 bins)"),
    "temperature": Fact("above 1 the model was overconfident"),
    "covered": Fact("targets inside of their conformal set or interval", None, "%", "coverage"),
    "set_size": Fact("classes in a conformal set, on average", short="set size"),
    "covered_worst": Fact("coverage of the class that is covered least", "higher", "%", "worst class"),
    "interval_width": Fact("mean width of the conformal intervals, in the target's units", short="width"),
    "num_calibration": Fact("examples that conformal rules were fitted to", None, "count", "calibrated on"),
    "infidelity": Fact("how badly the saliency map predicts changes", "lower"),
    "sensitivity": Fact("how much the saliency map moves with the input", "lower"),
    "kl_value": Fact("KL of the tensor that was looked at, in nats", None, "", "KL"),
    "kl_error": Fact("mean |estimate − KL| in nats with 100 draws", None, "", "KL error"),
    "kl_stored": Fact("numbers kept for the gradient with 100 draws", None, "count", "stored numbers"),
    "log_alpha": Fact("mean log of variance ÷ mean² of the weights", None, "", "log α"),
    "kappa_above": Fact("weights with κ above the threshold", None, "%", "κ above"),
    "stored_draws": Fact("draws of the weights that were kept", None, "count", "stored draws"),
    "chains": Fact("runs of the sampler", None, "count"),
    "rhat": Fact("1 where the chains agree: median output", "lower", "", "R-hat"),
    "rhat_largest": Fact("the same of the worst output", "lower", "", "largest R-hat"),
    "ess": Fact("draws worth this many independent: median output", "higher", "", "ESS"),
    "ess_smallest": Fact("the same of the worst output", "higher", "", "smallest ESS"),
    "kinetic_temperature": Fact("1 where the momenta are at the right temperature", None, "", "kinetic T"),
    "loss_ess": Fact("independent values the losses of training are worth", "higher", "", "ESS of the loss"),
    "num_weights": Fact("entries of the tensor", None, "count", "weights"),
    "num_bins": Fact("bins of confidence in ece and its relatives", None, "count", "bins"),
    "num_data": Fact("examples", None, "count", "examples"),
    "num_draws": Fact("draws averaged in each prediction", None, "count", "draws"),
    "parameters": Fact("numbers that training changes", None, "count"),
    "seconds": Fact("time of training", "lower"),
}

_NONE = Fact("")


def fact(name: str) -> Fact | Metric:
    """The fact of a number, also of a longer key: "fog_3/ece", "val_accuracy", "auroc_confidence"."""
    name = name.rsplit("/", 1)[-1].removeprefix("val_")
    facts: dict[str, Fact | Metric] = {**FACTS, **METRICS}
    return facts.get(name, facts.get(name.partition("_")[0], _NONE))


def written(name: str, value: float) -> str:
    """A number as a person reads it.

    >>> written("ece", 0.0123), written("nll", 0.25), written("num_data", 1000)
    ('1.23 %', '0.25', '1,000')
    """
    unit = fact(name).unit
    if unit == "count":
        return f"{value:,.0f}"
    if unit == "%":
        return f"{100 * value:.2f} %"
    return f"{value:,.0f}" if 1e3 <= abs(value) < 1e15 else f"{value:.4g}"


def header(name: str, num_bins: int | None = None) -> str:
    """The head of a column; of calibration errors with the number of bins."""
    last = name.rsplit("/", 1)[-1]
    known = fact(name)
    text = known.short if known.short else last.replace("_", " ")
    if last not in METRICS and last not in FACTS:
        start, _, score = last.partition("_")
        text = (f"{text} by {score}" if start in reported("ood") else last).replace("_", " ")
    binned = last in ("ece", "mce", "adaptive_ece", "classwise_ece") and num_bins is not None
    return f"{text} ({num_bins} bins)" if binned else text
