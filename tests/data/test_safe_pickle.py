"""The restricted unpickler runs nothing that a file names."""

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from data_files import python2_batch

from bayesify.data.safe_pickle import read_pickle


def read(tmp_path: Path, content: bytes) -> dict[str, Any]:
    path = tmp_path / "batch"
    path.write_bytes(content)
    return read_pickle(path)


class Call:
    """Pickles as a call of `function(*arguments)`."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> Any:
        return self.call


def test_reads_what_python_2_wrote(tmp_path: Path) -> None:
    data = np.arange(12, dtype=np.uint8).reshape(3, 4)
    content = read(tmp_path, python2_batch(data, labels=[1, 2, 300]))
    assert np.array_equal(content["data"], data)
    assert content["labels"] == [1, 2, 300]


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("memory_order", ["C", "F"])
def test_reads_what_python_3_writes(protocol: int, memory_order: str, tmp_path: Path) -> None:
    data = np.asarray(np.arange(12, dtype=np.uint8).reshape(3, 4), order=memory_order)
    source = {"data": data, b"raw": b"\xff\x00", "labels": [1, 2], "name": "x"}
    content = read(tmp_path, pickle.dumps(source, protocol=protocol))
    assert np.array_equal(content["data"], data)
    assert {k: v for k, v in content.items() if k != "data"} == {
        "raw": b"\xff\x00",
        "labels": [1, 2],
        "name": "x",
    }


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (Call(os.system, "exit 1"), r"(posix|nt)\.system"),
        (Call(eval, "1"), r"\w+\.eval"),
        (Call(getattr, "a", "upper"), r"\w+\.getattr"),
        (Call(np.load, "x"), r"numpy[\w.]*\.load"),
        (Call(bytearray, 5), r"\w+\.bytearray"),
        (np.float64(1.0), r"numpy[\w.]*\.scalar"),
        (np.random.RandomState(0), r"numpy[\w.]*"),
    ],
)
@pytest.mark.parametrize("protocol", [2, 4])
def test_refuses_every_other_name(call: Any, name: str, protocol: int, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=rf"batch: not a readable.*names {name}, which"):
        read(tmp_path, pickle.dumps({"data": call}, protocol=protocol))


def test_nothing_is_run(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    with pytest.raises(ValueError, match="does not allow"):
        read(tmp_path, pickle.dumps(Call(os.mkdir, str(trace))))
    assert not trace.exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (pickle.dumps({"a": np.arange(3)}, protocol=2), "array of dtype 'i8', only bytes"),
        (pickle.dumps({"a": np.array([{}], object)}, protocol=2), "array of dtype 'O8', only bytes"),
        (python2_batch(np.zeros((2, 3), np.uint8)).replace(b"(K\x02", b"(K\x03"), "do not fit its shape"),
        (b"\x80\x02c_codecs\nencode\nX\x01\x00\x00\x00aX\x05\x00\x00\x00rot13\x86R.", "encoding 'rot13'"),
        (b"\x80\x02K\x01Q.", "outside the file"),
        (pickle.dumps([1]), "holds a list, not a dictionary"),
        (b"", "it ends too early"),
        (
            b"\x80\x02]r\xff\xff\xff\x7f.",
            "holds a list",
        ),  # remembers it at place 2³¹: no memory is taken for that
        (b"\x00\x01\x02", "not a readable"),
    ],
)
def test_refuses_and_says_why(content: bytes, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        read(tmp_path, content)
    assert str(tmp_path / "batch") in str(caught.value)
