"""The table of loaders in a report: next to where the step goes, on the page and on the terminal."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcddp.analysis.report.api import analyze
from tests.analysis.verdicts.test_input import study_of, times


@pytest.mark.dear
def test_it_stands_next_to_the_breakdown(tmp_path: Path) -> None:
    """With the limit and its rate; loaders.csv has the row, and report.json, too."""
    study_of(tmp_path, times(4))
    (result,) = analyze(tmp_path / "s")
    page = (tmp_path / "s" / "report" / "index.html").read_text(encoding="utf-8")
    heads = [part.partition("<")[0] for part in page.split("<h2>")[1:]]
    assert heads.index("What the loaders gave") == heads.index("Where the step goes") + 1
    (row,) = result.plain["loaders"]
    assert (row["workers"], row["limit"], row["loader_samples_per_s"]) == (4, "loader processes", 330)
    assert "loader processes" in (tmp_path / "s" / "report" / "loaders.csv").read_text(encoding="utf-8")
    text = result.text_in(80)
    assert text.index("where the step goes") < text.index("what loaders could give")
    table = text.partition("what loaders could give")[2].partition("\n\n")[0]
    assert max(map(len, table.splitlines())) <= 80
