"""Node hours and GPU hours of a study, used and to come."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from hpcddp.backends.base import JobState
from hpcddp.core.hours import Hours
from hpcddp.core.point import Data, Layout, Point, Workload, point_to_dict
from hpcddp.core.records import steps_file, write_json
from hpcddp.core.run_root import Study
from hpcddp.study.status import run_states
from hpcddp.study.status_text import status_table
from hpcddp.study.used_hours import StudyHours, study_hours
from tests.fake_backend import FakeBackend
from tests.given_event import log_event

HOUR_NS = 3_600_000_000_000
POINT = Point(
    cluster="c",
    device="cuda",
    workload=Workload(model="resnet18", data=Data(name="synthetic-imagenet")),
    layout=Layout(nodes=2, gpus_per_node=3),
)
RUNS = JobState(phase="running", time_limit="1:00:00", time_left_s=1800.0)
WAITS = JobState(phase="queued", time_limit="1:00:00")


@pytest.fixture
def study(tmp_path: Path) -> Study:
    """One point on two nodes, of three runs; nothing is submitted yet."""
    study = Study(tmp_path / "s")
    write_json(study.study_file, {"schema": 1, "repeat": 3, "points": [{"label": POINT.label}]})
    write_json(study.point_file(POINT.label), {"schema": 1, "id": POINT.id, "point": point_to_dict(POINT)})
    return study


def begun(study: Study, name: str, begun_h: float = 1, *, end_h: float | None = None, rows_h: float | None = None) -> None:
    """An attempt of the first run, on two nodes; its end, or its last rows."""
    job, _, restart = name.partition(".")
    attempt = study.attempt_dir(POINT.label, 1, job, int(restart))
    launch = {"started_unix_ns": int(begun_h * HOUR_NS), "hosts": ["gn01", "gn02"], "backend": "slurm"}
    write_json(attempt / "launch.json", launch)
    if end_h is not None:
        write_json(attempt / "end.json", {"state": "done", "gates": [], "ended_unix_ns": int(end_h * HOUR_NS)})
    if rows_h is not None:
        rows = steps_file(attempt, 0)
        rows.parent.mkdir()
        rows.touch()
        os.utime(rows, ns=(0, int(rows_h * HOUR_NS)))


def hours(study: Study, **jobs: JobState) -> StudyHours:
    """Four hours after the epoch, where the jobs are in these states: `_7` is job 7."""
    backend = FakeBackend({job.removeprefix("_"): state for job, state in jobs.items()})
    return study_hours(study, run_states(study, backend), now_ns=4 * HOUR_NS)


def test_hours_are_those_of_all_attempts(study: Study) -> None:
    """From the meeting of the ranks to the end, on each node: of what runs until now, of what left no end until its last rows."""
    log_event(study, POINT.label, job="8")
    begun(study, "7.0", end_h=2)
    begun(study, "8.0")
    begun(study, "9.0", rows_h=1.5)
    failed = {"state": "failed", "reason": "x", "gates": [], "ended_unix_ns": 2 * HOUR_NS}
    write_json(study.attempt_dir(POINT.label, 1, "7", 0) / "end.json", failed)
    assert hours(study, _8=RUNS).used == Hours(node=2 * (1 + 3 + 0.5), gpu=6 * (1 + 3 + 0.5))
    assert hours(study, _8=WAITS).used == Hours(node=2 * (1 + 0 + 0.5), gpu=6 * (1 + 0 + 0.5))


def test_an_end_before_the_beginning_gives_nothing_back(study: Study) -> None:
    """Clocks of two nodes, or one that was set."""
    log_event(study, POINT.label, job="8")
    begun(study, "7.0", end_h=2)
    begun(study, "8.0", end_h=0.5)
    assert hours(study).used.node == 2 * 1


def test_a_requeued_job_is_at_work_in_its_last_attempt_only(study: Study) -> None:
    """The one before ended when the job was requeued: at its last rows, not now."""
    log_event(study, POINT.label, job="8")
    begun(study, "8.2", 1, rows_h=1.5)
    begun(study, "8.10", 3)
    assert hours(study, _8=RUNS).used.node == 2 * (0.5 + 1)


def test_what_was_requested_counts_used_or_not(study: Study) -> None:
    """Four GPUs of each node were asked for, three train; without that in the log, those that train; none on processors."""
    begun(study, "7.0", end_h=2)
    assert hours(study).used == Hours(node=2, gpu=6)
    log_event(study, POINT.label, job="7", gpus_per_node=4)
    assert hours(study).used == Hours(node=2, gpu=8)
    log_event(study, POINT.label, job="7", gpus_per_node=0)
    assert hours(study).used == Hours(node=2)
    study.point_file(POINT.label).write_text("{")
    assert hours(study).used == Hours(node=2)


def test_what_is_to_come_ends_with_the_time_limits(study: Study) -> None:
    """Half an hour is left of the job that runs, all of the one that waits; a missing run has no job."""
    log_event(study, POINT.label, job="7", gpus_per_node=4)
    log_event(study, POINT.label, job="8", run=2)
    assert hours(study, _7=RUNS, _8=WAITS).to_come == Hours(node=1 + 2, gpu=4 + 6)
    assert hours(study, _7=JobState(phase="failed"), _8=JobState(phase="failed")).to_come == Hours()


@pytest.mark.parametrize(
    "state", [JobState(phase="unknown"), JobState(phase="queued", time_limit="UNLIMITED"), JobState(phase="queued")]
)
def test_without_a_limit_it_is_not_known(study: Study, state: JobState) -> None:
    """Nobody says what became of the job, or how long it may take."""
    log_event(study, POINT.label, job="7")
    assert hours(study, _7=state).to_come is None


def test_runs_of_one_job_share_its_nodes(study: Study) -> None:
    """Counted once, with the nodes and GPUs of the job."""
    for task in range(3):
        log_event(study, POINT.label, run=task + 1, job=f"7+{task}", nodes=4, gpus_per_node=4, array="n04-3runs.t", task=task)
    for task in range(3):
        (study.jobs / "7" / str(task)).mkdir(parents=True)
    backend = FakeBackend({f"7+{task}": WAITS for task in range(3)})
    assert study_hours(study, run_states(study, backend)).to_come == Hours(node=4, gpu=16)


def test_runs_on_this_machine_take_nothing(study: Study) -> None:
    """Neither so far nor to come."""
    log_event(study, POINT.label, backend="local", job="L0001")
    backend = FakeBackend({"L0001": RUNS})
    backend.name = "local"
    assert study_hours(study, run_states(study, backend)) == StudyHours(used=Hours(), to_come=Hours())


@pytest.mark.parametrize(
    ("used", "to_come", "words"),
    [
        (
            {"node": 12.34, "gpu": 49.4},
            {"node": 4, "gpu": 16},
            "12.3 node hours, 49.4 GPU hours so far; at most 4.0 and 16.0 to come",
        ),
        ({"node": 12.34}, {"node": 4}, "12.3 node hours so far; at most 4.0 to come"),
        ({"node": 1}, {"node": 4, "gpu": 16}, "1.0 node hours so far; at most 4.0 node hours, 16.0 GPU hours to come"),
        ({}, {"node": 4, "gpu": 16}, "at most 4.0 node hours, 16.0 GPU hours to come"),
        ({"node": 1}, None, "1.0 node hours so far"),
        ({"node": 0.04}, {"node": 0.04}, ""),
    ],
)
def test_words(used: dict[str, Any], to_come: dict[str, Any] | None, words: str) -> None:
    """Behind the counts of runs, or below them where a line of 80 columns does not hold both."""
    table = status_table([], StudyHours(used=Hours(**used), to_come=None if to_come is None else Hours(**to_come)))
    assert " ".join(table.split()).removeprefix("no runs").removeprefix(";").strip() == words
    assert max(map(len, table.splitlines())) <= 80
