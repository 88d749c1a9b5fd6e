"""The page: sound HTML, nothing from outside, every chapter. test_report_browser.py opens it in a real browser."""

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from report_data import evaluation, several

from bayesify.report import Report
from bayesify.report.comparison import grouped
from bayesify.report.figures.style import COLOURS, lines
from bayesify.report.sections import series
from bayesify.studies.suites import Evaluation

VOID = {"meta", "link", "br", "img", "hr", "input"}


class Checked(HTMLParser):
    """Counts elements, and checks that each one is closed where it should be."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.ids: list[str] = []
        self.loads: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.seen.append(tag)
        self.ids += [str(found["id"])] if "id" in found else []
        self.loads += [str(found[key]) for key in ("src", "href", "xlink:href") if found.get(key)]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open, tag
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    Report(several(), "Three <ways>", ["zero", "one", "two", "three"]).write(path)
    return path


def test_it_is_sound_and_loads_nothing(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    checked = Checked()
    checked.feed(text)
    assert checked.open == []
    assert len(checked.ids) == len(set(checked.ids))
    assert all(link.startswith(("#", "data:")) for link in checked.loads), checked.loads
    assert all(link[1:] in checked.ids for link in checked.loads if link.startswith("#"))
    assert "default-src 'none'" in text
    assert "@import" not in text
    outside = set(re.findall(r"https?://[^\"'\s<)]+", text))
    assert outside <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
    assert "Three &lt;ways&gt;" in text
    assert "<ways>" not in text


def test_every_chapter_is_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    titles = re.findall(r"<h2>([^<]+)</h2>", text)
    assert titles == [
        "Results", "Calibration", "Conformal prediction", "Out of distribution", "Corruptions", "Rotation and noise",
        "Attacks", "Saliency", "Compression", "KL estimators", "Variance networks", "Chains", "Examples", "Runs",
        "To cite",
    ]  # fmt: skip
    assert "ECE (15 bins)" in text
    assert "Variational" not in text
    assert "Heek" in text
    assert text.count("<figure>") > 20
    assert "plain &lt;net&gt;" in text


def test_rows_without_results_are_left_out_of_a_chapter(page: Path) -> None:
    """Three rows were compared, one of them by a sampler."""
    text = page.read_text(encoding="utf-8")
    results, chains = (
        re.search(rf'<section id="{name}">.*?</section>', text, re.DOTALL) for name in ("results", "chains")
    )
    assert results is not None and chains is not None
    rows = [re.findall(r'<th scope="row">([^<]+)</th>', part[0]) for part in (results, chains)]
    assert rows == [["plain &lt;net&gt;", "vdp", "atmc-0"], ["atmc-0", "atmc-0"]]
    assert "Best in bold" in results[0]
    assert "Best in bold" not in chains[0]  # one row: nothing is compared


def test_figures_of_one_run_say_which(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert "vdp, seed 0: blue, right answers" in text
    assert "atmc-0: blue, right answers" in text


def test_a_row_keeps_its_colour_where_others_are_missing() -> None:
    rows = grouped([evaluation("a", "point"), evaluation("b", "vdp"), evaluation("c", "emp")])
    del rows[1].first.outcomes["compression"]
    (axes,) = lines(series(rows, "compression", "share", "accuracy"), "share", "accuracy").axes
    assert [line.get_label() for line in axes.lines] == ["a", "c"]
    assert [line.get_color() for line in axes.lines] == [COLOURS[0], COLOURS[2]]


def test_chapters_without_results_are_left_out(tmp_path: Path) -> None:
    one = evaluation("only", "point")
    little = Evaluation("only", "point", {}, {"ood": one.outcomes["ood"]})
    Report([little]).write(tmp_path / "r.html")
    titles = re.findall(r"<h2>([^<]+)</h2>", (tmp_path / "r.html").read_text())
    assert titles == ["Results", "Out of distribution"]


def test_tables_can_be_sorted_by_keyboard(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    heads = re.findall(r"<th scope=\"col\"[^>]*>(.*?)</th>", text)
    assert heads
    assert all(head.startswith('<button type="button"') for head in heads)
    assert 'aria-sort="none"' in text
    assert 'tabindex="0"' in text
