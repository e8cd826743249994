from __future__ import annotations

import json
import os
import pwd
from pathlib import Path
from typing import Any

import pytest

from hpcddp.analysis.report.terminal import findings_plain
from hpcddp.analysis.study.load import load_study
from hpcddp.analysis.verdicts.findings import find
from hpcddp.backends.base import JobState
from hpcddp.core.hours import Hours
from hpcddp.core.point import point_to_dict
from hpcddp.core.records import steps_file, write_json
from hpcddp.core.run_root import Study
from hpcddp.core.schema import encode
from hpcddp.core.study_files import JobRun, read_outcomes
from hpcddp.core.transport_record import NodeAdapters, TransportRecord
from hpcddp.study.status import run_states
from hpcddp.study.status_text import total_lines
from hpcddp.study.study_status import newest_network_words
from hpcddp.study.submission_log import user_name
from hpcddp.study.used_hours import StudyHours, study_hours
from tests.analysis.synthetic import point, write_study
from tests.fake_slurm import FakeBackend
from tests.given_plan import log_event

NODE = NodeAdapters(found=("mlx5_0",), used=("mlx5_0",))


def record(folder: Path, job: str, age_s: int, transport: TransportRecord) -> Path:
    file = folder / "n02-g4-b32-3fa9c1d2e07b" / "r1" / f"{job}.0" / "transport.json"
    write_json(file, encode(transport))
    os.utime(file, (10_000 - age_s, 10_000 - age_s))
    return file


def test_the_newest_attempts_network(tmp_path: Path) -> None:
    study = Study(tmp_path)
    assert newest_network_words(study) is None
    record(tmp_path, "7", 90, TransportRecord(schema=1, library="gloo", nodes={"r1": NodeAdapters(used=("lo",))}))
    assert newest_network_words(study) is None
    nodes = {"r1": NODE, "r2": NODE}
    nccl = TransportRecord(schema=1, library="NCCL", version="2.28.9", networks=("IB",), links=("IB",), nodes=nodes)
    record(tmp_path, "8", 60, nccl)
    assert newest_network_words(study) == "network: NCCL 2.28.9 over InfiniBand (IB), 1 adapter a node (mlx5_0)"
    gloo = {"r1": NodeAdapters(used=("ib0",)), "r2": NodeAdapters(used=("ib0",))}
    newest = record(tmp_path, "9", 30, TransportRecord(schema=1, library="gloo", nodes=gloo))
    assert newest_network_words(study) == "network: gloo over ib0"
    newest.write_text("{")
    assert newest_network_words(study) is None


HOUR_NS = 3_600_000_000_000
OF_HOURS = point(2, 3)
RUNS = JobState(phase="running", time_limit="1:00:00", time_left_s=1800.0)
WAITS = JobState(phase="queued", time_limit="1:00:00")


@pytest.fixture
def of_hours(tmp_path: Path) -> Study:
    """One point on two nodes, of three runs; nothing is submitted yet."""
    of_hours = Study(tmp_path / "s")
    write_json(of_hours.study_file, {"schema": 1, "repeat": 3, "points": [{"label": OF_HOURS.label}]})
    write_json(of_hours.point_file(OF_HOURS.label), {"schema": 1, "id": OF_HOURS.id, "point": point_to_dict(OF_HOURS)})
    return of_hours


def begun(of_hours: Study, name: str, begun_h: float = 1, *, end_h: float | None = None, rows_h: float | None = None) -> None:
    job, _, restart = name.partition(".")
    attempt = of_hours.attempt_dir(OF_HOURS.label, 1, job, int(restart))
    launch = {"started_unix_ns": int(begun_h * HOUR_NS), "hosts": ["gn01", "gn02"], "backend": "slurm"}
    write_json(attempt / "launch.json", launch)
    if end_h is not None:
        write_json(attempt / "end.json", {"state": "done", "gates": [], "ended_unix_ns": int(end_h * HOUR_NS)})
    if rows_h is not None:
        rows = steps_file(attempt, 0)
        rows.parent.mkdir()
        rows.touch()
        os.utime(rows, ns=(0, int(rows_h * HOUR_NS)))


def hours(of_hours: Study, **jobs: JobState) -> StudyHours:
    """Four hours after the epoch, where the jobs are in these states: `_7` is job 7."""
    backend = FakeBackend({job.removeprefix("_"): state for job, state in jobs.items()})
    return study_hours(of_hours, run_states(of_hours, backend), now_ns=4 * HOUR_NS)


