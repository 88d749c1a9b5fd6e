"""The page: sound HTML, nothing from outside, every chapter; and in a real browser where there is one."""

import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest
from report_data import evaluation, several

from bayesify.report import Report
from bayesify.suites import Evaluation

VOID = {"meta", "link", "br", "img", "hr", "input"}
BROWSER = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)


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
        "Results", "Calibration", "Out of distribution", "Corruptions", "Rotation and noise", "Attacks", "Saliency",
        "Compression", "Examples", "Runs", "To cite",
    ]  # fmt: skip
    assert "ECE (15 bins)" in text
    assert "Variational" not in text
    assert "Heek" in text
    assert text.count("<figure>") > 20
    assert "plain &lt;net&gt;" in text


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


# -- in a browser -------------------------------------------------------------------------------------------
def browse(path: Path, *flags: str) -> tuple[str, str]:
    """What the browser made of the page, and what it complained about."""
    assert BROWSER is not None
    flags = ("--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--v=0", *flags)
    done = subprocess.run([BROWSER, *flags, path.as_uri()], capture_output=True, text=True, timeout=120)
    return done.stdout, "\n".join(line for line in done.stderr.splitlines() if "CONSOLE" in line)


needs_browser = pytest.mark.skipif(BROWSER is None, reason="needs chromium")


@needs_browser
def test_sorting_and_themes_work_without_complaints(page: Path, tmp_path: Path) -> None:
    """Three clicks on a column where more is better: falling, rising, as before; and the theme button."""
    script = """
    const table = document.querySelector("table.sortable");
    const order = () => Array.from(table.tBodies[0].rows).map((r) => r.cells[0].textContent).join("|");
    const button = table.tHead.rows[0].cells[1].querySelector("button");
    const found = [order()];
    for (let i = 0; i < 3; i++) { button.click(); found.push(order()); }
    document.getElementById("theme").click();
    found.push(document.documentElement.dataset.theme);
    found.push(document.documentElement.scrollWidth <= innerWidth);
    document.body.dataset.found = found.join(";");
    """
    copy = tmp_path / "page.html"
    copy.write_text(page.read_text().replace("</body>", f"<script>{script}</script></body>"))
    dom, complaints = browse(copy, "--dump-dom", "--window-size=390,844")
    assert complaints == ""
    found = re.search(r'data-found="([^"]+)"', dom)
    assert found is not None
    first, falling, rising, again, theme, fits = found[1].replace("&lt;", "<").replace("&gt;", ">").split(";")
    assert falling == "vdp|plain <net>|atmc-0"
    assert rising == "atmc-0|plain <net>|vdp"
    assert again == first
    assert theme in ("dark", "light")
    assert fits == "true"  # nothing is wider than a phone


@needs_browser
def test_it_prints(page: Path, tmp_path: Path) -> None:
    browse(page, f"--print-to-pdf={tmp_path / 'page.pdf'}", "--no-pdf-header-footer")
    content = (tmp_path / "page.pdf").read_bytes()
    assert content.startswith(b"%PDF")
    assert 3 <= len(re.findall(rb"/Type\s*/Page\b", content)) <= 40
