"""From points to jobs: everything missing, nothing twice, whatever breaks off in between."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from hpcddp.backends.base import JobState, Submission, pause_s
from hpcddp.backends.local import LocalBackend
from hpcddp.core.errors import HpcddpError, RefusedError
from hpcddp.core.records import write_json
from hpcddp.core.run_root import Study
from hpcddp.study.status import RunState, run_states
from hpcddp.study.submission_log import latest_events
from hpcddp.submit.pending import pending_runs
from hpcddp.submit.session import wait_until_over
from hpcddp.submit.submit import SubmittedRun, submit_runs
from tests.fake_slurm import FakeBackend
from tests.given_plan import labels, log_event, study_of, submission_plan


def lines(study: Study) -> list[dict[str, Any]]:
    return [json.loads(text) for text in study.submissions_file.read_text().splitlines()]


def tokens(study: Study) -> list[str]:
    """Of all submissions, in their order."""
    return list(dict.fromkeys(line["token"] for line in lines(study)))


def events(study: Study, token: str) -> list[str]:
    return [line["event"] for line in lines(study) if line["token"] == token]


def test_pending_is_what_is_missing_or_failed_one_repetition_after_another(tmp_path: Path) -> None:
    one, two = labels(submission_plan(tmp_path))
    states = [
        RunState(label=one, run=1, phase="done"),
        RunState(label=two, run=1, phase="failed"),
        RunState(label=one, run=2, phase="missing"),
        RunState(label=one, run=3, phase="unknown", job="7"),
        RunState(label=two, run=3, phase="queued"),
        RunState(label=one, run=4, phase="running"),
        RunState(label=two, run=4, phase="unknown"),
    ]
    pending = [(point.label, run) for point, run in pending_runs(submission_plan(tmp_path, "repeat=4"), states)]
    assert pending == [(two, 1), (one, 2), (two, 2), (two, 4)]


def test_runs_are_submitted_once(tmp_path: Path, study: Study, backend: FakeBackend) -> None:
    heard = list[SubmittedRun]()
    runs = submit_runs(study, submission_plan(tmp_path), backend, heard.append)
    one, two = labels(submission_plan(tmp_path))
    assert [(run.label, run.run, run.job) for run in runs] == [(one, 1, "100"), (two, 1, "101"), (one, 2, "102"), (two, 2, "103")]
    assert heard == runs
    assert submit_runs(study, submission_plan(tmp_path), backend) == []
    backend.states["101"] = JobState(phase="failed", detail="a node failed (NODE_FAIL)")
    assert submit_runs(study, submission_plan(tmp_path), backend) == [SubmittedRun(label=two, run=1, job="104")]
    assert submit_runs(study, submission_plan(tmp_path), backend) == []


def test_intent_is_on_disk_before_the_backend_is_asked(tmp_path: Path, study: Study, backend: FakeBackend) -> None:
    noted = list[list[str]]()
    backend.on_submit = lambda request: noted.append(events(study, request.token))
    submit_runs(study, submission_plan(tmp_path), backend)
    assert noted == [["intent"]] * 4
    assert [events(study, token) for token in tokens(study)] == [["intent", "submitted"]] * 4


def test_intents_go_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, study: Study, backend: FakeBackend) -> None:
    """Whenever a disk is asked to keep some, which may take long, those of several submissions are there, but not of all."""
    monkeypatch.setattr("hpcddp.study.submission_log.AHEAD", 3)
    intents = list[int]()
    backend.on_submit = lambda request: intents.append(sum(line["event"] == "intent" for line in lines(study)))
    submit_runs(study, submission_plan(tmp_path), backend)
    assert intents == [3, 3, 3, 4]


def test_nothing_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, study: Study, backend: FakeBackend) -> None:
    def full(_: object, lines: list[object]) -> None:
        if lines:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("hpcddp.study.submission_log.append", full)
    with pytest.raises(OSError, match="No space left"):
        submit_runs(study, submission_plan(tmp_path), backend)
    assert backend.queued == {}


def test_refusal_is_recorded_and_the_rest_comes_next_time(tmp_path: Path, study: Study, backend: FakeBackend) -> None:
    def refuse(request: Submission) -> None:
        if len(backend.queued) == 2:
            backend.queued.popitem()
            raise RefusedError(f"{request.name}: sbatch: error: QOSMaxSubmitJobPerUserLimit")

    backend.on_submit = refuse
    with pytest.raises(RefusedError, match="QOSMaxSubmitJobPerUserLimit"):
        submit_runs(study, submission_plan(tmp_path), backend)
    assert [events(study, token)[-1] for token in tokens(study)] == ["submitted", "refused", "lost", "lost"]
    one, two = labels(submission_plan(tmp_path))
    refused = next(state for state in run_states(study, backend) if (state.label, state.run) == (two, 1))
    assert refused.phase == "failed"
    backend.on_submit = lambda request: None
    again = submit_runs(study, submission_plan(tmp_path), backend)
    assert [(run.label, run.run) for run in again] == [(two, 1), (one, 2), (two, 2)]


@pytest.mark.parametrize("arrived", [True, False])
def test_interrupted_submission_is_looked_up(tmp_path: Path, arrived: bool, study: Study, backend: FakeBackend) -> None:
    with backend.breaking_off(arrived=arrived), pytest.raises(KeyboardInterrupt):
        submit_runs(study, submission_plan(tmp_path), backend)
    heard = list[SubmittedRun]()
    runs = submit_runs(study, submission_plan(tmp_path), backend, heard.append)
    assert len(runs) == (3 if arrived else 4)
    assert [run.job for run in heard] == ["100", "101", "102", "103"]
    assert len(backend.queued) == 4
    assert events(study, tokens(study)[0]) == ["intent", "submitted" if arrived else "lost"]


def test_two_do_not_double(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, study: Study, backend: FakeBackend) -> None:
    refused = list[str]()

    def no_flock(*_: object) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    def submit_too(_: Submission) -> None:
        with pytest.raises(HpcddpError, match="another hpcddp is at work here: process") as caught:
            submit_runs(study, submission_plan(tmp_path), FakeBackend())
        refused.append(str(caught.value))

    monkeypatch.setattr("fcntl.flock", no_flock)
    backend.on_submit = submit_too
    assert len(submit_runs(study, submission_plan(tmp_path), backend)) == len(refused) == 4
    assert len(lines(study)) == 8


def test_submission_that_lost_its_lock_stops(tmp_path: Path, study: Study, backend: FakeBackend) -> None:
    """A submitter that stood still until another machine took over submits nothing more when it goes on."""
    backend.on_submit = lambda request: (study.submit_lock / "99").touch()
    with pytest.raises(HpcddpError, match="another took over"):
        submit_runs(study, submission_plan(tmp_path), backend)
    assert len(backend.queued) == 1
    assert [events(study, token)[-1] for token in tokens(study)] == ["submitted", *["intent"] * 3]  # the other's to look up


def test_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "runs").touch()
    with pytest.raises(HpcddpError, match=r"no run can be recorded there .* Choose another folder with --runs"):
        submit_runs(study_of(tmp_path), submission_plan(tmp_path), FakeBackend())


def test_torn_last_line_does_not_count(tmp_path: Path, study: Study, backend: FakeBackend) -> None:
    """A line that a full disk cut short was never acted upon: it is passed over, and the next one starts a line of its own."""
    submit_runs(study, submission_plan(tmp_path, "repeat=1"), backend)
    with study.submissions_file.open("ab") as file:
        file.write(b'{"event":"intent","la')
    assert len(latest_events(study)) == 2
    assert len(submit_runs(study, submission_plan(tmp_path), backend)) == 2
    assert [line["event"] for line in lines(study)] == ["intent", "intent", "submitted", "submitted"] * 2


def test_lost_jobs_are_submitted_again(tmp_path: Path, study: Study, backend: FakeBackend) -> None:
    submit_runs(study, submission_plan(tmp_path), backend)
    lost = JobState(phase="failed", detail="Slurm no longer lists this job")
    backend.states |= {"101": lost, "103": lost}
    assert {state.detail for state in run_states(study, backend) if state.phase == "failed"} == {lost.detail}
    assert [run.run for run in submit_runs(study, submission_plan(tmp_path), backend)] == [1, 2]
    assert submit_runs(study, submission_plan(tmp_path), backend) == []


def test_submitter_killed_after_queueing_leaves_one_run_that_comes_to_its_end(tmp_path: Path) -> None:
    study = study_of(tmp_path)
    text = (
        f"import os, sys; sys.path.insert(0, {str(Path(__file__).parents[2])!r})\n"
        "from tests.submit.test_submit import *\n"
        "class Dies(LocalBackend):\n"
        "    def submit(self, request):\n"
        "        super().submit(request)\n"
        "        os.kill(os.getpid(), 9)\n"
        "folder = Path(sys.argv[1])\n"
        "submit_runs(study_of(folder), submission_plan(folder, 'repeat=1'), Dies(study_of(folder)))\n"
    )
    killed = subprocess.run([sys.executable, "-c", text, str(tmp_path)], check=False, capture_output=True, text=True)
    assert killed.returncode == -9, killed.stderr
    assert [line["event"] for line in lines(study)] == ["intent", "intent"]
    backend, planned = LocalBackend(study), submission_plan(tmp_path, "repeat=1")
    runs = submit_runs(study, planned, backend)
    assert [run.label for run in runs] == labels(planned)[1:]
    deadline = time.monotonic() + 120
    while any(state.phase in ("queued", "running") for state in run_states(study, backend)):
        assert time.monotonic() < deadline, run_states(study, backend)
        time.sleep(0.2)
    found = [(state.phase, state.job, state.detail) for state in run_states(study, backend)]
    assert found == [("done", "L0001", None), ("done", "L0002", None)]
    assert submit_runs(study, planned, backend) == []
    assert {event.job for event in latest_events(study).values()} == {"L0001", "L0002"}


def test_done_runs_stay_done_without_their_jobs(tmp_path: Path, study: Study, backend: FakeBackend) -> None:
    """Records decide: with end.json in place nothing is submitted again, even if the queue has forgotten the job."""
    planned = submission_plan(tmp_path, "repeat=1")
    for run in submit_runs(study, planned, backend):
        write_json(study.attempt_dir(run.label, 1, run.job, 0) / "end.json", {"state": "done", "reason": None, "gates": []})
        backend.states[run.job] = JobState(phase="failed", detail="Slurm no longer lists this job")
    assert submit_runs(study, planned, backend) == []
    assert os.listdir(study.code)


ANSWERS = (
    JobState(phase="queued", detail="just submitted"),
    JobState(phase="unknown", detail="squeue: Socket timed out on send/recv operation"),
    JobState(phase="running"),
)


class Successive(FakeBackend):
    """Gives the ANSWERS one after another; then the job has ended."""

    def __init__(self, study: Study, end: str) -> None:
        super().__init__()
        self._study, self._end = study, end

    def poll(self, jobs: Mapping[str, str]) -> dict[str, JobState]:
        self.polled.append(dict(jobs))
        if len(self.polled) <= len(ANSWERS):
            return dict.fromkeys(jobs, ANSWERS[len(self.polled) - 1])
        write_json(self._study.attempt_dir("p", 1, "7", 0) / "end.json", {"state": self._end, "reason": "why", "gates": []})
        return dict.fromkeys(jobs, JobState(phase="done" if self._end == "done" else "failed"))


@pytest.mark.parametrize("end", ["done", "failed"])
def test_waits_until_the_job_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    study = Study(tmp_path)
    for label in ("p", "q"):
        study.point_file(label).parent.mkdir()
    log_event(study, "p", job="7")
    backend = Successive(study, end)
    log_event(study, "q", "refused", token="u", reason="not asked about")
    lines: list[str] = []
    states = wait_until_over(study, backend, {"p"}, lines.append)
    assert [(state.label, state.phase) for state in states] == [("p", end)]
    assert [line.partition(": ")[2].partition(" ")[2][:7].rstrip(";") for line in lines] == ["queued", "unknown", "running", end]
    assert len(backend.polled) == len(ANSWERS) + 1


def test_pauses_grow() -> None:
    assert [pause_s(waited_s) for waited_s in (0, 40, 100, 3600)] == [2.0, 2.0, 5.0, 30.0]
