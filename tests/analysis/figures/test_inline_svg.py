"""Figures inside a page: panels apart, text as text, nothing that the page's policy refuses, marks with their values."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from hpcddp.analysis import How, analyze
from hpcddp.analysis.figures.figures import detail_drawings, point_drawings
from hpcddp.analysis.figures.inline_svg import InlineSvg, inline_svg
from hpcddp.analysis.figures.style import DEFAULT, MarkedFigure, fix_layout
from hpcddp.analysis.study.load import load_study
from hpcddp.analysis.verdicts.findings import find
from tests.analysis.figures.test_figures import straggling
from tests.analysis.synthetic import MS, point, write_runs, write_study


@pytest.fixture(scope="module")
def figures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, MarkedFigure]:
    """All that a study with a straggler has, laid out."""
    found = find(load_study(straggling(tmp_path_factory.mktemp("runs") / "s")))
    made = point_drawings(found)[0] | detail_drawings(found)[0]
    drawn = {name: draw() for name, draw in made.items()}
    for figure in drawn.values():
        fix_layout(figure, DEFAULT)
    return drawn


def texts(panel: InlineSvg) -> list[str]:
    return [text.text or "" for text in ElementTree.fromstring(panel.markup).iter("text")]


@pytest.mark.dear
@pytest.mark.parametrize("name", ["scaling", "breakdown", "steps", "ranks", "timeline"])
def test_the_pages_policy_refuses_nothing_of_it(figures: dict[str, MarkedFigure], name: str) -> None:
    """No style in elements or of its own, no address but data, and every reference has its target."""
    markup = "".join(panel.markup for panel in inline_svg(figures[name], name))
    assert "style" not in markup
    assert not re.search(r"https?:", markup)
    assert all(target.startswith("data:image/png;base64,") for target in re.findall(r'href="([^#"][^"]*)"', markup))
    targets = set(re.findall(r'(?:href="|url\()#([^")]+)', markup))
    assert targets <= set(re.findall(r' id="([^"]+)"', markup))


@pytest.mark.dear
def test_panels_are_elements_of_their_own_and_so_are_entries_of_a_shared_legend(figures: dict[str, MarkedFigure]) -> None:
    """Two runs' steps, each with its title, and below them what the colours are."""
    panels = inline_svg(figures["timeline"], "One step")
    marked, legend = ([panel for panel in panels if panel.marked is of_panel] for of_panel in (True, False))
    assert [texts(panel)[-1 if i == 0 else -3][:3] for i, panel in enumerate(marked)] == ["2 x", "4 x"]
    assert [texts(entry) for entry in legend][-2:] == [["bucket waits"], ["bucket travels"]]


def test_a_mark_lies_over_what_it_is_of(figures: dict[str, MarkedFigure]) -> None:
    """The first bar's parts begin where the one before ends, and are all of the same height."""
    (panel,) = inline_svg(figures["breakdown"], "Parts", parts=True)
    marks = [rect.attrib for rect in ElementTree.fromstring(panel.markup).iter("rect") if rect.get("class") == "mark"]
    first = [mark for mark in marks if mark["y"] == marks[0]["y"]]
    ends = [float(mark["x"]) + float(mark["width"]) for mark in first]
    assert [float(mark["x"]) for mark in first[1:]] == pytest.approx(ends[:-1], abs=0.11)
    assert first[0]["aria-label"] == "data wait 41.8 ms, of the step 40 %, layout 2 x 4"
    assert {mark["height"] for mark in marks} == {first[0]["height"]}


@pytest.mark.dear
def test_the_page_has_the_same_figures_whatever_the_files_are_made_for(tmp_path: Path) -> None:
    """Slides are too wide for it."""
    points = [point(nodes, 4) for nodes in (1, 2)]
    study = write_study(tmp_path / "s", points)
    for each in points:
        write_runs(study, each, [100 * MS], shares={"forward": 0.5, "backward": 0.5})
    pages = []
    for style in ("default", "slides"):
        analyze(tmp_path / "s", tmp_path / style, How(style=style))
        pages.append(re.findall(r"<svg class=.*?</svg>", (tmp_path / style / "s/index.html").read_text(), re.DOTALL))
    assert len(pages[0]) == 4
    assert pages[0] == pages[1]
