"""The chapters on what is special to a method: KL estimators, variance networks, chains of a sampler."""

from collections.abc import Sequence

import numpy as np

from bayesify.report.comparison import Row, comparison, metrics_of
from bayesify.report.figures import posterior
from bayesify.report.page import Folded, Gallery, Part, Picture, Section
from bayesify.report.sections import chapter, having

MOST_TENSORS = 6
RECORD = "A run of “bayesify train --record”"
CHAIN_TABLES: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("chain", "Stored draws", ("stored_draws", "chains", "rhat", "rhat_largest", "ess", "ess_smallest")),
    ("sampler", "While training", ("kinetic_temperature", "loss_ess")),
)


@chapter("kl", key="tensor")
def kl_section(rows: Sequence[Row], have: Sequence[Row]) -> Section:
    """Estimators of the KL against the number of draws."""
    keys = ["kl_value", "num_weights", *(key for key in metrics_of(have, "kl") if "/" in key)]
    parts: list[Part] = [
        "The distance of the posterior from the prior, as several estimators see it with M draws of the weights. The "
        "error falls as 1/√M, down to the rounding of the sum; “repar” and “stream” begin lower, as they take the "
        "entropy of the posterior exactly. The graph of the plain estimator “direct” grows with M, theirs does not, "
        "and “repar” needs no more time either where its statistics can be drawn at once.",
        comparison(rows, "kl", keys, "Estimators of the KL with 100 draws"),
    ]
    for number, row in enumerate(have):
        gallery = _kl_gallery(row)
        parts.append(gallery if number == 0 else Folded(row.label, [gallery]))
    return Section("KL estimators", parts)


def _kl_gallery(row: Row) -> Gallery:
    a = row.first.outcomes["kl"].arrays
    names = [key.removesuffix("_draws") for key in a if key.endswith("_draws")]
    error, stored, milliseconds = (
        [(name, a[f"{name}_draws"], unit * a[f"{name}_{what}"]) for name in names]
        for what, unit in (("error", 1), ("stored", 1), ("seconds", 1000))
    )
    against = "the exact KL" if a["reference"] == "exact" else "an estimate from 10,000 draws"
    pictures = {
        f"mean distance from {against}": posterior.cost_against_draws(error, "|KL estimate − KL| (nats)"),
        "memory": posterior.cost_against_draws(stored, "numbers kept for the gradient"),
        "time of one estimate with its gradient": posterior.cost_against_draws(milliseconds, "time (ms)"),
    }
    tensor = f"{row.pictured}, weights {a['tensor']}"
    return Gallery([Picture(figure, f"{tensor}: {words}.") for words, figure in pictures.items()])


@chapter("variance", "phase")
def variance_section(rows: Sequence[Row], have: Sequence[Row]) -> Section:
    """Means or variances: where a variance network keeps what it learned."""
    keys = ("deterministic/accuracy", "stochastic/accuracy", "ensemble/accuracy", "log_alpha", "kappa_above")
    parts: list[Part] = [
        "A variance network can store what it learned in the variances of its weights. Then the network at its mean "
        "weights guesses while the ensemble of draws is right: a phase transition, as log α = log(variance ÷ mean²) "
        "rises. Weights whose κ lies right of the red line change the prediction by their spread; κ = 0 is drawn at "
        "the left end."
    ]
    table = comparison(rows, "variance", keys, "Mean network, one draw, ensemble")
    if len(table.columns) > 1:
        parts.append(table)
    pictures = []
    for row in having(have, "phase", "epoch"):
        a = row.first.outcomes["phase"].arrays
        figure = posterior.phase_transition(a["epoch"], a["log_alpha"], a["deterministic"], a["ensemble"])
        words = "validation accuracy over training, and the mean log α (dashed, right axis)"
        pictures.append(Picture(figure, f"{row.pictured}: {words}."))
    parts.append(Gallery(pictures) if pictures else f"{RECORD} shows how this came about, epoch by epoch.")
    for row in having(have, "variance", "edges"):
        parts.append(Gallery(_kappa_pictures(row), "small"))
    return Section("Variance networks", parts)


def _kappa_pictures(row: Row) -> list[Picture]:
    a = row.first.outcomes["variance"].arrays
    counts = {key.removeprefix("kappa_"): value for key, value in a.items() if key.startswith("kappa_")}
    sizes = {name: int(count.sum()) for name, count in counts.items()}
    largest = sorted(sizes, key=lambda name: -sizes[name])[:MOST_TENSORS]
    pictures = []
    for name in (name for name in counts if name in largest):
        figure = posterior.kappa_histogram(counts[name], a["edges"], float(a["threshold"]), name)
        pictures.append(Picture(figure, f"{row.pictured}: κ of the {sizes[name]:,} weights {name}."))
    return pictures


@chapter("chain", "sampler")
def chain_section(rows: Sequence[Row], have: Sequence[Row]) -> Section:
    """Is the sampler sampling?"""
    parts: list[Part] = [
        "A chain is worth as many independent draws as its effective sample size (ESS) says. R-hat compares its "
        "parts: above 1.05 they do not agree yet, and a longer run is needed."
    ]
    for suite, title, keys in CHAIN_TABLES:
        table = comparison(rows, suite, keys, title)
        parts += [table] if len(table.columns) > 1 else []
    parts.append(
        "While it samples, the kinetic temperature should stay at 1, and the thermostat at what the noise of the "
        "gradients predicts."
        if having(have, "sampler", "step")
        else f"{RECORD} shows the temperatures and thermostats of the sampler on its way."
    )
    pictures = [picture for row in have for picture in (*_sampler_pictures(row), *_chain_pictures(row))]
    return Section("Chains", [*parts, Gallery(pictures)] if pictures else parts)


def _sampler_pictures(row: Row) -> list[Picture]:
    """Temperature and thermostat, where `--record` wrote them."""
    a = row.first.outcomes["sampler"].arrays if "sampler" in row.first.outcomes else {}
    names = {
        "kinetic": "kinetic temperature",
        "thermostat": "thermostat ξ / D",
        "predicted": "ξ / D predicted from gradient noise",
    }
    found = {words: a[key] for key, words in names.items() if key in a}
    pictures = []
    if found:
        figure = posterior.sampler_diagnostics(a["step"], found, {"kinetic temperature": 1.0})
        words = "the sampler over its steps; dashed, what it should be"
        pictures.append(Picture(figure, f"{row.pictured}: {words}."))
    if "lag" in a:
        figure = posterior.autocorrelation(a["lag"], a["autocorrelation"], "steps apart")
        words = "how long the training loss remembers where it was"
        pictures.append(Picture(figure, f"{row.pictured}: {words}."))
    return pictures


def _chain_pictures(row: Row) -> list[Picture]:
    """The loss of each stored draw."""
    loss = row.first.array("chain", "loss")
    if loss is None:
        return []
    number = np.arange(1, loss.shape[1] + 1)
    series = [(f"chain {i + 1}", number, values) for i, values in enumerate(loss)]
    figure = posterior.draw_losses(series)
    return [Picture(figure, f"{row.pictured}: loss of each stored draw on test examples.")]
