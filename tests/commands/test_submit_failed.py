"""`hpcddp submit --failed`: what failed, with the reasons, and nothing that is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcddp.backends.base import JobState
from hpcddp.core.run_root import Study
from tests.analysis.synthetic import FAILED, MS, Recorded, write_run
from tests.commands.conftest import Run
from tests.fake_backend import FakeBackend
from tests.given_plan import SWEEP

LOST = JobState(phase="failed", detail="a node failed (NODE_FAIL)", word="NODE_FAIL")


@pytest.fixture
def backend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run) -> FakeBackend:
    """Of a sweep's four runs three are submitted: jobs 100, 101 and 102, which wait."""
    found = FakeBackend()
    monkeypatch.setattr("hpcddp.backends.choose.make_backend", lambda *_, **__: found)
    (tmp_path / "small.yaml").write_text(SWEEP)
    assert run("submit", "small.yaml", "-y", "--max-jobs", "3").exit_code == 3
    return found


def sent(backend: FakeBackend) -> list[tuple[str, int]]:
    """The runs submitted since the first three."""
    return [(one.spec.label, one.spec.run) for one in list(backend.queued.values())[3:]]


def test_what_failed_is_submitted_and_what_is_missing_is_not(run: Run, backend: FakeBackend) -> None:
    """The reason stands before the question; what waits and what is missing stays as it is."""
    backend.states["100"] = LOST
    failed = backend.queued["100"].spec
    result = run("submit", "small.yaml", "--failed")
    assert (result.exit_code, sent(backend)) == (1, []), result.output  # no answer to the question
    assert "1 run to submit of 4 runs (1 more missing)" in result.stdout
    assert "NODE_FAIL" in result.stdout
    assert "next: submit it again" in result.stdout
    result = run("submit", "small.yaml", "--failed", "-y")
    assert (result.exit_code, sent(backend)) == (0, [(failed.label, failed.run)]), result.output
    result = run("submit", "small.yaml", "-y")
    assert (result.exit_code, len(backend.queued)) == (0, 5), result.output


def test_it_chooses_among_the_chosen_points(run: Run, backend: FakeBackend) -> None:
    """--where leaves out a failed run of another point; the table has the points of what is submitted only."""
    backend.states |= {"100": LOST, "101": LOST}
    one, two = (backend.queued[job].spec for job in ("100", "101"))
    result = run("submit", "small.yaml", "--failed", "-y", "--where", "layout.gpus_per_node == 2")
    assert (result.exit_code, sent(backend)) == (0, [(two.label, 1)]), result.output
    assert one.label not in result.stdout
    assert "1 run to submit of 2 runs" in result.stdout


def test_where_nothing_failed_it_says_so(run: Run, backend: FakeBackend) -> None:
    """And what is missing, and how to have it; a rejected run is named with what to do. Nothing is submitted: 0."""
    spec = backend.queued["101"].spec
    write_run(Study(Path(spec.study)), spec.point, Recorded(step_ns=MS, gpu=None, job="101", gates=FAILED), spec.run)
    result = run("submit", "small.yaml", "--failed", "-y")
    assert (result.exit_code, sent(backend)) == (0, []), result.output
    assert result.stdout.splitlines() == [
        "no run failed",
        "1 run is missing: submit without --failed for it",
        f"rejected: {spec.label} r1; to measure it again, remove the run's folder, then submit",
        "nothing to submit",
    ]


def test_a_failed_run_that_until_ci_added(run: Run, backend: FakeBackend, tmp_path: Path) -> None:
    """It is above the sweep's `repeat`, and submitted again all the same."""
    (tmp_path / "other.yaml").write_text(SWEEP)
    assert run("submit", "other.yaml", "-y", "--until-ci", "2").exit_code == 0
    job, spec = next((job, one.spec) for job, one in backend.queued.items() if one.spec.run == 6)
    backend.states[job], before = LOST, len(backend.queued)
    result = run("submit", "other.yaml", "--failed", "-y")
    assert (result.exit_code, sent(backend)[before - 3 :]) == (0, [(spec.label, 6)]), result.output


def test_waiting_ends_well_without_what_is_missing(run: Run, backend: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """The failed run is done the second time: 0, though another was never submitted."""
    backend.states["100"] = LOST
    for job in ("101", "102"):
        finish(backend, job)
    monkeypatch.setattr(backend, "on_submit", lambda _: finish(backend, max(backend.queued)))
    result = run("submit", "small.yaml", "--failed", "-y", "--wait")
    assert (result.exit_code, len(backend.queued)) == (0, 4), result.output


def finish(backend: FakeBackend, job: str) -> None:
    spec = backend.queued[job].spec
    write_run(Study(Path(spec.study)), spec.point, Recorded(step_ns=MS, gpu=None, job=job), spec.run)


def test_it_goes_with_nothing_that_adds_runs(run: Run, backend: FakeBackend) -> None:
    """--until-ci adds runs, --failed none."""
    assert run("submit", "small.yaml", "--failed", "--until-ci", "2").exit_code == 2
