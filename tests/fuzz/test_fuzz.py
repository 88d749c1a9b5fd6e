"""A few hundred spoiled files for every format; `make fuzz` tries as many as one likes."""

import random
from pathlib import Path

import pytest
from doors import DOORS, Door
from mutators import JUNK, spoiled

from fuzz import BAD, fuzz, spoil, tried

CASES = 50  # of each door: half a minute in all


@pytest.mark.parametrize("name", DOORS)
def test_spoiled_files_are_read_right_or_named(name: str) -> None:
    wrong = [each for each in fuzz(name, range(CASES)) if each.outcome in BAD]
    assert not wrong, "\n".join(f"python tests/fuzz/fuzz.py --door {name!r} --case {each}" for each in wrong)


def made(folder: Path) -> None:
    (folder / "numbers.txt").write_text("12345678")


def outcome(read: object, tmp_path: Path, checked: bool = True) -> str:
    """Of one case of a door with this reader; case 3 cuts the file off."""
    (sample := tmp_path / "sample").mkdir()
    made(sample)
    door = Door(made, read, {"*": ()}, checked=checked)  # type: ignore[arg-type]
    return tried(door, sample, 3, tmp_path / "case").outcome


def text(folder: Path) -> str:
    return (folder / "numbers.txt").read_text(errors="replace")


def careful(folder: Path, rng: object) -> str:
    if text(folder) != "12345678":
        raise ValueError("numbers.txt is damaged")
    return "12345678"


def mute(folder: Path, rng: object) -> str:
    if text(folder) != "12345678":
        raise ValueError("it is damaged")
    return "12345678"


def raw(folder: Path, rng: object) -> int:
    return {"12345678": 1}[text(folder)]


def greedy(folder: Path, rng: object) -> int:
    if text(folder) != "12345678":
        raise MemoryError
    return 1


@pytest.mark.parametrize(
    ("read", "expected"),
    [
        (careful, "named error"),
        (mute, "error without a file name"),
        (raw, "raw error"),
        (greedy, "out of memory"),
        (lambda folder, rng: text(folder), "silent change"),
        (lambda folder, rng: 1, "right"),
    ],
)
def test_what_comes_of_a_reader(read: object, expected: str, tmp_path: Path) -> None:
    """The fuzzer itself: it tells good readers from bad ones."""
    assert outcome(read, tmp_path) == expected


def test_a_format_without_checksums_may_have_other_values(tmp_path: Path) -> None:
    assert outcome(lambda folder, rng: text(folder), tmp_path, checked=False) == "other values"


def test_the_same_number_is_the_same_case(tmp_path: Path) -> None:
    found = []
    for i in range(2):
        (folder := tmp_path / str(i)).mkdir()
        DOORS["idx"].make(folder)
        words = spoil(DOORS["idx"], folder, random.Random(7))
        found.append((words, {p.name: p.read_bytes() for p in folder.rglob("*") if p.is_file()}))
    assert found[0] == found[1]


def test_json_is_spoiled_everywhere() -> None:
    content = {"a": [1, 2, {"b": "text"}], "c": None}
    seen = {spoiled(content, random.Random(i))[0].split()[0] for i in range(300)}
    assert {"a", "a.0", "a.1", "a.2", "a.2.b", "c"} <= seen
    assert len(JUNK) > 20
