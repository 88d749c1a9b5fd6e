"""What is no file is not opened, and what files hold does not steer the terminal."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from cli_runs import fail, invoke, read, start, succeed

from bayesify.cli.terminal import printable

ESCAPE = "\x1b]0;pwned\x07\x1b[2J\x9b31m\u202e[red][/x]"


@pytest.fixture
def run(digits: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(digits, tmp_path / "run"))


@pytest.mark.parametrize("file", ["config.json", "summary.json", "metrics.csv"])
@pytest.mark.parametrize("what", ["pipe", "device", "folder"])
def test_what_is_no_file_is_refused(what: str, file: str, run: Path) -> None:
    """In a process of its own, which must end: a pipe that nobody writes to never does."""
    (run / file).unlink()
    if what == "pipe":
        os.mkfifo(run / file)
    elif what == "device":
        (run / file).symlink_to("/dev/zero")
    else:
        (run / file).mkdir()
    if (what, file) == ("pipe", "config.json"):
        _, errors = (process := start("show", run)).communicate(timeout=60)
        assert process.returncode == 2
        assert "config.json is not a file but a folder, pipe or device" in errors
    assert f"{file} is not a file but a folder, pipe or device" in fail("show", run)


@pytest.mark.parametrize("file", ["evaluation.json", "evaluation.npz", "model.safetensors"])
def test_pipes_in_place_of_other_files(file: str, run: Path, tmp_path: Path) -> None:
    succeed("evaluate", run, "--suite", "calibration")
    (run / file).unlink()
    os.mkfifo(run / file)
    command = (
        ("evaluate", run) if file == "model.safetensors" else ("report", run, "--page", tmp_path / "r.html")
    )
    assert file in fail(*command)


def test_a_loop_of_links(run: Path) -> None:
    (run / "config.json").unlink()
    (run / "config.json").symlink_to(run / "config.json")
    assert "Too many levels of symbolic links" in fail("show", run)


def test_control_characters_are_written_out(run: Path, tmp_path: Path) -> None:
    config, summary = read(run), read(run, "summary.json")
    config["task"]["class_names"] = [ESCAPE] * 10
    config["device"] = config["versions"]["torch"] = ESCAPE
    config["method"]["prior"]["name"] = config["data"]["name"] = ESCAPE
    summary["notes"], summary["sampling"] = [ESCAPE], ESCAPE
    summary["test"][ESCAPE] = 0.5
    (run / "config.json").write_text(json.dumps(config))
    (run / "summary.json").write_text(json.dumps(summary))
    np.save(tmp_path / "x.npy", np.zeros((1, 8, 8), np.float32))
    for command in (
        ("show", run),
        ("predict", run, tmp_path / "x.npy"),
        ("evaluate", run),
        ("report", run, "--page", tmp_path / "r.html"),
        ("train", "--resume", "--folder", run),
    ):
        result = invoke(*command)
        for text in (result.stdout, result.stderr):
            assert not set("\x1b\x07\x9b\u202e") & set(text), command
        assert "Traceback" not in result.output and not isinstance(result.exception, AttributeError)
    assert r"\x1b" in succeed("show", run).stdout


def test_lines_and_other_alphabets_stay() -> None:
    assert printable("a\nb é 漢 → ±") == "a\nb é 漢 → ±"
    assert printable("\x00\r\t\x7f\x85\u2066") == r"\x00\r\t\x7f\x85\u2066"
