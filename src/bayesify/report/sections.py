"""The chapters of a report, each from what the suites found; a chapter without results is left out."""

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import numpy as np

from bayesify.evaluation.evaluate import SCORES
from bayesify.report.comparison import Row, comparison, metrics_of, reference
from bayesify.report.figures import calibration as calibrated
from bayesify.report.figures import examples, shift
from bayesify.report.figures.style import lines
from bayesify.report.page import Folded, Gallery, Part, Picture, Section
from bayesify.studies.corruptions import COMMON
from bayesify.studies.suites.conformal import SHIFTS, SHOWN

Series = list[tuple[str, np.ndarray, np.ndarray]]
Chapter = Callable[[Sequence[Row], Sequence[Row]], Section]


def having(rows: Sequence[Row], suite: str, key: str) -> list[Row]:
    """The rows in which a suite has this array."""
    return [row for row in rows if row.first.array(suite, key) is not None]


def chapter(*suites: str, key: str = "") -> Callable[[Chapter], Callable[[Sequence[Row]], Section | None]]:
    """Makes a function of all rows and of those it is about a chapter, a function of all rows: it is about those in
    which one of the suites was run (and has the array `key`), and None where there are none."""

    def decorate(section: Chapter) -> Callable[[Sequence[Row]], Section | None]:
        @wraps(section)
        def of(rows: Sequence[Row]) -> Section | None:
            found = [row for row in rows if not row.first.outcomes.keys().isdisjoint(suites)]
            have = having(found, suites[0], key) if key else found
            return section(rows, have) if have else None

        return of

    return decorate


def series(rows: Sequence[Row], suite: str, x: str, y: str) -> Series:
    """(label, x, y) of every row; y averaged over seeds where x is the same.

    A row without them has empty ones: it is not drawn, and every row keeps its colour in all figures.
    """
    found: Series = []
    for row in rows:
        if row.first.array(suite, y) is None:
            found.append((row.label, np.empty(0), np.empty(0)))
            continue
        runs = [run for run in row.runs if run.array(suite, y) is not None]
        xs, ys = ([run.outcomes[suite].arrays[key] for run in runs] for key in (x, y))
        same = all(a.shape == xs[0].shape and np.allclose(a, xs[0]) for a in xs)
        found.append((row.label, xs[0], np.mean(ys, 0) if same else ys[0]))
    return found


@chapter("calibration", key="bin_size")
def calibration_section(rows: Sequence[Row], have: Sequence[Row]) -> Section:
    """Classification: are confidences right?"""
    diagrams = []
    for row in have:
        a, ece = row.first.outcomes["calibration"].arrays, row.first.metric("calibration", "ece")
        assert ece is not None
        size, confidence, accuracy = (a[f"bin_{key}"] for key in ("size", "confidence", "accuracy"))
        figure = calibrated.reliability(size, confidence, accuracy, row.pictured, ece)
        words = "blue, right answers; red, too sure; green, too unsure"
        diagrams.append(Picture(figure, f"{row.pictured}: {words}."))
    keys = ("nll", "tempered/nll", "ece", "tempered/ece", "mce", "adaptive_ece", "classwise_ece", "ece_20bins",
            "mce_20bins", "ece_8bins", "temperature")  # fmt: skip
    risk = series(rows, "calibration", "coverage", "risk")
    figure = lines(risk, "share answered", "share wrong among them", percents="xy", markers=False)
    words = "Selective prediction: the share of wrong answers when only the most confident share is answered."
    curves = [Picture(figure, words)]
    for what in ("accuracy", "size"):
        figure = calibrated.confidence_sets(series(rows, "calibration", "set_threshold", f"set_{what}"), what)
        words = "right answers among the" if what == "accuracy" else "how many are the"
        curves.append(Picture(figure, f"Confidence sets: {words} examples on which so many draws agree."))
    text = (
        "When a model says 80 %, it should be right in 80 % of cases. A temperature above 1, fitted on the "
        "validation part, says that the raw model was too sure; the columns “tempered” are after that correction."
    )
    table = comparison(rows, "calibration", keys, "Calibration, raw and after temperature scaling")
    return Section("Calibration", [text, Gallery(diagrams, "small"), table, Gallery(curves)])


@chapter("calibration", key="level")
def regression_section(rows: Sequence[Row], have: Sequence[Row]) -> Section:
    """Regression: are predicted intervals right?"""
    curve = calibrated.calibration_curve(series(rows, "calibration", "level", "share"))
    words = "The share of targets below the predicted quantile of each level; the diagonal is right."
    pictures = [Picture(curve, words)]
    for row in having(have, "calibration", "input"):
        a = row.first.outcomes["calibration"].arrays
        figure = calibrated.band(a["input"], a["mean"], a["std"], a["target"], row.pictured)
        pictures.append(Picture(figure, f"{row.pictured}: prediction and targets."))
    return Section("Predicted intervals", [Gallery(pictures)])


