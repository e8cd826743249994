"""The check of closure sees what it is there for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from hpcddp.core.records import write_json
from tests.analysis.synthetic import MS, Recorded, point, write_run, write_study
from tests.closure import that_do_not_add_up


def attempt(folder: Path, shares: Mapping[str, float], *, by_worker: bool, state: str = "done") -> Path:
    """A run of two ranks whose steps last 10 ms; it is not left behind as `done`, as the session's own check would find it."""
    what = point(1, 2)
    written = write_run(write_study(folder, [what]), what, Recorded(step_ns=10 * MS, shares=shares, state=state))
    write_json(written / "launch.json", {"clock": "host"} if by_worker else {})
    return written


@pytest.mark.parametrize(
    ("shares", "by_worker", "odd"),
    [
        ({"forward": 0.5, "other": 0.5}, True, 0),
        ({"forward": 0.5, "other": 0.495}, True, 0),
        ({"forward": 0.5, "other": 0.489}, True, 2),
        ({"forward": 0.5, "other": 0.511}, False, 2),
        ({"forward": 0.5}, True, 2),
        ({"forward": 0.5}, False, 0),
    ],
)
def test_a_step_adds_up_to_one_percent(tmp_path: Path, shares: Mapping[str, float], by_worker: bool, odd: int) -> None:
    """Each rank's first odd step is named; rows that a test made up without `other` do not claim to be whole."""
    written = attempt(tmp_path, shares, by_worker=by_worker)
    found = list(that_do_not_add_up(written))
    (written / "end.json").unlink()
    assert len(found) == odd
    assert all(
        f"{written}/ranks/0000{rank}.steps.csv: step 0 lasted 100000000 ns" in sentence for rank, sentence in enumerate(found)
    )


def test_only_what_claims_to_be_done_and_whole_is_asked(tmp_path: Path) -> None:
    """A failed run's last row may be torn."""
    assert not list(that_do_not_add_up(attempt(tmp_path / "failed", {"other": 0.5}, by_worker=True, state="failed")))
    torn = attempt(tmp_path / "torn", {"other": 0.5}, by_worker=True)
    for file in (torn / "ranks").iterdir():
        file.write_text(file.read_text()[:-5])
    assert not list(that_do_not_add_up(torn))
