"""`hpcddp submit --until-ci`: runs are added until medians are known."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from hpcddp.analysis.study.effects import precision
from hpcddp.backends.base import Submission
from hpcddp.core.run_root import Study
from hpcddp.study.status import study_states
from hpcddp.submit.submission_plan import SubmissionPlan
from hpcddp.submit.submit import SubmittedRun, submit_runs
from hpcddp.submit.until_ci import with_repeats
from tests.analysis.synthetic import FAILED, MS, Recorded, write_run
from tests.commands.conftest import Run
from tests.fake_backend import FakeBackend
from tests.given_plan import SWEEP, submission_plan

STEPS_MS = (80, 130, 104, 105, 106, 105, 105, 105, 105)
"""Of runs 1, 2, ...: six are known to 25 %, seven to 7.4 %, eight to 2.5 %, nine to 0.7 %."""


class Done(FakeBackend):
    """Each job is over as soon as it is submitted."""

    def submit(self, request: Submission) -> str:
        job = super().submit(request)
        recorded = Recorded(step_ns=STEPS_MS[request.spec.run - 1] * MS, gpu=None, job=job)
        write_run(Study(Path(request.spec.study)), request.spec.point, recorded, request.spec.run)
        return job


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is submitted is over at once."""
    backend = Done()
    monkeypatch.setattr("hpcddp.backends.choose.make_backend", lambda *_, **__: backend)


def submit_more(study: Study, plan: SubmissionPlan, backend: Done, percent: float, at_most: int = 20) -> list[SubmittedRun]:
    """What one look at the records so far adds."""
    states = study_states(study, backend)
    known = precision(study) if states else {}
    return submit_runs(study, with_repeats(plan, states, known, percent, at_most)[0], backend)


def test_runs_are_added_until_medians_are_known(tmp_path: Path) -> None:
    """Asked again and again: six, then one more of each point until it is known to 2 %, then none."""
    study, backend, small = Study(tmp_path / "runs"), Done(), submission_plan(tmp_path)
    rounds: list[list[SubmittedRun]] = []
    while not rounds or rounds[-1]:
        rounds.append(submit_more(study, small, backend, 2.0))
    numbers = [[run.run for run in submitted] for submitted in rounds]
    assert numbers == [[1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6], [7, 7], [8, 8], [9, 9], []]


def test_no_more_than_max_repeat(tmp_path: Path) -> None:
    """Seven, though more would be needed."""
    study, backend, small = Study(tmp_path / "runs"), Done(), submission_plan(tmp_path)
    for _ in range(3):
        submit_more(study, small, backend, 0.1, 7)
    assert max(request.spec.run for request in backend.queued.values()) == 7


def test_the_command_says_how_well_points_are_known(tmp_path: Path, run: Run) -> None:
    """And what it would add."""
    study, backend, small = Study(tmp_path / "small"), Done(), submission_plan(tmp_path)
    submit_more(study, small, backend, 3.0)
    (tmp_path / "small.yaml").write_text(SWEEP)
    result = run("submit", "small.yaml", "--until-ci", "2", "--dry-run")
    assert result.exit_code == 0, result.output
    label = small.points[0].point.label
    assert f"{label}: its median is known to 25.2 % from 6 runs" in result.stderr
    assert "2 runs to submit of 14 runs" in result.stdout


@pytest.mark.parametrize(("percent", "most", "code"), [("2", "20", 0), ("2", "7", 3), ("0.1", "9", 3)])
@pytest.mark.usefixtures("done")
def test_waiting_ends_with_3_where_runs_are_used_up(tmp_path: Path, run: Run, percent: str, most: str, code: int) -> None:
    """Nine runs know the median to 0.7 %: enough for 2 %; seven do not, and nine do not for 0.1 %."""
    (tmp_path / "small.yaml").write_text(SWEEP)
    result = run("submit", "small.yaml", "--until-ci", percent, "--max-repeat", most, "--wait", "-y")
    assert result.exit_code == code, result.output
    assert ("--max-repeat is" in result.stderr) == (code == 3)


@pytest.mark.usefixtures("done")
def test_a_rejected_run_ends_the_wait_and_is_named(tmp_path: Path, run: Run) -> None:
    """No run is added beside it; what to remove to have it again is said; exit code 3."""
    study, small = Study(tmp_path / "small"), submission_plan(tmp_path)
    (tmp_path / "small.yaml").write_text(SWEEP)
    run("submit", "small.yaml", "--until-ci", "30", "--wait", "-y")
    point = small.points[0].point
    write_run(study, point, Recorded(step_ns=100 * MS, gpu=None, job="900", gates=FAILED), 2)
    result = run("submit", "small.yaml", "--until-ci", "30", "--wait", "-y")
    assert result.exit_code == 3, result.output
    assert f"to have it again, remove {point.label}/r2, then submit again" in result.stderr


@pytest.mark.usefixtures("done")
def test_a_wait_that_asks_for_no_percentage_needs_no_tables(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """pandas stays out of a login node that only waits."""
    monkeypatch.setitem(sys.modules, "hpcddp.analysis.study.effects", None)
    (tmp_path / "small.yaml").write_text(SWEEP)
    assert run("submit", "small.yaml", "--wait", "-y").exit_code == 0


@pytest.mark.parametrize("option", [("--until-ci", "0"), ("--max-repeat", "5")])
def test_limits_that_cannot_be_reached_are_refused(tmp_path: Path, run: Run, option: tuple[str, str]) -> None:
    """No interval is narrower than nothing, and none is known below six runs."""
    (tmp_path / "small.yaml").write_text(SWEEP)
    assert run("submit", "small.yaml", *option).exit_code == 2
