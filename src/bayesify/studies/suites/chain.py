"""How many independent draws a chain is worth, and whether its parts agree (paper 4)."""

import torch

from bayesify.posteriors import Chain, Members
from bayesify.posteriors.chain.stored_draws import StoredDraws
from bayesify.studies.diagnostics import autocorrelation, ess, function_values, rhat
from bayesify.studies.suites.subject import Outcome, Subject, Unsuitable

FEWEST = 4  # draws in a chain: two in each half


def chain_suite(subject: Subject) -> Outcome:
    """Of chains: R-hat and effective sample size of the outputs of the stored draws, and the loss of each draw.

    On the first test examples. R-hat compares the halves of all chains: 1 where they agree. Weights of a network are
    not identified, its outputs are.
    """
    model = subject.module
    posterior = model.posterior
    parts = list(posterior.posteriors) if isinstance(posterior, Members) else [posterior]
    chains = [part for part in parts if isinstance(part, Chain)]
    if len(chains) < len(parts):
        raise Unsuitable(
            f"suite 'chain' is for stored draws of a sampler; this run is by method {model.method.name!r}: "
            f"train with --method atmc"
        )
    stored = min(len(part.store) if isinstance(part.store, StoredDraws) else 0 for part in chains)
    x, y = subject.few()
    values = function_values(model, x) if stored >= FEWEST else torch.empty(0, 0)  # (chains, draws, outputs)
    if values.shape[1] < FEWEST:
        raise Unsuitable(
            f"suite 'chain' needs at least {FEWEST} stored draws in each chain: train longer, or with more of them "
            f"(--set method.num_kept=20, --set method.keep=draws)"
        )
    size, spread = ess(values), rhat(values)
    metrics = {
        "stored_draws": float(values.shape[0] * values.shape[1]),
        "chains": float(values.shape[0]),
        "rhat": float(spread.nanmedian()),
        "rhat_largest": float(spread.nan_to_num(1).max()),
        "ess": float(size.nanmedian()),
        "ess_smallest": float(size.nan_to_num(torch.inf).min()),
    }
    if not model.likelihood.is_multiclass or y.dim() != 1:
        return Outcome(metrics)
    outputs = values.unflatten(-1, (len(x), -1))  # (chains, draws, examples, classes)
    losses = [[float(model.likelihood.nll(o, y.cpu(), values=False)) for o in draws] for draws in outputs]
    loss = torch.tensor(losses, dtype=torch.float64)  # (chains, draws)
    arrays = {"loss": loss.numpy(), "autocorrelation": autocorrelation(loss).mean(0).numpy()}
    return Outcome(metrics, arrays)
