"""Evaluations that make up a results section. Adding one: a file here and a line in SUITES.

Each is a function of a `Subject` and gives an `Outcome`: numbers, and arrays for the figures of a report.
"""

from collections.abc import Callable, Iterable

from bayesify.names import lookup
from bayesify.suites.adversarial import adversarial
from bayesify.suites.calibration import calibration
from bayesify.suites.compression import compression
from bayesify.suites.corruption import corruption
from bayesify.suites.ood import ood
from bayesify.suites.saliency import saliency
from bayesify.suites.shift import shift
from bayesify.suites.store import Evaluation, read_evaluation, write_evaluation
from bayesify.suites.subject import Outcome, Subject

SUITES: dict[str, Callable[[Subject], Outcome]] = {
    "calibration": calibration,
    "ood": ood,
    "corruption": corruption,
    "shift": shift,
    "adversarial": adversarial,
    "saliency": saliency,
    "compression": compression,
}


def run_suites(
    subject: Subject, names: Iterable[str], begun: Callable[[str], object] | None = None
) -> dict[str, Outcome]:
    """The named suites, one after the other; `begun(name)` is called before each."""
    chosen = {name: lookup(SUITES, name, "suite") for name in names}
    outcomes = {}
    for name, suite in chosen.items():
        if begun is not None:
            begun(name)
        outcomes[name] = suite(subject)
    return outcomes


__all__ = [
    "SUITES",
    "Evaluation",
    "Outcome",
    "Subject",
    "read_evaluation",
    "run_suites",
    "write_evaluation",
]
