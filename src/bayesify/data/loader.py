"""Batches of a split on a device, in an order that is a pure function of (seed, epoch, batch index)."""

import hashlib
from collections.abc import Iterator
from copy import copy
from typing import Any

import torch
from torch import Generator, Tensor

from bayesify.data.augment import AUGMENTATIONS, CropFlip, draw_choices, views
from bayesify.data.dataset import Split
from bayesify.data.fingerprint import fingerprint
from bayesify.data.image_files import ImageFiles
from bayesify.data.normalisation import Normalisation
from bayesify.names import lookup


class Loader:
    """Iterates (x, y) batches of `split`: x normalised in `dtype`, y int64 labels or standardised targets.

    Batch i of epoch e is the same however it is reached, so a run resumes in the middle of an epoch from
    three integers; no generator state is kept, and the global generators are not touched:

        loader.set_epoch(e); loader.start_at(i)      # the next iteration begins with batch i of epoch e

    Call `set_epoch` before every epoch: without it each iteration repeats the same order.

    With `world_size` W > 1 each rank iterates its share of one global permutation: batch i of ranks
    0 … W − 1, concatenated, is batch i of one process with batch size `batch_size` · W, augmentation
    included. The incomplete last batch is dropped with `drop_last`; otherwise it is smaller, and padded to a
    multiple of W with examples from the start of the permutation, so that all ranks take equally many
    steps with equally many examples.

    Args:
        split: inputs (N, …) and targets, in original units.
        batch_size: examples per batch and rank.
        shuffle: a new permutation every epoch; otherwise the order of the split.
        seed: of the permutation and of the augmentation; the same on every rank.
        normalise: a data set's `normalisation`; None leaves floats as they are and divides bytes by 255.
        augment: "none" or "crop_flip", on the device, before normalisation.
        keep_on_device: hold the whole split on `device`; otherwise each batch is copied there.

    >>> loader = Loader(Split(torch.arange(5.0).view(5, 1), torch.zeros(5).long()), 2)
    >>> [x.flatten().tolist() for x, y in loader]
    [[0.0, 1.0], [2.0, 3.0], [4.0]]
    """

    def __init__(
        self,
        split: Split,
        batch_size: int,
        *,
        shuffle: bool = False,
        seed: int = 0,
        device: torch.device | str = "cpu",
        normalise: Normalisation | None = None,
        augment: str = "none",
        drop_last: bool = False,
        rank: int = 0,
        world_size: int = 1,
        dtype: torch.dtype = torch.float32,
        keep_on_device: bool = True,
    ) -> None:
        self.batch_size, self.rank, self.world_size = batch_size, rank, world_size
        self.shuffle, self.seed, self.drop_last = shuffle, seed, drop_last
        self.device, self.dtype = torch.device(device), dtype
        self.num_data, self.epoch, self._first = len(split), 0, 0
        self.augment, self._augment = augment, lookup(AUGMENTATIONS, augment, "augment")
        self._check(split, normalise, augment)
        self._inputs, self._targets = self._place(split, keep_on_device)
        self._normalise = (Normalisation.identity() if normalise is None else normalise).to(
            self.device, torch.float32 if self.device.type == "mps" else torch.float64
        )

    def __len__(self) -> int:
        """Batches in an epoch, whatever `start_at` says."""
        whole, rest = divmod(self.num_data, self.batch_size * self.world_size)
        return whole + (rest > 0 and not self.drop_last)

    def set_epoch(self, epoch: int) -> None:
        """The epoch whose order and augmentation the next iteration takes."""
        self.epoch = epoch

    def start_at(self, batch_index: int) -> None:
        """The next iteration, and only that one, begins with batch `batch_index` of its epoch."""
        if not 0 <= batch_index <= len(self):
            raise ValueError(f"start_at({batch_index}): the epoch has batches 0..{len(self) - 1}")
        self._first = batch_index

    def views(self, strength: float = 2 / 3) -> CropFlip | None:
        """The augmentation at a share of its strength, for predictions; `bf.fit` leaves it to the model."""
        return views(self.augment, self._normalise.to("cpu"), self._inputs.shape[1], strength)

    def for_member(self, index: int) -> "Loader":
        """The same examples for member `index` of an ensemble: in an order and an augmentation of its own. Member 0
        has this loader's."""
        own = copy(self)
        own.seed = derived_seed(self.seed, "member", index) if index else self.seed
        return own

    def fingerprint(self) -> dict[str, Any]:
        """What tells these data from others, as plain data (`bayesify.data.fingerprint`)."""
        return {
            "num_data": self.num_data,
            "input_shape": list(self._inputs.shape[1:]),
            "normalisation": self._normalise.numbers(),
            "examples": fingerprint(Split(self._inputs, self._targets)),
        }

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        first, self._first = self._first, 0
        return self._iterate(self.epoch, first)

    def _iterate(self, epoch: int, first: int) -> Iterator[tuple[Tensor, Tensor]]:
        order = self._order(epoch)
        generator = Generator(self.device)
        batches = range(first, len(self))
        indices = [self._share(order, batch) for batch in batches]
        for batch, index, x in zip(batches, indices, self._fetch(indices), strict=True):
            x = x.to(self.device, non_blocking=True)
            if self._augment is not None:
                generator.manual_seed(derived_seed(self.seed, epoch, batch))
                choices = draw_choices(self.batch_size * self.world_size, generator)  # of all ranks
                x = self._augment(x, choices[self.rank * len(index) :][: len(index)])
            y = self._targets.index_select(0, index).to(self.device, non_blocking=True)
            yield self._normalise.inputs(x, self.dtype), self._prepare_targets(y)

    def _order(self, epoch: int) -> Tensor:
        """The epoch's permutation, drawn on the CPU: the same on every device and rank."""
        if self.shuffle:
            generator = Generator().manual_seed(derived_seed(self.seed, epoch))
            order = torch.randperm(self.num_data, generator=generator)
        else:
            order = torch.arange(self.num_data)
        return order.to(self._targets.device)

    def _share(self, order: Tensor, batch: int) -> Tensor:
        """This rank's indices in global batch `batch`: a contiguous share, wrapped around at the end."""
        start = batch * self.batch_size * self.world_size
        size = min(self.batch_size * self.world_size, self.num_data - start)
        share = -(-size // self.world_size)
        begin = start + self.rank * share
        if begin + share <= self.num_data:
            return order[begin : begin + share]
        return order[torch.arange(begin, begin + share, device=order.device) % self.num_data]

    def _fetch(self, indices: list[Tensor]) -> Iterator[Tensor]:
        inputs = self._inputs
        if isinstance(inputs, ImageFiles):
            return inputs.fetch(indices, pin_memory=self.device.type == "cuda")
        return (inputs.index_select(0, index) for index in indices)

    def _prepare_targets(self, y: Tensor) -> Tensor:
        """Labels as they are; regression targets standardised, in at least float32."""
        if not y.is_floating_point():
            return y
        return self._normalise.targets(y).to(torch.promote_types(self.dtype, torch.float32))

    def _place(self, split: Split, keep_on_device: bool) -> tuple[Tensor | ImageFiles, Tensor]:
        inputs, targets = split.inputs, split.targets
        if isinstance(inputs, ImageFiles):
            return inputs, targets
        if self.device.type == "mps":  # which has no float64
            inputs, targets = (t.float() if t.dtype == torch.float64 else t for t in (inputs, targets))
        place = self.device if keep_on_device else torch.device("cpu")
        return inputs.to(place), targets.to(place)

    def _check(self, split: Split, normalise: Normalisation | None, augment: str) -> None:
        if self.batch_size < 1:
            raise ValueError(f"batch_size={self.batch_size!r} must be at least 1")
        if not 0 <= self.rank < self.world_size:
            raise ValueError(
                f"rank={self.rank!r} must lie in 0..{self.world_size - 1} for world_size={self.world_size!r}"
            )
        if self.num_data == 0:
            raise ValueError("split holds no examples: this part of the data set was not loaded")
        if len(self) == 0:
            raise ValueError(
                f"drop_last leaves no batch: {self.num_data} examples are fewer than batch_size × world_size = "
                f"{self.batch_size * self.world_size}"
            )
        shape = tuple(split.inputs.shape)
        if len(shape) < 2:
            raise ValueError(
                f"inputs of shape {shape} must have a feature or channel dimension: (N, features, …)"
            )
        if self._augment is not None and len(shape) != 4:
            raise ValueError(f"augment={augment!r} takes images (N, C, H, W), not inputs of shape {shape}")
        if normalise is not None and len(normalise.mean) not in (1, shape[1]):
            raise ValueError(
                f"normalise has {len(normalise.mean)} channels or features, the inputs {shape} have {shape[1]}"
            )


def derived_seed(*parts: int | str) -> int:
    """A seed for the tuple `parts`: 63 bits of a hash, so that neighbouring tuples share nothing."""
    text = "/".join(str(part) for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1
