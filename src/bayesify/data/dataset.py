"""The face of every data set: its parts as tensors, what it is for, and how it is normalised."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from bayesify.data.augment import AUGMENTATIONS, CropFlip, views
from bayesify.data.checks import check_counts, check_finite, check_labels, check_several_classes, check_shape
from bayesify.data.columns import Encoding
from bayesify.data.files import split_rows
from bayesify.data.image_files import ImageFiles
from bayesify.data.normalisation import Normalisation
from bayesify.names import lookup


@dataclass(frozen=True, eq=False)
class Split:
    """One part of a data set, in original units: inputs (N, …) and targets.

    Targets are class labels int64 (N,) or regression targets (N, T). Images are uint8 (N, C, H, W);
    a folder of images too large for memory is an `ImageFiles`, which slices like a tensor.
    """

    inputs: Tensor | ImageFiles
    targets: Tensor

    def __len__(self) -> int:
        return len(self.targets)

    def __repr__(self) -> str:
        return f"Split({len(self)} × {tuple(self.inputs.shape[1:])} {self.inputs.dtype})"

    def take(self, index: Tensor) -> "Split":
        """The examples at `index`, in that order."""
        inputs = self.inputs
        chosen = inputs.take(index) if isinstance(inputs, ImageFiles) else inputs.index_select(0, index)
        return Split(chosen, self.targets.index_select(0, index))

    def none(self) -> "Split":
        """A part without examples, of the same shapes: stands for a part that was not loaded."""
        return self.take(torch.empty(0, dtype=torch.int64))


@dataclass(frozen=True, eq=False)
class DataSet:
    """A data set ready for `Loader`. Built by `load`, or from your own tensors by the two class methods.

    encoding: of a table, how its rows became inputs

    >>> x, y = torch.randn(20, 3), torch.arange(20) % 2
    >>> ds = DataSet.classification("mine", Split(x, y), Split(x, y), class_names=("a", "b"))
    >>> ds.num_outputs, ds.input_shape, len(ds.with_validation(0.25, seed=0).train)
    (2, (3,), 15)
    """

    name: str
    task: Literal["classification", "regression"]
    num_outputs: int
    input_shape: tuple[int, ...]
    class_names: tuple[str, ...] | None
    train: Split
    val: Split | None
    test: Split
    normalisation: Normalisation
    augment: str = "none"
    encoding: Encoding | None = None

    @classmethod
    def classification(
        cls,
        name: str,
        train: Split,
        test: Split,
        class_names: Sequence[str],
        *,
        val: Split | None = None,
        normalisation: Normalisation | None = None,
        augment: str = "none",
        encoding: Encoding | None = None,
    ) -> "DataSet":
        """A classification set; statistics come from train, or from test where train was not loaded."""
        if normalisation is None:
            inputs = (train if len(train) else test).inputs
            normalisation = Normalisation.of(inputs if isinstance(inputs, Tensor) else inputs[:])
        shape = tuple(test.inputs.shape[1:])
        names = tuple(class_names)
        facts = (len(names), shape, names, train, val, test, normalisation, augment, encoding)
        return cls(name, "classification", *facts)

    @classmethod
    def regression(
        cls,
        name: str,
        train: Split,
        test: Split,
        *,
        val: Split | None = None,
        encoding: Encoding | None = None,
    ) -> "DataSet":
        """A regression set of tensors; inputs and targets are standardised by train's statistics."""
        if not isinstance(train.inputs, Tensor):
            raise TypeError(f"data set {name!r}: regression takes tensors, not {type(train.inputs).__name__}")
        check_shape(tuple(train.targets.shape), (None, None), f"data set {name!r}, train targets")
        normalisation = Normalisation.of(train.inputs, train.targets)
        shape = tuple(train.inputs.shape[1:])
        facts = (train.targets.shape[1], shape, None, train, val, test, normalisation)
        return cls(name, "regression", *facts, encoding=encoding)

    def __post_init__(self) -> None:
        lookup(AUGMENTATIONS, self.augment, "augment")
        parts = {"train": self.train, "val": self.val, "test": self.test}
        for part, split in parts.items():
            if split is not None and not (part == "train" and len(split) == 0):
                self._check(split, f"data set {self.name!r}, {part}")
        if self.task == "classification":
            learnt = "train" if len(self.train) else "test"
            targets = self.train.targets if len(self.train) else self.test.targets
            check_several_classes(targets, f"data set {self.name!r}, {learnt} targets")

    def parts(self) -> dict[str, Split]:
        """Those that hold examples, by name."""
        found = {"train": self.train, "val": self.val, "test": self.test}
        return {name: part for name, part in found.items() if part is not None and len(part)}

    def views(self, strength: float = 2 / 3) -> CropFlip | None:
        """The set's own augmentation at a share of its strength in training (`bayesify.data.augment.views`)."""
        return views(self.augment, self.normalisation, self.input_shape[0], strength)

    def _check(self, split: Split, where: str) -> None:
        check_counts(len(split.inputs), len(split.targets), where)
        check_shape(tuple(split.inputs.shape[1:]), self.input_shape, f"{where} inputs")
        if isinstance(split.inputs, Tensor):
            check_finite(split.inputs, f"{where} inputs")
        if self.task == "classification":
            check_labels(split.targets, self.num_outputs, f"{where} targets")
        else:
            check_shape(tuple(split.targets.shape), (None, self.num_outputs), f"{where} targets")
            check_finite(split.targets, f"{where} targets")

    def with_validation(self, fraction: float = 0.1, seed: int = 0) -> "DataSet":
        """The same set with `fraction` of train moved to val: which examples depends on (len(train), seed) only.

        `normalisation` stays that of the whole training part.
        """
        if self.val is not None:
            raise ValueError(
                f"data set {self.name!r} already has a validation part of {len(self.val)} examples"
            )
        what = f"fraction={fraction!r} of the {len(self.train)} training examples of {self.name!r}"
        train, val = split_rows(len(self.train), fraction, what, seed)
        return replace(self, train=self.train.take(train), val=self.train.take(val))
