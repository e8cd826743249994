"""The studies' pages: made parts and figures are as the data is, and numbers have their line."""

from __future__ import annotations

from collections import Counter

import pytest
from click.testing import CliRunner

from hpcddp.cli import main
from hpcddp.sweep.shipped import shipped_sweeps
from tests.docs.studies.page import fingerprint
from tests.docs.studies.text import (
    BLOCK,
    PAGES,
    ROOT,
    UnsupportedNumberError,
    check_number,
    cited_numbers,
    code_with_numbers,
    commands,
    read_page,
    study_pages,
    uncited_numbers,
)

STUDIES = study_pages()

PARTS = ("## Published", "## What does not hold", "## How this sweep measures it", "## What it finds here, small")


def test_every_study_has_its_page_and_every_page_its_sweep() -> None:
    pages = {sweep.name: sweep.page for sweep in shipped_sweeps() if sweep.page}
    assert pages == {study: f"docs/studies/{study}.md" for study in STUDIES}
    shown = CliRunner().invoke(main, ["studies"]).stdout
    for sweep in shipped_sweeps():
        assert (f"{sweep.name}: {sweep.line}\n    {sweep.page}\n" in shown) == (sweep.page is not None)


@pytest.mark.parametrize("study", STUDIES)
def test_a_page_has_its_parts_and_a_figure_of_its_data(study: str) -> None:
    """The figure's description is a hash of all that is drawn; `make docs` draws it anew."""
    text = read_page(study)
    assert "**Question.**" in text
    assert [heading for heading in PARTS if heading in text] == list(PARTS)
    assert {"published", "audit", "sweep", "measured", "lines"} <= Counter(found[2] for found in BLOCK.finditer(text)).keys()
    assert f"({study}.svg)" in text
    assert fingerprint(study) in (PAGES / f"{study}.svg").read_text(encoding="utf-8")


@pytest.mark.parametrize("study", STUDIES)
def test_every_number_of_the_text_has_its_line(study: str) -> None:
    text = read_page(study)
    assert uncited_numbers(text) == []
    for number, label in cited_numbers(text):
        check_number(study, number, label)
    sweep = (ROOT / "jobs" / f"{study}.yaml").read_text(encoding="utf-8")
    typed = "\n".join(commands(study))
    assert [code for code in code_with_numbers(text) if code not in sweep and code not in typed] == []


@pytest.mark.parametrize(
    ("number", "label", "wrong"),
    [
        ("3,466 s", "p2", "3,467 s"),
        ("24.9", "p2/p23", "24.8"),
        ("39 %", "p2/p23/p23.gpus", "38 %"),
        ("13.86", "marconi100:9", "13.87"),
        ("0:02:19", "marconi100:9", "0:02:20"),
        *((None, label, "2") for label in ("p2/x", "q2")),
    ],
)
def test_a_number_that_does_not_follow_from_its_line_is_refused(number: str | None, label: str, wrong: str) -> None:
    """Marconi100's 24.9 times on 64 GPUs, or 39 % of perfect."""
    if number:
        check_number("rcc-mnist", number, label)
    with pytest.raises(UnsupportedNumberError):
        check_number("rcc-mnist", wrong, label)


def test_numbers_in_names_are_none() -> None:
    """ResNet-18, V100, fp32 and g5.2xlarge say nothing; a count and a time do."""
    assert uncited_numbers("ResNet-18, CIFAR-10, V100, fp32, g5.2xlarge and n01-g4 [of 7][p2] `x: 3`\n    --set x=4\n") == []
    assert uncited_numbers("in 3,466 s, 1.55 times, 39 %") == ["3,466", "1.55", "39"]
