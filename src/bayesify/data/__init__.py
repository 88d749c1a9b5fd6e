"""Data sets by name. Adding one: a file here (or a row in a file's table) and a line in DATA.

ds = bayesify.data.load("cifar10", root="~/data")
ds = ds.with_validation(0.1, seed=0)
loader = Loader(ds.train, 128, shuffle=True, normalise=ds.normalisation, augment=ds.augment)
"""

import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bayesify.data import (
    arrays,
    cifar,
    embedded,
    hugging_face,
    idx,
    image_folder,
    medmnist3d,
    svhn,
    table,
    toy,
    uci,
)
from bayesify.data.augment import CropFlip
from bayesify.data.dataset import DataSet, Split
from bayesify.data.image_files import ImageFiles
from bayesify.data.loader import Loader
from bayesify.data.normalisation import Normalisation
from bayesify.data.own import find, made_by
from bayesify.names import lookup


@dataclass(frozen=True)
class Entry:
    """How to load a set, `load(name, root, **options)`, and one line about it."""

    load: Callable[..., DataSet]
    description: str

    @property
    def options(self) -> dict[str, Any]:
        """The keyword options of this set with their defaults."""
        parameters = inspect.signature(self.load).parameters.values()
        return {p.name: p.default for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY}


DATA: dict[str, Entry] = {
    "digits": Entry(embedded.load, "1,797 handwritten digits 8×8, 10 classes (embedded)"),
    "breast_cancer": Entry(embedded.load, "569 tumours, 30 features, 2 classes (embedded)"),
    "wine": Entry(embedded.load, "178 wines, 13 features, 3 classes (embedded)"),
    "diabetes": Entry(embedded.load, "442 patients, 10 features, regression (embedded)"),
    "two_moons": Entry(toy.two_moons, "two interleaved half circles in the plane, 2 classes (made up)"),
    "regression_gap": Entry(
        toy.regression_gap, "a curve in one dimension with a gap in the inputs (made up)"
    ),
    "mnist": Entry(idx.load, "70,000 handwritten digits 28×28, 10 classes"),
    "fashion_mnist": Entry(idx.load, "70,000 pieces of clothing 28×28, 10 classes"),
    "notmnist": Entry(idx.load, "letters A–J 28×28 in many fonts, 10 classes; out of distribution for mnist"),
    "cifar10": Entry(cifar.load, "60,000 colour photographs 32×32, 10 classes"),
    "cifar100": Entry(cifar.load, "60,000 colour photographs 32×32, 100 classes or 20 coarse ones"),
    "svhn": Entry(svhn.load, "99,289 house-number digits 32×32 in colour, 10 classes"),
    "uci_boston": Entry(uci.load, "506 house prices, 13 features, regression, 20 splits"),
    "uci_concrete": Entry(uci.load, "1,030 concrete strengths, 8 features, regression, 20 splits"),
    "uci_energy": Entry(uci.load, "768 heating loads of buildings, 8 features, regression, 20 splits"),
    "uci_kin8nm": Entry(uci.load, "8,192 positions of a robot arm, 8 features, regression, 20 splits"),
    "uci_naval": Entry(uci.load, "11,934 states of a ship's turbine, 16 features, regression, 20 splits"),
    "uci_power": Entry(uci.load, "9,568 hours of a power plant, 4 features, regression, 20 splits"),
    "uci_protein": Entry(uci.load, "45,730 protein structures, 9 features, regression, 5 splits"),
    "uci_wine_red": Entry(uci.load, "1,599 red wines rated, 11 features, regression, 20 splits"),
    "uci_yacht": Entry(uci.load, "308 yacht resistances, 6 features, regression, 20 splits"),
    "adrenalmnist3d": Entry(medmnist3d.load, "1,584 adrenal gland shapes 28³ or 64³, 2 classes"),
    "medmnist3d": Entry(medmnist3d.load, "any 3-D MedMNIST file, as medmnist3d:<name>"),
    "image_folder": Entry(
        image_folder.load, "your images in train/<class>/ and val/ or test/, or in a folder for each class"
    ),
    "table": Entry(table.load, "your csv, tsv or parquet file; also by its path, as --data houses.csv"),
    "arrays": Entry(arrays.load, "your arrays x and y, in an npz file or in npy files; also by its path"),
    "hugging_face": Entry(
        hugging_face.load, "a folder saved by `datasets` of Hugging Face; also by its path"
    ),
}


def load(name: str, root: str | os.PathLike[str] | None = None, **options: Any) -> DataSet:
    """The data set `name`, read from `root` or the folder in the variable BAYESIFY_DATA; or your own, by its path.

    Args:
        name: a key of DATA; `medmnist3d:<file>` names a MedMNIST file. Or a file or folder of your own: a table (csv,
            tsv, parquet), an npz file, a folder of images or arrays or one saved by `datasets`. Or
            `package.module:factory`, which is imported and called with the options (see `bayesify.data.own`).
        root: the folder below which the usual folders of public data are searched; embedded sets need none.
        options: the set's own, see `DATA[name].options`, e.g. `download=True`, `labels="coarse"`, `target="price"`.

    >>> ds = load("two_moons", num_train=50)
    >>> ds.task, ds.num_outputs, tuple(ds.train.inputs.shape)
    ('classification', 2, (50, 2))
    """
    if is_outside(name):
        return made_by(name, options)
    key, path = resolve(name, root) or (name, root)
    family, colon, _ = key.partition(":")
    entry = lookup(DATA, family, "data")
    if colon and family != "medmnist3d":
        raise ValueError(f"data={name!r}: only medmnist3d takes a file after the colon; use {family!r}")
    unknown = [option for option in options if option not in entry.options]
    if unknown:
        accepted = ", ".join(f"{k}={v!r}" for k, v in entry.options.items()) or "none"
        raise ValueError(f"data set {name!r} has no option {', '.join(unknown)}; it takes: {accepted}")
    return entry.load(key, path, **options)


def resolve(name: str, root: str | os.PathLike[str] | None) -> tuple[str, str] | None:
    """(key of DATA, whole path) of a `name` that is a path, as houses.csv; None where it is none."""
    return None if name.partition(":")[0] in DATA else find(name, root)


def is_outside(name: str) -> bool:
    """Is `name` code from outside of bayesify, package.module:factory?"""
    family, colon, _ = name.partition(":")
    return bool(colon) and family not in ("medmnist3d", *DATA) and os.sep not in name


__all__ = [
    "DATA",
    "CropFlip",
    "DataSet",
    "Entry",
    "ImageFiles",
    "Loader",
    "Normalisation",
    "Split",
    "is_outside",
    "load",
    "resolve",
]
