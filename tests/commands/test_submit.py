"""`hpcddp submit`: what failed, what is unknown, all runs in one job."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcddp.backends.base import JobState
from hpcddp.core.errors import INCOMPLETE
from hpcddp.core.run_root import Study
from tests.analysis.synthetic import FAILED, MS, Recorded, write_run
from tests.commands.conftest import Run
from tests.fake_backend import FakeBackend
from tests.given_one_allocation import SWEEP as IN_ONE
from tests.given_plan import SWEEP

LOST = JobState(phase="failed", detail="a node failed (NODE_FAIL)", word="NODE_FAIL")


@pytest.fixture
def waiting(tmp_path: Path, backend: FakeBackend, run: Run) -> FakeBackend:
    """Of a sweep's four runs three are submitted: jobs 100, 101 and 102, which wait."""
    (tmp_path / "small.yaml").write_text(SWEEP)
    assert run("submit", "small.yaml", "-y", "--max-jobs", "3").exit_code == 3
    return backend


def sent(backend: FakeBackend) -> list[tuple[str, int]]:
    """The runs submitted since the first three."""
    return [(one.spec.label, one.spec.run) for one in list(backend.queued.values())[3:]]


def test_what_failed_is_submitted_and_what_is_missing_is_not(run: Run, waiting: FakeBackend) -> None:
    waiting.states["100"] = LOST
    failed = waiting.queued["100"].spec
    result = run("submit", "small.yaml", "--failed")
    assert (result.exit_code, sent(waiting)) == (1, []), result.output  # no answer to the question
    assert "1 run to submit of 4 runs (1 more missing)" in result.stdout
    assert "NODE_FAIL" in result.stdout
    assert "next: submit it again" in result.stdout
    result = run("submit", "small.yaml", "--failed", "-y")
    assert (result.exit_code, sent(waiting)) == (0, [(failed.label, failed.run)]), result.output
    result = run("submit", "small.yaml", "-y")
    assert (result.exit_code, len(waiting.queued)) == (0, 5), result.output


def test_it_chooses_among_the_chosen_points(run: Run, waiting: FakeBackend) -> None:
    waiting.states |= {"100": LOST, "101": LOST}
    one, two = (waiting.queued[job].spec for job in ("100", "101"))
    result = run("submit", "small.yaml", "--failed", "-y", "--where", "layout.gpus_per_node == 2")
    assert (result.exit_code, sent(waiting)) == (0, [(two.label, 1)]), result.output
    assert one.label not in result.stdout
    assert "1 run to submit of 2 runs" in result.stdout


def test_where_nothing_failed_it_says_so(run: Run, waiting: FakeBackend) -> None:
    spec = waiting.queued["101"].spec
    write_run(Study(Path(spec.study)), spec.point, Recorded(step_ns=MS, gpu=None, job="101", gates=FAILED), spec.run)
    result = run("submit", "small.yaml", "--failed", "-y")
    assert (result.exit_code, sent(waiting)) == (0, []), result.output
    assert result.stdout.splitlines() == [
        "no run failed",
        "1 run is missing: submit without --failed for it",
        f"rejected: {spec.label} r1; to measure it again, remove the run's folder, then submit",
        "nothing to submit",
    ]


def test_a_failed_run_that_until_ci_added(run: Run, waiting: FakeBackend, tmp_path: Path) -> None:
    (tmp_path / "other.yaml").write_text(SWEEP)
    assert run("submit", "other.yaml", "-y", "--until-ci", "2").exit_code == 0
    job, spec = next((job, one.spec) for job, one in waiting.queued.items() if one.spec.run == 6)
    waiting.states[job], before = LOST, len(waiting.queued)
    result = run("submit", "other.yaml", "--failed", "-y")
    assert (result.exit_code, sent(waiting)[before - 3 :]) == (0, [(spec.label, 6)]), result.output


