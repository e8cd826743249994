"""`hpcddp submit`: how much at once, after what, and within which budget."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hpcddp.backends.base import Backend, JobState, Submission
from hpcddp.cluster.settings import config_file
from hpcddp.core.errors import FullError
from hpcddp.core.run_root import Study
from hpcddp.study.study_records import RecordedEnd, read_end
from hpcddp.submit.submission_plan import SubmissionPlan
from hpcddp.submit.submit import SubmittedRun, submit_runs
from tests.analysis.synthetic import MS, Recorded, write_run
from tests.commands.conftest import Run
from tests.fake_backend import FakeBackend
from tests.given_plan import SWEEP, slurm_profile
from tests.intruder import NOBODY, need_root

HOUR_NS = 3_600_000_000_000


class Done(FakeBackend):
    """Each job is over as soon as it is submitted; each has taken a quarter of an hour."""

    def submit(self, request: Submission) -> str:
        job = super().submit(request)
        times = {"launch": {"started_unix_ns": 0}, "end": {"ended_unix_ns": HOUR_NS // 4}}
        step_ns = (100 + 9 * (request.spec.run % 3)) * MS  # never known to 0.1 %
        recorded = Recorded(step_ns=step_ns, gpu=None, job=job, **times)  # type: ignore[arg-type]
        write_run(Study(Path(request.spec.study)), request.spec.point, recorded, request.spec.run)
        return job


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Done:
    """Whatever is submitted is over at once; small.yaml has two points of two runs, half an hour each."""
    backend = Done()
    monkeypatch.setattr("hpcddp.backends.choose.make_backend", lambda *_, **__: backend)
    slurm_profile(tmp_path)
    (tmp_path / "small.yaml").write_text(SWEEP.replace("cluster: local", "cluster: small-slurm.yaml"))
    return backend


def test_no_more_than_so_many_at_once(run: Run, done: Done) -> None:
    """Three now, and 3 says that there are more; submitted again the last one, and all is there."""
    result = run("submit", "small.yaml", "-y", "--max-jobs", "3")
    assert (result.exit_code, len(done.queued)) == (3, 3), result.output
    assert "! 1 run left, as --max-jobs is 3: submit again for more" in result.stderr
    result = run("submit", "small.yaml", "-y", "--max-jobs", "3")
    assert (result.exit_code, len(done.queued), "left" in result.stderr) == (0, 4, False), result.output


def test_waiting_submits_the_rest(run: Run, done: Done) -> None:
    """So many at a time until none is missing."""
    result = run("submit", "small.yaml", "-y", "--max-jobs", "3", "--wait")
    assert (result.exit_code, len(done.queued)) == (0, 4), result.output


def test_what_failed_before_is_sent_again_part_by_part(run: Run, done: Done, tmp_path: Path) -> None:
    """A run that failed in an earlier submission is no failure of this one while it is yet to be sent."""
    run("submit", "small.yaml", "-y")
    for end in tmp_path.glob("small/*/r*/*/end.json"):
        end.unlink()
    done.states = {job: JobState(phase="failed") for job in done.queued}
    result = run("submit", "small.yaml", "-y", "--max-jobs", "3", "--wait")
    assert (result.exit_code, len(done.queued)) == (0, 8), result.output


@pytest.mark.parametrize(("others", "said"), [(4, "nothing to submit any more: another"), (3, "submitted    1 job")])
def test_what_another_submission_took_is_not_missing(
    run: Run, done: Done, monkeypatch: pytest.MonkeyPatch, others: int, said: str
) -> None:
    """It was shown as missing before the lock was had; all runs are on their way, and none twice: 0."""

    def second(study: Study, submission_plan: SubmissionPlan, backend: Backend, *heard: Any) -> list[SubmittedRun]:
        submit_runs(study, replace(submission_plan, options=replace(submission_plan.options, max_jobs=others)), backend)
        return submit_runs(study, submission_plan, backend, *heard)

    monkeypatch.setattr("hpcddp.submit.session.submit_runs", second)
    result = run("submit", "small.yaml", "-y")
    assert (result.exit_code, len(done.queued)) == (0, 4), result.output
    assert ("4 runs to submit" in result.stdout, said in result.stdout) == (True, True), result.output


@pytest.mark.parametrize("options", [(), ("--max-jobs", "3")])
def test_waiting_goes_on_at_a_full_queue(
    run: Run, done: Done, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, options: tuple[str, ...]
) -> None:
    """Full before the first run is sent is not the end: one run is sent again and again, then the others. Without --wait, 3."""
    tries: list[str] = []

    def full(request: Submission) -> None:
        tries.append(request.name)
        if len(tries) <= 5:
            done.queued.popitem()
            raise FullError(f"{request.name}: sbatch: error: AssocMaxSubmitJobLimit")

    pauses: list[float] = []
    monkeypatch.setattr("time.sleep", pauses.append)
    done.on_submit = full
    result = run("submit", "small.yaml", "-y", *options)
    assert (result.exit_code, done.queued) == (3, {}), result.output
    result = run("submit", "small.yaml", "-y", "--wait", *options)
    assert (result.exit_code, len(done.queued)) == (0, 4), result.output
    assert pauses == [2.0] * 4
    assert (len(set(tries[:6])), len(set(tries[5:])), len(tries)) == (1, 4, 9)
    assert "! waiting until one more is taken" in result.stderr


def test_yes_does_not_pass_a_budget(run: Run, done: Done) -> None:
    """Refused with figures, exit code 2, and a dry run says so; one that holds all is set against what was used."""
    over = ("submit", "small.yaml", "--set", "budget.node_hours=1.5")
    result = run(*over, "-y")
    assert (result.exit_code, done.queued) == (2, {}), result.output
    assert "budget 1.5 node hours: 0.0 node hours used; at most 2.0 node hours by runs to submit. Raise budget." in result.stderr
    result = run(*over, "--dry-run")
    assert (result.exit_code, "at most 2.0 node hours by runs to submit. Raise" in result.stderr) == (0, True), result.output
    assert run("submit", "small.yaml", "-y", "--set", "budget.node_hours=2").exit_code == 0
    assert "budget 2.0 node hours: 1.0 node hours used\n" in run("submit", "small.yaml", "--set", "budget.node_hours=2").stdout


def test_records_are_read_once_for_a_budget(run: Run, done: Done, monkeypatch: pytest.MonkeyPatch) -> None:
    """For the line that is shown and for what may be submitted; not at all where there is no budget."""
    run("submit", "small.yaml", "-y")
    read: list[Path] = []

    def noted(attempt: Path) -> RecordedEnd | None:
        read.append(attempt)
        return read_end(attempt)

    monkeypatch.setattr("hpcddp.study.used_hours.read_end", noted)
    assert run("submit", "small.yaml", "--dry-run").exit_code == 0
    assert read == []
    assert run("submit", "small.yaml", "--dry-run", "--set", "budget.node_hours=9").exit_code == 0
    assert len(read) == len(set(read)) == len(done.queued)


def test_until_ci_ends_with_its_budget(run: Run, done: Done) -> None:
    """Runs are added while the budget holds one more at most of its time: used are 0.25 of 0.5 hours each. Then 3, with and
    without waiting.
    """
    limited = ("submit", "small.yaml", "-y", "--until-ci", "0.1", "--set", "budget.node_hours=4")
    result = run(*limited, "--wait")
    assert result.exit_code == 3, result.output
    assert "! nothing submitted: the budget does not hold one more run" in result.stderr
    assert 0.25 * len(done.queued) <= 4 < 0.25 * len(done.queued) + 0.5
    assert run(*limited).exit_code == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--after", "4711", "--cluster", "local"], "--after 4711: jobs of Slurm are meant, and local has none; leave it out"),
        (["--after", "prepare"], "'prepare' is no job's number; `squeue --me` lists yours"),
        (["--after", "1", "--smoke"], "--smoke tests now what --after waits for: give one of them"),
        (["--after", "1", "--preflight"], "--preflight tests now what --after waits for: give one of them"),
        (["--max-jobs", "0"], "0 is not in the range x>=1"),
        (["--set", "budget.node_hours=-1"], "-1.0 is below 0"),
        (["--set", "budget.hours=1"], "unknown key `hours` in budget; did you mean `gpu_hours`?"),
    ],
)
def test_limits_that_cannot_be_are_refused(run: Run, done: Done, options: list[str], message: str) -> None:
    """Before anything is submitted."""
    result = run("submit", "small.yaml", "-y", *options)
    assert (result.exit_code, message in result.stderr, done.queued) == (2, True, {}), result.output


def test_what_is_kept_on_purpose_is_said_once(run: Run, done: Done) -> None:
    """`plan` says what a referee would ask about, and `submit` of points that are new to the study: not again of those it has."""
    arguments = ("small.yaml", "--cluster", "rcc", "--set", "layout.exclusive=false")
    words = "! device is cpu: the GPUs of rcc's nodes would stand idle"
    assert words in run("plan", *arguments).stderr
    assert words in run("submit", *arguments, "-y", "--group", "alone", "--set", "account=a").stderr
    again = run("submit", *arguments, "-y", "--group", "alone", "--set", "account=a", "--set", "repeat=3")
    assert (again.exit_code, len(done.queued)) == (0, 3), again.output
    assert "stand idle" not in again.stderr
    assert "strangers" not in again.stderr
    assert words in run("submit", *arguments, "-y", "--set", "account=a", "--dry-run").stderr


def test_a_projects_folder_is_remarked_once(run: Run, done: Done, tmp_path: Path) -> None:
    """At the first submission of a study, not again."""
    need_root()
    (tmp_path / "runs").mkdir()
    os.chown(tmp_path / "runs", -1, NOBODY)
    (tmp_path / "runs").chmod(0o775)
    words = f"! {tmp_path / 'runs'} may be written by group nogroup"
    assert words in run("submit", "small.yaml", "-y", "--runs", "runs", "--max-jobs", "1").stderr
    assert words not in run("submit", "small.yaml", "-y", "--runs", "runs").stderr
    assert len(done.queued) == 4


@pytest.mark.parametrize(
    ("limits", "given", "asks"),
    [
        ("", "", True),
        ("ask_above: {node_hours: 2}", "", False),
        ("ask_above: {node_hours: 1.9}", "", True),
        ("ask_above: {node_hours: 2, gpu_hours: 0}", "", False),
        ("ask_above: {node_hours: 1.5}", "--max-jobs 3", False),
        ("ask_above: {node_hours: 1.5}", "--max-jobs 3 --wait", True),
        ("ask_above: {node_hours: 2}", "--wait", False),
        ("ask_above: {node_hours: 200}", "--wait --until-ci 2", True),
        ("ask_above: {node_hours: 0}", "", True),
    ],
)
def test_what_is_small_is_submitted_without_a_question(run: Run, done: Done, limits: str, given: str, asks: bool) -> None:
    """Four runs of half a node hour; what is sent later by --wait counts, and what nobody can count is asked about."""
    settings = config_file()
    settings.parent.mkdir(parents=True)
    settings.write_text(limits)
    result = run("submit", "small.yaml", *given.split())  # no answer to a question
    assert ("Submit?" in result.stderr, not done.queued) == (asks, asks), result.output
    hours = "1.5" if "--max-jobs" in given else "2.0"
    assert (f"! not asking: at most {hours} node hours, and ask_above is" in result.stderr) == (not asks)
