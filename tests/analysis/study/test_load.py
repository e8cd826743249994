from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hpcddp.analysis.runs.run import Run
from hpcddp.analysis.study.load import load_study
from hpcddp.core.errors import HpcddpError
from hpcddp.core.records import steps_file, write_json
from hpcddp.core.run_root import Study
from tests.analysis.synthetic import FAILED, MS, Recorded, point, write_run, write_study

POINT = point(1, 2)


@pytest.fixture
def study(tmp_path: Path) -> Study:
    """One point of two ranks, no run yet."""
    return write_study(tmp_path / "s", [POINT])


def only(study: Study) -> Run:
    """The study's one run."""
    (run,) = load_study(study).runs
    return run


def change_json(file: Path, **changes: Any) -> None:
    write_json(file, {**json.loads(file.read_text()), **changes})


def test_a_whole_run_counts(study: Study) -> None:
    write_run(study, POINT, Recorded(step_ns=8 * MS))
    run = only(study)
    assert (run.state, run.reason, run.steady_steps, run.step_ns) == ("counts", None, 5, 8 * MS)
    assert run.part_ns is not None
    assert (run.part_ns["backward"], run.part_ns["data_wait"]) == (4 * MS, None)
    assert (run.global_batch, run.gpu, run.env_id, run.eval_correct, run.epochs) == (64, "V100", "env-1", 9_000, None)


def test_points_are_in_the_order_of_their_sizes(tmp_path: Path) -> None:
    points = [point(100, 1), point(16, 1, batch_per_gpu=128), point(16, 1, batch_per_gpu=8)]
    found = load_study(write_study(tmp_path / "s", points))
    assert [run.label for run in found.runs] == [each.label for each in points[::-1]]
    assert [each.label for each in found.points] == [each.label for each in points[::-1]]


def test_a_failed_gate_rejects_with_its_evidence(study: Study) -> None:
    write_run(study, POINT, Recorded(step_ns=MS, gates=FAILED))
    run = only(study)
    assert (run.state, run.reason) == ("rejected", "check `equal steps`: rank 1 made 4 of 6 steps")
    assert run.step_ns == MS


def without(attempt: Path, name: str) -> None:
    file = attempt / "end.json"
    write_json(file, {key: value for key, value in json.loads(file.read_text()).items() if key != name})


def rewritten(attempt: Path, change: Callable[[bytes], bytes]) -> None:
    """Rank 1's steps, whose six rows end.json has as they were."""
    file = steps_file(attempt, 1)
    file.write_bytes(change(file.read_bytes()))


ROWS = f"{POINT.label}/r1/100.0/ranks/00001.steps.csv"
DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "a digit": (
        lambda attempt: rewritten(attempt, lambda data: data.replace(b"1000000", b"1000001", 1)),
        f"rank 1: {ROWS} does not match its checksum in end.json",
    ),
    "torn": (lambda attempt: rewritten(attempt, lambda data: data[:-9]), f"rank 1: the last row of {ROWS} is damaged"),
    "rows": (
        lambda attempt: rewritten(attempt, lambda data: b"".join(data.splitlines(keepends=True)[:5])),
        f"rank 1: {ROWS} has 4 of 6 rows",
    ),
    "a file": (lambda attempt: steps_file(attempt, 1).unlink(), f"rank 1: {ROWS} is missing"),
    "a rank": (
        lambda attempt: change_json(attempt / "end.json", ranks=json.loads((attempt / "end.json").read_text())["ranks"][:1]),
        "end.json tells nothing of rank 1",
    ),
    "a newer schema": (
        lambda attempt: change_json(attempt / "launch.json", schema=9),
        "records of schema 9; this hpcddp reads 1",
    ),
    "another point": (
        lambda attempt: change_json(attempt / "launch.json", point="0123456789ab"),
        "launch.json is of another point, 0123456789ab",
    ),
    "gates": (lambda attempt: without(attempt, "gates"), "launch.json or end.json lacks 'gates'"),
    "ranks": (lambda attempt: without(attempt, "ranks"), "launch.json or end.json lacks 'ranks'"),
    "global_batch": (lambda attempt: without(attempt, "global_batch"), "launch.json or end.json lacks 'global_batch'"),
}
"""What is damaged of a run's records, and why it does not count."""


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_records_reject(study: Study, damage: str) -> None:
    change, why = DAMAGES[damage]
    change(write_run(study, POINT, Recorded(step_ns=MS)))
    assert (only(study).state, only(study).reason) == ("rejected", why)


