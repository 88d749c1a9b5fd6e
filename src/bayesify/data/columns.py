"""Columns of a table as numbers for a network: a number for each category, and what is missing filled in."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bayesify.names import check_choice

#: name -> float64 with NaN, or texts with None, where a value is missing
Table = dict[str, np.ndarray]

MISSING = "(missing)"  # the category of what is missing
MANY = (
    100  # categories of a column; more than that, and half as many as there are rows, are names or free text
)


@dataclass(frozen=True)
class Column:
    """How one column becomes numbers; learned from training rows, kept in config.json.

    fill:        of numbers: what stands for a missing one, the median
    flag:        of numbers: a second number says where they were missing
    categories:  of texts: a number 0 or 1 for each of them, one number where there are two
    """

    name: str
    fill: float | None = None
    flag: bool = False
    categories: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if self.categories is not None:
            object.__setattr__(self, "categories", tuple(self.categories))

    @property
    def numbers(self) -> tuple[str, ...]:
        """The names of the numbers that it becomes."""
        if self.categories is None:
            return (self.name, f"{self.name} {MISSING}") if self.flag else (self.name,)
        return tuple(f"{self.name}={c}" for c in self.categories[1 if len(self.categories) == 2 else 0 :])

    def encode(self, values: np.ndarray, where: str) -> Tensor:
        """(N,) -> (N, len(numbers)), float64; texts that training did not have are an error."""
        if self.categories is None:
            if values.dtype == object:
                found = next(value for value in values if value is not None)
                raise ValueError(
                    f"{where}: column {self.name!r} holds {found!r}, in training it held numbers"
                )
            missing = np.isnan(values)
            filled = np.where(missing, self.fill or 0.0, values)
            return torch.from_numpy(np.stack([filled, missing], 1)[:, : len(self.numbers)].astype(np.float64))
        texts = as_texts(values)
        unknown = sorted(set(texts) - set(self.categories))
        if unknown:
            rows = [i for i, text in enumerate(texts) if text == unknown[0]]
            raise ValueError(
                f"{where}: column {self.name!r} holds {unknown[0]!r} (row {rows[0] + 1}, {len(rows)} in all), which "
                f"the training rows did not have: they had {', '.join(self.categories)}. Leave these rows out, or "
                f"train on data that have it"
            )
        index = torch.tensor([self.categories.index(text) for text in texts])
        hot = torch.nn.functional.one_hot(index, len(self.categories)).double()
        return hot[:, len(self.categories) - len(self.numbers) :]


@dataclass(frozen=True)
class Encoding:
    """How the rows of a table become inputs and targets."""

    columns: tuple[Column, ...]
    targets: tuple[str, ...]
    classes: tuple[str, ...] | None  # None for a regression

    def plain(self) -> dict[str, Any]:
        """As plain data, without the classes, which every data set of classes has."""
        return {"columns": [vars(column) for column in self.columns], "targets": list(self.targets)}

    @classmethod
    def of(cls, data: Mapping[str, Any], classes: Sequence[str] | None) -> "Encoding":
        """From plain data."""
        columns = [Column(**each) for each in data["columns"]]
        return cls(tuple(columns), tuple(data["targets"]), None if classes is None else tuple(classes))


def as_texts(values: np.ndarray) -> list[str]:
    """Categories as texts: whole numbers without a point."""
    if values.dtype == object:
        return [MISSING if value is None else value for value in values]
    return [MISSING if np.isnan(value) else f"{value:.15g}" for value in values]


def learn(table: Table, categorical: Sequence[str], rows: np.ndarray, where: str) -> tuple[Column, ...]:
    """The columns of a table without its targets. Categories are those of all rows, medians those of `rows`.

    categorical: columns of numbers that name categories. Columns that tell nothing, or whose texts are names rather
    than categories, are left out with a warning.
    """
    for name in categorical:
        check_choice(tuple(table), name, f"{where}: categorical column")
    found: list[Column] = []
    for name, values in table.items():
        texts = as_texts(values) if values.dtype == object or name in categorical else None
        distinct = sorted(set(texts) if texts is not None else {*values[~np.isnan(values)].tolist()})
        reason = None if name else "it has no name"
        if reason is None and len(distinct) < 2:
            reason = (
                f"all its values are {distinct[0] if texts else format(distinct[0], 'g')}"
                if distinct
                else "it is empty"
            )
        elif texts is not None and len(distinct) > max(MANY, len(values) // 2):
            reason = f"{len(distinct):,} different texts in {len(values):,} rows"
        if reason is not None and not (texts is None and distinct and np.isnan(values).any()):
            warnings.warn(f"{where}: column {name!r} is left out: {reason}", stacklevel=2)
        elif texts is not None:
            found.append(Column(name, categories=tuple(str(text) for text in distinct)))
        else:
            found.append(_number(name, values, rows, where))
    if not found:
        raise ValueError(f"{where}: no column is left to learn from")
    return tuple(found)


def _number(name: str, values: np.ndarray, rows: np.ndarray, where: str) -> Column:
    missing = int(np.isnan(values).sum())
    known = values[rows][~np.isnan(values[rows])]
    fill = float(np.median(known if len(known) else values[~np.isnan(values)]))
    if missing:
        warnings.warn(
            f"{where}: column {name!r} has no value in {missing:,} of {len(values):,} rows: the median {fill:g} "
            f"stands there, and a second number says so",
            stacklevel=2,
        )
    return Column(name, fill, flag=missing > 0)


def encode(table: Table, columns: Sequence[Column], where: str) -> Tensor:
    """(N, D) float64, the numbers of all columns side by side; a column that the table lacks is named."""
    for column in columns:
        check_choice(tuple(table), column.name, f"{where}: column")
    return torch.cat([column.encode(table[column.name], where) for column in columns], 1)
