"""In words: is it sampling from the posterior, and if not, what to change."""

import math
from collections.abc import Sequence
from typing import Any

TOLERANCE = 0.05  # a temperature this near 1 is right
SIGMAS = 3.0
LOUD = 0.3  # of gradient noise, in D: from here on correlated noise narrows the draws by 10 % and more


def verdict(
    rows: Sequence[Any],
    drift: float = 0.0,
    rhat: float | None = None,
    ess: float | None = None,
    loss_ess: float | None = None,
) -> list[str]:
    """Sentences on the rows of a `Monitor`, and on the R-hat and ESS of function values where given.

    drift:    of the thermostat, as a share of D
    loss_ess: how many independent values the losses of the run are worth
    """
    found = [*_temperature(rows), *_thermostat(rows, drift), *_convergence(rhat, ess, loss_ess)]
    return found or [
        "nothing speaks against sampling from the posterior: temperatures and thermostats are right"
    ]


def _temperature(rows: Sequence[Any]) -> list[str]:
    found = []
    momentum, thermostat = (
        any(not math.isnan(getattr(r, n)) for r in rows) for n in ("kinetic", "thermostat")
    )
    lag = (
        "; with a cyclic schedule raise thermostat_rate; correlated gradient noise, which one thermostat per weight "
        "cannot undo, shrinks with larger batches"
    )
    for kind, advice_hot, advice_cold in (
        (
            "kinetic",
            "the friction does not take the gradient noise away: use a thermostat (sampler='atmc'), larger batches, "
            "or a lower step size",
            "the thermostat is still above what the gradient noise asks for: run longer, or raise thermostat_rate",
        ),
        (
            "configurational",
            f"lower the step size{' or raise the mass' * momentum}, and use larger batches",
            f"run longer{lag * thermostat}",
        ),
    ):
        wrong = [r for r in rows if _off(getattr(r, kind), getattr(r, f"{kind}_error"))]
        if not wrong:
            continue
        worst = max(wrong, key=lambda r: abs(math.log(max(getattr(r, kind), 1e-6))))
        value = getattr(worst, kind)
        hotter = value > 1
        words = f"{'hotter' if hotter else 'colder'} than the posterior by {abs(value - 1):.0%}"
        place = f"({kind} temperature {value:.2f} in {worst.name}; {len(wrong)} of {len(rows)} parameters are off)"
        found.append(f"{words} {place}: {advice_hot if hotter else advice_cold}")
    return found


def _thermostat(rows: Sequence[Any], drift: float) -> list[str]:
    with_one = [r for r in rows if not math.isnan(r.thermostat)]
    if not with_one:
        return []
    found = []
    if drift > 0.05:
        found.append(
            f"the thermostat is still moving (by {drift:.0%} of D over the last half): run longer, or raise "
            f"thermostat_rate"
        )
    far = [r for r in with_one if abs(r.thermostat - r.predicted) > 0.25 * max(r.predicted, r.noise)]
    if far and drift <= 0.05:
        worst = max(far, key=lambda r: abs(r.thermostat - r.predicted) / max(r.predicted, r.noise))
        found.append(
            f"the thermostat of {worst.name} stands at {worst.thermostat:.3g}, gradient noise predicts "
            f"{worst.predicted:.3g}: the step is too large (it reads the integrator's error as noise), or the chain "
            f"has not settled"
        )
    loud = [r for r in with_one if r.predicted > LOUD * r.noise]
    if loud:
        worst = max(loud, key=lambda r: r.predicted / max(r.noise, 1e-30))
        share = worst.predicted / max(worst.noise, 1e-30)
        found.append(
            f"gradient noise is more than {LOUD} D in {len(loud)} of {len(rows)} parameters ({share:.2g} D in "
            f"{worst.name}): what weights have of it in common no thermostat takes away, and the draws come out too "
            f"narrow, but for the few directions that have most of it, where they are too wide; larger batches, a "
            f"larger mass or a smaller step bring it below"
        )
    return found


def _convergence(rhat: float | None, ess: float | None, loss_ess: float | None) -> list[str]:
    found = []
    if rhat is not None and math.isnan(rhat):
        found.append(
            "R-hat is not a number: the outputs hold NaN, or are the same in all draws; a chain that does not move "
            "needs larger steps"
        )
    if rhat is not None and rhat > 1.05:
        found.append(
            f"the chains do not agree (R-hat {rhat:.2f} of the outputs, should be below 1.05): run longer"
        )
    if ess is not None and ess < 10:
        found.append(
            f"the draws are worth {independent(ess)}: keep them further apart, or run longer, or take "
            f"larger steps"
        )
    if loss_ess is not None and loss_ess < 10:
        found.append(
            f"the loss is correlated over most of the run, which is worth {independent(loss_ess)}: it still "
            f"falls, or wanders slowly; lengthen the burn-in and the run"
        )
    return found


def independent(count: float) -> str:
    """A number of independent values, in words."""
    return "one independent value" if count < 1.5 else f"{count:.0f} independent ones"


def _off(value: float, error: float) -> bool:
    return not math.isnan(value) and abs(value - 1) > max(TOLERANCE, SIGMAS * error)
