"""Making a frozen predictor: every draw of a model's posterior as tensors beside one plain copy of its network."""

import copy
from functools import partial
from typing import Any

import torch
from torch import Generator, Tensor, nn

from bayesify.posteriors import without_guards
from bayesify.posteriors.dropout import SEED
from bayesify.predict.fixed_draws import FixedDraws
from bayesify.predict.fixed_linear import FixedLinear
from bayesify.predict.fixed_masks import FixedMasks
from bayesify.predict.fixed_moments import FixedMoments
from bayesify.predict.fixed_views import viewed
from bayesify.predict.frozen import Frozen
from bayesify.predict.pick import picked
from bayesify.predict.prediction import shares, streamed
from bayesify.predict.views import Augment
from bayesify.weights.copies import copy_of

Draws = dict[str, list[Tensor]]  # the values of a tensor, one for each pass


def freeze(model: Any, num_draws: int, generator: Generator | None, augment: Augment | None = None) -> Frozen:
    """`model.freeze`; the model is locked and in eval mode."""
    likelihood = copy.deepcopy(model.likelihood).requires_grad_(False)
    pick = partial(picked, by=model.output, takes_heads=likelihood.takes_heads)
    members, each = shares(model, num_draws, augment)
    core: FixedDraws | FixedLinear | FixedMoments
    one_pass = model.posterior.sampling == "moments" or model.posterior.linearised
    if one_pass and augment is not None:
        raise ValueError(
            f"augment={augment!r}: {model.method.name} predicts by one pass, without draws that see views: give None"
        )
    if model.posterior.sampling == "moments":
        device = None if generator is None else generator.device
        seed = int(torch.randint(2**62, (), generator=generator, device=device))
        net, posterior = copy_of(nn.ModuleList([model.net, model.posterior])).eval().requires_grad_(False)
        core = FixedMoments(net, posterior, -(-num_draws // members), pick, seed)
    elif model.posterior.linearised:
        core = _linear(model, members, each, generator, pick)
    else:
        core = _with_draws(model, members, each, generator, pick, augment)
    return Frozen(core, likelihood, model.calibration, model.method.name)


def _with_draws(
    model: Any, members: int, each: int, generator: Generator | None, pick: Any, augment: Augment | None
) -> FixedDraws:
    """Members one after the other, each with its draws; tensors in which members differ are among the draws."""
    nets = model.posterior.nets(model.net)
    drawn = [_drawn(model.posterior, member, each, generator, augment) for member in range(members)]
    counts = [count for count, _ in drawn]
    random = {name for _, values in drawn for name in values}
    own = [_tensors(net) for net in nets]
    apart = {n for n in own[0] if n not in random and not all(torch.equal(t[n], own[0][n]) for t in own)}
    net = without_guards(copy_of(nets[0])).eval().requires_grad_(False)
    draws: Draws = {name: [] for name in (*own[0], *sorted(random)) if name in random | apart}
    for (count, values), mine in zip(drawn, own, strict=True):
        for name, row in draws.items():
            row += values[name] if name in values else [mine[name]] * count
    if augment is not None:
        net, draws = viewed(net, draws, sum(counts), augment, generator)
    if SEED in draws:
        return FixedMasks(net, draws, sum(counts), pick)
    return FixedDraws(net, draws, sum(counts), pick)


def _linear(model: Any, members: int, each: int, generator: Generator | None, pick: Any) -> FixedLinear:
    """Every member at its mean weights, with draws around them."""
    laws = [model.posterior.linear_law(model.net, member) for member in range(members)]
    nets = [without_guards(copy_of(net)) for net in model.posterior.nets(model.net)]
    for i, net in enumerate(nets):
        model.posterior.install(net, laws[i].weights)
    return FixedLinear(
        [net.eval().requires_grad_(False) for net in nets],
        [_balanced(law.deviations(each, generator)) for law in laws],
        pick,
    )


def _balanced(moves: dict[str, Tensor]) -> dict[str, Tensor]:
    """n moves, less their mean, √(n / (n − 1)) times as far: what is predicted on average is then f(w̄), and J Σ Jᵀ by
    the variance with divisor n is right on average. One alone stays as it was drawn."""
    n = len(next(iter(moves.values())))
    if n == 1:
        return moves
    return {name: (rows - rows.mean(0)) * (n / (n - 1)) ** 0.5 for name, rows in moves.items()}


def _drawn(
    posterior: Any, member: int, num_draws: int, generator: Generator | None, views: Augment | None
) -> tuple[int, Draws]:
    """The draws of one member, as many as a prediction takes; stored ones several times where views ask for more."""
    draws: Draws = {}
    total = 0
    for n, weights in streamed(posterior, member, num_draws, num_draws, generator, views):
        total += n
        for name, values in weights.items():
            draws.setdefault(name, []).extend(values.detach().unbind(0))
    return total, draws


def _tensors(net: nn.Module) -> dict[str, Tensor]:
    return {**dict(net.named_parameters()), **dict(net.named_buffers())}
