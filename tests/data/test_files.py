"""Searching folders, reading npz, optional packages."""

from pathlib import Path

import numpy as np
import pytest

from bayesify.data.files import data_root, import_optional, locate, read_npz


def touch(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return path


def test_the_first_complete_folder_wins(tmp_path: Path) -> None:
    touch(tmp_path / "a/x")
    expected = [touch(tmp_path / "b/x"), touch(tmp_path / "b/y.gz")]
    touch(tmp_path / "c/x")
    touch(tmp_path / "c/y")
    assert locate("set", tmp_path, ["a", "b", "c"], [("x",), ("y", "y.gz")]) == expected


def test_a_folder_of_the_files_name_does_not_count(tmp_path: Path) -> None:
    (tmp_path / "train").mkdir()
    with pytest.raises(FileNotFoundError, match="'set': train not found"):
        locate("set", tmp_path, [""], [("train",)])


def test_the_error_names_what_the_most_complete_folder_lacks(tmp_path: Path) -> None:
    touch(tmp_path / "b/x")
    with pytest.raises(FileNotFoundError, match=r"'set': y or y\.gz not found; searched .*a, .*b\."):
        locate("set", tmp_path, ["a", "b"], [("x",), ("y", "y.gz")])


def test_a_root_that_is_no_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere is not a folder"):
        locate("set", tmp_path / "nowhere", [""], [("x",)])


def test_fetch_is_called_only_when_asked_and_needed(tmp_path: Path) -> None:
    calls = []

    def fetch(root: Path) -> None:
        calls.append(root)
        touch(root / "x")

    with pytest.raises(FileNotFoundError, match="pass download=True"):
        locate("set", tmp_path, [""], [("x",)], fetch=fetch)
    for _ in range(2):
        locate("set", tmp_path, [""], [("x",)], fetch=fetch, download=True)
    assert calls == [tmp_path]


def test_root_is_expanded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("BAYESIFY_DATA", "~/data")
    assert data_root("set", None) == tmp_path / "data"
    assert data_root("set", "elsewhere") == Path("elsewhere")
    monkeypatch.setenv("BAYESIFY_DATA", "")
    with pytest.raises(FileNotFoundError, match=r"'set'.*no folder was given"):
        data_root("set", None)


def test_npz(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    np.savez(path, a=np.arange(3), b=np.ones(2))
    assert read_npz(path, ["a"])["a"].tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match=r"x.npz: array c, d is missing; the file holds a, b"):
        read_npz(path, ["a", "c", "d"])


def test_npz_refuses_pickled_objects(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", a=np.array([{}], dtype=object))
    with pytest.raises(ValueError, match=r"x.npz: not a readable npz file \(Object arrays"):
        read_npz(tmp_path / "x.npz", ["a"])


@pytest.mark.parametrize("damage", ["empty", "text", "cut", "flipped", "npy"])
def test_damaged_npz(damage: str, tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    np.savez_compressed(path, a=np.random.RandomState(0).standard_normal(500))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    if damage == "npy":
        with path.open("wb") as file:
            np.save(file, np.arange(3))
    else:
        changed = {"empty": b"", "text": b"hello", "cut": content[:-300], "flipped": content}[damage]
        path.write_bytes(changed)
    with pytest.raises(ValueError, match=r"x.npz: not a readable npz file"):
        read_npz(path, ["a"])


def test_optional_import() -> None:
    assert import_optional("json", "json", "this").loads("1") == 1
    with pytest.raises(ImportError, match=r"this needs some-package \(No module.*pip install some-package"):
        import_optional("no_such_module_at_all", "some-package", "this")