@chapter("ood", key="inside")
def ood_section(rows: Sequence[Row], have: Sequence[Row]) -> Section:
    """Does the model notice inputs of another kind?"""
    keys = metrics_of(have, "ood")
    main = [key for key in keys if not key.endswith(tuple(f"_{score}" for score in SCORES))]
    rest = [key for key in keys if key not in main and "auroc" in key]
    pictures = []
    for row in have:
        a = row.first.outcomes["ood"].arrays
        outside = {key.removeprefix("outside_"): v for key, v in a.items() if key.startswith("outside_")}
        figure = shift.entropy_histograms(a["edges"], a["inside"], outside, row.pictured)
        pictures.append(Picture(figure, f"{row.pictured}: uncertainty about test inputs and about others."))
    text = (
        "A trustworthy model is unsure about inputs of a kind it was not trained on. AUROC is the chance that "
        "such an input gets the higher uncertainty; 50 % is guessing. The other inputs are the positive class."
    )
    table = comparison(rows, "ood", main, "Out of distribution, by the entropy of the prediction")
    others = Folded("Other scores", [comparison(rows, "ood", rest, "AUROC by other scores")])
    return Section("Out of distribution", [text, table, Gallery(pictures, "small"), others])


@chapter("corruption", key="accuracy")
def corruption_section(rows: Sequence[Row], have: Sequence[Row]) -> Section:
    """Fifteen corruptions at five severities."""
    pictures = []
    for key in ("accuracy", "ece"):
        found: Series = []
        for row in rows:
            if row not in have:
                found.append((row.label, np.empty(0), np.empty(0)))
                continue
            runs = [run.outcomes["corruption"] for run in row.runs if "corruption" in run.outcomes]
            means = [outcome.arrays[key].mean(0) for outcome in runs]
            clean = [outcome.metrics[f"clean/{key}"] for outcome in runs]
            found.append((row.label, np.arange(6), np.concatenate([[np.mean(clean)], np.mean(means, 0)])))
        y = "accuracy" if key == "accuracy" else "ECE"
        caption = f"{y[0].upper()}{y[1:]}, mean over 15 corruptions, against severity."
        pictures.append(Picture(shift.severity(found, y), caption))
    maps = []
    for row in have:
        accuracy = row.first.outcomes["corruption"].arrays["accuracy"]
        figure = shift.corruption_map(accuracy, COMMON, row.pictured)
        maps.append(Picture(figure, f"{row.pictured}: accuracy in % for each corruption."))
    keys = ("corrupted/accuracy", "corrupted/nll", "corrupted/ece", "mce_corruption", "rmce_corruption")
    text = (
        f"Noise, blur, weather and compression, as in CIFAR-10-C and ImageNet-C. mCE and rmCE are relative to "
        f"“{reference(have).label}”: below 100 % is better than it."
    )
    table = comparison(rows, "corruption", keys, "Mean over 15 corruptions and 5 severities")
    every = Folded("Every corruption", [Gallery(maps, "small")])
    return Section("Corruptions", [text, table, Gallery(pictures), every])


@chapter("shift", key="degrees")
def shift_section(rows: Sequence[Row], have: Sequence[Row]) -> Section:
    """Rotation and noise."""
    kinds: list[tuple[str, str, Callable[[Series, str], Any], str]] = [
        ("degrees", "rotated", shift.against_rotation, "as inputs are rotated"),
        ("snr_db", "noisy", shift.against_snr, "as noise grows"),
    ]
    pictures = []
    for x, prefix, draw, words in kinds:
        for key, y in (("accuracy", "accuracy"), ("entropy", "mean entropy (nats)")):
            figure = draw(series(rows, "shift", x, f"{prefix}_{key}"), y)
            pictures.append(Picture(figure, f"{y.capitalize()} {words}."))
    keys = ("rotated_30/accuracy", "rotated_30/ece", "snr_-6/accuracy")
    table = comparison(rows, "shift", keys, "Rotated by 30°, and noise at −6 dB")
    text = "Accuracy must fall as inputs leave the training distribution; the entropy should rise with it."
    return Section("Rotation and noise", [text, table, Gallery(pictures)])