def test_hours_are_those_of_all_attempts(of_hours: Study) -> None:
    log_event(of_hours, OF_HOURS.label, job="8")
    begun(of_hours, "7.0", end_h=2)
    begun(of_hours, "8.0")
    begun(of_hours, "9.0", rows_h=1.5)
    failed = {"state": "failed", "reason": "x", "gates": [], "ended_unix_ns": 2 * HOUR_NS}
    write_json(of_hours.attempt_dir(OF_HOURS.label, 1, "7", 0) / "end.json", failed)
    assert hours(of_hours, _8=RUNS).used == Hours(node=2 * (1 + 3 + 0.5), gpu=6 * (1 + 3 + 0.5))
    assert hours(of_hours, _8=WAITS).used == Hours(node=2 * (1 + 0 + 0.5), gpu=6 * (1 + 0 + 0.5))


def test_an_end_before_the_beginning_gives_nothing_back(of_hours: Study) -> None:
    log_event(of_hours, OF_HOURS.label, job="8")
    begun(of_hours, "7.0", end_h=2)
    begun(of_hours, "8.0", end_h=0.5)
    assert hours(of_hours).used.node == 2 * 1


def test_a_requeued_job_is_at_work_in_its_last_attempt_only(of_hours: Study) -> None:
    """The one before ended when the job was requeued: at its last rows, not now."""
    log_event(of_hours, OF_HOURS.label, job="8")
    begun(of_hours, "8.2", 1, rows_h=1.5)
    begun(of_hours, "8.10", 3)
    assert hours(of_hours, _8=RUNS).used.node == 2 * (0.5 + 1)


def test_what_was_requested_counts_used_or_not(of_hours: Study) -> None:
    """Four GPUs of each node were asked for, three train; without that in the log, those that train; none on processors."""
    begun(of_hours, "7.0", end_h=2)
    assert hours(of_hours).used == Hours(node=2, gpu=6)
    log_event(of_hours, OF_HOURS.label, job="7", gpus_per_node=4)
    assert hours(of_hours).used == Hours(node=2, gpu=8)
    log_event(of_hours, OF_HOURS.label, job="7", gpus_per_node=0)
    assert hours(of_hours).used == Hours(node=2)
    of_hours.point_file(OF_HOURS.label).write_text("{")
    assert hours(of_hours).used == Hours(node=2)


def test_what_is_to_come_ends_with_the_time_limits(of_hours: Study) -> None:
    log_event(of_hours, OF_HOURS.label, job="7", gpus_per_node=4)
    log_event(of_hours, OF_HOURS.label, job="8", run=2)
    assert hours(of_hours, _7=RUNS, _8=WAITS).to_come == Hours(node=1 + 2, gpu=4 + 6)
    assert hours(of_hours, _7=JobState(phase="failed"), _8=JobState(phase="failed")).to_come == Hours()


@pytest.mark.parametrize(
    "state", [JobState(phase="unknown"), JobState(phase="queued", time_limit="UNLIMITED"), JobState(phase="queued")]
)
def test_without_a_limit_it_is_not_known(of_hours: Study, state: JobState) -> None:
    log_event(of_hours, OF_HOURS.label, job="7")
    assert hours(of_hours, _7=state).to_come is None


def test_runs_of_one_job_share_its_nodes(of_hours: Study) -> None:
    shared: Any = {"nodes": 4, "gpus_per_node": 4, "array": "n04-3runs.t"}
    for task in range(3):
        log_event(of_hours, OF_HOURS.label, run=task + 1, job=f"7+{task}", task=task, **shared)
        (of_hours.jobs / "7" / str(task)).mkdir(parents=True)
    backend = FakeBackend({f"7+{task}": WAITS for task in range(3)})
    assert study_hours(of_hours, run_states(of_hours, backend)).to_come == Hours(node=4, gpu=16)


def test_runs_on_this_machine_take_nothing(of_hours: Study) -> None:
    log_event(of_hours, OF_HOURS.label, backend="local", job="L0001")
    backend = FakeBackend({"L0001": RUNS})
    backend.name = "local"
    assert study_hours(of_hours, run_states(of_hours, backend)) == StudyHours(used=Hours(), to_come=Hours())


