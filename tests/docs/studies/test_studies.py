"""The studies' pages: made parts and figures are as the data is, and numbers have their line."""

from __future__ import annotations

from collections import Counter

import pytest
from click.testing import CliRunner

from hpcddp.cli import main
from hpcddp.sweep.shipped import shipped_sweeps
from tests.docs.studies.evidence import PAGES, ROOT, UnsupportedNumberError, check_number
from tests.docs.studies.figure import figure_file, fingerprint
from tests.docs.studies.page import page
from tests.docs.studies.text import BLOCK, cited_numbers, code_with_numbers, commands, read_page, study_pages, uncited_numbers

STUDIES = study_pages()

PARTS = ("## Published", "## What does not hold", "## How this sweep measures it", "## What it finds here, small")


def test_every_study_has_its_page_and_every_page_its_sweep() -> None:
    """A sweep names its page in a comment, which `hpcddp studies` shows with its line."""
    pages = {sweep.name: sweep.page for sweep in shipped_sweeps() if sweep.page}
    assert pages == {study: f"docs/studies/{study}.md" for study in STUDIES}
    shown = CliRunner().invoke(main, ["studies"]).stdout
    for sweep in shipped_sweeps():
        assert (f"{sweep.name}: {sweep.line}\n    {sweep.page}\n" in shown) == (sweep.page is not None)


@pytest.mark.parametrize("study", STUDIES)
def test_parts_that_are_made_are_as_the_data_is(study: str) -> None:
    """`make docs` makes them anew: published points, findings of the audit, the sweep, the small result."""
    assert read_page(study) == page(study)


@pytest.mark.parametrize("study", STUDIES)
def test_the_figure_is_of_the_pages_data(study: str) -> None:
    """Its description is a hash of all that is drawn; `make docs` draws it anew."""
    assert fingerprint(study) in (PAGES / figure_file(study)).read_text(encoding="utf-8")
    assert f"({figure_file(study)})" in read_page(study)


@pytest.mark.parametrize("study", STUDIES)
def test_a_page_has_its_parts(study: str) -> None:
    """Question, published numbers, what does not hold, how it is measured, what was found; made parts of each kind."""
    text = read_page(study)
    assert "**Question.**" in text
    assert [heading for heading in PARTS if heading in text] == list(PARTS)
    assert {"published", "audit", "sweep", "measured", "lines"} <= Counter(found[2] for found in BLOCK.finditer(text)).keys()


@pytest.mark.parametrize("study", STUDIES)
def test_every_number_of_the_text_has_its_line(study: str) -> None:
    """In the published points, an audit table or the small result; what stands in code stands in the sweep."""
    text = read_page(study)
    assert uncited_numbers(text) == []
    for number, label in cited_numbers(text):
        check_number(study, number, label)
    sweep = (ROOT / "jobs" / f"{study}.yaml").read_text(encoding="utf-8")
    typed = "\n".join(commands(study))
    assert [code for code in code_with_numbers(text) if code not in sweep and code not in typed] == []


@pytest.mark.parametrize(
    ("number", "label"),
    [("3,467 s", "p2"), ("24.8", "p2/p23"), ("38 %", "p2/p23/p23.gpus"), ("13.87", "marconi100:9"), ("2", "p2/x"), ("2", "q2")],
)
def test_a_number_that_its_line_does_not_have_is_refused(number: str, label: str) -> None:
    with pytest.raises(UnsupportedNumberError):
        check_number("rcc-mnist", number, label)


@pytest.mark.parametrize(
    ("number", "label"),
    [("3,466 s", "p2"), ("24.9", "p2/p23"), ("39 %", "p2/p23/p23.gpus"), ("13.86", "marconi100:9"), ("0:02:19", "marconi100:9")],
)
def test_a_number_that_follows_from_its_line_is_taken(number: str, label: str) -> None:
    """Marconi100's 24.9 times on 64 GPUs, or 39 % of perfect."""
    check_number("rcc-mnist", number, label)


def test_numbers_in_names_are_none() -> None:
    """ResNet-18, V100, fp32 and g5.2xlarge say nothing; a count and a time do."""
    assert uncited_numbers("ResNet-18, CIFAR-10, V100, fp32, g5.2xlarge and n01-g4 [of 7][p2] `x: 3`\n    --set x=4\n") == []
    assert uncited_numbers("in 3,466 s, 1.55 times, 39 %") == ["3,466", "1.55", "39"]
