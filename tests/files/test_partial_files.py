"""What killed writers leave is cleared; what living ones are writing is not."""

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from bayesify import atomic
from bayesify.atomic import clear_partial_files, write_atomically, write_text

WRITER = """
import sys, time
from pathlib import Path
from bayesify.atomic import write_atomically

def slowly(partial):
    partial.write_text("half")
    print("writing", flush=True)
    time.sleep(60)

write_atomically(Path(sys.argv[1]), slowly)
"""


def writer(path: Path) -> "subprocess.Popen[str]":
    """A process that is writing `path`."""
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(WRITER), str(path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "writing\n"
    process.stdout.close()
    return process


def partial_files(folder: Path) -> list[str]:
    return [name for name in os.listdir(folder) if name.endswith(".partial")]


def test_a_killed_writer_and_a_living_one(tmp_path: Path) -> None:
    path = tmp_path / "note.txt"
    dead, alive = writer(path), writer(path)
    try:
        dead.send_signal(signal.SIGKILL)
        dead.wait()
        assert len(partial_files(tmp_path)) == 2
        write_text(tmp_path / "other.txt", "of another name")
        assert len(partial_files(tmp_path)) == 2
        write_text(path, "whole")
        assert len(partial_files(tmp_path)) == 1
        clear_partial_files(tmp_path)
        assert len(partial_files(tmp_path)) == 1
    finally:
        alive.kill()
        alive.wait()
    clear_partial_files(tmp_path)
    assert partial_files(tmp_path) == []
    assert path.read_text() == "whole"


def test_a_file_that_was_taken_for_a_left_over_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between its making and its lock another writer may clear it."""
    calls = []

    def late(handle: int) -> bool:
        if not calls:
            [(tmp_path / name).unlink() for name in partial_files(tmp_path)]
        calls.append(handle)
        return True

    monkeypatch.setattr(atomic, "lock", late)
    write_atomically(tmp_path / "a", lambda partial: partial.write_text("whole"))
    assert (tmp_path / "a").read_text() == "whole" and len(calls) == 2
    assert partial_files(tmp_path) == []