@pytest.mark.parametrize(
    ("used", "to_come", "words"),
    [
        (
            {"node": 1.04, "gpu": 9.4},
            {"node": 4, "gpu": 16},
            "1.0 node hours, 9.4 GPU hours so far; at most 4.0 and 16.0 to come",
        ),
        ({"node": 12.34}, {"node": 4}, "12.3 node hours so far; at most 4.0 to come"),
        ({"node": 1}, {"node": 4, "gpu": 16}, "1.0 node hours so far; at most 4.0 node hours, 16.0 GPU hours to come"),
        ({}, {"node": 4, "gpu": 16}, "at most 4.0 node hours, 16.0 GPU hours to come"),
        ({"node": 1}, None, "1.0 node hours so far"),
        ({"node": 0.04}, {"node": 0.04}, ""),
    ],
)
def test_words(used: dict[str, Any], to_come: dict[str, Any] | None, words: str) -> None:
    lines = total_lines([], StudyHours(used=Hours(**used), to_come=None if to_come is None else Hours(**to_come)))
    assert " ".join(lines).removeprefix("no runs").removeprefix(";").strip() == words
    assert max(map(len, lines)) <= 80


OUTCOME_POINT = point(1, 1)
LABEL = OUTCOME_POINT.label
TIMEOUT = JobState(phase="failed", word="TIMEOUT", time_limit="00:30:00", detail="TIMEOUT")


@pytest.fixture
def submitted(tmp_path: Path) -> Study:
    """Two runs that were submitted; the first has an attempt without an end."""
    submitted = write_study(tmp_path / "s", [OUTCOME_POINT], repeat=2)
    for run, job in ((1, "7"), (2, "8")):
        log_event(submitted, LABEL, run=run, token=f"t{run}", job=job)
    submitted.attempt_dir(LABEL, 1, "7", 0).mkdir(parents=True)
    return submitted


def poll(submitted: Study, **states: JobState) -> None:
    run_states(submitted, FakeBackend({job[1:]: state for job, state in states.items()}))


def reasons(submitted: Study) -> list[str]:
    plain: dict[str, Any] = findings_plain(find(load_study(submitted)), [])
    return [each["reason"] for each in plain["missing"]]


def test_analysis_says_what_slurm_ended(submitted: Study) -> None:
    assert reasons(submitted) == ["attempt 7.0 has not ended", "not started"]
    poll(submitted, j7=TIMEOUT, j8=JobState(phase="failed", word="CANCELLED", by=user_name(), detail="CANCELLED"))
    first, second = reasons(submitted)
    assert first.startswith("attempt 7.0 failed: ")
    assert "time limit" in first
    assert second.startswith("not started: job 8 failed: ")
    assert f"by {user_name()}" in second


def test_ends_are_noted_once_and_jobs_at_work_never(submitted: Study) -> None:
    poll(submitted, j7=JobState(phase="running"), j8=JobState(phase="unknown"))
    assert not submitted.outcomes_file.exists()
    for _ in range(3):
        poll(submitted, j7=TIMEOUT)
    assert len(submitted.outcomes_file.read_text().splitlines()) == 1


def test_a_requeued_job_has_not_ended(submitted: Study) -> None:
    poll(submitted, j7=TIMEOUT)
    poll(submitted, j7=JobState(phase="running"))
    assert reasons(submitted)[0] == "attempt 7.0 has not ended"
    poll(submitted, j7=TIMEOUT)
    assert "time limit" in reasons(submitted)[0]


def test_a_line_that_is_torn_says_nothing() -> None:
    line = json.dumps({"label": LABEL, "run": 1, "job": "7", "reason": "lost", "unix_s": 1.0})
    assert read_outcomes(f"{{}}\n[1]\n{line}\n{line[:30]}".encode()) == {JobRun(LABEL, 1, "7"): "lost"}


def test_a_study_of_another_user_is_left_as_it_is_and_no_link_followed(submitted: Study, tmp_path: Path) -> None:
    os.chown(submitted.folder, pwd.getpwnam("nobody").pw_uid, -1)
    poll(submitted, j7=TIMEOUT)
    assert not submitted.outcomes_file.exists()
    os.chown(submitted.folder, os.getuid(), -1)
    (tmp_path / "mine").write_text("")
    submitted.outcomes_file.symlink_to(tmp_path / "mine")
    poll(submitted, j7=TIMEOUT)
    assert (tmp_path / "mine").read_text() == ""