@chapter("adversarial", key="eps")
def adversarial_section(rows: Sequence[Row], have: Sequence[Row]) -> Section:
    """Attacks."""
    pictures = []
    for attack in ("fgsm", "pgd"):
        for key, y in (("accuracy", "accuracy"), ("entropy", "mean entropy (nats)")):
            eps = series(rows, "adversarial", "eps", f"{attack}_{key}")
            figure = shift.against(eps, "eps, in standard deviations of the inputs", y)
            pictures.append(Picture(figure, f"{attack.upper()}: {y} against the strength of the attack."))
    keys = ("fgsm_0.1/accuracy", "pgd_0.1/accuracy", "num_data")
    text = (
        "Inputs changed on purpose, each by at most eps, so that the answer becomes wrong: in one step (FGSM) or in "
        "ten (PGD). Accuracy falls with eps; a model that notices becomes unsure, and its entropy rises."
    )
    table = comparison(rows, "adversarial", keys, "Attacks of strength 0.1")
    return Section("Attacks", [text, table, Gallery(pictures)])


@chapter("saliency")
def saliency_section(rows: Sequence[Row], have: Sequence[Row]) -> Section:
    """Saliency maps."""
    strips = []
    for row in having(have, "saliency", "maps"):
        a = row.first.outcomes["saliency"].arrays
        labels = [str(c) if row.class_names is None else row.class_names[c] for c in a["labels"]]
        figure = examples.saliency_maps(a["images"], a["maps"], labels)
        picture = Picture(figure, "Predicted class and its saliency.", wide=True)
        strips.append(Folded(row.label, [Gallery([picture], "wide")]))
    keys = ("infidelity", "sensitivity", "num_data")
    text = (
        "Infidelity: how badly the map predicts what a change of the input does. Sensitivity: how much the map moves "
        "when the input hardly does. Smaller is better for both."
    )
    table = comparison(rows, "saliency", keys, "Quality of saliency maps")
    return Section("Saliency", [text, table, *strips])


@chapter("compression", key="share")
def compression_section(rows: Sequence[Row], have: Sequence[Row]) -> Section:
    """Pruning."""
    pruned = series(rows, "compression", "share", "accuracy")
    figure = lines(pruned, "share of weights set to zero", "accuracy", percents="xy")
    keys = ("pruned_50/accuracy", "pruned_90/accuracy")
    table = comparison(rows, "compression", keys, "Weights pruned by size, without training again")
    text = "How many of the smallest weights can be set to zero before accuracy falls."
    gallery = Gallery([Picture(figure, "Accuracy against the share of weights set to zero.")])
    return Section("Compression", [text, table, gallery])


@chapter("calibration", key="uncertain_images")
def examples_section(rows: Sequence[Row], have: Sequence[Row]) -> Section:
    """The inputs that a person should look at."""
    parts: list[Part] = [
        "Three likeliest classes each; blue is the right one. What a model is most unsure about is often hard for "
        "people too; what it gets confidently wrong deserves a look."
    ]
    for number, row in enumerate(have):
        a = row.first.outcomes["calibration"].arrays
        pictures = []
        for kind, words in (("uncertain", "Most uncertain"), ("wrong", "Most confidently wrong")):
            if f"{kind}_images" in a:
                images, probs, targets = (a[f"{kind}_{key}"] for key in ("images", "probs", "targets"))
                figure = examples.predictions(images, probs, targets, row.class_names)
                pictures.append(Picture(figure, f"{row.pictured}. {words} test inputs.", wide=True))
        gallery = Gallery(pictures, "wide")
        parts.append(gallery if number == 0 else Folded(row.label, [gallery]))
    return Section("Examples", parts)


def suite_section(suite: str, rows: Sequence[Row]) -> Section | None:
    """The numbers of a suite without a chapter of its own."""
    keys = metrics_of(rows, suite)
    title = suite.replace("_", " ").capitalize()
    return Section(title, [comparison(rows, suite, keys, title)]) if keys else None


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
        Picture(calibrated.coverage(drawn[0]), "Coverage against what was asked for; the diagonal is right."),
        Picture(calibrated.set_size(drawn[1], y), f"{y.capitalize()}: smaller says more."),
    ]
    shifted = _under_shift(rows, have)
    if any(len(xs) for _, xs, _ in shifted):
        names = ["test", *(name.rpartition("_")[0].replace("_", "\n") for name in SHIFTS)]
        picture = calibrated.under_shift(shifted, names, SHOWN)
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


def _under_shift(rows: Sequence[Row], have: Sequence[Row]) -> Series:
    """Coverage of clean and of corrupted test images, averaged over seeds."""
    keys = [f"aps_{SHOWN:g}/covered", *(f"{name}/covered" for name in SHIFTS)]
    found: Series = []
    for row in rows:
        values = [row.values("conformal", key) for key in keys] if row in have else [[]]
        ys = np.array([np.mean(v) for v in values]) if all(values) else np.empty(0)
        found.append((row.label, np.arange(len(ys)), ys))
    return found
