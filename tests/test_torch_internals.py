"""What torch may take away: bayesify is imported without it, and what takes its place does what it says."""

import ast
import importlib.util
import pkgutil
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bayesify as bf
from bayesify import torch_internals as internals

SOURCE = Path(internals.__file__).parent
HOME = Path(internals.__file__)
MODULE_TABLES = {
    "_parameters",
    "_buffers",
    "_modules",
    "_forward_hooks",
    "_forward_pre_hooks",
}  # of nn.Module
OF_TENSORS = {"_base", "_version", "_cdata", "_is_view", "_dynamo_marked_constant"}


def private_in(path: Path) -> Iterator[str]:
    """Imports of torch's private names, attributes of torch, nn, F and Tensor that start with an underscore, and the
    deprecated torch.jit."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = ""
        if isinstance(node, ast.Import):
            names = " ".join(a.name for a in node.names if a.name.startswith("torch"))
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "torch":
            names = f"{node.module}." + " .".join(alias.name for alias in node.names)
        elif isinstance(node, ast.Attribute):
            chain = ast.unparse(node)
            rooted = re.fullmatch(r"(torch|nn|F|Tensor)(\.\w+)+", chain)
            names = chain if rooted else node.attr if node.attr in OF_TENSORS else ""
        parts = names.replace(" ", ".").split(".")
        private = (
            p for p in parts if p.startswith("_") and not p.startswith("__") and p not in MODULE_TABLES
        )
        if any(private) or "jit" in parts:
            yield f"{path.relative_to(SOURCE)}: {names}"


def test_private_torch_stands_in_one_module() -> None:
    found = [each for path in SOURCE.rglob("*.py") if path != HOME for each in private_in(path)]
    assert found == []


def test_the_look_at_the_source_finds_what_it_should(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "SOURCE", tmp_path)
    lines = (
        "import torch._dynamo",
        "from torch.utils import _pytree",
        "torch._C.x()",
        "nn.a._B",
        "t._base",
        "q._own",
    )
    (tmp_path / "a.py").write_text("\n".join(lines))
    assert (
        len({each.partition(": ")[2] for each in private_in(tmp_path / "a.py")}) == 6
    )  # torch._C, torch._C.x


def without(*paths: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module, as a torch that lacks `paths` would make it."""
    resolve = pkgutil.resolve_name

    def resolved(path: str) -> Any:
        if path in paths:
            raise AttributeError(path)
        return resolve(path)

    monkeypatch.setattr(pkgutil, "resolve_name", resolved)
    spec = importlib.util.spec_from_file_location("bayesify_without", HOME)
    assert spec is not None and spec.loader is not None
    module: ModuleType = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def name_of(path: str, module: Any) -> str:
    """Under which name the module gives it."""
    mine = path.rpartition(".")[2].lstrip("_")
    others = {
        "_amp_foreach_non_finite_check_and_unscale_": "non_finite_check",
        "_jit_get_schemas_for_operator": "operator_schemas",
        "torch.Tensor._base": "base_of",
        "torch.Tensor._version": "version_of",
        "torch._functorch.config": "functorch_config",
    }
    mine = others.get(path, others.get(path.rpartition(".")[2], mine))
    assert hasattr(module, mine)
    return mine


