"""Members of an ensemble, each trained as if by itself: by batches of its own, and gradients of its own size."""

from collections.abc import Iterator
from copy import copy
from functools import partial
from itertools import islice
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    RandomSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from bayesify.batches import PerMember
from bayesify.engine.position import SEEDS, batches, can_jump, can_resume_inside, order_generator
from bayesify.model import BayesianModule
from bayesify.posteriors import Members
from bayesify.samplers import Sampler

#: samplers of torch, each iterator of which has an order of its own and holds all that it needs
RANDOM = (RandomSampler, SubsetRandomSampler, WeightedRandomSampler, DistributedSampler)


def apart(loader: Any, model: BayesianModule) -> tuple[Any, str | None]:
    """The loader that gives every member its own batches, of the same examples; where that cannot be, the loader as it
    is, and why."""
    num_members = len(model.posterior.nets(model.net))
    if num_members == 1:
        return loader, None
    reason = _refusal(loader)
    if reason is not None:
        return loader, f"all members see the same batches in the same order: {reason}"
    makes = own_loader if _makes_members(loader) else partial(_own_copy, num_members=num_members)
    return Apart([makes(loader, index) for index in range(num_members)]), None


class Apart:
    """Loaders of all members, side by side. It begins anywhere, as `bayesify.data.Loader` does: loaders that cannot
    are read from the start, in turn as ever, because they share random numbers."""

    def __init__(self, loaders: list[Any]) -> None:
        self.loaders, self.epoch, self.first = loaders, 0, 0
        self.generator = order_generator(loaders[0])  # of DataLoaders, one for all

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def start_at(self, batch_index: int) -> None:
        self.first = batch_index

    def __iter__(self) -> Iterator[PerMember]:
        start = self.first if can_jump(self.loaders[0]) else 0
        together = zip(*(batches(each, self.epoch, start) for each in self.loaders), strict=True)
        return (PerMember(list(each)) for each in islice(together, self.first - start, None))


def own_loader(loader: Any, index: int) -> Any:
    """That of a member, where the loader can say; the others draw their order from generators as they are."""
    return loader.for_member(index) if _makes_members(loader) else loader


def _own_copy(loader: DataLoader[Any], index: int, num_members: int) -> DataLoader[Any]:
    """A DataLoader for one of so many members, who share its workers."""
    own = copy(loader)
    own._iterator = None  # persistent workers are those of one iterator
    own.num_workers = -(-loader.num_workers // num_members)
    if index and isinstance(loader.sampler, DistributedSampler):  # whose order is that of a seed
        sampler, batch_sampler = copy(loader.sampler), copy(loader.batch_sampler)  # type: Any, Any
        sampler.seed += index * SEEDS
        if batch_sampler is not None:
            batch_sampler.sampler = sampler
        vars(own).update(sampler=sampler, batch_sampler=batch_sampler)
    return own


def _makes_members(loader: Any) -> bool:
    """Not a wrapper that passes the attributes of another on: the batches would not be its own."""
    return hasattr(type(loader), "for_member")


def _refusal(loader: Any) -> str | None:
    if _makes_members(loader):
        return None
    if not can_resume_inside(loader):
        return "train_loader is a stream"
    if not isinstance(loader, DataLoader) or type(loader).__iter__ is not DataLoader.__iter__:
        kind = type(loader).__name__
        return f"train_loader is a {kind}; a DataLoader with shuffle=True gives each member its own"
    for part in (loader.batch_sampler, loader.sampler):
        if part is not None and type(part) not in (BatchSampler, *RANDOM):
            return f"train_loader takes it from a {type(part).__name__}; with shuffle=True each has its own"
    return None


class MemberGradients:
    """The loss is the mean over members, so their gradients are num_members times smaller than in a run of their own,
    where neither SGD, weight decay nor clipping would do the same. An optimiser that counts members is left alone."""

    def __init__(self, model: BayesianModule, optimizer: Optimizer, is_own: bool) -> None:
        nets, posterior = model.posterior.nets(model.net), model.posterior
        self.num_members, self.shared = len(nets), list(model.likelihood.parameters())
        #: that which the loss is multiplied by
        self.times = 1 if is_own or isinstance(optimizer, Sampler) else self.num_members
        self.parts = [list(model.parameters())]
        if isinstance(posterior, Members):
            pairs = zip(nets, posterior.posteriors, strict=True)
            self.parts = [[*net.parameters(), *own.parameters()] for net, own in pairs]

    def of_shared(self) -> None:
        """What all members have in common (the noise of a regression) keeps the gradient of the mean."""
        if self.times > 1:
            for gradient in (p.grad for p in self.shared if p.grad is not None):
                gradient /= self.times

    def clip(self, norm: float) -> Tensor:
        """No member's gradients are longer than that; were some?"""
        most = norm * self.times / self.num_members
        return torch.stack([torch.nn.utils.clip_grad_norm_(part, most) > most for part in self.parts]).any()
