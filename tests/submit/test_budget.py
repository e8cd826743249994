"""What a study has taken of its budget, what of it is left, and how many runs a point gets with --until-ci."""

from __future__ import annotations

import dataclasses
import os
import time
from pathlib import Path

import pytest

from hpcddp.backends.base import JobState, Phase
from hpcddp.cluster.settings import Settings
from hpcddp.core.errors import UsageError
from hpcddp.core.hours import Budget, Hours
from hpcddp.core.records import steps_file, write_json
from hpcddp.core.run_root import Study
from hpcddp.study.status import run_states
from hpcddp.study.used_hours import study_hours
from hpcddp.submit.budget import account, account_if_limited, budget_words, run_hours
from hpcddp.submit.options import SubmitOptions
from hpcddp.submit.submission_plan import SubmissionPlan
from hpcddp.submit.submit import SubmittedRun, submit_runs
from hpcddp.submit.until_ci import how_well, open_points, rejected_words, repeats_until
from tests import given_plan
from tests.fake_slurm import FakeBackend
from tests.given_plan import slurm_profile, study_of
from tests.script.test_resources import request_of

HOUR_NS = 3_600_000_000_000


def submission_plan(folder: Path, *settings: str, user: Settings = Settings()) -> SubmissionPlan:  # noqa: B008
    """For a Slurm, without the jobs it would be asked for."""
    planned = given_plan.submission_plan(folder, *settings, cluster=slurm_profile(folder), user=user)
    return dataclasses.replace(planned, requests={})


def ended(study: Study, run: SubmittedRun, hours: float | None, restart: int = 0) -> None:
    """The records of an attempt that took so long; None: it was lost after an hour of steps."""
    attempt = study.attempt_dir(run.label, run.run, run.job, restart)
    write_json(attempt / "launch.json", {"started_unix_ns": HOUR_NS})
    if hours is not None:
        write_json(attempt / "end.json", {"state": "done", "ended_unix_ns": HOUR_NS + int(hours * HOUR_NS), "gates": []})
        return
    rows = steps_file(attempt, 0)
    rows.parent.mkdir()
    rows.touch()
    os.utime(rows, ns=(2 * HOUR_NS, 2 * HOUR_NS))


def test_a_run_takes_at_most_what_it_asks_for(tmp_path: Path) -> None:
    planned = submission_plan(tmp_path, "slurm.walltime_min=90")
    point = planned.points[1].point
    assert run_hours(planned, point) == Hours(node=1.5)
    on_gpus = dataclasses.replace(point, device="cuda")
    assert run_hours(planned, on_gpus) == Hours(node=1.5, gpu=3.0)
    all_gpus = dataclasses.replace(planned, requests={on_gpus.label: request_of("marconi100")})
    assert run_hours(all_gpus, on_gpus) == Hours(node=1.5, gpu=6.0)


def test_what_is_used_is_what_records_say(tmp_path: Path, study: Study, backend: FakeBackend) -> None:
    planned = submission_plan(tmp_path, "slurm.walltime_min=60")
    first, killed, _, _ = submit_runs(study, planned, backend)
    ended(study, first, 0.25)
    ended(study, killed, None)
    backend.states[killed.job] = JobState(phase="failed")
    found = account(study, planned, run_states(study, backend))
    assert (found.used, found.waiting) == (Hours(node=1.25), Hours(node=2.0))
    (again,) = submit_runs(study, planned, backend)
    ended(study, again, None)
    backend.states[again.job] = JobState(phase="running")
    found = account(study, planned, run_states(study, backend))
    assert (found.used, found.waiting) == (Hours(node=1.25), Hours(node=3.0))
    fewer = dataclasses.replace(planned, points=planned.points[:1])
    assert account(study, fewer, run_states(study, backend)) == found


@pytest.mark.parametrize(("phase", "hours"), [("queued", 2.0), ("running", 1.0), ("unknown", 1.0)])
def test_requeued_jobs(tmp_path: Path, phase: Phase, hours: float, study: Study, backend: FakeBackend) -> None:
    """Slurm gives it its whole time again: all its attempts count while it waits, all but the last while it may run."""
    planned = submission_plan(tmp_path, "slurm.walltime_min=60", "repeat=1")
    first, _ = submit_runs(study, planned, backend)
    for restart in (0, 1):
        ended(study, first, None, restart)
    backend.states[first.job] = JobState(phase=phase)
    found = account(study, planned, run_states(study, backend))
    assert (found.used, found.waiting) == (Hours(node=hours), Hours(node=2.0))


@pytest.mark.parametrize("left_s", [900.0, None])
def test_a_budget_and_status_have_one_account(tmp_path: Path, left_s: float | None, study: Study, backend: FakeBackend) -> None:
    planned = submission_plan(tmp_path, "slurm.walltime_min=60", "repeat=1")
    first, second = submit_runs(study, planned, backend)
    attempt = study.attempt_dir(first.label, first.run, first.job, 0)
    started_ns = time.time_ns() - HOUR_NS // 4
    write_json(attempt / "launch.json", {"started_unix_ns": started_ns, "hosts": ["a", "b"], "backend": "slurm"})
    backend.states[first.job] = JobState(phase="running", time_left_s=left_s)
    backend.states[second.job] = JobState(phase="failed")
    later = submission_plan(tmp_path, "slurm.walltime_min=240", "repeat=1")
    states = run_states(study, backend)
    found, shown = account(study, later, states), study_hours(study, states)
    if left_s is None:
        assert (found.used, found.waiting, shown.to_come) == (Hours(), Hours(node=4.0), None)
    else:
        assert found.used.node == pytest.approx(0.5, abs=0.01)
        assert found.waiting == shown.to_come == Hours(node=0.25)


