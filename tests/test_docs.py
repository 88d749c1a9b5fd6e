"""What the documents show runs: Python blocks, command lines, links and tables."""

import re
import shlex
import socket
from pathlib import Path

import pytest
import torch
import typer
from zoo import ZOO

from bayesify import torch_internals
from bayesify.methods import METHODS

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
TEXTS = [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(path: Path, kind: str) -> list[tuple[int, str]]:
    """(line number, content) of the fenced blocks of one kind."""
    text = path.read_text(encoding="utf-8")
    return [
        (text.count("\n", 0, m.start()) + 1, m.group(2)) for m in FENCE.finditer(text) if m.group(1) == kind
    ]


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", [page for page in PAGES if blocks(page, "python")], ids=name_of)
def test_python_blocks_run_in_order(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All blocks of a page in one namespace, in an empty folder, as the only process of a torchrun."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    for name, value in {"RANK": 0, "WORLD_SIZE": 1, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": path.stem}
    try:
        for line, block in blocks(path, "python"):
            exec(compile("\n" * line + block, str(path), "exec"), namespace)  # errors name the page's line
    finally:
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()


def command_lines() -> list[tuple[str, list[str]]]:
    """(where, words after `bayesify`) of every command in an unmarked block."""
    found = []
    for path in PAGES:
        for line, block in blocks(path, ""):
            for command in block.replace("\\\n", " ").splitlines():
                _, called, rest = command.partition("bayesify.cli ")
                if not called and command.startswith("bayesify "):
                    called, rest = "bayesify", command.removeprefix("bayesify ")
                if called:
                    found.append((f"{name_of(path)}:{line}", shlex.split(rest)))
    return found


@pytest.mark.parametrize(("where", "words"), command_lines())
def test_commands_have_real_options(where: str, words: list[str]) -> None:
    from bayesify.cli.app import app

    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    known = {option for p in commands[words[0]].params for option in (*p.opts, *p.secondary_opts)}
    flags = [word for word in words if word.startswith("--")]
    assert set(flags) <= known, f"{where}: {set(flags) - known}"


@pytest.mark.parametrize("path", TEXTS, ids=name_of)
def test_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", path.read_text(encoding="utf-8")):
        if target.startswith("http"):
            continue
        file, _, anchor = target.partition("#")
        page = path.parent / file if file else path
        assert page.is_file(), f"{name_of(path)} links to {target}"
        if anchor:
            headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}, target


@pytest.mark.parametrize("path", [page for page in TEXTS if page.name != "CHANGELOG.md"], ids=name_of)
def test_files_that_are_named_exist(path: Path) -> None:
    """`room/file.py` from the root, from the package, or by the end of its path; so too folders, `room/`."""
    folders = ("src", "tests", "benchmarks", "examples")
    known = [f"/{name_of(found)}" for folder in folders for found in (ROOT / folder).rglob("*")]
    named = re.findall(r"`(?:[\w]+ )?((?:[\w]+/)*[\w]+(?:\.py|/))`", path.read_text(encoding="utf-8"))
    missing = [name for name in named if not any(end.endswith(f"/{name.rstrip('/')}") for end in known)]
    assert not missing


def test_every_private_part_of_torch_is_listed() -> None:
    page = (ROOT / "docs" / "design" / "torch_versions.md").read_text(encoding="utf-8")
    missing = [path for path in torch_internals.INTERNALS if f"`{path}`" not in page]
    assert not missing


def test_the_readme_lists_every_method_every_example_and_the_whole_zoo() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `(\w+)` \| `bf\.", readme, re.MULTILINE)) == set(METHODS)
    examples = {f"examples/{path.name}" for path in (ROOT / "examples").glob("*.py")}
    assert set(re.findall(r"examples/\w+\.py", readme)) == examples
    table = readme.partition("| from | networks |")[2].partition("\n\n")[0]
    rows = [row.split("|")[2] for row in table.splitlines() if "·" in row]
    assert {name.strip() for row in rows for name in row.split("·")} == set(ZOO)
