"""Every expected error is one line on stderr and an exit code: 2 for bad input, 1 for a run that failed."""

import os
import re
import sys
from pathlib import Path

import pytest
from cli_runs import DIABETES, DIGITS, fail, invoke, read, start, succeed

from bayesify.cli import training
from bayesify.cli.errors import describe
from bayesify.engine.folder import RunFolder

NOWHERE = ("--folder", "never-made")


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--method", "mcvi"), "method='mcvi' does not exist; choose from .* Did you mean 'mc_vi'?"),
        (("--net", "lenett"), "net='lenett' does not exist; .* Did you mean 'lenet'?"),
        (("--data", "digit"), "data='digit' does not exist; .* Did you mean 'digits'?"),
        (("--likelihood", "normal"), "likelihood='normal' is for regression"),
        (("--likelihood", "categoric"), "Did you mean 'categorical'?"),
        (("--schedule", "cosin"), "Did you mean 'cosine'?"),
        (("--set", "method.init_stdd=1"), "Did you mean 'init_std'?"),
        (("--set", "method.family=norml"), "family='norml' does not exist.*Did you mean 'normal'?"),
        (("--set", "method.init_std=-1"), "init_std=-1 must be a number above 0, e.g. 0.05"),
        (("--set", "method.where=lineer"), "Did you mean 'linear'?"),
        (("--method", "deep_ensemble", "--set", "method.method=deep_ensemble"), "is an ensemble itself"),
        (("--set", "net.hiden=3"), "Did you mean 'hidden'?"),
        (
            ("--set", "net.hidden=abc"),
            "net.hidden=\\['abc'\\] must be a list of whole numbers of at least 1, e.g. \\(100, 100\\)",
        ),
        (("--set", "data.split=3"), "'digits' has no option split"),
        (("--set", "nonsense"), "must read TABLE.OPTION=VALUE"),
        (("--set", "train.epochs=0"), "train.epochs=0 must be a whole number of at least 1"),
        (("--epochs", "0"), "Invalid value for '--epochs'.*see .*train --help"),
        (("--epochs", "many"), "Invalid value for '--epochs'"),
        (("--epohcs", "3"), "No such option.*--epohcs.*--epochs"),
        (("--config", "gone.toml"), "--config gone.toml cannot be read: No such file"),
        (("--accelerator", "warp"), "device 'warp' cannot be used here"),
        (("--precision", "9-true"), "precision='9-true'"),
        (("--strategy", "magic"), "strategy='magic'"),
        (("--lr", "-1"), "Invalid value for '--lr': lr=-1.0 must be a number above 0"),
        (("--ema", "2"), "Invalid value for '--ema': ema=2.0 must be a number between 0 and 1 "),
        (("--clip-norm", "-1"), "Invalid value for '--clip-norm': clip_norm=-1.0 must be a number above 0 "),
        (("--clip-norm", "0"), "clip_norm=0.0 must be a number above 0"),
        (("--kl-warmup", "nan"), "kl_warmup=nan must be a number of at least 0"),
        (("--set", "method.kl_weight=-1"), "kl_weight=-1 must be a number of at least 0"),
        (
            ("--data", "two_moons", "--set", "data.num_train=big"),
            "data.num_train='big' must be a whole number of at least 2 and at most 1e.07, e.g. 200",
        ),
        (("--val-fraction", "0", "--patience", "2"), "--patience 2 needs a validation part"),
        (("--val-fraction", "0.9999"), "both parts need at least one example"),
        (("--net", "lenet"), "net='lenet': option='hidden' does not exist"),
        (("--net", "transformers:vitt"), "Did you mean 'vit'?"),
        (("--data-root", "gone"), "gone is not there: name the right one with --data-root"),
    ],
)
def test_bad_input(flags: tuple[str, ...], message: str) -> None:
    assert re.search(message, fail("train", *DIGITS, *NOWHERE, *flags))
    assert not Path("never-made/config.json").exists()


def test_a_network_too_large_for_the_data() -> None:
    flags = ("--method", "mc_vi", "--net", "lenet", "--data", "digits")
    assert re.search(r"\(1, 8, 8\).*16.*resize the images or choose net='mlp'", fail("train", *flags))


