"""The package: a light import, names that are loaded when asked for, what `pip` is told."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import bayesify as bf

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def python(code: str) -> str:
    """What a fresh interpreter prints."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def name_of(requirement: str) -> str:
    """ "torch>=2.11" -> "torch"."""
    found = re.match(r"[\w.-]+", requirement)
    assert found is not None
    return found.group()


def test_importing_loads_nothing_but_the_core() -> None:
    """Beside torch, numpy and safetensors only modules of Python itself; torch's compiler is not loaded either."""
    code = """
import sys, numpy, torch, safetensors.torch
before = set(sys.modules)
import bayesify
new = {name.partition(".")[0] for name in set(sys.modules) - before}
print(sorted(new - set(sys.stdlib_module_names)), "torch._dynamo" in sys.modules)
"""
    found, compiler = python(code).rsplit(" ", 1)
    assert set(ast.literal_eval(found)) <= {"bayesify", *map(name_of, PROJECT["dependencies"])}
    assert compiler == "False"


def test_rooms_are_loaded_when_they_are_asked_for() -> None:
    """Each by itself: none is there before, and all are afterwards."""
    code = """
import sys, bayesify as bf
early = [name for name, path in bf.LATER.items() if path in sys.modules]
late = [name for name, path in bf.LATER.items() if getattr(bf, name) is not sys.modules[path]]
print(early, late)
"""
    assert python(code) == "[] []"


def test_every_public_name_is_there_and_listed() -> None:
    assert all(hasattr(bf, name) for name in bf.__all__)
    assert set(bf.LATER) <= set(bf.__all__) <= set(dir(bf))
    assert {"metrics", "corruptions", "explain", "suites", "report", "data", "nets"} <= set(bf.__all__)
    with pytest.raises(AttributeError, match="module 'bayesify' has no attribute 'nests'"):
        _ = bf.nests  # type: ignore[attr-defined]


def test_dependencies_are_imported_somewhere() -> None:
    """Every dependency of the package and of `all` stands in an import of the source."""
    imported = {"scikit-learn": "sklearn", "pillow": "PIL", "lightning-fabric": "lightning_fabric"}
    source = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    for requirement in [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["all"]]:
        module = imported.get(name_of(requirement), name_of(requirement))
        assert re.search(rf'(import |from |import_optional\("){module}\b', source), requirement


def test_type_checkers_see_the_package() -> None:
    assert (Path(bf.__file__).parent / "py.typed").is_file()
    assert "Typing :: Typed" in PROJECT["classifiers"]
