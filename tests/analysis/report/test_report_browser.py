"""The report in a real browser: it opens without a complaint or a request, sorts, tells values, and is inert and readable."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from hpcddp.analysis import analyze
from hpcddp.core.records import PARTS
from tests.analysis.report.test_report import write_hostile
from tests.analysis.synthetic import FAILED, MS, PASSED, Bucket, Recorded, point, write_marconi100, write_run, write_study
from tests.chromium import Page

pytestmark = pytest.mark.dear

COLUMN = """
(column => [...document.querySelectorAll(".t-scaling tbody tr")].map(row => row.cells[column].textContent))
"""
CLICK = """
(column => [...document.querySelectorAll(".t-scaling thead tr:last-child th")][column].firstElementChild.click())
"""
CONTRAST = """
(() => {
  const light = text => {
    const [r, g, b] = text.match(/[0-9.]+/g).map(c => c / 255).map(c => c <= .04045 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4);
    return .2126 * r + .7152 * g + .0722 * b;
  };
  const paper = light(getComputedStyle(document.body).backgroundColor);
  const texts = [...document.querySelectorAll("h1, h2, p, li, dt, dd, th, td, .kind, summary, figcaption, button, footer")];
  const colours = texts.map(text => getComputedStyle(text).color);
  colours.push(...[...document.querySelectorAll("figure text")].map(text => getComputedStyle(text).fill));
  const lights = colours.map(light);
  return Math.min(...lights.map(each => (Math.max(each, paper) + .05) / (Math.min(each, paper) + .05)));
})()
"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Node scaling with one run rejected."""
    folder = tmp_path_factory.mktemp("runs")
    study = write_marconi100(folder / "m100", repeat=2)
    write_run(study, point(1, 2, work="epoch"), Recorded(step_ns=9 * MS, gates=FAILED, job="900"), 3)
    analyze(folder)
    return folder / "m100/report/index.html"


@pytest.fixture
def page(browser: Page, report: Path) -> Page:
    """The report in a window of 1200 x 900."""
    browser.shape(1200)
    browser.open(report)
    return browser


def column(page: Page, index: int) -> list[Any]:
    return list(page.run(f"{COLUMN}({index})"))


def tip(page: Page) -> str | None:
    """What is shown beside the mark that is pointed at."""
    text = page.run("(t => t.className === 'on' ? t.innerText : null)(document.getElementById('tip'))")
    return None if text is None else " ".join(text.split())


def test_opens_without_a_complaint_or_a_request(page: Page, report: Path) -> None:
    page.point_at(".mark")
    page.run(f"{CLICK}(0)")
    page.run("document.getElementById('theme').click()")
    assert page.complaints == []
    assert page.requests == [report.as_uri()]


@pytest.mark.parametrize("width", [400, 1200, 2000])
def test_texts_of_figures_can_be_read_and_are_not_cut_off(page: Page, width: int) -> None:
    page.shape(width)
    texts = """
    [...document.querySelectorAll("figure text")].map(text => {
      const [box, panel] = [text.getBoundingClientRect(), text.closest("svg").getBoundingClientRect()];
      return [box.height, Math.min(box.left - panel.left, panel.right - box.right), innerWidth - box.right];
    })
    """
    heights, rooms, margins = zip(*page.run(texts), strict=True)
    assert min(heights) >= 11
    assert max(heights) <= 20
    assert min(rooms) >= -1
    assert min(margins) >= 0


def test_a_head_sorts_its_column(page: Page) -> None:
    as_it_was = column(page, 2)
    assert as_it_was == ["1", "2", "3", "4", "8", "16", "32", "64"]
    orders = []
    for _ in range(3):
        page.run(f"{CLICK}(2)")
        orders.append(column(page, 2))
    assert orders == [as_it_was, as_it_was[::-1], as_it_was]


def test_what_is_unknown_sorts_last(page: Page) -> None:
    heads = page.run("[...document.querySelectorAll('.t-scaling thead tr:last-child th')].map(head => head.innerText)")
    index = len(heads) - 1 - heads[::-1].index("speedup")
    for direction, first in (("ascending", "1.00×"), ("descending", "13.9×")):
        page.run(f"{CLICK}({index})")
        values = column(page, index)
        assert (values[0], values[-3:]) == (first, ["–"] * 3)
        assert page.run("document.querySelector('.t-scaling [aria-sort]').getAttribute('aria-sort')") == direction


def test_a_mark_tells_its_values(page: Page) -> None:
    assert tip(page) is None
    page.point_at(".mark[data-tip^='nodes\t16']")
    shown = tip(page)
    assert shown is not None
    measured, compared = "samples/s 9,217 runs 2 range 9,199–9,235", "vs 1 GPU 24.9×, 39.0 % (38.8–39.1) vs 1 node"
    assert shown.startswith(f"nodes 16 × 4 GPUs GPUs 64 {measured} {compared}")
    page.point_at("figure text")  # in sight: scrolling alone would hide it
    assert tip(page) is None


@pytest.mark.parametrize(
    ("mark", "words"),
    [
        ("[data-tip^='rejected']", "reason gate `equal steps`: rank 1 made 4 of 6 steps"),
        ("[data-tip^='backward']", "of the step 50 %"),
        (
            "[data-tip^='layout']",
            "layout 1 x 1 steps 40 median 86.4 ms mean 86.6 ms 5–95 % 1.00–1.00 99 % 1.00 longest 1.00 warm-up 2 ",
        ),
        ("[data-tip*='rank\t0 on'][data-tip^='backward']", "of the step 50 % rank 0 on r000"),
    ],
)
def test_each_kind_of_mark_tells_its_numbers(page: Page, mark: str, words: str) -> None:
    """A rejected run's hollow one, a part of a bar, a point's steps, a part of one step."""
    page.point_at(f".mark{mark}")
    assert words in (tip(page) or "")


