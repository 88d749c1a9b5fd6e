"""What each number says, which way is better, and how it is written: one place for every table."""

from bayesify.evaluation.metrics.registry import METRICS, Fact, Metric, reported

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
