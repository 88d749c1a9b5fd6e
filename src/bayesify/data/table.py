"""Tables of one's own: csv, tsv and parquet files with a column of targets."""

import csv
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from bayesify.atomic import check_is_file
from bayesify.checks import Share
from bayesify.data.columns import Encoding, Table, as_texts, encode, learn
from bayesify.data.dataset import DataSet, Split
from bayesify.data.files import data_root, import_optional, split_rows
from bayesify.names import check_choice

SUFFIXES = (".csv", ".tsv", ".parquet")
TARGETS = ("target", "label", "class", "y")  # what a column of targets is usually called
CLASSES, EACH = 20, 10  # so many different whole numbers are classes, where each is there so often on average
NOTHING = frozenset({"", "?", "na", "n/a", "nan", "null", "none"})  # how a missing value is written
DELIMITERS = (",", ";", "\t", "|")


def load(
    name: str,
    root: str | os.PathLike[str] | None,
    *,
    target: str | list[str] | None = None,
    task: Literal["classification", "regression"] | None = None,
    test: Share | str = 0.2,
    val: str | None = None,
    categorical: str | list[str] | None = None,
    ignore: str | list[str] | None = None,
) -> DataSet:
    """A csv, tsv or parquet file, or a folder with train.csv and, if they are there, val.csv and test.csv.

    Texts become numbers 0 and 1 for each category; for a missing number stands the median of the training rows, and a
    second number says so; a missing text is a category. Inputs and targets stay in original units.

    target:       the column to predict, for a regression also several; None: that called target, label, class or y,
                  else the last one
    task:         None: classification of texts, and of at most 20 different whole numbers that are there ten times
                  each on average; else regression
    test:         the share of rows to test on, chosen by chance and always the same, or a file
    val:          a file to validate on; without one a share of the training rows is taken
    categorical:  columns of numbers that name categories
    ignore:       columns to leave out
    """
    base = data_root(name, root)
    files = _files(base, val, test)
    tables = {part: read_table(file) for part, file in files.items()}
    where = {part: str(file) for part, file in files.items()}
    share = 0.2 if isinstance(test, str) else test
    return from_tables(base.name, tables, where, target, task, share, _names(categorical), _names(ignore))


def from_tables(
    name: str,
    tables: Mapping[str, Table],
    where: Mapping[str, str],
    target: str | list[str] | None = None,
    task: str | None = None,
    test: float = 0.2,
    categorical: Sequence[str] = (),
    ignore: Sequence[str] = (),
) -> DataSet:
    """The data set of the tables of its parts, "train", and "val" and "test" if they are there; errors say `where`."""
    whole, file = tables["train"], where["train"]
    targets = _targets(whole, target, file)
    for each in ignore:
        check_choice(tuple(whole), each, f"{file}: ignore: column")
    count = len(whole[targets[0]])
    train, rest = torch.arange(count), None
    if "test" not in tables:
        train, rest = split_rows(count, test, f"{file}: test={test!r} of {count:,} rows")
    inputs = {key: values for key, values in whole.items() if key not in (*targets, *ignore)}
    columns = learn(inputs, categorical, train.numpy(), file)
    encoding = Encoding(columns, targets, _classes(whole, targets, task, file))
    parts = {part: read_split(each, encoding, where[part]) for part, each in tables.items()}
    if rest is not None:
        parts |= {"train": parts["train"].take(train), "test": parts["train"].take(rest)}
    others: dict[str, Any] = {"val": parts.get("val"), "encoding": encoding}
    if encoding.classes is None:
        return DataSet.regression(name, parts["train"], parts["test"], **others)
    return DataSet.classification(name, parts["train"], parts["test"], encoding.classes, **others)


def coded(path: Path, encoding: Encoding) -> DataSet:
    """All rows of another table as a part for tests, coded as the one that `encoding` was learned from."""
    rows = read_split(read_table(path), encoding, str(path))
    if encoding.classes is None:
        return DataSet.regression(path.name, rows, rows, encoding=encoding)
    return DataSet.classification(path.name, rows.none(), rows, encoding.classes, encoding=encoding)


def _files(root: Path, val: str | None, test: float | str) -> dict[str, Path]:
    """The file of each part; those of val and test may be named from beside that of train."""
    if not root.is_dir():
        named = {"train": root.name, "val": val, "test": test}
        return {part: root.parent / file for part, file in named.items() if isinstance(file, str)}
    found = {
        part: root / f"{part}{suffix}"
        for part in ("train", "val", "test")
        for suffix in SUFFIXES
        if (root / f"{part}{suffix}").is_file()
    }
    if "train" not in found:
        raise FileNotFoundError(f"{root} holds no train.csv, train.tsv or train.parquet: name the file")
    return found


# -- reading files ----------------------------------------------------------------------------------------
def read_table(path: Path) -> Table:
    """The columns of a file: numbers where every value that is there is one, else texts."""
    check_is_file(path)
    if path.suffix.lower() == ".parquet":
        return _read_parquet(path)
    header, rows, decimals = _read_csv(path)
    return {name: _typed([row[i].strip() for row in rows], decimals) for i, name in enumerate(header)}


