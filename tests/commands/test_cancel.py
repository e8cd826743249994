"""`hpcddp cancel`, `logs` and `clean`, as a user runs them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from hpcddp.backends.base import JobState
from hpcddp.core.errors import FAILED, USAGE
from hpcddp.core.point import Data, Point, Workload, point_to_dict
from hpcddp.core.records import write_json
from hpcddp.core.run_root import RunKey, Study
from hpcddp.study.submission_log import latest_events, user_name
from tests.commands.conftest import Run
from tests.fake_backend import FakeBackend
from tests.given_event import log_event

POINTS = [Point(cluster="c", workload=Workload(model="mnist-cnn", data=Data(name="mnist"), batch_per_gpu=b)) for b in (8, 16)]
FIRST, SECOND = (point.label for point in POINTS)


class Cancelling(FakeBackend):
    """Notes what it was asked to cancel, in each call, and does so."""

    def __init__(self, states: Mapping[str, JobState]) -> None:
        super().__init__(states)
        self.cancelled: list[dict[str, str]] = []

    def cancel(self, jobs: Mapping[str, str]) -> None:
        self.cancelled.append(dict(jobs))
        self.states |= {job: JobState(phase="failed", detail="cancelled (CANCELLED)", word="CANCELLED") for job in jobs}


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> Cancelling:
    found = Cancelling({"1": JobState(phase="running"), "3": JobState(phase="failed", detail="exit code 1 (FAILED)")})
    monkeypatch.setattr("hpcddp.backends.choose.make_backend", lambda *_, **__: found)
    return found


@pytest.fixture
def study(tmp_path: Path, backend: Cancelling) -> Study:
    """Two points twice: job 1 runs, 2 and 4 wait, 3 has failed."""
    study = Study(tmp_path / "s")
    write_json(study.study_file, {"schema": 1, "repeat": 2, "points": [{"label": point.label} for point in POINTS]})
    for number, point in enumerate(POINTS):
        write_json(study.point_file(point.label), {"schema": 1, "id": point.id, "point": point_to_dict(point)})
        for run in (1, 2):
            log_event(study, point.label, run=run, job=str(2 * number + run))
    return study


def test_cancel_ends_what_is_not_over_in_one_call(run: Run, study: Study, backend: Cancelling) -> None:
    """All that waits or runs, shown first; it is noted by whom, and status tells."""
    result = run("cancel", study.folder, "-y")
    assert (result.exit_code, result.stdout.splitlines()[-1]) == (0, "cancelled    3 runs")
    assert backend.cancelled == [{"1": f"{FIRST}.r1", "2": f"{FIRST}.r2", "4": f"{SECOND}.r2"}]
    events = latest_events(study)
    assert [(line.event, line.reason) for line in events.values()].count(("cancelled", user_name())) == 3
    assert run("status", study.folder).stdout.count("cancelled by you (CANCELLED)") == 2  # of the first point in one line
    assert run("cancel", study.folder, "-y").stdout == "nothing to cancel: no run waits or runs\n"


def test_cancel_of_some_points_by_the_beginnings_of_their_labels(run: Run, study: Study, backend: Cancelling) -> None:
    """Only theirs; a beginning that fits none is a mistake, and nothing is cancelled."""
    assert run("cancel", study.folder, SECOND[:9], "-y").exit_code == 0
    assert backend.cancelled == [{"4": f"{SECOND}.r2"}]
    result = run("cancel", study.folder, SECOND[:9], "n09", "-y")
    assert (result.exit_code, len(backend.cancelled)) == (USAGE, 1)
    assert result.stderr.startswith("no point `n09` in this study; it has n01-g1-b")


def test_without_an_answer_nothing_is_called_cancelled(run: Run, study: Study, backend: Cancelling) -> None:
    """A controller that does not say what waits or runs: an error with the next step, and no run is noted as cancelled. Points
    that are not asked for do not matter.
    """
    backend.states |= {job: JobState(phase="unknown", detail="squeue: Unable to contact slurm controller") for job in ("1", "2")}
    result = run("cancel", study.folder, "-y")
    assert (result.exit_code, backend.cancelled) == (FAILED, [])
    assert result.stderr == (
        "2 runs not known of just now: squeue: Unable to contact slurm controller. "
        "Nothing was cancelled; cancel again when there is an answer\n"
    )
    assert {line.event for line in latest_events(study).values()} == {"submitted"}
    assert run("cancel", study.folder, SECOND, "-y").exit_code == 0
    assert backend.cancelled == [{"4": f"{SECOND}.r2"}]


@pytest.mark.parametrize("arrived", [True, False])
def test_the_job_of_an_interrupted_submission_is_cancelled_too(
    run: Run, study: Study, backend: Cancelling, monkeypatch: pytest.MonkeyPatch, arrived: bool
) -> None:
    """It is looked up first; where there is none, its run is missing."""
    jobs = {(f"{FIRST}.r3", "i"): "9"} if arrived else {}
    monkeypatch.setattr(backend, "find", lambda _, name, token: jobs.get((name, token)))
    log_event(study, FIRST, "intent", run=3, token="i")
    assert run("cancel", study.folder, "-y").exit_code == 0
    (cancelled,) = backend.cancelled
    assert (cancelled.get("9"), len(cancelled)) == ((f"{FIRST}.r3", 4) if arrived else (None, 3))
    assert latest_events(study)[RunKey(FIRST, 3)].event == ("cancelled" if arrived else "lost")


def test_cancel_asks(run: Run, study: Study, backend: Cancelling) -> None:
    """Without -y, and without a yes, nothing is cancelled."""
    assert run("cancel", study.folder).exit_code == FAILED
    assert backend.cancelled == []


def test_logs_are_those_of_the_rank_at_fault(run: Run, study: Study) -> None:
    """Of the job submitted last: what that rank wrote, then the batch script, each below its path."""
    folder = study.job_dir("4")
    folder.mkdir(parents=True)
    for name, text in (("4_0_log.err", "zero"), ("4_1_log.err", "one"), ("4_1_log.out", ""), ("batch.err", "srun: error")):
        (folder / name).write_text(text)
    point = study.folder / SECOND
    assert run("logs", point).stdout == f"== {folder}/4_0_log.err\nzero\n== {folder}/batch.err\nsrun: error\n"
    fault = {"kind": "error", "rank": 1, "host": "gn01", "sentence": "no", "line": None}
    write_json(study.attempt_dir(SECOND, 2, "4", 0) / "end.json", {"state": "failed", "reason": "no", "fault": fault})
    assert run("logs", point).stdout == f"== {folder}/4_1_log.err\none\n== {folder}/batch.err\nsrun: error\n"
    assert run("logs", point / "r2", "--rank", "0").stdout.startswith(f"== {folder}/4_0_log.err")
    missing = run("logs", point, "--rank", "7")
    assert (missing.exit_code, missing.stderr) == (USAGE, f"{folder}: no log of rank 7; it has logs of ranks 0 to 1\n")


def test_logs_of_a_point_by_the_beginning_of_its_label(run: Run, study: Study) -> None:
    """As cancel takes it, where one point alone begins so; a run of it, too. Else the points there are, are named."""
    for job in "34":
        study.job_dir(job).mkdir(parents=True)
        (study.job_dir(job) / "batch.err").write_text(f"job {job}")
    begun = study.folder / SECOND[:11]
    assert run("logs", begun).stdout.endswith("batch.err\njob 4\n")
    assert run("logs", begun / "r1").stdout.endswith("batch.err\njob 3\n")
    both = run("logs", study.folder / "n01")
    assert (both.exit_code, both.stdout) == (USAGE, "")
    assert both.stderr == f"{study.folder / 'n01'}: 2 points begin so: {SECOND}, {FIRST}; write more of the one that is meant\n"
    none = run("logs", study.folder / "n09" / "r1")
    assert (none.exit_code, none.stderr.partition(": ")[2]) == (
        USAGE,
        f"no point `n09` in {study.folder}; it has {SECOND}, {FIRST}\n",
    )


def test_of_a_long_log_the_end_is_shown(run: Run, study: Study) -> None:
    """From the beginning of a line, and it is said."""
    log = study.job_dir("4") / "4_0_log.err"
    log.parent.mkdir(parents=True)
    log.write_text("".join(f"line {number}\n" for number in range(20_000)))
    lines = run("logs", study.folder / SECOND).stdout.splitlines()
    assert lines[0] == f"== {log} (its last 64 kB of 209 kB)"
    assert lines[1].startswith("line ")
    assert lines[-1] == "line 19999"


def test_a_point_without_a_job_has_no_logs(run: Run, study: Study) -> None:
    """It says what to look at instead."""
    (study.folder / "n09").mkdir()
    assert run("logs", study.folder / "n09").exit_code == USAGE


def test_clean_lists_and_removes_on_demand(run: Run, study: Study, backend: Cancelling) -> None:
    """Dry by default; with --yes what was listed is gone, with how much it was."""
    run("cancel", study.folder, "-y")
    snapshot = study.code / "aa" / "bootstrap.py"
    snapshot.parent.mkdir(parents=True)
    snapshot.write_bytes(bytes(2000))
    dry = run("clean", study.folder)
    assert dry.stdout.splitlines()[1].split() == [".code/aa", "no", "job", "needs", "it", "2", "kB"]
    assert snapshot.exists()
    assert run("clean", study.folder, "--yes").stdout.splitlines()[-1] == "2 kB removed"
    assert not snapshot.exists()
    assert run("clean", study.folder).stdout == "nothing to remove\n"
