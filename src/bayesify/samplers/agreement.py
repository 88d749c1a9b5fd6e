"""Do draws agree in what they predict: chains with each other, and one chain with itself?"""

from math import sqrt

import torch
from torch import Tensor

from bayesify.samplers.convergence import ess, least_worth, rhat, worth
from bayesify.samplers.findings import FEWEST, chance

APART = 1.2  # R-hat of several chains; 4 chains worth 20 independent draws each are above it once in 1,000
SETTLED = (
    10.0  # independent draws of a chain · (R-hat² − 1), which is 2 where chains go round one mode slowly
)
FEW = 8.0  # independent draws that one chain is worth, where it is not by chance that they seem so few
LONG = 4.0  # and that each of several is worth, which have settled in modes of their own
SHARE = 0.1  # of the variance of predictions, which differences between inputs must have to count
BETWEEN = " in their differences between inputs"


def compare(values: Tensor, where: str = "") -> dict[str, str]:
    """Are the chains one, is one chain long enough? values: (chains, draws, outputs), `where` they are from."""
    count, draws = values.shape[:2]
    if draws < FEWEST:
        return {}
    if not values.isfinite().all() or not (values != values[:1, :1]).any():
        how = "the same in all draws" if values.isfinite().all() else "not finite"
        return {
            "frozen": f"predictions{where} are {how}, as those of no posterior are: the chain ran away from it, or "
            f"stands still. Start from weights that are trained already, or use larger batches or a smaller step (lr)"
        }
    advice = f"predictions{where} would be others after a longer run. Lengthen burn-in and run"
    if count == 1:
        size = worth(values[0])
        if not size < min(FEW, least_worth(values[0])):
            return {}
        size = max(size, 1)
        return {
            "few": f"predictions{where} change slowly from draw to draw: the {draws} draws are worth some "
            f"{size:.0f} independent ones, by which a variance is known to {sqrt(2 / size):.0%} or so, and "
            f"{advice}, or run several chains (bf.sample_chains)"
        }
    spread = float(rhat(values, pooled=True))
    beyond_chance = draws // 2 * (spread**2 - 1) + 1 > chance(2 * count - 1, 4)
    if not spread > APART or not beyond_chance:
        return {}
    disagree = (
        f"the {count} chains do not agree in their predictions{where} (R-hat {spread:.2f}, should be near 1)"
    )
    each = torch.tensor([worth(chain) for chain in values]).median().item()
    if each > LONG and each * (spread**2 - 1) > SETTLED:
        return {
            "apart": f"{disagree}, though each is worth some {each:.0f} independent draws by itself: they sit in "
            f"different modes, from one to another of which no longer run may come. All of them together are the best "
            f"guess; more chains make a better one"
        }
    size = max(1.0, float(ess(values).nanmedian()))
    return {
        "apart": f"{disagree}: the {count * draws} draws are worth some {size:.0f} independent ones, and {advice}"
    }


def judge(values: Tensor, where: str = "") -> dict[str, str]:
    """`compare`, and the same of their differences from the mean over all inputs. That goes round by itself where
    features have a mean, and would hide that nothing else does."""
    apart = values - values.mean(-1, keepdim=True)
    share = apart.var(1).sum() / values.var(1).sum()
    return compare(values, where) or (compare(apart, f"{where}{BETWEEN}") if share > SHARE else {})
