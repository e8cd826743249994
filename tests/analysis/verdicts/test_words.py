"""The words of the analysis: short sentences, advice that can be followed, no private terms; of each verdict and each note."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest

from hpcddp.analysis.study import comm_bench, fits, readings, scaling
from hpcddp.analysis.verdicts import gates, notes
from hpcddp.analysis.verdicts.verdicts import ALL
from tests.analysis.every_sentence import NOTES, analysis_sentences

pytestmark = pytest.mark.dear

LONGEST = 25

VERBS = re.compile(
    "Add|Ask|Average|Bind|Call|Change|Check|Compare|Compute|Copy|Delete|Do|Exchange|Exclude|Find|Fix|Follow|Gather|Give|Halve|Hold|"
    "Install|Keep|Lengthen|Let|Load|Look|Lower|Make|Mark|Measure|Name|Pack|Raise|Read|Record|Remove|Repeat|Request|Resolve|Run|"
    "Send|Separate|Start|State|Stop|Submit|Time|Train|Use|Write"
)
"""With which advice begins."""

PRIVATE = re.compile(
    r"and so (in|is|are)\b|comes first|will do\b|more costs|that shows|\b(so|as) many\b|nobody|\bmend|le(ave|ft) out|keep off|"
    r"all the same|hand-?over|pass(es)? on|travel|peer wait|\bgates?\b|do(es)? not count|as asked for|stays? otherwise|"
    r"not known|says\b|told\b|pictures?\b(?!\))|of two kinds|burst network|\bfar socket\b|more than perfect",
    re.IGNORECASE,
)
"""What shared rules of style refuse: ellipses, and words that name nothing a reader could search for."""


def sentences(text: str) -> list[str]:
    """Code between backticks is a word."""
    return re.split(r"(?<=[.!?])\s+", re.sub(r"`[^`]*`", "`x`", text))


@pytest.fixture(scope="module")
def texts() -> Sequence[tuple[str, str]]:
    return list(analysis_sentences())


def test_each_verdict_and_each_note_has_an_example(texts: Sequence[tuple[str, str]]) -> None:
    places = {place for place, _ in texts}
    assert {f"evidence of {name}" for name in ALL} <= places
    assert {f"advice of {name}" for name in ALL} <= places
    makers = {name for module in (notes, gates, comm_bench, readings, fits, scaling) for name in vars(module) if "_notes" in name}
    of_studies = {"data_notes", "damaged_notes", "loader_notes", "warmup_notes", "network_notes", "comm_notes"}
    assert makers == {*NOTES, *of_studies}
    assert {f"note of {name}" for name in NOTES} <= places


def test_sentences_are_short_and_complete(texts: Sequence[tuple[str, str]]) -> None:
    long = [each for _, text in texts for each in sentences(text) if len(re.findall(r"\S*\w\S*", each)) > LONGEST]
    assert long == []
    assert [text for _, text in texts if not re.match(r"[A-Z0-9`]|\S*\d", text) or not text.endswith(".")] == []
    assert [text for _, text in texts if PRIVATE.search(re.sub(r"`[^`]*`", "", text))] == []


def test_advice_begins_with_a_verb_or_a_command(texts: Sequence[tuple[str, str]]) -> None:
    advice = [text for place, text in texts if place.startswith("advice of ")]
    assert [text for text in advice if not VERBS.fullmatch(text.split()[0]) and text[0] != "`"] == []
