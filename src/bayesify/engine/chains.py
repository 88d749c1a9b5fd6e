"""bf.sample_chains: several chains of a small network at once, in one process."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from bayesify.batches import as_arguments, inputs_of, target_of, to_device
from bayesify.checks import NonFiniteError, check_whole
from bayesify.engine.schedules import make_schedule
from bayesify.methods import ThermostatMCMC
from bayesify.methods.thermostat_mcmc import groups_of
from bayesify.model import BayesianModule
from bayesify.objectives import elbo
from bayesify.posteriors import Chain, without_guards
from bayesify.posteriors.chain.diverged import diverged, first_not_finite
from bayesify.posteriors.chain.draw_store import Place
from bayesify.posteriors.chain.stored_draws import StoredDraws
from bayesify.posteriors.members import reinitialize
from bayesify.samplers import Sampler
from bayesify.weights.observing.kept_tensors import copy_of


def sample_chains(
    model: BayesianModule,
    loader: Iterable[Any],
    *,
    num_chains: int,
    epochs: int,
    lr: float | None = None,
    schedule: str | Callable[..., Any] | None = None,
    seed: int = 0,
) -> None:
    """Run `num_chains` chains side by side by vmap, all on the same batches, and put their draws into `model`.

    For networks so small that one chain leaves the machine idle. Chain 0 starts from the network as it is, the
    others from new weights (`reset_parameters` of every layer). Draws are kept at the method's sample times, beside
    those that the model has; R-hat of `bf.diagnostics.function_values(model, x)` says whether the chains agree.
    A noise level that is learned (`learn_std`) is one for all chains. `lr` and `schedule` as in `bf.fit`.
    Larger networks: `bf.fit_members` with one chain for every process or group of processes.

    >>> bf.sample_chains(model, loader, num_chains=8, epochs=100, lr=1e-2)
    """
    method, chain = model.method, model.posterior
    if not isinstance(method, ThermostatMCMC) or not isinstance(chain, Chain):
        raise TypeError(f"{model.method.name} is no sampling method: use bf.ThermostatMCMC()")
    if not isinstance(chain.kept, StoredDraws):
        raise TypeError("keep='moments' holds one chain only: use keep='draws'")
    if any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in model.net.modules()):
        raise TypeError(
            "chains side by side cannot have batch norm, whose statistics vmap does not batch: use bf.fit"
        )
    check_whole(num_chains, "num_chains", 1)
    check_whole(epochs, "epochs", 1)
    batches = [*loader]
    if not batches:
        raise ValueError("the loader is empty: nothing to sample from")
    if model.num_data is None:
        model.num_data = sum(len(target_of(batch)) for batch in batches)
    stacked = _starts(model.net, num_chains, seed)
    sampler = _sampler(model, stacked, method.default_lr(model) if lr is None else lr, seed)
    scheduler = make_schedule(schedule or method.default_schedule(), sampler, epochs * len(batches))
    due = method.due(epochs * len(batches))
    assert due is not None
    model.train()
    step, first = 0, chain.kept.next_chain()
    for epoch in range(epochs):
        for batch in batches if epoch == 0 else loader:
            losses = _losses(model, stacked, to_device(batch, next(iter(stacked.values())).device))
            if not losses.isfinite().all():
                _stop(losses, chain.kept, stacked, sampler, step)
            _step(model, losses, sampler)
            if scheduler is not None:
                scheduler.step()
            step += 1
            if due(step):
                _stop(losses, chain.kept, stacked, sampler, step)
                for index in range(num_chains):
                    here = {name: p[index].detach() for name, p in stacked.items()}
                    chain.kept.add(Place(first + index, step), here)
    _stop(losses, chain.kept, stacked, sampler, step)
    chain.steps += step
    with torch.no_grad():
        for name, p in model.net.named_parameters():
            if name in stacked:
                p.copy_(stacked[name][0])


def _starts(net: nn.Module, num_chains: int, seed: int) -> dict[str, nn.Parameter]:
    """Every trainable parameter of all chains: (chains, *shape)."""
    nets = [net, *(without_guards(copy_of(net)) for _ in range(num_chains - 1))]
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        for other in nets[1:]:
            reinitialize(other)
    names = [name for name, p in net.named_parameters() if p.requires_grad]
    parameters = [dict(each.named_parameters()) for each in nets]
    return {name: nn.Parameter(torch.stack([p[name].detach() for p in parameters])) for name in names}


def _sampler(model: BayesianModule, stacked: dict[str, nn.Parameter], lr: float, seed: int) -> Sampler:
    """The method's sampler over all chains: coordinates do not see each other, so one sampler serves them all."""
    method, chain = model.method, model.posterior
    assert isinstance(method, ThermostatMCMC) and isinstance(chain, Chain)
    random = {id(p) for name, p in stacked.items() if name in chain.slots}
    shared = [p for p in model.likelihood.parameters() if p.requires_grad]
    return method.sampler_of(model, groups_of([*stacked.values(), *shared], random), lr, seed)


def _losses(model: BayesianModule, stacked: dict[str, nn.Parameter], batch: Any) -> Tensor:
    """Of every chain: (chains,)."""
    args, kwargs = as_arguments(inputs_of(batch), {})
    target = target_of(batch)
    chain = model.posterior
    num_data = model.num_data
    assert isinstance(chain, Chain) and num_data is not None

    def loss(weights: dict[str, Tensor]) -> Tensor:
        output = model.pick(functional_call(model.net, weights, args, dict(kwargs)))
        nll = model.method.nll(model.likelihood, output, target, None, values=False)
        energy = chain.energy({name: weights[name] for name in chain.slots})
        return elbo(nll, energy, num_data, model.kl_weight).total

    return vmap(loss, randomness="different")(dict(stacked))


def _step(model: BayesianModule, losses: Tensor, sampler: Sampler) -> None:
    sampler.zero_grad()
    losses.sum().backward()
    for p in model.likelihood.parameters():
        if p.grad is not None:
            p.grad /= len(losses)  # one for all chains: it follows their mean
    sampler.step()


@torch.no_grad()
def _stop(
    losses: Tensor, kept: StoredDraws, stacked: dict[str, nn.Parameter], sampler: Sampler, steps: int
) -> None:
    """Raise where a loss, weight or momentum is not finite."""
    momenta = {
        name: sampler.state[p]["momentum"] for name, p in stacked.items() if "momentum" in sampler.state[p]
    }
    bad = first_not_finite(stacked, momenta)
    index = int(losses.isfinite().int().argmin())
    if bad is None and not losses[index].isfinite():
        bad = f"the loss of chain {index}"
    if bad is not None:
        raise NonFiniteError(diverged(f"{bad} is not finite", steps, stacked, momenta, len(kept)))
