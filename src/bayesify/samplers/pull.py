"""Has a chain arrived? In the posterior the mean gradient is 0; one that is on its way is pulled on all the time."""

from collections.abc import Mapping

import torch
from torch import Tensor

from bayesify.samplers.base import Sampler

SUM, BLOCKS = "pull_sum", "pull_blocks"  # states: Σ G of the first half, means along it in the second
COUNT = 20  # blocks of the second half
LOOKS = 2000  # most that are taken; of longer runs every few steps
SHORTEST = 200  # steps
STRONG = 6.0  # standard errors


class Pull:
    """Adds up the gradients of the first half of the steps that draws are kept of, and in the second half how far
    they still point that way, in units of the masses. What is added up lies in the sampler's own state.

    The standard error is that of blocks of the second half, each taken for as many independent ones as their changes
    from one to the next say (see `worth` of draws): a chain that goes round slowly is not taken for one on its way.

    first, last: steps of the run, after and up to which it looks
    num_chains:  that the parameters are stacked of, in their first dimension
    """

    def __init__(self, first: int, last: int, num_chains: int = 1) -> None:
        self.first, self.last, self.num_chains = first, last, num_chains
        self.middle = (first + last) // 2
        self.every = max(1, (last - first) // LOOKS)

    def look(self, step: int, sampler: Sampler, groups: Mapping[Tensor, dict[str, object]]) -> None:
        """At the gradients of step number `step` of the run."""
        if not self.first < step <= self.last or self.last - self.first < SHORTEST or step % self.every:
            return
        for p, group in groups.items():
            state = sampler.state[p]
            gradient = sampler.gradient(p)
            if step <= self.middle:
                state[SUM] = gradient + state[SUM] if SUM in state else gradient
            elif SUM in state:
                if BLOCKS not in state:
                    state[SUM] *= sampler.unit(p, group) / state.get("mass", group.get("mass", 1.0))
                    state[BLOCKS] = gradient.new_zeros(self.num_chains, COUNT)
                along = (gradient * state[SUM]).reshape(self.num_chains, -1).sum(1)
                state[BLOCKS][:, (step - self.middle - 1) * COUNT // (self.last - self.middle)] += along

    def found(self, sampler: Sampler, parameters: Mapping[str, Tensor]) -> Tensor:
        """The mean over its standard error, of every chain; forgets what was added up."""
        total = torch.zeros(self.num_chains, COUNT, dtype=torch.float64)
        for p in parameters.values():
            state = sampler.state.get(p, {})
            if BLOCKS in state:
                total += state[BLOCKS].double().cpu()
            for name in (SUM, BLOCKS):
                state.pop(name, None)
        spread = total.var(1)
        ratio = total.diff(dim=1).square().sum(1) / ((COUNT - 1) * spread).clamp_min(1e-300)
        independent = (COUNT * ratio / (4 - ratio).clamp_min(1e-3)).clamp(1, COUNT)
        return (total.mean(1) / (spread / independent).sqrt().clamp_min(1e-300)).nan_to_num()


def on_its_way(strengths: Tensor) -> dict[str, str]:
    """What the means over their standard errors say of the chains, in words by their kind."""
    if int((strengths > STRONG).sum()) <= len(strengths) // 20:  # of many one may be beyond it by chance
        return {}
    return {
        "pulled": f"the gradients have pulled the weights the same way all the time ({strengths.max():.0f} standard "
        f"errors from 0, in the posterior their mean): the chain is still on its way, and predictions may be far "
        f"off. Lengthen the burn-in; features that are centred and of like scales shorten it"
    }