def test_marks_are_reached_by_keyboard(page: Page) -> None:
    page.run("document.querySelector('figure [tabindex=\"0\"][data-tip]').focus()")
    first = tip(page)
    page.press("ArrowRight")
    assert first is not None
    assert tip(page) not in (None, first)
    stops = "[...document.querySelectorAll('figure')].map(f => f.querySelectorAll('[tabindex=\"0\"]').length)"
    assert set(page.run(stops)) == {1}
    page.press("Escape")
    assert tip(page) is None


def test_names_and_logs_run_nothing(browser: Page, tmp_path: Path) -> None:
    browser.shape(1200)
    browser.open(write_hostile(tmp_path) / "index.html")
    browser.point_at(".mark[data-tip^='rejected']")
    assert "<img src=x onerror=window.ran=1>" in (tip(browser) or "")
    assert browser.run("window.ran === undefined") is True
    assert browser.complaints == []
    assert len(browser.requests) == 1
    assert browser.run("document.querySelectorAll('img').length") == 0


def test_the_policy_holds_what_got_in(page: Page) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        address = f"http://127.0.0.1:{server.getsockname()[1]}/"
        assert page.run(f"fetch({json.dumps(address)}).then(() => 'sent', () => 'refused')") == "refused"
        page.run(f"document.body.append(Object.assign(new Image(), {{src: {json.dumps(address)}}}))")
        page.run("document.body.append(Object.assign(document.createElement('script'), {textContent: 'window.ran = 1'}))")
        with pytest.raises(BlockingIOError):
            server.accept()
    assert page.run("window.ran === undefined") is True


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark(browser: Page, report: Path, scheme: str) -> None:
    """As the system has it until it is chosen; every text, in figures too, stands out by 4.5 at least (WCAG 2.2, 1.4.3)."""
    browser.shape(1200, scheme=scheme)
    browser.open(report)
    papers = []
    for _ in range(2):
        papers.append(browser.run("getComputedStyle(document.body).backgroundColor"))
        assert browser.run(CONTRAST) >= 4.5
        browser.run("document.getElementById('theme').click()")
    expected = ["rgb(255, 255, 255)", "rgb(20, 23, 26)"]
    assert papers == (expected if scheme == "light" else expected[::-1])


def test_a_phone_scrolls_tables_and_not_the_page(browser: Page, report: Path) -> None:
    browser.shape(360, 740)
    browser.open(report)
    assert browser.run("document.documentElement.scrollWidth") <= 360
    assert browser.run("(t => t.scrollWidth > t.clientWidth)(document.querySelector('.scroll'))") is True


def test_a_wide_screen_shows_tables_whole(browser: Page, undrawn: None, tmp_path: Path) -> None:
    points = [point(1, 1), point(1, 2), point(1, 2, comm="on")]
    study = write_study(tmp_path / "s", points)
    shares = dict.fromkeys((*PARTS, "h2d_hidden"), 1 / len(PARTS))
    for each in points:
        travels = [Bucket(size_bytes=MS, ready_ns=40 * MS, done_ns=60 * MS)] if each.measure.comm == "on" else []
        write_run(study, each, Recorded(step_ns=100 * MS, shares=shares, buckets=travels))
    analyze(tmp_path)
    browser.shape(1600)
    browser.open(tmp_path / "s/report/index.html")
    columns = browser.run("document.querySelectorAll('.t-breakdown tbody tr:last-child td').length")
    assert columns == 17
    assert browser.run("(t => t.scrollWidth <= t.clientWidth)(document.querySelector('.t-breakdown').parentElement)") is True
    assert browser.run("document.documentElement.scrollWidth") <= 1600


def test_prints_on_white_paper(page: Page) -> None:
    """Whatever was chosen on the screen, without its controls, and no wider than A4 within its margins (182 mm, 688 px)."""
    page.run("document.documentElement.dataset.theme = 'dark'")
    page.shape(688, medium="print")
    assert page.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.run("getComputedStyle(document.querySelector('h1')).color") == "rgb(0, 0, 0)"
    assert page.run("document.getElementById('theme').offsetParent === null") is True
    assert page.run("document.documentElement.scrollWidth") <= 688


def test_what_is_folded_is_printed(browser: Page, undrawn: None, tmp_path: Path) -> None:
    """The sixth reason to reject a run is on paper, and folded again afterwards; the list of all runs is for the screen."""
    where = point(1, 1)
    study = write_study(tmp_path / "s", [where], repeat=7)
    for run in range(1, 8):
        failed = [{**FAILED[-1], "evidence": f"rank {run} made 4 of 6 steps"}]
        write_run(study, where, Recorded(step_ns=MS, gates=failed if run > 1 else PASSED, job=str(run)), run)
    analyze(tmp_path)
    browser.open(tmp_path / "s/report/index.html")
    browser.shape(688, medium="print")
    shown = "[...document.querySelectorAll('.remarks li, .t-runs')].map(each => each.checkVisibility()).join()"
    browser.run(f"addEventListener('beforeprint', () => {{ window.printed = {shown}; }})")
    before = browser.run(shown)
    browser.to_paper()
    assert browser.run("window.printed").split(",") == ["true"] * (before.count(",")) + ["false"]
    assert browser.run(shown) == before
    assert before.count("false") == 3