def test_a_damaged_line_after_the_recorded_rows_costs_itself_only(study: Study) -> None:
    rewritten(write_run(study, POINT, Recorded(step_ns=8 * MS)), lambda data: data + b"6,0,17")
    records = load_study(study)
    assert (records.runs[0].state, records.runs[0].step_ns) == ("counts", 8 * MS)
    assert records.warnings == (f"{ROWS}: 1 damaged line after the 6 rows recorded; left aside",)


def test_only_warmup_rejects(study: Study) -> None:
    write_run(study, POINT, Recorded(step_ns=MS, steps=0))
    assert (only(study).reason or "").startswith("no timed step: all 1 belong to the warm-up")


def test_the_newest_attempt_that_is_done_counts(study: Study) -> None:
    """By job number (99 before 100), then restart; later ones that failed or have not ended do not matter."""
    write_run(study, POINT, Recorded(step_ns=1 * MS, job="99"))
    write_run(study, POINT, Recorded(step_ns=2 * MS, job="100"))
    write_run(study, POINT, Recorded(step_ns=3 * MS, job="100", restart=1))
    write_run(study, POINT, Recorded(step_ns=4 * MS, job="101", state="failed"))
    (write_run(study, POINT, Recorded(step_ns=5 * MS, job="102")) / "end.json").unlink()
    run = only(study)
    assert (run.attempt, run.step_ns) == ("100.1", 3 * MS)


def test_a_run_without_a_done_attempt_is_missing_with_the_newest_reason(study: Study) -> None:
    assert only(study).reason == "not started"
    write_run(study, POINT, Recorded(step_ns=MS, job="1", state="failed", reason="rank 3 lost"))
    assert (only(study).state, only(study).reason) == ("missing", "attempt 1.0 failed: rank 3 lost")
    (write_run(study, POINT, Recorded(step_ns=MS, job="2")) / "end.json").unlink()
    assert only(study).reason == "attempt 2.0 has not ended"
    write_run(study, POINT, Recorded(step_ns=MS, job="3", state="interrupted", reason="told to stop"))
    assert only(study).reason == "attempt 3.0 was interrupted: told to stop"
    (write_run(study, POINT, Recorded(step_ns=MS, job="4")) / "end.json").write_text('{"state": "do')
    records = load_study(study)
    assert records.runs[0].state == "missing"
    assert records.warnings == (f"{POINT.label}/r1/4.0/end.json is damaged; the attempt counts as not ended",)


def test_jobs_submitted_by_hand_need_no_study_json(study: Study) -> None:
    """Records are data, whatever the sweep says now: the folder's name is the study's, only what is there is expected."""
    write_run(study, POINT, Recorded(step_ns=MS), run=3)
    assert [(run.run, run.state) for run in load_study(study).runs] == [(1, "missing"), (3, "counts")]
    study.study_file.write_text("{")
    with pytest.raises(HpcddpError, match=r"study\.json is damaged"):
        load_study(study)
    study.study_file.unlink()
    records = load_study(study)
    assert (records.name, [run.state for run in records.runs]) == ("s", ["counts"])


def test_what_was_taken_out_of_the_sweep_is_not_missing(tmp_path: Path) -> None:
    """By study.json: its runs that count stay, those without a result are left out and counted, and points without a run then."""
    out, lowered = point(1, 4), POINT
    study = write_study(tmp_path / "s", [out, lowered, (empty := point(1, 8))], repeat=2)
    entries = json.loads(study.study_file.read_text())["points"]
    scope = {out.label: 0, lowered.label: 1, empty.label: 0}
    change_json(study.study_file, points=[{**entry, "in_sweep": scope.get(entry["label"], 2)} for entry in entries])
    for each in (out, lowered):
        write_run(study, each, Recorded(step_ns=MS))
    records = load_study(study)
    assert {(run.label, run.run, run.state) for run in records.runs} == {(each.label, 1, "counts") for each in (out, lowered)}
    assert {planned.label for planned in records.points} == {out.label, lowered.label}
    assert records.warnings == (
        "4 runs without a result are omitted, because the sweep no longer has them: "
        f"{lowered.label} r2, {out.label} r2, {empty.label} r1-2",
    )
