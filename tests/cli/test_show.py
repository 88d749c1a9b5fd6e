"""`bayesify show`, help pages, the version and shell completion."""

from pathlib import Path

import pytest
from cli_runs import DIGITS, fail, invoke, read, start, succeed
from typer.testing import CliRunner

import bayesify
from bayesify.cli.app import app
from bayesify.cli.show import REGISTRIES, about, meanings, options_of, registry

COMMANDS = ("demo", "train", "evaluate", "report", "predict", "show")


@pytest.mark.parametrize("what", REGISTRIES)
def test_every_registry_is_listed_with_a_line_each(what: str) -> None:
    result = succeed("show", what)
    for name, entry in registry(what).items():
        assert name in result.stdout
        assert about(entry).strip(), f"{what} {name} says nothing about itself"
    assert max(map(len, result.stdout.splitlines())) <= 80


def test_methods_of_one_class_are_told_apart() -> None:
    lines = " ".join(succeed("show", "methods").stdout.split())
    assert "each patched layer (emp) or weight (ecmp)" in lines


def test_the_families_say_what_becomes_of_signs() -> None:
    text = " ".join(succeed("show", "families").stdout.split())
    assert "each weight keeps the sign of its initial value as a constant" in text
    assert "They are log_normal, exp_gamma, exponential" in text


def test_the_options_of_one_entry() -> None:
    method = succeed("show", "methods", "mc_vi").stdout
    assert "init_std" in method
    assert "0.05" in method
    assert "--set method.OPTION=VALUE" in method
    assert "starting std as a fraction" in " ".join(method.split())
    assert "tempering of the KL" in " ".join(method.split())  # of all methods
    assert "hidden" in succeed("show", "nets", "mlp").stdout
    assert "noise_std" in succeed("show", "data", "two_moons").stdout
    assert "It has no options." in succeed("show", "data", "digits").stdout
    assert "learn_std" in succeed("show", "likelihoods", "normal").stdout
    assert "Did you mean 'mc_vi'?" in fail("show", "methods", "mcvi")


@pytest.mark.parametrize("what", ["methods", "nets", "data", "priors", "likelihoods", "samplers"])
def test_every_option_has_a_meaning(what: str) -> None:
    for name, entry in registry(what).items():
        lacking = set(options_of(entry)) - set(meanings(entry))
        assert not lacking, f"{what} {name}: the docstring lacks lines NAME: MEANING for {lacking}"


def test_a_run(digits: Path) -> None:
    text = succeed("show", digits).stdout
    for part in ("mc_vi", "hidden=[16]", "digits", "val_accuracy", "share of right answers", "compile: off"):
        assert part in text
    test = read(digits, "summary.json")["test"]
    assert f"{100 * test['accuracy']:.2f} %" in text
    assert max(map(len, text.splitlines())) <= 80


def test_a_run_that_is_not_finished(digits: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text((digits / "config.json").read_text())
    text = succeed("show", tmp_path).stdout
    assert "No epoch is finished yet." in text
    assert "bayesify train --resume" in text
    (tmp_path / "summary.json").write_text("{")
    assert "summary.json is damaged" in fail("show", tmp_path)


def test_a_word_that_is_neither() -> None:
    assert "Did you mean 'methods'?" in fail("show", "method")


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example_and_defaults(command: str) -> None:
    text = " ".join(succeed(command, "--help").stdout.split())
    assert "Example" in text
    assert f"bayesify {command}" in text
    if command != "show":
        assert "[default:" in text


def test_help_of_the_whole() -> None:
    text = succeed("--help").stdout
    assert all(command in text for command in COMMANDS)
    assert "--install-completion" in text
    bare = invoke()
    assert bare.exit_code == 2
    assert "train" in bare.output


def test_version() -> None:
    assert succeed("--version").stdout.strip() == f"bayesify {bayesify.__version__}"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("bayesify tr", "train"),
        ("bayesify train --meth", "--method"),
        ("bayesify train --method mc", "mc_vi"),
        ("bayesify train --net lenet_", "lenet_small"),
        ("bayesify show prio", "priors"),
    ],
)
def test_shell_completion(words: str, expected: str) -> None:
    env = {
        "_BAYESIFY_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split()) - 1),
    }
    assert expected in CliRunner().invoke(app, env=env).stdout.split()


def test_plain_output_without_a_terminal(digits: Path) -> None:
    result = CliRunner().invoke(app, ["evaluate", str(digits)], env={"COLUMNS": None})
    assert "\x1b" not in result.output
    assert "\x1b" not in CliRunner().invoke(app, ["train", *DIGITS, "--net", "lenett"]).output


def test_python_m_bayesify_is_the_command() -> None:
    process = start("--version")
    assert process.communicate(timeout=60)[0] == f"bayesify {bayesify.__version__}\n"
    assert process.returncode == 0
