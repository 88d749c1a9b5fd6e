"""Every recipe of CONTRIBUTING, as it stands there: what it adds from outside is used from training to the report."""

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import typer
from cli_runs import read, succeed
from scipy import stats
from torch import nn
from typer.testing import CliRunner

import bayesify as bf
from bayesify.cli.flags import with_flags
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
        bf.nets.NETS, bf.data.DATA, bf.families.FAMILIES, bf.priors.PRIORS, bf.likelihoods.LIKELIHOODS,
        bf.samplers.SAMPLERS, bf.methods.METHODS, bf.metrics.METRICS, bf.suites.SUITES, bf.report.SECTIONS,
        *FORMS.values(),
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
    assert type(model.optimizer(num_steps=None)).__name__ == "ClippedLangevin"


def test_a_law_its_family_and_its_prior(tmp_path: Path) -> None:
    """Both densities beside scipy's; the scale of the family by its variance, 5/3 scale²."""
    follow("A law, its family and its prior")
    flags = ("--set", "method.family=student_t5", "--set", "method.prior=student_t5")
    assert live(tmp_path, *flags)["nll"] > 0
    q, w = bf.family("student_t5", torch.zeros(4)), torch.linspace(-3, 3, 4)
    scale = (3 / 5 * q.variance[0].item()) ** 0.5
    expected = torch.tensor(stats.t(5, scale=scale).logpdf(w.numpy()), dtype=torch.float32)
    torch.testing.assert_close(q.log_prob(w), expected, rtol=1e-4, atol=1e-4)
    assert bf.prior("student_t5").log_prob(w)[0].item() == pytest.approx(stats.t(5).logpdf(-3), rel=1e-5)
    assert bf.kl(q, bf.prior("normal")) > 0


def test_a_prior_by_its_density(tmp_path: Path) -> None:
    follow("A prior by its density")
    assert live(tmp_path, "--set", "method.prior=sech")["nll"] > 0
    w = torch.linspace(-3, 3, 7, dtype=torch.float64)
    torch.testing.assert_close(
        bf.prior("sech").log_prob(w), torch.tensor(stats.hypsecant(scale=2 / torch.pi).logpdf(w.numpy()))
    )
    model = bf.bayesify(nn.Linear(2, 2), bf.MonteCarloVI(prior=bf.prior("sech", scale=0.5)), num_data=9)
    bf.save(model, tmp_path / "sech.safetensors")
    assert bf.load(tmp_path / "sech.safetensors", nn.Linear(2, 2)).method.options() == model.method.options()


def test_a_likelihood(tmp_path: Path) -> None:
    likelihood = follow("A likelihood")["LaplaceNoise"]
    flags = ("--data", "regression_gap", "--set", "likelihood.name=laplace_noise")
    assert math.isfinite(live(tmp_path, *flags, "--set", "likelihood.scale=0.5")["nll"])
    model = bf.bayesify(nn.Linear(3, 1), "mc_vi", likelihood(0.5), num_data=20)
    x, y = torch.randn(20, 3), torch.randn(20, 1)
    prediction = model.predict(x, mode="deterministic")
    exact = stats.laplace(prediction.mean, 0.5).logpdf(y)[:, 0]
    assert prediction.log_prob(y).numpy() == pytest.approx(exact, rel=1e-4)
    bf.save(model, tmp_path / "laplace.safetensors")
    del bf.likelihoods.LIKELIHOODS["laplace_noise"]  # one that is not registered is given by hand
    loaded = bf.load(tmp_path / "laplace.safetensors", nn.Linear(3, 1), likelihood=likelihood(0.5))
    assert loaded.loss(x, y).total.isfinite()


def test_a_metric(tmp_path: Path) -> None:
    follow("A metric")
    assert 0 <= live(tmp_path)["worst_class"] <= 1
    assert "worst_class" in (tmp_path / "report.html").read_text(encoding="utf-8")
    model, x = bf.bayesify(nn.Linear(2, 2), "point"), torch.randn(30, 2)
    label = model.predict(x).label
    assert bf.evaluate(model, [(x, label)])["worst_class"] == 1
    assert bf.evaluate(model, [(x, 1 - label)])["worst_class"] == 0


def test_a_suite(tmp_path: Path) -> None:
    follow("A suite")
    assert set(live(tmp_path, suite="few_draws")) == {"one_draw_nll", "all_draws_nll"}
    assert "one draw nll" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_a_section_of_the_report(tmp_path: Path) -> None:
    follow("A section of the report")
    live(tmp_path)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "How sure they are" in page
    assert "% sure on average." in page


def test_a_method(tmp_path: Path) -> None:
    follow("A method")
    assert live(tmp_path, "--method", "last_layer", "--set", "method.prior_std=0.5")["nll"] > 0
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "last_layer" in page
    assert "Scalable Bayesian Optimization" in page
    assert "last_layer" in succeed("show", "methods").stdout


def test_a_training_option(tmp_path: Path) -> None:
    """A command with one more flag, which trains, stores what it was told and refuses what is out of range."""
    table = follow("A training option")["WithSmoothing"]
    app, told = typer.Typer(), []

    @app.command()
    @with_flags(table)
    def train(**options: Any) -> None:
        told.append(table.of({name: value for name, value in options.items() if value is not None}))
        model = bf.bayesify(nn.Linear(2, 2), "mc_vi", num_data=8)
        bf.fit(model, [(torch.randn(8, 2), torch.zeros(8).long())], folder=tmp_path, **told[0].for_fit())

    assert CliRunner().invoke(app, ["--smoothing", "0.1", "--epochs", "1"]).exit_code == 0
    assert told[0].smoothing == 0.1
    assert bf.load(tmp_path / "model.safetensors", nn.Linear(2, 2)).num_data == 8
    refused = CliRunner().invoke(app, ["--smoothing", "1"])
    assert refused.exit_code == 2
    assert "smoothing=1.0 must be a number" in refused.stderr


@pytest.mark.parametrize(
    ("registry", "entry", "kind"),
    [
        (bf.samplers.SAMPLERS, torch.optim.SGD, "Sampler"),
        (bf.families.FAMILIES, 3, "Family"),
        (bf.priors.PRIORS, bf.prior("normal"), "Prior"),
        (bf.likelihoods.LIKELIHOODS, nn.Linear, "Likelihood"),
    ],
)
def test_what_is_of_another_kind_is_not_registered(registry: Any, entry: Any, kind: str) -> None:
    with pytest.raises(TypeError, match=rf"'own': .* must be a subclass of <class '.*\.{kind}'>"):
        registry["own"] = entry
    assert "own" not in registry