def test_waiting_ends_well_without_what_is_missing(run: Run, waiting: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting.states["100"] = LOST
    for job in ("101", "102"):
        finish(waiting, job)
    monkeypatch.setattr(waiting, "on_submit", lambda _: finish(waiting, max(waiting.queued)))
    result = run("submit", "small.yaml", "--failed", "-y", "--wait")
    assert (result.exit_code, len(waiting.queued)) == (0, 4), result.output


def finish(backend: FakeBackend, job: str) -> None:
    spec = backend.queued[job].spec
    write_run(Study(Path(spec.study)), spec.point, Recorded(step_ns=MS, gpu=None, job=job), spec.run)


def test_it_goes_with_nothing_that_adds_runs(run: Run, waiting: FakeBackend) -> None:
    assert run("submit", "small.yaml", "--failed", "--until-ci", "2").exit_code == 2


@pytest.fixture
def submitted(tmp_path: Path, run: Run, backend: FakeBackend) -> Path:
    """A sweep of four runs, all in the queue."""
    sweep = tmp_path / "small.yaml"
    sweep.write_text(SWEEP)
    first = run("submit", sweep, "-y")
    assert first.exit_code == 0, first.output
    return sweep


SILENT = JobState(phase="unknown", detail="squeue: Socket timed out on send/recv operation")


def test_runs_that_are_unknown_are_left_alone_and_named(submitted: Path, run: Run, backend: FakeBackend) -> None:
    backend.states = dict.fromkeys(backend.queued, SILENT)
    again = run("submit", submitted, "-y")
    assert (again.exit_code, len(backend.queued)) == (INCOMPLETE, 4)
    assert "nothing to submit" not in again.stdout
    assert again.stdout.splitlines()[-1] == "nothing submitted: nobody says what became of 4 runs"
    first, second = sorted({one.spec.label for one in backend.queued.values()})
    assert f"! 4 runs are unknown and left alone: {first} r1-2, {second} r1-2: {SILENT.detail}. Submit again" in again.stderr


def test_what_is_known_to_be_missing_goes_beside_what_is_unknown(submitted: Path, run: Run, backend: FakeBackend) -> None:
    cancelled = JobState(phase="failed", detail="cancelled (CANCELLED)", word="CANCELLED")
    backend.states = {**dict.fromkeys(backend.queued, SILENT), "100": cancelled}
    again = run("submit", submitted, "-y")
    assert (again.exit_code, len(backend.queued)) == (INCOMPLETE, 5)
    assert "! 3 runs are unknown and left alone" in again.stderr


def test_many_unknown_points_are_counted(submitted: Path, run: Run, backend: FakeBackend) -> None:
    """The first points stand for all: there may be thousands."""
    submitted.write_text(SWEEP.replace("[1, 2]", "[1, 2, 3, 4, 5]"))
    assert run("submit", submitted, "-y").exit_code == 0
    backend.states = dict.fromkeys(backend.queued, SILENT)
    assert " r1-2 and 2 points more: squeue" in run("submit", submitted, "-y").stderr


@pytest.fixture
def in_one(backend: FakeBackend, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeBackend:
    """A cluster whose jobs may take two hours; small.yaml has three points of two runs, half an hour each."""
    monkeypatch.setattr("hpcddp.submit.submission_plan.longest_min", lambda partition: {"gpu": 120}[partition])
    (tmp_path / "small.yaml").write_text(IN_ONE.replace("AXES", "{layout.nodes: [1, 2, 4]}"))
    return backend


def test_the_job_and_its_cost_are_said_first(run: Run, in_one: FakeBackend) -> None:
    result = run("submit", "small.yaml", "--one-allocation", "-y")
    assert result.exit_code == 0, result.output
    words = "one job of 4 nodes for 120 min: as long as one may take; the time of its 6 runs is 180 min, and what is left is"
    assert f"{words} requeued\n6 runs to submit of 6 runs, at most 12.0 node hours, 12.0 GPU hours, under" in result.stdout
    assert "submitted    1 job    100, 6 runs one after the other\n" in result.stdout
    assert "nothing to submit" in run("submit", "small.yaml", "--one-allocation", "-y").stdout
    assert len(in_one.queued) == 1


def test_what_no_job_gives_is_a_usage_error(run: Run, in_one: FakeBackend) -> None:
    settings = ("--set", "slurm.options=[--signal=USR2@600]")
    result = run("submit", "small.yaml", "--one-allocation", *settings, "-y")
    assert (result.exit_code, in_one.queued) == (2, {}), result.output
    assert "write -J --signal=B:USR2@600" in result.stderr


def test_bench_comm_in_one_job(run: Run, in_one: FakeBackend) -> None:
    result = run("bench", "comm", "small.yaml", "--one-allocation", "-y")
    assert "submitted    1 job    100, 2 runs one after the other\n" in result.stdout, result.output


def test_logs_of_a_run_and_of_the_job_it_shares(run: Run, in_one: FakeBackend, tmp_path: Path) -> None:
    run("submit", "small.yaml", "--one-allocation", "-y")
    folder = tmp_path / "small" / ".jobs" / "100"
    (folder / "5").mkdir(parents=True)
    (folder / "batch.err").write_text("hpcddp: this node has no `module` command")
    (point,) = (tmp_path / "small").glob("n01-*")
    log = f"== {folder}/batch.err\nhpcddp: this node has no `module` command\n"
    assert run("logs", point).stdout == log
    (folder / "5" / "batch.err").write_text("srun: error")
    assert run("logs", point).stdout == f"== {folder}/5/batch.err\nsrun: error\n{log}"