def test_what_is_missing() -> None:
    assert "--method is missing: `bayesify show methods`" in fail("train", "--net", "mlp", "--data", "digits")
    assert "--net is missing" in fail("train", "--method", "mc_vi", "--data", "digits")
    assert "--data is missing" in fail("train", "--method", "mc_vi", "--net", "mlp")
    assert "No such command 'trane'" in fail("trane")
    assert "Missing argument 'RUN'" in fail("evaluate")


def test_data_that_are_not_there(tmp_path: Path) -> None:
    message = fail("train", *DIGITS, "--data", "mnist")
    assert "no folder was given" in message
    assert "--data-root" in message
    message = fail("train", *DIGITS, "--data", "mnist", "--data-root", tmp_path)
    assert "train-images-idx3-ubyte" in message or "t10k-images-idx3-ubyte" in message


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    message = fail("train", *DIGITS, "--folder", tmp_path / "file" / "run")
    assert "cannot write to folder=" in message
    assert "Not a directory" in message


def test_a_read_only_folder(tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    if os.access(tmp_path, os.W_OK):
        pytest.skip("this user (root) may write everywhere")
    assert "Permission denied" in fail("train", *DIGITS, "--folder", tmp_path)


def test_a_folder_in_use(tmp_path: Path) -> None:
    with RunFolder(tmp_path, True, True):
        assert "another run is using" in fail("train", *DIGITS, "--folder", tmp_path)
    assert not (tmp_path / "config.json").exists()


def test_a_run_that_never_began_leaves_the_folder_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setitem(sys.modules, "torch.utils.tensorboard", None)
        assert "needs tensorboard" in fail("train", *DIGITS, "--folder", tmp_path, "--tensorboard")
    succeed("train", *DIGITS, "--folder", tmp_path)


def test_a_loss_that_is_not_finite(tmp_path: Path) -> None:
    message = fail("train", *DIABETES, "--folder", tmp_path, "--lr", "1e30", code=1)
    assert "finite" in message
    assert f"The run so far is in {tmp_path}" in message
    assert read(tmp_path)["train"]["lr"] == 1e30  # the failed run can be looked at


def test_a_test_that_fails_after_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(training, "evaluate", full)
    message = fail("train", *DIGITS, "--folder", tmp_path, code=1)
    assert message == "trained, but the test failed: No space left on device"
    monkeypatch.undo()
    succeed("train", "--resume", "--folder", tmp_path)  # only the test was missing


@pytest.mark.skipif(sys.platform == "win32", reason="needs setrlimit")
def test_a_full_disk(tmp_path: Path) -> None:
    import resource

    def small_disk() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (9_000, 9_000))

    process = start("train", *DIGITS, "--folder", tmp_path / "run", preexec_fn=small_disk)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 1, errors
    line = next(line for line in errors.splitlines() if line.startswith("error: "))
    assert "File too large" in line
    assert "Traceback" not in errors
    assert not list((tmp_path / "run").rglob("*.partial"))


def test_interrupted_outside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(training, "prepare", interrupt)
    assert invoke("train", *DIGITS, *NOWHERE).exit_code == 130


def test_debug_shows_the_traceback() -> None:
    result = invoke("train", *DIGITS, *NOWHERE, "--method", "mcvi", BAYESIFY_DEBUG="1")
    assert isinstance(result.exception, ValueError)
    assert "error: " not in result.stderr


def test_an_unexpected_error_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def bug(*_: object) -> None:
        raise KeyError("a bug")

    monkeypatch.setattr(training, "prepare", bug)
    assert isinstance(invoke("train", *DIGITS, *NOWHERE).exception, KeyError)


@pytest.mark.parametrize("command", ["evaluate", "show"])
def test_a_folder_that_is_no_run(command: str, tmp_path: Path) -> None:
    assert "holds no run of `bayesify train`" in fail(command, tmp_path)
    (tmp_path / "config.json").write_text("{")
    assert "config.json is damaged" in fail(command, tmp_path)
    (tmp_path / "config.json").write_text('{"bayesify_run": 99}')
    assert "written by a newer bayesify" in fail(command, tmp_path)


def test_a_message_is_not_longer_than_a_screen() -> None:
    """It may quote a list of a million numbers from a file."""
    text = describe(ValueError(f"probs={'0.5, ' * 10**6} must be probabilities"))
    assert len(text) < 5000 and text.startswith("probs=0.5") and text.endswith("must be probabilities")
