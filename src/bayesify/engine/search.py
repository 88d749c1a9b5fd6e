"""bf.search: train over a small grid of settings, or let Optuna choose them, and rank by a validation metric."""

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from bayesify.checks import Count, checked
from bayesify.engine.fit import NonFiniteError, fit
from bayesify.evaluation.evaluate import evaluate
from bayesify.evaluation.metrics import METRICS
from bayesify.model import BayesianModule


class Trial(NamedTuple):
    """Settings and what the model trained with them reached: the metric, and all of `bf.evaluate`."""

    settings: dict[str, float]
    value: float
    metrics: dict[str, float]


@checked
def search(
    make_model: Callable[..., BayesianModule],
    train_loader: Iterable[Any],
    val_loader: Iterable[Any],
    grid: Mapping[str, Sequence[float]],
    *,
    metric: str = "nll",
    num_trials: Count | None = None,
    num_draws: Count = 20,
    seed: int = 0,
    **fit_options: Any,
) -> list[Trial]:
    """Train a fresh model for every combination of settings; the best trial comes first.

    make_model:   called with one value of each setting; paper 3 searched the scales of its loss, which are `kl_weight`
                  and for the Gaussian objective `var_floor`
    grid:         setting -> values. All combinations are trained; with `num_trials` Optuna (if installed) chooses so
                  many between the smallest and the largest value of each, on a logarithmic scale
    metric:       of `bf.evaluate` on val_loader; made large where `bf.metrics.METRICS` says that higher is better,
                  else small
    fit_options:  of `bf.fit`, for example epochs=5, lr=1e-3

    All trials start from one seed, so they differ by their settings alone. A run whose loss or metric is not finite is
    the worst.

    >>> def make(kl_weight):
    ...     return bf.bayesify(make_net(), bf.DensityPropagation(kl_weight=kl_weight))
    >>> bf.search(make, train, val, {"kl_weight": (0.01, 0.1, 1.0)}, epochs=5)[0].settings
    {'kl_weight': 0.1}
    """
    grid = {name: list(values) for name, values in grid.items()}
    if not grid or not all(grid.values()):
        raise ValueError(f"grid={dict(grid)!r} must name settings with at least one value each")
    sign = -1.0 if metric in METRICS and METRICS[metric].better == "higher" else 1.0

    def run(settings: dict[str, float]) -> Trial:
        torch.manual_seed(seed)
        model = make_model(**settings)
        try:
            fit(model, train_loader, **{"seed": seed, "progress": False, **fit_options})
        except NonFiniteError:
            return Trial(settings, sign * math.inf, {})
        metrics = evaluate(model, val_loader, num_draws)
        if metric not in metrics:
            raise ValueError(f"metric={metric!r} is not measured; choose from {', '.join(metrics)}")
        value = metrics[metric]
        return Trial(settings, sign * math.inf if math.isnan(value) else value, metrics)

    if num_trials is None:
        trials = [run(dict(zip(grid, values, strict=True))) for values in itertools.product(*grid.values())]
    else:
        trials = _optuna(run, grid, num_trials, sign, seed)
    return sorted(trials, key=lambda trial: sign * trial.value)


def _optuna(
    run: Callable[[dict[str, float]], Trial],
    grid: Mapping[str, Sequence[float]],
    num_trials: int,
    sign: float,
    seed: int,
) -> list[Trial]:
    try:
        import optuna
    except ImportError:
        raise ImportError(
            f"num_trials={num_trials!r} lets Optuna choose: pip install optuna, or leave it out to train the grid"
        ) from None
    if any(min(values) <= 0 for values in grid.values()):
        raise ValueError(
            f"grid={dict(grid)!r}: Optuna searches on a logarithmic scale, values must be positive"
        )
    done: list[Trial] = []

    def objective(trial: Any) -> float:
        ranges = {name: (min(values), max(values)) for name, values in grid.items()}
        done.append(run({name: trial.suggest_float(name, *ends, log=True) for name, ends in ranges.items()}))
        return sign * done[-1].value

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))
    study.optimize(objective, n_trials=num_trials)
    return done


__all__ = ["Trial", "search"]