@pytest.mark.parametrize("path", [path for path in internals.INTERNALS if path != "torch._dynamo.config"])
def test_each_may_be_gone(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has another way, or says what is missing, why it is needed and what to do."""
    torch_has_it = not isinstance(getattr(internals, name_of(path, internals)), internals.Missing)
    assert torch_has_it  # else this torch has lost it: a new way, or a line for the design pages
    module = without(path, monkeypatch=monkeypatch)
    found = getattr(module, name_of(path, module))
    if not isinstance(found, module.Missing):
        assert found is not getattr(internals, name_of(path, internals))
        return
    assert not found
    assert getattr(found, "anything", "nothing") == "nothing"
    with pytest.raises(module.MissingInternalError) as error:
        found()
    entry = module.INTERNALS[path]
    for part in (f"torch {torch.__version__} has no {path}", entry.purpose, entry.lost, "2.13"):
        assert part in str(error.value)


FOREACH: dict[str, tuple[Any, ...]] = {
    "add_": ("a", "b"),
    "copy_": ("a", "b"),
    "lerp_": ("a", "b", 0.3),
    "mul": ("a", 2.0),
    "mul_": ("a", "b"),
    "div": ("a", 3.0),
    "sub": ("a", "b"),
    "sub_": ("a", 1.0),
    "addcmul": ("a", "b", "b"),
    "exp": ("a",),
    "norm": ("a", torch.inf),
}


@pytest.mark.parametrize("name", FOREACH)
def test_lists_of_tensors_one_by_one(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = without(f"torch._foreach_{name}", monkeypatch=monkeypatch)

    def called(function: Callable[..., Any]) -> Any:
        lists = {key: [torch.arange(n) + n / 7.0 for n in (3, 5)] for key in "ab"}
        result = function(
            *(lists.get(part, part) if isinstance(part, str) else part for part in FOREACH[name])
        )
        return lists["a"] if name.endswith("_") else list(result)

    torch.testing.assert_close(
        called(getattr(module, f"foreach_{name}")), called(getattr(torch, f"_foreach_{name}"))
    )


@pytest.mark.parametrize(("value", "bad"), [(1.0, False), (torch.nan, True), (-torch.inf, True)])
def test_gradients_that_are_not_finite(value: float, bad: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    module = without("torch._amp_foreach_non_finite_check_and_unscale_", monkeypatch=monkeypatch)
    found = torch.zeros(())
    module.non_finite_check([torch.ones(2), torch.tensor([0.0, value])], found, torch.ones(()))
    assert found.ne(0).item() == bad


def test_layers_are_known_by_torchs_own(monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [path for path in internals.INTERNALS if path.startswith("torch.nn")]
    module = without(*paths, monkeypatch=monkeypatch)
    for name, layer in {
        "BatchNorm": nn.BatchNorm2d(2),
        "NormBase": nn.InstanceNorm1d(2),
        "InstanceNorm": nn.InstanceNorm3d(2),
        "DropoutNd": nn.Dropout2d(),
    }.items():
        assert isinstance(layer, getattr(module, name))
        assert isinstance(layer, getattr(internals, name))
        assert not isinstance(nn.Linear(1, 1), getattr(module, name))


def test_checkpointing_is_refused_without_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch.utils.checkpoint import checkpoint

    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.saving = nn.Linear(3, 3), False

        def forward(self, x: Tensor) -> Any:
            return checkpoint(self.inner, x, use_reentrant=False) if self.saving else self.inner(x)

    monkeypatch.setattr(internals, "current_graph_task_id", internals.Missing("gone"))
    model = bf.bayesify(Checkpointed(), bf.MonteCarloVI())
    x = torch.ones(2, 3, requires_grad=True)
    model(x).sum().backward()
    model.net.saving = True  # after the first call, which is watched
    output = model(x)
    with pytest.raises(RuntimeError, match="activation checkpointing"):
        output.sum().backward()


def test_the_mark_is_still_torchs_own() -> None:
    """`constant_when_traced` does by hand what a public function of torch does."""

    def function() -> int:
        return 1

    marked = dict(vars(torch.compiler.assume_constant_result(lambda: 1)))
    assert vars(internals.constant_when_traced(function)) == marked


SCRIPT = """
import pkgutil, sys
import torch
resolve, gone = pkgutil.resolve_name, []

def resolved(path):
    if path.startswith("torch") and path not in KEPT:
        gone.append(path)
        raise AttributeError(path)
    return resolve(path)

pkgutil.resolve_name = resolved
import bayesify as bf
assert len(gone) > 25, gone
torch.manual_seed(0)
x, y = torch.randn(32, 4), torch.randint(3, (32,))
for method in METHODS:
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    model = bf.bayesify(net, method, num_data=32)
    bf.fit(model, [(x, y)] * 4, epochs=3, lr=1e-2, progress=False, accelerator="cpu")
    probs = model.predict(x, num_draws=4).probs
    assert torch.isfinite(probs).all() and probs.shape == (32, 3), method
"""


def test_methods_run_with_all_of_it_gone() -> None:
    """But for trees of tensors, which every batch goes through."""
    header = f"KEPT = {['torch.utils._pytree']!r}\nMETHODS = {['mc_vi', 'vdp', 'atmc', 'ecmp']!r}\n"
    done = subprocess.run(
        [sys.executable, "-c", header + SCRIPT], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr


def test_a_step_that_cannot_be_recorded_for_want_of_the_compilers_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from bayesify.engine.capture import CapturedGradients

    monkeypatch.setattr(internals, "lookup_backend", internals.Missing("gone"))
    model = bf.bayesify(nn.Linear(3, 2), bf.Point(), num_data=4)
    captured = CapturedGradients(model, torch.device("cpu"), backend="eager")

    def gradients(x: Any, y: Tensor) -> Any:
        return captured.compiled(x, target=y)

    assert captured(gradients, torch.ones(4, 3), torch.zeros(4, dtype=torch.long)) is None
    assert captured.refusal is not None
    assert "gone" in captured.refusal
    torch._dynamo.reset()
