"""The map of the house: the design page names every room, and imports go the way it says."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "bayesify"
PAGE = (ROOT / "docs" / "design" / "rooms.md").read_text(encoding="utf-8")
ENTRANCES = {"__init__", "__main__"}  # what they import is the whole package


def rooms() -> set[str]:
    """Folders and single modules at the top of the package."""
    found = {
        path.stem for path in SOURCE.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()
    }
    return found - ENTRANCES


def height() -> dict[str, int]:
    """Room -> line of the picture, counted from the top."""
    picture = re.search(r"^```\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert picture is not None
    return {room: i for i, line in enumerate(picture.group(1).splitlines()) for room in line.split()}


def imports() -> Iterator[tuple[Path, str, str]]:
    """(file, its room, a room it imports from), imports inside of functions too."""
    for path in SOURCE.rglob("*.py"):
        here = path.relative_to(SOURCE).with_suffix("").parts[0]
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names: list[str] = []
            if isinstance(node, ast.ImportFrom) and node.module == "bayesify":
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("bayesify."):
                names = [str(node.module).split(".")[1]]
            elif isinstance(node, ast.Import):
                names = [
                    alias.name.split(".")[1] for alias in node.names if alias.name.startswith("bayesify.")
                ]
            yield from ((path, here, there) for there in names if there != here and there in rooms())


def test_the_page_names_every_room() -> None:
    assert set(height()) == rooms()
    table = PAGE.partition("## Imports")[0]
    assert {name.removesuffix("/").removesuffix(".py") for name in re.findall(r"^\| (.*?) \|", table, re.MULTILINE)
            for name in re.findall(r"`([\w/.]+)`", name)} == rooms()  # fmt: skip


def test_imports_go_downwards() -> None:
    level = height()
    upwards = {
        f"{path.relative_to(SOURCE)} imports {there}"
        for path, here, there in imports()
        if here not in ENTRANCES and level[here] >= level[there]
    }
    assert not upwards, sorted(upwards)


def test_only_the_command_line_imports_the_whole_package() -> None:
    """`import bayesify as bf` inside of a room would be a way around the picture."""
    whole = [
        path.relative_to(SOURCE).parts[0]
        for path in SOURCE.rglob("*.py")
        if re.search(r"^\s*import bayesify( as bf)?$", path.read_text(encoding="utf-8"), re.MULTILINE)
    ]
    assert set(whole) <= {"cli"}
