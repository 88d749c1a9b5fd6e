"""Tables of one's own: what is found in them, how columns become numbers, and what is named."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from bayesify.data import DataSet, load
from bayesify.data.columns import Column, Encoding
from bayesify.data.table import read_table

HOUSES = "rooms,city,age,price\n" + "".join(
    f"{1 + i % 4},{('Ulm', 'Bonn', 'Kiel')[i % 3]},{'' if i == 5 else i},{100.5 * i}\n" for i in range(40)
)


def write(folder: Path, text: str, name: str = "houses.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture
def houses(tmp_path: Path) -> Path:
    return write(tmp_path, HOUSES)


def loaded(path: Path, *warned: str, **options: object) -> DataSet:
    with pytest.warns(UserWarning, match="column") as seen:
        ds = load(str(path), **options)
    assert [any(w in str(each.message) for each in seen) for w in warned] == [True] * len(warned)
    return ds


def test_columns_become_numbers(houses: Path) -> None:
    ds = loaded(houses, "column 'age' has no value in 1 of 40 rows")
    assert (ds.name, ds.task, ds.input_shape, len(ds.train), len(ds.test)) == (
        *("houses.csv", "regression", (6,)),
        *(32, 8),
    )
    assert [c.numbers for c in ds.encoding.columns] == [
        ("rooms",),
        ("city=Bonn", "city=Kiel", "city=Ulm"),
        ("age", "age (missing)"),
    ]
    order = np.random.RandomState(0).permutation(40)  # the first fifth is tested on
    rows = sorted(order[8:].tolist())
    known = [float(row) for row in rows if row != 5]
    fill = float(np.median(known))
    city = {0: [0, 0, 1], 1: [1, 0, 0], 2: [0, 1, 0]}
    expected = [[1 + i % 4, *city[i % 3], *([fill, 1] if i == 5 else [i, 0])] for i in rows]
    assert ds.train.inputs.tolist() == expected
    assert ds.train.targets.tolist() == [[100.5 * i] for i in rows]


def test_the_task_and_the_target_are_found(tmp_path: Path) -> None:
    rows = [f"{i},{i % 2},{('no', 'yes')[i % 2]}" for i in range(40)]
    path = write(tmp_path, "\n".join(["Label,b,c", *rows]))
    assert load(str(path)).task == "regression"  # forty different numbers in the column called Label
    by_text, by_number = load(str(path), target="c"), load(str(path), target="b")
    assert by_text.class_names == ("no", "yes")
    assert (by_number.task, by_number.class_names) == ("classification", ("0", "1"))
    assert load(str(path), target="b", task="regression").task == "regression"
    assert load(str(path), target=["Label", "b"]).num_outputs == 2
    assert load(str(path), target="c", ignore="b").input_shape == (1,)
    assert load(str(path), target="c", categorical=["Label"]).input_shape == (41,)


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("a;b;y\n1,5;x;2,5\n2;z;3\n3;x;4\n4;z;1\n", [1.5]),
        ("a\tb\ty\n1.5\tx\t2.5\n2\tz\t3\n3\tx\t4\n4\tz\t1\n", [1.5]),
        ('a,b,y\n1.5,"x",2.5\n\n2,z,3\n3,x,4\n4,z,1\n', [1.5]),
        ("1.5,x,2.5\n2,z,3\n3,x,4\n4,z,1\n", [1.5]),  # no header
        ("\ufeffa,b,y\n1.5,x,2.5\n2,z,3\n3,x,4\n4,z,1\n", [1.5]),
    ],
)
def test_dialects(text: str, first: list[float], tmp_path: Path) -> None:
    path = write(tmp_path, text)
    table = read_table(path)
    assert len(table) == 3
    numbers, texts, target = table.values()
    assert numbers.tolist() == [1.5, 2, 3, 4]
    assert texts.tolist() == ["x", "z", "x", "z"]
    assert target.tolist() == [2.5, 3, 4, 1]


def test_files_of_their_own(tmp_path: Path) -> None:
    for part in ("train", "val", "test"):
        write(tmp_path, HOUSES.replace("10,", "9,") if part == "val" else HOUSES, f"{part}.csv")
    ds = loaded(tmp_path)
    assert (len(ds.train), len(ds.val), len(ds.test)) == (40, 40, 40)
    named = loaded(tmp_path / "train.csv", test="test.csv", val="val.csv")
    assert torch.equal(named.test.inputs, ds.test.inputs) and torch.equal(named.val.inputs, ds.val.inputs)


def test_parquet_is_the_same(houses: Path) -> None:
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    pandas.read_csv(houses).to_parquet(houses.with_suffix(".parquet"))
    one, other = loaded(houses), loaded(houses.with_suffix(".parquet"))
    assert one.encoding == other.encoding
    assert torch.equal(one.train.inputs, other.train.inputs)


def test_columns_that_tell_nothing_are_left_out_and_said(tmp_path: Path) -> None:
    rows = [f"{i},name {i},7,,{i % 5},{i * 0.5}" for i in range(210)]
    path = write(tmp_path, "\n".join([",name,same,empty,x,y", *rows]))
    ds = loaded(
        path,
        "column '' is left out: it has no name",
        "column 'name' is left out: 210 different texts in 210 rows",
        "column 'same' is left out: all its values are 7",
        "column 'empty' is left out: it is empty",
    )
    assert [c.name for c in ds.encoding.columns] == ["x"]


@pytest.mark.parametrize(
    ("text", "options", "words"),
    [
        ("", {}, "holds no rows of values"),
        ("a,b\n", {}, "holds no rows of values"),
        ("a,b\n1,2\n3\n", {}, "row 2 has 1 cells, the header has 2"),
        ("a,a\n1,2\n", {}, "two columns are called 'a'"),
        ("a,b\n1,2\n2,3\n", {"target": "c"}, "target: column='c' does not exist; choose from a, b"),
        ("a,b\n1,2\n2,3\n", {"ignore": ["c"]}, "ignore: column='c' does not exist"),
        ("a,b\n1,\n2,3\n3,4\n", {}, "the target 'b' is missing in 1 rows, first in row 1"),
        (
            "a,b\n1,x\n2,y\n3,z\n",
            {"task": "regression"},
            "target 'b' holds texts, a regression needs numbers",
        ),
        ("a,b\n1,x\n1,y\n1,x\n", {}, "no column is left to learn from"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*is left out")
def test_what_is_wrong_is_named(text: str, options: dict[str, object], words: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError) as error:
        load(str(write(tmp_path, text)), **options)
    assert words in str(error.value)


def test_other_rows_are_coded_alike_or_named(houses: Path) -> None:
    encoding = loaded(houses).encoding
    again = Encoding.of(json.loads(json.dumps(encoding.plain())), None)
    assert again == encoding
    rooms, city, _ = encoding.columns
    assert city.encode(np.array(["Ulm"], dtype=object), "new.csv").tolist() == [[0, 0, 1]]
    with pytest.raises(ValueError, match="new.csv: column 'city' holds 'Rome' \\(row 2, 1 in all\\)"):
        city.encode(np.array(["Ulm", "Rome"], dtype=object), "new.csv")
    with pytest.raises(ValueError, match="column 'rooms' holds 'two', in training it held numbers"):
        rooms.encode(np.array([None, "two"], dtype=object), "new.csv")
    two = Column("sex", categories=("f", "m"))
    assert two.encode(np.array(["m", "f"], dtype=object), "x").tolist() == [[1], [0]]
