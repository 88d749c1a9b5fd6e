"""What the check of a sampler finds, on the command line: said, stored, shown, reported, raised."""

import html
from pathlib import Path

import pytest
from cli_runs import fail, read, succeed

import bayesify as bf

ATMC = ("--net", "mlp", "--data", "digits", "--set", "net.hidden=4", "--method", "atmc", "--epochs", "8")
FOUND = "the thermostats of 7 weights stand far above"


@pytest.fixture(autouse=True)
def stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every check finds the same."""
    monkeypatch.setattr("bayesify.samplers.check.findings", lambda *_: {"stuck": FOUND})


@pytest.mark.filterwarnings("always::bayesify.SamplingWarning")
def test_it_is_said_once_stored_shown_and_reported(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with pytest.warns(bf.SamplingWarning, match=f"not those of the posterior: {FOUND}") as said:
        succeed("train", *ATMC, "--folder", folder)
    assert sum(FOUND in str(each.message) for each in said) == 1
    summary = read(folder, "summary.json")
    assert FOUND in summary["sampling"] and not any(FOUND in note for note in summary["notes"])
    shown = " ".join(succeed("show", folder).stdout.split())
    assert f"warning: {summary['sampling']}" in shown
    succeed("report", folder, "--page", tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert f"<li>run: {html.escape(summary['sampling'])}.</li>" in page


def test_it_ends_a_run_that_wants_it_so_and_not_one_that_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    text = fail("train", *ATMC, "--on-bad-sampling", "raise", "--folder", folder, code=1)
    assert FOUND in text and "The run so far is in" in text
    succeed("train", "--resume", "--folder", folder, "--on-bad-sampling", "ignore")
    assert FOUND in read(folder, "summary.json")["sampling"]


def test_a_run_of_two_epochs_says_that_it_is_too_short(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with pytest.warns(bf.SamplingWarning, match="may not be those of the posterior: the chain is too short"):
        succeed("train", *ATMC, "--epochs", "2", "--folder", folder)
    assert "too short" in read(folder, "summary.json")["sampling"]
    assert "the chain is too short" in " ".join(succeed("show", folder).stdout.split())
