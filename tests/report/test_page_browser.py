"""The page in a real browser, without a window: `make test-browser`, and a part of `make test` where there is one."""

import re
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from chromium import BROWSER, Chromium
from PIL import Image
from report_data import several

from bayesify.report import Report

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(BROWSER is None, reason="needs chromium: apt-get install chromium"),
]
ORDER = (
    "Array.from(document.querySelector('table.sortable').tBodies[0].rows).map(r => r.cells[0].textContent)"
)
HEAD = "document.querySelector('table.sortable').tHead.rows[0].cells[1]"  # accuracy: more is better
FALLING, RISING = ["vdp", "plain <net>", "atmc-0"], ["atmc-0", "plain <net>", "vdp"]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    Report(several(), "Three <ways>", ["zero", "one", "two", "three"]).write(path)
    return path


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    with Chromium(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture
def browser(started: Chromium) -> Iterator[Chromium]:
    """The browser; every test ends with a silent console, and nothing asked of the network."""
    started.complaints.clear()
    yield started
    assert started.complaints == []


def test_the_console_is_heard(started: Chromium, tmp_path: Path) -> None:
    """Else the silence of the other tests would say nothing."""
    bad = tmp_path / "bad.html"
    bad.write_text(
        "<img src='https://example.invalid/a.png'><script>console.error('one'); nothing.there</script>"
    )
    started.complaints.clear()
    started.open(bad, 800)
    found = "\n".join(started.complaints)
    assert "one" in found
    assert "nothing is not defined" in found
    assert "example.invalid" in found


def test_sorting_by_click(browser: Chromium, page: Path) -> None:
    browser.open(page, 1280)
    before = browser.evaluate(ORDER)
    seen = []
    for _ in range(3):
        browser.click(f"{HEAD}.querySelector('button')")
        seen.append((browser.evaluate(ORDER), browser.evaluate(f"{HEAD}.getAttribute('aria-sort')")))
    assert seen == [(FALLING, "descending"), (RISING, "ascending"), (before, "none")]


@pytest.mark.parametrize("key", ["Enter", " "])
def test_sorting_by_keyboard(browser: Chromium, page: Path, key: str) -> None:
    """Tab reaches the head of the column, and the key sorts."""
    browser.open(page, 1280)
    for _ in range(60):
        browser.press("Tab")
        if browser.evaluate(f"document.activeElement === {HEAD}.querySelector('button')"):
            break
    else:
        pytest.fail("60 times Tab did not reach the table")
    assert browser.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
    browser.press(key)
    assert browser.evaluate(ORDER) == FALLING
    browser.press(key)
    assert browser.evaluate(ORDER) == RISING


def test_folded_parts_open_by_keyboard(browser: Chromium, page: Path) -> None:
    browser.open(page, 1280)
    browser.evaluate("document.querySelector('details summary').focus()")
    browser.press("Enter")
    assert browser.evaluate("document.querySelector('details').open") is True


@pytest.mark.parametrize(("width", "phone"), [(1280, False), (768, False), (390, True), (320, True)])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_it_renders(
    browser: Chromium, page: Path, tmp_path: Path, width: int, phone: bool, theme: str
) -> None:
    """No wider than the window, in the reader's theme, with text that stands out from the paper."""
    browser.open(page, width, theme=theme, phone=phone)
    assert browser.evaluate("document.documentElement.scrollWidth") == width
    wide = """Array.from(document.querySelectorAll("main > section > *, figure")).filter(
        e => e.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML.slice(0, 80))"""
    assert browser.evaluate(wide) == []
    empty = """Array.from(document.querySelectorAll("figure svg")).filter(
        e => e.checkVisibility() && e.getBoundingClientRect().height < 60).length"""
    assert browser.evaluate(empty) == 0
    picture = Image.open(BytesIO(browser.screenshot(tmp_path / f"{theme}-{width}.png"))).convert("L")
    assert picture.width == width
    grey = np.asarray(picture)
    paper, ink = (np.median(grey), grey.min() if theme == "light" else grey.max())
    assert paper > 250 if theme == "light" else paper < 40
    assert abs(float(paper) - float(ink)) > 180


def test_the_button_changes_the_theme(browser: Chromium, page: Path) -> None:
    browser.open(page, 1280, theme="dark")
    paper = "getComputedStyle(document.body).backgroundColor"
    dark = browser.evaluate(paper)
    assert browser.evaluate("document.getElementById('theme').textContent") == "Light"
    browser.click("document.getElementById('theme')")
    assert browser.evaluate(paper) == "rgb(255, 255, 255)" != dark
    browser.click("document.getElementById('theme')")
    assert browser.evaluate(paper) == dark


def test_printing(browser: Chromium, page: Path, tmp_path: Path) -> None:
    """Dark readers print on white; folded parts are printed, buttons are not."""
    browser.open(page, 1280, theme="dark")
    content = browser.pdf(tmp_path / "page.pdf")
    assert content.startswith(b"%PDF")
    assert 3 <= len(re.findall(rb"/Type\s*/Page\b", content)) <= 40
    browser.call("Emulation.setEmulatedMedia", media="print")
    assert browser.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert browser.evaluate("getComputedStyle(document.getElementById('theme')).display") == "none"
    browser.call("Emulation.setEmulatedMedia", media="")
