"""bf.sample_chains: several chains of a small network at once, in one process."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from bayesify import torch_internals as internals
from bayesify.batches import check_loader, inputs_of, target_of, to_device
from bayesify.checks import Count, NonFiniteError, NotNegativeCount, Positive, checked
from bayesify.engine.first_guess import first_guess
from bayesify.engine.position import agree_on_num_data, check_second_epoch
from bayesify.engine.randomness import untouched
from bayesify.engine.sampling_check import ACTIONS, acting, check_draws
from bayesify.engine.schedules import make_schedule
from bayesify.engine.warm_up import entrances, moments
from bayesify.methods import ThermostatMCMC
from bayesify.methods.thermostat_mcmc import groups_of
from bayesify.model import BayesianModule
from bayesify.names import lookup
from bayesify.objectives import elbo, nll_of
from bayesify.posteriors import Chain, without_guards
from bayesify.posteriors.chain.diverged import diverged, first_not_finite
from bayesify.posteriors.chain.draw_store import DrawKey
from bayesify.posteriors.chain.stored_draws import StoredDraws
from bayesify.posteriors.members import reinitialize
from bayesify.samplers.axes import Moments
from bayesify.samplers.check import Watch
from bayesify.weights import as_arguments
from bayesify.weights.copies import copy_of


@checked
def sample_chains(
    model: BayesianModule,
    loader: Iterable[Any],
    *,
    num_chains: Count,
    epochs: Count,
    lr: Positive | None = None,
    schedule: str | Callable[..., Any] | None = None,
    seed: NotNegativeCount = 0,
    on_bad_sampling: str = "warn",
) -> None:
    """Run `num_chains` chains side by side by vmap, all on the same batches, and put their draws into `model`.

    For networks so small that one chain leaves the machine idle. Chain 0 starts from the network as it is, the
    others from new weights (`reset_parameters` of every layer). Draws are kept at the method's sample times, beside
    those that the model has; whether the sampler samples and the chains agree is checked, as in `bf.fit`.
    A noise level that is learned (`learn_std`) is one for all chains. It starts as in `bf.fit`, and `lr`, `schedule`
    and `on_bad_sampling` are as there.
    Larger networks: `bf.fit_members` with one chain for every process or group of processes.

    >>> bf.sample_chains(model, loader, num_chains=8, epochs=100, lr=1e-2)
    """
    lookup(ACTIONS, on_bad_sampling, "on_bad_sampling")
    check_loader(loader, "loader")
    method, *_ = _sampling(model)
    check_second_epoch(loader, "loader", epochs)
    batches = [*loader]
    if not batches:
        raise ValueError("the loader is empty: nothing to sample from")
    num_examples = sum(len(target_of(batch)) for batch in batches)
    agree_on_num_data(model, num_examples)
    num_steps = epochs * len(batches)
    chains = _Chains(model, num_chains, method.default_lr(model) if lr is None else lr, seed, batches)
    method.begin(model, chains.sampler, num_steps)
    scheduler = make_schedule(schedule or method.default_schedule(), chains.sampler, num_steps)
    due = method.due(num_steps)
    assert due is not None
    chains.watch, chains.per_step = Watch(due, num_steps, num_chains), num_examples / len(batches)
    model.train()
    with acting(on_bad_sampling):
        for epoch in range(epochs):
            for batch in batches if epoch == 0 else loader:
                chains.step(batch)
                if scheduler is not None:
                    scheduler.step()
                if due(chains.steps):
                    chains.keep()
        chains.finish()
        past = chains.steps - chains.watch.first
        check_draws(model, chains.sampler, inputs_of(batches[0]), past=past, steady=scheduler is None)


def _sampling(model: BayesianModule) -> tuple[ThermostatMCMC, Chain, StoredDraws]:
    """The method, the chain and its draws of a model that can have several chains side by side."""
    method, chain = model.method, model.posterior
    if not isinstance(method, ThermostatMCMC) or not isinstance(chain, Chain):
        raise TypeError(f"{model.method.name} is no sampling method: use bf.ThermostatMCMC()")
    if not isinstance(chain.store, StoredDraws):
        raise TypeError("keep='moments' holds one chain only: use keep='draws'")
    if any(isinstance(m, internals.BatchNorm) for m in model.net.modules()):
        raise TypeError(
            "chains side by side cannot have batch norm, whose statistics vmap does not batch: use bf.fit"
        )
    if any(getattr(m, "sparse", False) for m in model.net.modules()):
        raise TypeError("chains side by side cannot have sparse gradients: make the layer with sparse=False")
    return method, chain, chain.store


class _Chains:
    """The weights of all chains, (chains, *shape) each, and the sampler that moves them."""

    def __init__(
        self, model: BayesianModule, num_chains: int, lr: float, seed: int, batches: Sequence[Any]
    ) -> None:
        method, chain, self.store = _sampling(model)
        self.model, self.chain = model, chain
        self.first, self.num_chains, self.steps = self.store.next_chain(), num_chains, 0
        self.stacked = _starts(model.net, num_chains, seed)
        self._first_guess(batches)
        self.losses = torch.zeros(num_chains)
        random = {id(p) for name, p in self.stacked.items() if name in chain.slots}
        # a noise level is one for all chains, and follows the mean of their losses
        self.shared = [p for p in model.likelihood.parameters() if p.requires_grad]
        groups = groups_of([*self.stacked.values(), *self.shared], random)
        # coordinates do not see each other, so one sampler serves all chains
        self.sampler = method.sampler_of(model, groups, lr, seed)
        self.watch = Watch(None, num_chains=num_chains)
        self.per_step: float | None = None  # examples in a step, on average

    @torch.no_grad()
    def _first_guess(self, batches: Sequence[Any]) -> None:
        """The noise of a regression may start from the data; what moves in the network moves in all chains."""
        before = {name: p.clone() for name, p in self.model.net.named_parameters()}
        first_guess(self.model, batches)
        for name, p in self.model.net.named_parameters():
            if name in self.stacked:
                self.stacked[name].add_(p - before[name])

    def step(self, batch: Any) -> None:
        """One step of every chain."""
        batch = to_device(batch, next(iter(self.stacked.values())).device)
        self._warm_up(batch)
        # of a short batch every example counts as those of others do
        self.losses = self._losses(
            batch, 1.0 if self.per_step is None else len(target_of(batch)) / self.per_step
        )
        if not self.losses.isfinite().all():
            self.check_finite()
        self.sampler.zero_grad()
        self.losses.sum().backward()
        for p in self.shared:
            if p.grad is not None:
                p.grad /= self.num_chains
        random = {name: self.stacked[name] for name in self.chain.slots}
        self.watch.before(self.steps + 1, self.sampler, random)
        self.sampler.step()
        self.steps += 1
        self.chain.report(self.watch.after(self.steps, self.sampler, random))

    def _warm_up(self, batch: Any) -> None:
        """The turns of the sampler's warm start; one look at the curvature serves all chains."""
        warm = self.sampler.warm
        if warm is not None and warm.turns(self.sampler):

            def gradients(parameters: Sequence[Tensor]) -> Sequence[Tensor | None]:
                with untouched(self.model):
                    found = torch.autograd.grad(self._losses(batch).sum(), parameters, allow_unused=True)
                ids = {id(p) for p in self.shared}
                pairs = zip(parameters, found, strict=True)
                return [g / self.num_chains if id(p) in ids and g is not None else g for p, g in pairs]

            found = entrances(self.model, warm.length, batch)
            names = self.model.net.named_parameters()
            mine: dict[Tensor, Tensor] = {p: self.stacked[name] for name, p in names if name in self.stacked}
            data = {mine[p]: dim + 1 for p, dim in found.items() if p in mine}
            warm.turn(self.sampler, gradients, data, self._inputs(batch, mine))

    def _inputs(self, batch: Any, mine: Mapping[Tensor, Tensor]) -> Moments:
        """What enters the first layers, the same for all chains. mine: the network's parameters -> those of chains."""
        if self.sampler.warm is None or not self.sampler.warm.watches(self.sampler):
            return {}
        with untouched(self.model):
            found = moments(self.model, batch)
        there = {w: each for w, each in found.items() if w in mine and (each[0] is None or each[0] in mine)}
        return {
            mine[w]: (None if bias is None else mine[bias], seen[None], count)
            for w, (bias, seen, count) in there.items()
        }

    def _losses(self, batch: Any, weight: float = 1.0) -> Tensor:
        """Of every chain, with a weight of the batch: (chains,)."""
        args, kwargs = as_arguments(inputs_of(batch))
        target, model, num_data = target_of(batch), self.model, self.model.num_data
        assert num_data is not None

        def loss(weights: dict[str, Tensor]) -> Tensor:
            output = model.pick(functional_call(model.net, weights, args, dict(kwargs)))
            nll = nll_of(model)(output, target, None, values=False)
            energy = self.chain.energy({name: weights[name] for name in self.chain.slots})
            return elbo(weight * nll, energy, num_data, model.kl_weight).total

        try:
            return vmap(loss, randomness="different")(dict(self.stacked))
        except RuntimeError as error:
            if not any(word in str(error) for word in ("vmap", "Batching rule")):
                raise
            raise TypeError(
                f"the network does not run as several chains side by side: torch.vmap says {str(error)!r}. Use "
                f"bf.fit, or bf.fit_members for several chains"
            ) from error

    def keep(self) -> None:
        """The present weights as a draw of every chain."""
        self.check_finite()
        for index in range(self.num_chains):
            here = {name: p[index].detach() for name, p in self.stacked.items()}
            self.store.add(DrawKey(self.first + index, self.steps), here)

    @torch.no_grad()
    def finish(self) -> None:
        """The network is where chain 0 is."""
        self.check_finite()
        self.chain.steps += self.steps
        for name, p in self.model.net.named_parameters():
            if name in self.stacked:
                p.copy_(self.stacked[name][0])

    @torch.no_grad()
    def check_finite(self) -> None:
        """Raise where a loss, weight or momentum is not finite."""
        states = {name: self.sampler.state[p] for name, p in self.stacked.items()}
        momenta = {name: state["momentum"] for name, state in states.items() if "momentum" in state}
        bad = first_not_finite(self.stacked, momenta)
        index = int(self.losses.isfinite().int().argmin())
        if bad is None and not self.losses[index].isfinite():
            bad = f"the loss of chain {index}"
        if bad is not None:
            text = diverged(f"{bad} is not finite", self.steps, self.stacked, momenta, len(self.store))
            raise NonFiniteError(text)


def _starts(net: nn.Module, num_chains: int, seed: int) -> dict[str, nn.Parameter]:
    """Every trainable parameter of all chains: (chains, *shape)."""
    nets = [net, *(without_guards(copy_of(net)) for _ in range(num_chains - 1))]
    with untouched(net):
        torch.manual_seed(seed)
        for other in nets[1:]:
            reinitialize(other)
    names = [name for name, p in net.named_parameters() if p.requires_grad]
    parameters = [dict(each.named_parameters()) for each in nets]
    return {name: nn.Parameter(torch.stack([p[name].detach() for p in parameters])) for name in names}
