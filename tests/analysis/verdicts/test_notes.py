"""Notes beside the numbers."""

from __future__ import annotations

from pathlib import Path

from hpcddp.analysis.study.load import load_study
from hpcddp.analysis.verdicts.findings import find
from hpcddp.analysis.verdicts.notes import WARMUP_DETECTED_FROM
from hpcddp.worker.training.stop_rule import FEWEST
from tests.analysis.synthetic import FAILED, MS, point, write_runs, write_study


def test_nothing_is_said_of_the_spread_where_no_run_counts(tmp_path: Path) -> None:
    """One run per point would be more than there is."""
    points = [point(1, 1), point(1, 2)]
    assert find(load_study(write_study(tmp_path / "none", points))).notes == []
    study = write_study(tmp_path / "rejected", points)
    for each in points:
        write_runs(study, each, [MS], gates=FAILED)
    assert find(load_study(study)).notes == []


def warmup_notes_of(folder: Path, steps: int, detected: int | None) -> list[str]:
    """What is said of a run with so many steps, one of them warm-up."""
    study = write_study(folder, [point(1, 1)])
    write_runs(study, point(1, 1), [MS], steps=steps, protocol={"stopped_by": "steps", "warmup_detected_steps": detected})
    return [note for note in find(load_study(study)).notes if note.startswith("where the warm-up ended is unknown")]


def test_a_warm_up_whose_end_was_not_seen_is_unknown(tmp_path: Path) -> None:
    """Too few steps to see it, or steps that settle late: not the same as none."""
    (few,) = warmup_notes_of(tmp_path / "few", 98, None)
    assert "in fewer than 100 steps it cannot be seen; more of them (`--set measure.steps=100`)" in few
    (late,) = warmup_notes_of(tmp_path / "late", 99, None)
    assert "steps settle in the second half, if at all" in late
    assert "`--set measure.warmup_steps=100`" in late
    assert warmup_notes_of(tmp_path / "none", 98, 0) == []
    assert WARMUP_DETECTED_FROM == FEWEST
