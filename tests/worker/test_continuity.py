"""Timed rows follow each other, or the place where they do not is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcddp.core.records import AFTER_PAUSE, STEP_COLUMNS, WARMUP, RowWriter, steps_file
from hpcddp.worker.timing.continuity import first_break

Row = tuple[int, int, int, int]
"""step, flags, start, total"""


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([(0, 0, 0, 5), (1, 0, 5, 5), (2, 0, 10, 5)], None),
        ([(0, 0, 0, 5), (1, 0, 2_000_005, 5)], "step 1 begins 2.000 ms after the end of step 0"),
        ([(0, 0, 0, 5), (1, AFTER_PAUSE, 2_000_005, 5)], None),
        ([(0, WARMUP, 0, 5), (1, 0, 99, 5)], None),
        ([(0, WARMUP, 0, 5), (0, WARMUP, 9, 5), (1, WARMUP, 20, 5)], None),
        ([(0, 0, 0, 5), (0, AFTER_PAUSE, 5, 5)], "step 0 is followed by step 0"),
        ([(0, 0, 0, 5), (2, 0, 5, 5)], "step 0 is followed by step 2"),
        ([(0, 0, 0, 5), (1, WARMUP, 5, 5)], "step 0 is followed by step 1, a warm-up step"),
        ([], None),
    ],
)
def test_the_first_break_is_told(tmp_path: Path, rows: list[Row], says: str | None) -> None:
    """Warm-up rows are left alone, and a pause that is flagged; a step that is counted twice is not."""
    with RowWriter(steps_file(tmp_path, 0), STEP_COLUMNS) as out:
        for step, flags, start, total in rows:
            known = {"step": step, "flags": flags, "start_ns": start, "total_ns": total}
            out.row([known.get(column) for column in STEP_COLUMNS])
    assert first_break(tmp_path, 0) == says
