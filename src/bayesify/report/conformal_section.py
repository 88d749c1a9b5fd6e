"""The chapter of conformal sets and intervals."""

from collections.abc import Sequence

import numpy as np

from bayesify.report.comparison import Row, comparison, metrics_of
from bayesify.report.figures import conformal as figures
from bayesify.report.page import Folded, Gallery, Picture, Section
from bayesify.report.sections import Series, chapter, series
from bayesify.studies.suites.conformal import SHIFTS, SHOWN


@chapter("conformal", key="nominal")
def conformal_section(rows: Sequence[Row], have: Sequence[Row]) -> Section:
    """Do sets and intervals hold as many targets as they promise, and how large are they for it?"""
    classes = have[0].first.array("conformal", "aps_covered") is not None
    score, size = ("aps", "set_size") if classes else ("std", "interval_width")
    what, y = (
        ("Sets", "mean number of classes in a set") if classes else ("Intervals", "mean width of an interval")
    )
    drawn = [series(rows, "conformal", "nominal", f"{score}_{key}") for key in ("covered", size)]
    pictures = [
        Picture(figures.coverage(drawn[0]), "Coverage against what was asked for; the diagonal is right."),
        Picture(figures.size(drawn[1], y), f"{y.capitalize()}: smaller says more."),
    ]
    shifted = _shifted(rows, have)
    if any(len(xs) for _, xs, _ in shifted):
        names = ["test", *(name.rpartition("_")[0].replace("_", "\n") for name in SHIFTS)]
        picture = figures.under_shift(shifted, names, SHOWN)
        words = "Coverage of images corrupted (severity 3) or rotated by 30°, by the rule of clean ones: no guarantee."
        pictures.append(Picture(picture, words))
    keys = metrics_of(have, "conformal")
    main = [
        key
        for key in keys
        if key.endswith(tuple(f"_{SHOWN:g}/{end}" for end in ("covered", size, "covered_worst")))
    ]
    text = (
        f"{what} that hold the target with a chosen probability, by thresholds from the validation part. The promise "
        f"is for examples like those, on average over all of them: single classes may have less (“by class” has "
        f"thresholds for each), and other inputs too."
    )
    table = comparison(rows, "conformal", [*main, "num_calibration"], f"Nominal coverage {100 * SHOWN:g} %")
    rest = comparison(rows, "conformal", [key for key in keys if key not in main], "All numbers")
    return Section("Conformal prediction", [text, table, Gallery(pictures), Folded("All numbers", [rest])])


def _shifted(rows: Sequence[Row], have: Sequence[Row]) -> Series:
    """Coverage of clean and of corrupted test images, averaged over seeds."""
    keys = [f"aps_{SHOWN:g}/covered", *(f"{name}/covered" for name in SHIFTS)]
    found: Series = []
    for row in rows:
        values = [row.values("conformal", key) for key in keys] if row in have else [[]]
        ys = np.array([np.mean(v) for v in values]) if all(values) else np.empty(0)
        found.append((row.label, np.arange(len(ys)), ys))
    return found
