"""Every recipe of CONTRIBUTING, as it stands there: what it adds from outside is used from training to the report."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from cli_runs import read, succeed
from torch import nn

import bayesify as bf
from bayesify.moments import FORMS

TEXT = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")
#: heading of a recipe -> its code
RECIPES = {
    section.partition("\n")[0]: section.partition("```python\n")[2].partition("```")[0]
    for section in TEXT.partition("## Adding things")[2].partition("\n## ")[0].split("\n### ")[1:]
}
SMALL = ("--method", "mc_vi", "--net", "mlp", "--data", "two_moons")


@pytest.fixture(autouse=True)
def _tables_as_before() -> Iterator[None]:
    """What a recipe registers is gone after its test."""
    tables: list[dict[Any, Any]] = [
        bf.nets.NETS, bf.data.DATA, bf.samplers.SAMPLERS, bf.methods.METHODS, *FORMS.values(),
    ]  # fmt: skip
    copies = [dict(table) for table in tables]
    yield
    for table, copy in zip(tables, copies, strict=True):
        table.clear()
        table.update(copy)


def follow(recipe: str) -> dict[str, Any]:
    """Run a recipe; what it defined."""
    namespace: dict[str, Any] = {"__name__": "recipe"}
    exec(compile(RECIPES[recipe], f"CONTRIBUTING.md, {recipe}", "exec", dont_inherit=True), namespace)
    return namespace


def live(folder: Path, *flags: str, suite: str = "calibration") -> dict[str, Any]:
    """Train, save, load, evaluate and report by the command line; the numbers of the suite."""
    succeed("train", *SMALL, *flags, "--epochs", "2", "--folder", folder)
    succeed("evaluate", folder, "--suite", suite, "--num-draws", "3")
    succeed("report", folder, "--page", folder / "report.html")
    assert "<html" in (folder / "report.html").read_text(encoding="utf-8")
    return read(folder, "evaluation.json")["metrics"][suite]


def test_every_recipe_is_followed_here() -> None:
    source = Path(__file__).read_text(encoding="utf-8")
    assert {name for name, code in RECIPES.items() if code} == set(re.findall(r'follow\("(.*?)"\)', source))


def test_a_net(tmp_path: Path) -> None:
    build = follow("A net")["two_layers"]
    assert live(tmp_path, "--net", "two_layers", "--set", "net.width=4")["accuracy"] > 0
    loaded = bf.load(tmp_path / "model.safetensors", build(2, (2,), width=4))
    assert loaded.predict(torch.zeros(3, 2)).probs.shape == (3, 2)


def test_a_data_set(tmp_path: Path) -> None:
    follow("A data set")
    assert live(tmp_path, "--data", "rings", "--set", "data.noise=0.05")["num_data"] == 100
    assert len(bf.data.load("rings").train) == 200


def test_a_moment_rule(tmp_path: Path) -> None:
    """In a network with that operation: density propagation refused it before, and is as drawing now."""

    class Net(nn.Sequential):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self[1](torch.lgamma(2 + self[0](x).tanh()))

    net, x, y = Net(nn.Linear(3, 8), nn.Linear(8, 2)), torch.randn(20, 3), torch.arange(20) % 2
    model = bf.bayesify(net, "vdp", num_data=20)
    with pytest.raises(NotImplementedError, match="lgamma"):
        model(x)
    follow("A moment rule")
    with torch.no_grad():
        exact = torch.stack([model.draw()(x) for _ in range(400)])
        torch.testing.assert_close(model(x).mean, exact.mean(0), atol=0.05, rtol=0.05)
    bf.fit(model, [(x, y)], epochs=2, folder=tmp_path, progress=False)
    loaded = bf.load(tmp_path / "model.safetensors", Net(nn.Linear(3, 8), nn.Linear(8, 2)))
    assert bf.evaluate(loaded, [(x, y)])["nll"] > 0


def test_a_sampler(tmp_path: Path) -> None:
    follow("A sampler")
    chain = (
        "--method",
        "atmc",
        "--set",
        "method.sampler=clipped_langevin",
        "--set",
        "method.settings.bound=10.0",
    )
    assert live(tmp_path, *chain, "--set", "method.burn_in=1")["nll"] > 0
    model = bf.bayesify(nn.Linear(2, 2), bf.ThermostatMCMC(sampler="clipped_langevin"), num_data=50)
    assert type(model.optimizer()).__name__ == "ClippedLangevin"


def test_a_method(tmp_path: Path) -> None:
    follow("A method")
    assert live(tmp_path, "--method", "last_layer", "--set", "method.prior_std=0.5")["nll"] > 0
    assert "last_layer" in (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "last_layer" in succeed("show", "methods").stdout
