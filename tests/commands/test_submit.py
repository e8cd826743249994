"""`hpcddp submit`: what failed, what is unknown, all runs in one job; so many at once, a budget, until medians are known."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hpcddp.analysis.study.effects import precision
from hpcddp.backends.base import Backend, JobState, Submission
from hpcddp.cluster.settings import config_file
from hpcddp.core.errors import INCOMPLETE, FullError
from hpcddp.core.run_root import Study
from hpcddp.study.status import study_states
from hpcddp.study.study_records import RecordedEnd, read_end
from hpcddp.submit.submission_plan import SubmissionPlan
from hpcddp.submit.submit import SubmittedRun, submit_runs
from hpcddp.submit.until_ci import with_repeats
from tests.analysis.synthetic import FAILED, MS, Recorded, write_run
from tests.commands.conftest import Run, use
from tests.fake_slurm import FakeBackend
from tests.given_plan import ALLOCATION_SWEEP, SWEEP, slurm_profile, submission_plan
from tests.machine import NOBODY, need_root

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
        "1 run is missing: submit it without --failed",
        f"rejected: {spec.label} r1; to repeat it, delete the run's folder and submit again",
        "nothing to submit",
    ]
    assert run("submit", "small.yaml", "--failed", "--until-ci", "2").exit_code == 2


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
    assert again.stdout.splitlines()[-1] == "Nothing was submitted: the state of 4 runs is unknown."
    first, second = sorted({one.spec.label for one in backend.queued.values()})
    assert f"! The state of 4 runs is unknown: {first} r1-2, {second} r1-2 ({SILENT.detail}). No unknown run" in again.stderr
    cancelled = JobState(phase="failed", detail="cancelled (CANCELLED)", word="CANCELLED")
    backend.states = {**dict.fromkeys(backend.queued, SILENT), "100": cancelled}
    again = run("submit", submitted, "-y")
    assert (again.exit_code, len(backend.queued)) == (INCOMPLETE, 5)
    assert "! The state of 3 runs is unknown: " in again.stderr


def test_many_unknown_points_are_counted(submitted: Path, run: Run, backend: FakeBackend) -> None:
    """The first points stand for all: there may be thousands."""
    submitted.write_text(SWEEP.replace("[1, 2]", "[1, 2, 3, 4, 5]"))
    assert run("submit", submitted, "-y").exit_code == 0
    backend.states = dict.fromkeys(backend.queued, SILENT)
    assert " r1-2 and 2 points more (squeue" in run("submit", submitted, "-y").stderr


@pytest.fixture
def in_one(backend: FakeBackend, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeBackend:
    """A cluster whose jobs may take two hours; small.yaml has three points of two runs, half an hour each."""
    monkeypatch.setattr("hpcddp.submit.submission_plan.longest_min", lambda partition: {"gpu": 120}[partition])
    (tmp_path / "small.yaml").write_text(ALLOCATION_SWEEP.replace("AXES", "{layout.nodes: [1, 2, 4]}"))
    return backend


def test_the_job_and_its_cost_are_said_first(run: Run, in_one: FakeBackend) -> None:
    result = run("submit", "small.yaml", "--one-allocation", "-y")
    assert result.exit_code == 0, result.output
    words = "one job of 4 nodes for 120 min: the limit of one job; the time of its 6 runs is 180 min, and the rest is requeued"
    assert f"{words}\n6 runs to submit of 6 runs, at most 12.0 node hours, 12.0 GPU hours\nunder" in result.stdout
    assert "submitted    1 job    100, 6 runs one after the other\n" in result.stdout
    assert "nothing to submit" in run("submit", "small.yaml", "--one-allocation", "-y").stdout
    assert len(in_one.queued) == 1


def test_what_no_job_gives_is_a_usage_error(run: Run, in_one: FakeBackend) -> None:
    settings = ("--set", "slurm.options=[--signal=USR2@600]")
    result = run("submit", "small.yaml", "--one-allocation", *settings, "-y")
    assert (result.exit_code, in_one.queued) == (2, {}), result.output
    assert "Write `-J --signal=B:USR2@600`" in result.stderr
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
    slurm_profile(tmp_path)
    (tmp_path / "small.yaml").write_text(SWEEP.replace("cluster: local", "cluster: small-slurm.yaml"))
    return use(monkeypatch, Done())


def test_no_more_than_so_many_at_once(run: Run, done: Done) -> None:
    result = run("submit", "small.yaml", "-y", "--max-jobs", "3")
    assert (result.exit_code, len(done.queued)) == (3, 3), result.output
    assert "! 1 run not submitted yet: --max-jobs is 3. Run `hpcddp submit` again." in result.stderr
    result = run("submit", "small.yaml", "-y", "--max-jobs", "3")
    assert (result.exit_code, len(done.queued), "left" in result.stderr) == (0, 4, False), result.output


def test_waiting_submits_the_rest(run: Run, done: Done) -> None:
    result = run("submit", "small.yaml", "-y", "--max-jobs", "3", "--wait")
    assert (result.exit_code, len(done.queued)) == (0, 4), result.output


def test_what_failed_before_is_sent_again_part_by_part(run: Run, done: Done, tmp_path: Path) -> None:
    run("submit", "small.yaml", "-y")
    for end in tmp_path.glob("small/*/r*/*/end.json"):
        end.unlink()
    done.states = {job: JobState(phase="failed") for job in done.queued}
    result = run("submit", "small.yaml", "-y", "--max-jobs", "3", "--wait")
    assert (result.exit_code, len(done.queued)) == (0, 8), result.output


@pytest.mark.parametrize(("others", "said"), [(4, "nothing to submit any more: another"), (3, "submitted    1 job")])
def test_what_another_took_is_not_missing(run: Run, done: Done, monkeypatch: pytest.MonkeyPatch, others: int, said: str) -> None:
    def second(study: Study, submission_plan: SubmissionPlan, backend: Backend, *heard: Any) -> list[SubmittedRun]:
        submit_runs(study, replace(submission_plan, options=replace(submission_plan.options, max_jobs=others)), backend)
        return submit_runs(study, submission_plan, backend, *heard)

    monkeypatch.setattr("hpcddp.submit.submit.submit_runs", second)
    result = run("submit", "small.yaml", "-y")
    assert (result.exit_code, len(done.queued)) == (0, 4), result.output
    assert ("4 runs to submit" in result.stdout, said in result.stdout) == (True, True), result.output


@pytest.mark.parametrize("options", [[], ["--max-jobs", "3"]])
def test_waiting_goes_on_at_a_full_queue(run: Run, done: Done, monkeypatch: pytest.MonkeyPatch, options: list[str]) -> None:
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
    assert "! Waiting until the cluster accepts one more run." in result.stderr


def test_yes_does_not_pass_a_budget(run: Run, done: Done) -> None:
    over = ("submit", "small.yaml", "--set", "budget.node_hours=1.5")
    result = run(*over, "-y")
    assert (result.exit_code, done.queued) == (2, {}), result.output
    assert "budget 1.5 node hours: 0.0 node hours used; at most 2.0 node hours by runs to submit. Raise budget." in result.stderr
    result = run(*over, "--dry-run")
    assert (result.exit_code, "at most 2.0 node hours by runs to submit. Raise" in result.stderr) == (0, True), result.output
    assert run("submit", "small.yaml", "-y", "--set", "budget.node_hours=2").exit_code == 0
    assert "budget 2.0 node hours: 1.0 node hours used\n" in run("submit", "small.yaml", "--set", "budget.node_hours=2").stdout


def test_records_are_read_once_for_a_budget(run: Run, done: Done, monkeypatch: pytest.MonkeyPatch) -> None:
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
    limited = ("submit", "small.yaml", "-y", "--until-ci", "0.1", "--set", "budget.node_hours=4")
    result = run(*limited, "--wait")
    assert result.exit_code == 3, result.output
    assert "! Nothing was submitted: one more run would exceed the budget." in result.stderr
    assert 0.25 * len(done.queued) <= 4 < 0.25 * len(done.queued) + 0.5
    assert run(*limited).exit_code == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--after", "4711", "--cluster", "local"], "--after 4711 names a Slurm job, but local has no Slurm. Omit --after."),
        (["--after", "prepare"], "'prepare' is not a job number, such as 4711 or 4711_3. List yours with `squeue --me`"),
        (["--after", "1", "--smoke"], "--smoke runs now, before the jobs that --after waits for: give one of them"),
        (["--after", "1", "--preflight"], "--preflight runs now, before the jobs that --after waits for: give one of them"),
        (["--max-jobs", "0"], "0 is not in the range x>=1"),
        (["--set", "budget.node_hours=-1"], "-1.0 is below the minimum 0"),
        (["--set", "budget.hours=1"], "unknown key `hours` in budget; did you mean `gpu_hours`?"),
    ],
)
def test_limits_that_cannot_be_are_refused(run: Run, done: Done, options: list[str], message: str) -> None:
    result = run("submit", "small.yaml", "-y", *options)
    assert (result.exit_code, message in result.stderr, done.queued) == (2, True, {}), result.output


def test_what_is_kept_on_purpose_is_said_once(run: Run, done: Done) -> None:
    arguments = ("small.yaml", "--cluster", "rcc", "--set", "layout.exclusive=false")
    words = "! device is cpu, so the GPUs of rcc's nodes are unused"
    assert words in run("plan", *arguments).stderr
    assert words in run("submit", *arguments, "-y", "--group", "alone", "--set", "account=a").stderr
    again = run("submit", *arguments, "-y", "--group", "alone", "--set", "account=a", "--set", "repeat=3")
    assert (again.exit_code, len(done.queued)) == (0, 3), again.output
    assert "stand idle" not in again.stderr
    assert "strangers" not in again.stderr
    assert words in run("submit", *arguments, "-y", "--set", "account=a", "--dry-run").stderr


def test_a_projects_folder_is_remarked_once(run: Run, done: Done, tmp_path: Path) -> None:
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
    settings = config_file()
    settings.parent.mkdir(parents=True)
    settings.write_text(limits)
    result = run("submit", "small.yaml", *given.split())  # no answer to a question
    assert ("Submit?" in result.stderr, not done.queued) == (asks, asks), result.output
    hours = "1.5" if "--max-jobs" in given else "2.0"
    assert (f"! No confirmation needed: the runs take at most {hours} node hours, and ask_above is" in result.stderr) == (
        not asks
    )


STEPS_MS = (80, 130, 104, 105, 106, 105, 105, 105, 105)
"""Of runs 1, 2, ...: six are known to 25 %, seven to 7.4 %, eight to 2.5 %, nine to 0.7 %."""


class Scattered(FakeBackend):
    """Each job is over as soon as it is submitted."""

    def submit(self, request: Submission) -> str:
        job = super().submit(request)
        recorded = Recorded(step_ns=STEPS_MS[request.spec.run - 1] * MS, gpu=None, job=job)
        write_run(Study(Path(request.spec.study)), request.spec.point, recorded, request.spec.run)
        return job


@pytest.fixture
def scattered(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    use(monkeypatch, Scattered())
    (tmp_path / "small.yaml").write_text(SWEEP)


def submit_more(study: Study, plan: SubmissionPlan, backend: Scattered, percent: float, at_most: int = 20) -> list[SubmittedRun]:
    """What one look at the records so far adds."""
    states = study_states(study, backend)
    known = precision(study) if states else {}
    return submit_runs(study, with_repeats(plan, states, known, percent, at_most)[0], backend)


def test_runs_are_added_until_medians_are_known(tmp_path: Path) -> None:
    study, backend, small = Study(tmp_path / "runs"), Scattered(), submission_plan(tmp_path)
    rounds: list[list[SubmittedRun]] = []
    while not rounds or rounds[-1]:
        rounds.append(submit_more(study, small, backend, 2.0))
    numbers = [[run.run for run in submitted] for submitted in rounds]
    assert numbers == [[1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6], [7, 7], [8, 8], [9, 9], []]


def test_the_command_says_how_well_points_are_known(tmp_path: Path, run: Run) -> None:
    study, backend, small = Study(tmp_path / "small"), Scattered(), submission_plan(tmp_path)
    submit_more(study, small, backend, 3.0)
    (tmp_path / "small.yaml").write_text(SWEEP)
    result = run("submit", "small.yaml", "--until-ci", "2", "--dry-run")
    assert result.exit_code == 0, result.output
    label = small.points[0].point.label
    assert f"The median of {label} is known to 25.2 % from 6 runs." in result.stderr
    assert "2 runs to submit of 14 runs" in result.stdout


@pytest.mark.parametrize(("percent", "most", "code"), [("2", "20", 0), ("2", "7", 3), ("0.1", "9", 3)])
@pytest.mark.usefixtures("scattered")
def test_waiting_ends_with_3_where_runs_are_used_up(run: Run, percent: str, most: str, code: int) -> None:
    result = run("submit", "small.yaml", "--until-ci", percent, "--max-repeat", most, "--wait", "-y")
    assert result.exit_code == code, result.output
    assert ("--max-repeat is" in result.stderr) == (code == 3)


@pytest.mark.usefixtures("scattered")
def test_a_rejected_run_ends_the_wait_and_is_named(tmp_path: Path, run: Run) -> None:
    study, small = Study(tmp_path / "small"), submission_plan(tmp_path)
    run("submit", "small.yaml", "--until-ci", "30", "--wait", "-y")
    point = small.points[0].point
    write_run(study, point, Recorded(step_ns=100 * MS, gpu=None, job="900", gates=FAILED), 2)
    result = run("submit", "small.yaml", "--until-ci", "30", "--wait", "-y")
    assert result.exit_code == 3, result.output
    assert f"To repeat it, delete {point.label}/r2 and run `hpcddp submit` again." in result.stderr


@pytest.mark.usefixtures("scattered")
def test_a_wait_that_asks_for_no_percentage_needs_no_tables(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """pandas stays out of a login node that only waits."""
    monkeypatch.setitem(sys.modules, "hpcddp.analysis.study.effects", None)
    assert run("submit", "small.yaml", "--wait", "-y").exit_code == 0


@pytest.mark.parametrize("option", [("--until-ci", "0"), ("--max-repeat", "5")])
def test_limits_that_cannot_be_reached_are_refused(scattered: None, run: Run, option: tuple[str, str]) -> None:
    """No interval is narrower than nothing, and none is known below six runs."""
    assert run("submit", "small.yaml", *option).exit_code == 2
