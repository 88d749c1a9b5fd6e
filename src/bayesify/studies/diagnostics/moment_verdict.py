"""What `moment_check` found, as a table and in words."""

import math
from dataclasses import dataclass, replace

from bayesify.posteriors import Factorized

TOLERANCE = 0.1  # of the variance: a ratio this near 1 is right
SIGMAS = 3.0
SCATTER = 0.25  # spread of log ratios between outputs, beyond chance, from which on it is said
SHIFT = 0.5  # of the drawn std, from which on a mean is off
WORSE = 0.85  # of predict's accuracy, below which single draws are much worse; of rmse, its inverse
BY_DRAWS = (
    "average networks with drawn weights (model.draw()) instead of model.predict, or train by draws, "
    "bf.MonteCarloVI, and predict with as many as it takes"
)

GAINS = "bf.moments.fit_gains(model, train_loader)"


@dataclass(frozen=True)
class MomentCheck:
    """One-pass moments of a network's outputs beside those of drawn weights.

    ratio:      geometric mean over outputs and examples of variance / drawn variance, and its Monte-Carlo `error`
    low, high:  5 and 95 % of these ratios; the draws alone spread them by about 1.6 √(2 / num_draws)
    mean_error: of the means, root mean square, in units of the drawn std, what chance gives taken off
    probs_error: of class probabilities, root mean square, chance taken off; None for regression
    accuracy, draw_accuracy: of the moments' prediction, and of single draws on average; None without targets
    rmse, draw_rmse: the same for regression
    width:      median of σ / rms(w) over the random weights
    verdict:    what it means and what to do
    """

    ratio: float
    error: float
    low: float
    high: float
    mean_error: float
    probs_error: float | None
    accuracy: float | None
    draw_accuracy: float | None
    rmse: float | None
    draw_rmse: float | None
    width: float
    num_draws: int
    num_examples: int
    verdict: str = ""

    def saying(self, sentences: list[str]) -> "MomentCheck":
        """The same with a verdict."""
        return replace(self, verdict="\n".join(sentences))

    def __str__(self) -> str:
        rows = {
            "variance / drawn variance": f"{self.ratio:.3f} ± {self.error:.3f}",
            "5 to 95 % of outputs": f"{self.low:.2f} to {self.high:.2f}",
            "error of means / drawn std": f"{self.mean_error:.3f}",
            "error of probabilities": None if self.probs_error is None else f"{self.probs_error:.4f}",
            "accuracy, of one draw": _pair(self.accuracy, self.draw_accuracy),
            "rmse, of one draw": _pair(self.rmse, self.draw_rmse),
            "median σ / rms(w)": f"{self.width:.3f}",
        }
        title = f"one pass against {self.num_draws} draws of the weights, {self.num_examples} examples"
        lines = [f"  {name:26}  {cell}" for name, cell in rows.items() if cell is not None]
        return "\n".join([title, *lines, self.verdict])


def verdict(check: MomentCheck, posterior: Factorized, is_swept: bool) -> list[str]:
    """Sentences on a check, the first on the variances.

    is_swept: the covariance of the outputs was found
    """
    return [*_variance(check, posterior, is_swept), *_means(check), *_single(check, posterior)]


def _variance(check: MomentCheck, posterior: Factorized, is_swept: bool) -> list[str]:
    ratio, off, error = check.ratio, abs(math.log(check.ratio)), check.error / check.ratio
    if off <= math.log1p(TOLERANCE):
        found = f"right: variances of one pass are {ratio:.2f} of those of drawn weights"
        spread = math.log(check.high / check.low) / (2 * 1.645)
        beyond = math.sqrt(max(spread**2 - 2 / (check.num_draws - 1), 0))
        if beyond <= SCATTER:
            return [found]
        return [f"{found} on average, but single outputs are off by {math.expm1(beyond):.0%}"]
    if off < SIGMAS * error:
        more = check.num_draws * math.ceil((SIGMAS * error / math.log1p(TOLERANCE)) ** 2)
        return [
            f"unclear: {ratio:.2f} ± {check.error:.2f} may be 1, too few draws to tell: give num_draws={more}"
        ]
    narrow = ratio < 1
    times = f"{ratio:.2f}" if ratio > 0.1 else f"{ratio:.2g}"
    words = (
        f"too {'narrow' if narrow else 'wide'}: variances of one pass are {times} of those of drawn weights"
    )
    stds = f"stds {abs(math.sqrt(ratio) - 1):.0%} too {'small' if narrow else 'large'}"
    return [f"{words} ({stds}). {_remedy(check, posterior, is_swept)}"]


def _remedy(check: MomentCheck, posterior: Factorized, is_swept: bool) -> str:
    """What to do about variances that are wrong."""
    wide = "full" in posterior.forms or is_swept
    if not wide and posterior.gains is not None:
        return (
            f"Its gains do not fit these inputs, or weights that have changed since: call {GAINS} again with inputs "
            f"like these; or {BY_DRAWS}"
        )
    if not wide and not posterior.swept:
        return (
            f"Use bf.DensityPropagation(covariance='outputs'), its default, with residual='sum': the entries of an "
            f"activation share the noise of the weights, which this form leaves out. Where that is too dear, or "
            f"outputs are too many for it, {GAINS} makes up for it on average"
        )
    if not wide:
        return (
            f"The covariance of the outputs was not taken (too many outputs of an example, or an operation that a "
            f"warning named): {GAINS} makes up for it on average; for single outputs {BY_DRAWS}"
        )
    return (
        f"The weights are too wide for linear propagation (median σ / rms(w) {check.width:.2g}): {BY_DRAWS}; or "
        f"narrow the posterior with a smaller kl_weight"
    )


def _means(check: MomentCheck) -> list[str]:
    if check.mean_error <= SHIFT:
        return []
    return [
        f"the means are off by {check.mean_error:.2f} std: the network is not linear over the width of the posterior; "
        f"{BY_DRAWS}"
    ]


def _single(check: MomentCheck, posterior: Factorized) -> list[str]:
    """Is one draw of the posterior a network that works?"""
    one, all_of_them = check.draw_accuracy, check.accuracy
    worse = one is not None and all_of_them is not None and one < WORSE * all_of_them
    if check.rmse is not None and check.draw_rmse is not None:
        one, all_of_them = check.draw_rmse, check.rmse
        worse = WORSE * one > all_of_them
    if not worse:
        return []
    name = "accuracy" if check.rmse is None else "rmse"
    found = f"single draws are much worse than predict ({name} {one:.3g} beside {all_of_them:.3g}): "
    if posterior.probed:
        return [found + "the posterior is too wide; train longer, or with a smaller kl_weight"]
    return [
        found + "the posterior was trained by variances that are too small; train with "
        "bf.DensityPropagation(logits='probe')"
    ]


def _pair(first: float | None, second: float | None) -> str | None:
    return None if first is None or second is None else f"{first:.3f}, {second:.3f}"