def _read_csv(path: Path) -> tuple[list[str], list[list[str]], str]:
    """Names, rows, and the sign before decimals; columns without names get numbers."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            delimiter = max(DELIMITERS, key=file.readline().count)
            file.seek(0)
            rows = [row for row in csv.reader(file, delimiter=delimiter) if any(map(str.strip, row))]
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path}: not a readable table ({error}); save it as csv in UTF-8") from None
    header = [] if not rows else [cell.strip() for cell in rows[0]]
    decimals = "," if delimiter == ";" else "."
    numbers = [cell for cell in header if _number(cell, decimals) is not None]
    counted = all(cell.isdigit() for cell in numbers) and numbers == sorted(set(numbers), key=int)
    if header and (len(numbers) == len(header) or not counted):  # a row of values
        header = [f"column {i + 1}" for i in range(len(header))]
    else:
        rows = rows[1:]
    twice = next((name for name in header if header.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"{path}: two columns are called {twice!r}: give each a name of its own")
    if not rows:
        raise ValueError(f"{path}: holds no rows of values")
    for line, row in enumerate(rows, 1):
        if len(row) != len(header):
            raise ValueError(f"{path}: row {line} has {len(row)} cells, the header has {len(header)}")
    return header, rows, decimals


def _read_parquet(path: Path) -> Table:
    parquet = import_optional("pyarrow.parquet", "pyarrow", "reading parquet files")
    try:
        read = parquet.ParquetFile(path).read()
    except Exception as error:  # pyarrow has many of its own
        raise ValueError(f"{path}: not a readable parquet file ({error})") from None
    if len(set(read.column_names)) < len(read.column_names) or not read.num_rows:
        raise ValueError(f"{path}: has no rows, or two columns of one name")
    return {name: plain(read.column(name).to_pylist()) for name in read.column_names}


def plain(values: list[Any]) -> np.ndarray:
    """A column of Python values."""
    if all(value is None or isinstance(value, int | float) for value in values):
        return np.array([np.nan if value is None else float(value) for value in values])
    return _typed(["" if value is None else str(value) for value in values], ".")


def _typed(cells: list[str], decimals: str) -> np.ndarray:
    missing = [cell.lower() in NOTHING for cell in cells]
    numbers = [_number(cell, decimals) for cell in cells]
    if all(gone or number is not None for gone, number in zip(missing, numbers, strict=True)):
        return np.array([np.nan if number is None else number for number in numbers], dtype=np.float64)
    return np.array([None if gone else cell for gone, cell in zip(missing, cells, strict=True)], dtype=object)


def _number(cell: str, decimals: str) -> float | None:
    try:
        return float(cell.replace(",", ".") if decimals == "," else cell)
    except ValueError:
        return None


def _names(given: str | list[str] | None) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given or ())


# -- targets ----------------------------------------------------------------------------------------------
def _targets(table: Table, target: str | list[str] | None, where: str) -> tuple[str, ...]:
    if target is None:
        usual = [name for name in table if name.lower() in TARGETS]
        return (usual[0] if usual else list(table)[-1],)
    names = _names(target)
    for name in names:
        check_choice(tuple(table), name, f"{where}: target: column")
    return names


def _classes(table: Table, targets: tuple[str, ...], task: str | None, where: str) -> tuple[str, ...] | None:
    """The names of the classes; None for a regression."""
    values = [table[name] for name in targets]
    texts = [name for name, value in zip(targets, values, strict=True) if value.dtype == object]
    if texts and (task == "regression" or len(targets) > 1):
        raise ValueError(f"{where}: target {texts[0]!r} holds texts, a regression needs numbers")
    if len(targets) > 1 and task == "classification":
        raise ValueError(f"{where}: target={list(targets)}: a classification has one column of classes")
    known = values[0] if texts else values[0][~np.isnan(values[0])]
    whole = bool(texts) or bool((known % 1 == 0).all())
    if task is None and len(targets) == 1 and whole:
        distinct = len(set(known.tolist()))
        task = "classification" if texts or distinct <= min(CLASSES, len(known) / EACH) else None
    if task != "classification":
        return None
    names = sorted(set(known.tolist()) - {None})
    return tuple(as_texts(np.array(names, dtype=object if texts else np.float64)))


def read_split(table: Table, encoding: Encoding, where: str) -> Split:
    """Inputs and targets of a table, coded as in training."""
    inputs = encode(table, encoding.columns, where)
    for name in encoding.targets:
        check_choice(tuple(table), name, f"{where}: target: column")
    columns = [table[name] for name in encoding.targets]
    for name, values in zip(encoding.targets, columns, strict=True):
        gone = [i for i, value in enumerate(values.tolist()) if value is None or value != value]
        if gone:
            raise ValueError(
                f"{where}: the target {name!r} is missing in {len(gone):,} rows, first in row {gone[0] + 1}: leave "
                f"them out of the file"
            )
    if encoding.classes is None:
        if any(values.dtype == object for values in columns):
            raise ValueError(f"{where}: the target holds texts, in training it held numbers")
        return Split(inputs, torch.from_numpy(np.stack(columns, 1)))  # (N, T)
    texts = as_texts(columns[0])
    unknown = sorted(set(texts) - set(encoding.classes))
    if unknown:
        raise ValueError(f"{where}: class {unknown[0]!r} is none of {', '.join(encoding.classes)}")
    index = {name: i for i, name in enumerate(encoding.classes)}
    return Split(inputs, torch.tensor([index[text] for text in texts]))
