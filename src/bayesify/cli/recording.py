"""`bayesify train --record`: what a method's own diagnostics saw, in the run folder, for the report."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import bayesify as bf
from bayesify.atomic import read_json

if TYPE_CHECKING:
    from bayesify.studies.suites import Outcome

PHASE, SAMPLER = "phase.json", "sampler.json"
WINDOWS = 60  # points of a curve; looks between them are averaged


def recording(
    model: bf.BayesianModule, val: Any, folder: Path, lr: float | None, epochs: int
) -> dict[str, Any]:
    """Options of `bf.fit` that write the file of this model's method into the folder."""
    from bayesify.posteriors import Chain
    from bayesify.posteriors.variance import VarianceFactorized
    from bayesify.studies.diagnostics import PhaseRecorder, SamplerRecorder

    if isinstance(model.posterior, Chain):
        sampler = SamplerRecorder(folder / SAMPLER)
        return {"optimizer": sampler.optimizer(model, lr), "on_epoch": sampler.record}
    if not isinstance(model.posterior, VarianceFactorized):
        raise ValueError(
            f"--record is for --method variance or atmc; {model.method.name!r} has nothing to record"
        )
    if model.likelihood.task != "classification":
        raise ValueError("--record of a variance network is for classes; this is a regression: leave it out")
    if val is None:
        raise ValueError("--record of a variance network needs a validation part: give --val-fraction")
    phase = PhaseRecorder(val, every=max(1, epochs // 10), path=folder / PHASE)
    return {"on_epoch": phase.record}


def recorded(folder: Path) -> dict[str, "Outcome"]:
    """What `--record` left in the folder, as outcomes beside those of the suites."""
    found = {}
    for name, file, read in (("phase", PHASE, _phase), ("sampler", SAMPLER, _sampler)):
        path = folder / file
        if not path.exists():
            continue
        try:
            rows = read_json(path)
            if rows:
                found[name] = read(rows)
        except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RuntimeError) as error:
            raise ValueError(f"{path} is damaged: {error!r}; delete it to report without it") from None
    return found


def _phase(rows: list[dict[str, Any]]) -> "Outcome":
    """Accuracies and the mean log α over epochs."""
    from bayesify.studies.suites import Outcome

    columns = {key: np.array([row[key] for row in rows]) for key in ("epoch", "deterministic", "ensemble")}
    log_alpha = np.array([list(row["log_alpha"].values()) for row in rows]).mean(1)
    return Outcome({}, {**columns, "log_alpha": log_alpha})


def _sampler(rows: list[dict[str, float]]) -> "Outcome":
    """Curves of at most WINDOWS points, and the autocorrelation of the loss after its first quarter."""
    import torch

    from bayesify.studies.diagnostics import autocorrelation, ess
    from bayesify.studies.suites import Outcome

    columns = {key: np.array([row.get(key, math.nan) for row in rows]) for key in rows[-1]}
    parts = np.array_split(np.arange(len(rows)), min(WINDOWS, len(rows)))
    arrays = {key: np.array([values[part].mean() for part in parts]) for key, values in columns.items()}
    metrics = {}
    settled = {key: values[len(values) // 4 :] for key, values in columns.items()}
    if "kinetic" in settled:
        metrics["kinetic_temperature"] = float(settled["kinetic"].mean())
    loss = torch.tensor(settled.get("loss", []), dtype=torch.float64)
    if len(loss) >= 8 and loss.std() > 0:
        metrics["loss_ess"] = float(ess(loss[None]))
        lags = max(2, len(loss) // 4)  # beyond it there is little but noise
        arrays["autocorrelation"] = autocorrelation(loss)[:lags].numpy()
        arrays["lag"] = np.arange(lags) * float(columns["step"][-1] - columns["step"][-2])
    return Outcome(metrics, arrays)