def test_what_a_budget_does_not_hold_is_refused_with_figures(tmp_path: Path, study: Study, backend: FakeBackend) -> None:
    planned = submission_plan(tmp_path, "slurm.walltime_min=60", "budget.node_hours=3.5")
    with pytest.raises(UsageError) as refused:
        submit_runs(study, planned, backend)
    words = "budget 3.5 node hours: 0.0 node hours used; at most 4.0 node hours by runs to submit. Raise"
    assert str(refused.value).startswith(words)
    assert not backend.queued
    part = dataclasses.replace(planned, options=SubmitOptions(max_jobs=2))
    assert len(submit_runs(study, part, backend)) == 2
    with pytest.raises(
        UsageError, match=r"at most 2\.0 node hours by unfinished runs; at most 2\.0 node hours by runs to submit"
    ):
        submit_runs(study, planned, backend)
    assert len(submit_runs(study, submission_plan(tmp_path, "slurm.walltime_min=60", "budget.node_hours=4"), backend)) == 2


def test_an_order_that_may_be_cut_takes_what_fits(tmp_path: Path, study: Study, backend: FakeBackend) -> None:
    planned = submission_plan(tmp_path, "slurm.walltime_min=60", "budget.node_hours=3.5")
    cut = dataclasses.replace(planned, is_cut_at_budget=True)
    assert [run.run for run in submit_runs(study, cut, backend)] == [1, 1, 2]
    assert submit_runs(study, cut, backend) == []


def test_the_users_budget_holds_where_the_sweep_has_none(tmp_path: Path) -> None:
    def words(planned: SubmissionPlan) -> str | None:
        return budget_words(account_if_limited(study_of(tmp_path), planned, []), planned, [])

    user = Settings(budget=Budget(gpu_hours=1200))
    assert words(submission_plan(tmp_path)) is None
    assert words(submission_plan(tmp_path, user=user)) == "budget 1,200.0 GPU hours: 0.0 node hours used"
    own = submission_plan(tmp_path, "budget.node_hours=2", user=user)
    assert words(own) == "budget 2.0 node hours: 0.0 node hours used"


@pytest.mark.parametrize(
    ("node_hours", "gpu_hours", "holds"),
    [(None, None, True), (2, None, True), (1.9, None, False), (None, 7, False), (2, 7, False), (0, None, False)],
)
def test_every_limit_of_a_budget_must_hold(node_hours: float | None, gpu_hours: float | None, holds: bool) -> None:
    budget = Budget(node_hours=node_hours, gpu_hours=gpu_hours)
    assert budget.holds(Hours(node=2, gpu=8)) == holds
    assert bool(budget) == (budget != Budget())


def test_runs_on_this_machine_take_nothing(tmp_path: Path, study: Study, backend: FakeBackend) -> None:
    planned = given_plan.submission_plan(tmp_path, "budget.node_hours=0")
    backend.name = "local"
    first, *_ = submit_runs(study, planned, backend)
    ended(study, first, 0.25)
    states = run_states(study, backend)
    found = account(study, planned, states)
    assert (found.used, found.waiting, study_hours(study, states).used) == (Hours(), Hours(), Hours())
    assert budget_words(found, planned, [(planned.points[0].point, 2)]) == "budget 0.0 node hours: 0.0 node hours used"


@pytest.mark.parametrize(
    ("had", "known", "wanted"),
    [(0, None, 6), (3, (3, None), 6), (6, (6, 2.1), 7), (6, (6, 2.0), 6), (20, (20, 5.0), 20), (7, None, 7), (8, (2, None), 12)],
)
def test_runs_are_added_while_the_interval_is_too_wide(had: int, known: tuple[int, float | None] | None, wanted: int) -> None:
    assert repeats_until(["p"], {"p": had}, {"p": known} if known else {}, 2.0, 20) == {"p": wanted}


def test_how_well_a_point_is_known() -> None:
    known, had = {"p": (7, 2.345), "q": (1, None)}, {"p": 7, "q": 1, "r": 3}
    assert how_well("p", had, known, 2.0, 8) == "The median of p is known to 2.3 % from 7 runs."
    assert how_well("p", had, known, 2.0, 7).endswith("2.3 % from 7 runs. No more runs are added: --max-repeat is 7.")
    assert how_well("p", had, known, 3.0, 7) == "The median of p is known to 2.3 % from 7 runs."
    assert how_well("q", had, known, 2.0, 8) == "The median of q is not known from 1 run."
    assert how_well("r", had, known, 2.0, 8) == "The median of r is not known: some of its runs have not finished."
    assert rejected_words("r", [2, 3]).endswith("To repeat it, delete r/r2 and r/r3 and run `hpcddp submit` again.")
    assert open_points("pqrs", {"p": (7, 2.0), "q": (7, 2.1), "r": (5, None)}, 2.0) == ["q", "r", "s"]
