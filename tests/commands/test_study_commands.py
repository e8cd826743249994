"""The commands of the studies' pages run as they are written."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.studies.small_study import result_of, run_command, run_small
from tests.docs.studies.text import commands, small_commands, small_result, study_pages


@pytest.mark.dear
@pytest.mark.parametrize("study", study_pages())
def test_the_commands_run_as_they_are_written(study: str, tmp_path: Path) -> None:
    """As far as one comes without training: what submits does so with --dry-run."""
    for command in (*commands(study), *small_commands(study)):
        if "hpcddp analyze" not in command:
            done = run_command(f"{command} --dry-run" if re.search("hpcddp (submit|bench)", command) else command, tmp_path)
            assert done.returncode == 0, done


@pytest.mark.soak
@pytest.mark.parametrize("study", study_pages())
def test_the_small_study_gives_the_table_of_the_page(study: str, tmp_path: Path) -> None:
    """On one machine, to the end: every gate passes, published points are overlaid, and the table has the rows of the page."""
    small = run_small(study, tmp_path)
    assert [each.returncode for each in small] == [0] * len(small), small
    assert re.search(r"overlay \S+: \d+ points? of", small[-1].stdout)
    (gates,) = re.findall(r"gates +(\d+) of (\d+) runs pass", small[-1].stdout)
    assert gates[0] == gates[1]
    found = result_of(tmp_path / study / "report" / "report.json")
    committed = small_result(study)
    assert [(row["nodes"], row["ranks"], row["what"]) for row in found["rows"]] == [
        (row["nodes"], row["ranks"], row["what"]) for row in committed["rows"]
    ]
