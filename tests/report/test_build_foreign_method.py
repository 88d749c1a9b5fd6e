"""A method, a suite and a chapter from outside the package: trained, evaluated, stored and reported."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from cli_runs import DIGITS, succeed
from torch import nn

import bayesify as bf
from bayesify.data import Loader, load
from bayesify.families import FAMILIES
from bayesify.methods import METHODS, Method, method_class
from bayesify.posteriors import Factorized
from bayesify.report import SECTIONS, Report, Row, Section
from bayesify.report.build import PAPERS
from bayesify.report.comparison import comparison
from bayesify.studies.suites import SUITES, Evaluation, Outcome, Subject, Unsuitable, run_suites

DATA = load("digits")


@dataclass(frozen=True)
class LaplaceNoise(Method):
    """q(w) a Laplace distribution around every weight."""

    name = "laplace_noise"
    about = "a Laplace distribution around every weight"
    paper = "A. Nonymous: Heavy Tails for <Every> Weight. 2026."

    init_std: float = 0.05

    def posterior(self, net: nn.Module, selection: Any, example: Any) -> Factorized:
        return Factorized(net, selection, FAMILIES["laplace"], bf.prior("normal"), init_std=self.init_std)

    @classmethod
    def report_sections(cls, rows: Sequence[Row]) -> list[Section]:
        table = comparison(rows, "widths", ["median_width"], "Widths of the weights")
        return [Section("Heavy tails", ["How wide the weights are.", table])]


def widths(subject: Subject) -> Outcome:
    """The median standard deviation of the weights."""
    posterior = subject.module.posterior
    if not isinstance(posterior, Factorized):
        raise Unsuitable("suite 'widths' is for a distribution of each weight: use it on laplace_noise")
    stds = [q.variance.sqrt().flatten() for q in posterior.distributions(list(posterior.slots)).values()]
    return Outcome({"median_width": float(torch.cat(stds).detach().median())})


def sizes_section(rows: Sequence[Row]) -> Section | None:
    """How many examples the evaluation saw."""
    return Section("Sizes", [comparison(rows, "calibration", ["num_data"], "Sizes")])


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METHODS, "laplace_noise", LaplaceNoise)
    monkeypatch.setitem(SUITES, "widths", widths)
    monkeypatch.setitem(SECTIONS, "sizes", sizes_section)


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))


def evaluated(model: bf.BayesianModule, label: str) -> Evaluation:
    subject = Subject(model, DATA.test, DATA.normalisation, num_draws=4)
    outcomes = run_suites(subject, ["calibration", "widths"], left_out=lambda _: None)
    return Evaluation(label, model.method.name, {"seed": 0}, outcomes)


def titles(page: str) -> list[str]:
    return re.findall(r"<h2>([^<]+)</h2>", page)


@pytest.mark.usefixtures("registered")
def test_from_training_to_the_report(tmp_path: Path) -> None:
    model = bf.bayesify(net(), LaplaceNoise(init_std=0.02), num_data=len(DATA.train))
    loader = Loader(DATA.train, 64, shuffle=True, normalise=DATA.normalisation)
    bf.fit(model, loader, epochs=2, lr=0.01, progress=False, accelerator="cpu")
    test = Loader(DATA.test, 64, normalise=DATA.normalisation)
    found = bf.evaluate(model, test, generator=torch.Generator().manual_seed(0))
    assert found["accuracy"] > 0.5
    bf.save(model, tmp_path / "m.safetensors")
    loaded = bf.load(tmp_path / "m.safetensors", net())
    assert loaded.method.options() == LaplaceNoise(init_std=0.02).options()
    assert bf.evaluate(loaded, test, generator=torch.Generator().manual_seed(0)) == pytest.approx(found)

    plain = bf.bayesify(net(), "point")
    page = Report([evaluated(loaded, "tails"), evaluated(plain, "plain")]).page().html()
    assert titles(page) == [
        "Results",
        "Calibration",
        "Examples",
        "Sizes",
        "Widths",
        "Heavy tails",
        "Runs",
        "To cite",
    ]
    assert "<li>A. Nonymous: Heavy Tails for &lt;Every&gt; Weight. 2026.</li>" in page
    own = page[page.index('id="heavy-tails"') : page.index('id="runs"')]
    assert re.findall(r'<th scope="row">([^<]+)</th>', own) == ["tails"]  # its own rows only


@pytest.mark.usefixtures("registered")
def test_the_command_line(tmp_path: Path) -> None:
    run, page = tmp_path / "run", tmp_path / "report.html"
    options = [word if word != "mc_vi" else "laplace_noise" for word in DIGITS]
    succeed("train", *options, "--set", "method.init_std=0.03", "--folder", run)
    assert "median_width" in succeed("evaluate", run, "--suite", "calibration,widths").stdout
    assert "a Laplace distribution around every weight" in succeed("show", "methods").stdout
    succeed("report", run, "--page", page)
    text = page.read_text(encoding="utf-8")
    assert {"Heavy tails", "Widths", "Sizes", "To cite"} <= set(titles(text))
    assert "A. Nonymous" in text


def test_a_method_that_is_not_registered_here_has_no_paper_and_no_chapter() -> None:
    assert method_class("laplace_noise") is Method
    outcomes = {"widths": Outcome({"median_width": 0.1})}
    page = Report([Evaluation("run", "laplace_noise", {}, outcomes)]).page().html()
    assert titles(page) == ["Results"]


def test_every_method_but_the_plain_network_has_a_paper() -> None:
    papers = {name: method_class(name).paper for name in METHODS}
    assert [name for name, paper in papers.items() if not paper] == ["point"]
    assert papers["emp"] == papers["ecmp"]
    assert all(
        re.search(r"\b(19|20)\d\d\.$|Anonymous authors\.$", p)
        for p in [*papers.values(), *PAPERS.values()]
        if p
    )
    assert [name for name in METHODS if method_class(name).is_reference] == ["point"]
