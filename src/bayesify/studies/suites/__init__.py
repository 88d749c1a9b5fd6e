"""Evaluations that make up a results section. Adding one: a file here and a line in SUITES.

Each is a function of a `Subject` and gives an `Outcome`: numbers, and arrays for the figures of a report. A report has
a table of its numbers, or the chapter of the same name in `report.SECTIONS`; papers stand in `report.build.PAPERS`.
"""

from collections.abc import Callable, Iterable

from bayesify.names import lookup
from bayesify.studies.suites.adversarial import adversarial_suite
from bayesify.studies.suites.calibration import calibration_suite
from bayesify.studies.suites.chain import chain_suite
from bayesify.studies.suites.compression import compression_suite
from bayesify.studies.suites.conformal import conformal_suite
from bayesify.studies.suites.corruption import corruption_suite
from bayesify.studies.suites.kl import kl_suite
from bayesify.studies.suites.ood import ood_suite
from bayesify.studies.suites.saliency import saliency_suite
from bayesify.studies.suites.shift import shift_suite
from bayesify.studies.suites.store import Evaluation, read_evaluation, write_evaluation
from bayesify.studies.suites.subject import Outcome, Subject, Unsuitable
from bayesify.studies.suites.variance import variance_suite

SUITES: dict[str, Callable[[Subject], Outcome]] = {
    "calibration": calibration_suite,
    "conformal": conformal_suite,
    "ood": ood_suite,
    "corruption": corruption_suite,
    "shift": shift_suite,
    "adversarial": adversarial_suite,
    "saliency": saliency_suite,
    "compression": compression_suite,
    "kl": kl_suite,
    "variance": variance_suite,
    "chain": chain_suite,
}


def run_suites(
    subject: Subject,
    names: Iterable[str],
    begun: Callable[[str], object] | None = None,
    left_out: Callable[[Unsuitable], object] | None = None,
) -> dict[str, Outcome]:
    """The named suites, one after the other; `begun(name)` is called before each.

    left_out: called with the reason of each suite that does not suit the model, which is then left out unless none
        suits it; without it the first such suite raises.
    """
    chosen = {name: lookup(SUITES, name, "suite") for name in names}
    outcomes, refused = {}, []
    for name, suite in chosen.items():
        if begun is not None:
            begun(name)
        try:
            outcomes[name] = suite(subject)
        except Unsuitable as error:
            if left_out is None:
                raise
            refused.append(error)
    if refused and not outcomes:
        raise refused[0]
    if left_out is not None:
        for reason in refused:
            left_out(reason)
    return outcomes


__all__ = [
    "SUITES",
    "Evaluation",
    "Outcome",
    "Subject",
    "Unsuitable",
    "read_evaluation",
    "run_suites",
    "write_evaluation",
]
