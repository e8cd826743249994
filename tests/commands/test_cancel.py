"""`hpcddp cancel`, `logs` and `clean`, and what a sweep no longer asks for."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from hpcddp.backends.base import Batch, JobState, Submission
from hpcddp.core.errors import FAILED, INCOMPLETE, USAGE
from hpcddp.core.job_ids import base_id
from hpcddp.core.point import Data, Point, Workload, point_to_dict
from hpcddp.core.records import write_json
from hpcddp.core.run_root import RunKey, Study
from hpcddp.study.submission_log import latest_events, user_name
from tests.analysis.synthetic import point as synthetic_point
from tests.analysis.synthetic import write_study
from tests.commands.conftest import Run, use
from tests.fake_slurm import FakeBackend
from tests.given_plan import SWEEP, log_event
from tests.machine import as_nobody, need_root

POINTS = [Point(cluster="c", workload=Workload(model="mnist-cnn", data=Data(name="mnist"), batch_per_gpu=b)) for b in (8, 16)]
FIRST, SECOND = (point.label for point in POINTS)


class Cancelling(FakeBackend):
    """Notes what it was asked to cancel, in each call, and does so."""

    def __init__(self) -> None:
        super().__init__()
        self.cancelled: list[dict[str, str]] = []

    def cancel(self, jobs: Mapping[str, str]) -> None:
        self.cancelled.append(dict(jobs))
        self.states |= {job: JobState(phase="failed", detail="cancelled (CANCELLED)", word="CANCELLED") for job in jobs}

    @property
    def cancelled_jobs(self) -> set[str]:
        return {job for call in self.cancelled for job in call}


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> Cancelling:
    return use(monkeypatch, Cancelling())


@pytest.fixture
def study(tmp_path: Path, backend: Cancelling) -> Study:
    """Two points twice: job 1 runs, 2 and 4 wait, 3 has failed."""
    backend.states = {"1": JobState(phase="running"), "3": JobState(phase="failed", detail="exit code 1 (FAILED)")}
    study = Study(tmp_path / "s")
    write_json(study.study_file, {"schema": 1, "repeat": 2, "points": [{"label": point.label} for point in POINTS]})
    for number, point in enumerate(POINTS):
        write_json(study.point_file(point.label), {"schema": 1, "id": point.id, "point": point_to_dict(point)})
        for run in (1, 2):
            log_event(study, point.label, run=run, job=str(2 * number + run))
    return study


def test_cancel_ends_what_is_not_over_in_one_call(run: Run, study: Study, backend: Cancelling) -> None:
    result = run("cancel", study.folder, "-y")
    assert (result.exit_code, result.stdout.splitlines()[-1]) == (0, "cancelled    3 runs")
    assert backend.cancelled == [{"1": f"{FIRST}.r1", "2": f"{FIRST}.r2", "4": f"{SECOND}.r2"}]
    events = latest_events(study)
    assert [(line.event, line.reason) for line in events.values()].count(("cancelled", user_name())) == 3
    assert run("status", study.folder).stdout.count("cancelled by you (CANCELLED)") == 1  # of all in one entry
    assert run("cancel", study.folder, "-y").stdout == "Nothing to cancel: no run is queued or running.\n"


def test_cancel_of_some_points_by_the_beginnings_of_their_labels(run: Run, study: Study, backend: Cancelling) -> None:
    assert run("cancel", study.folder, SECOND[:9], "-y").exit_code == 0
    assert backend.cancelled == [{"4": f"{SECOND}.r2"}]
    result = run("cancel", study.folder, SECOND[:9], "n09", "-y")
    assert (result.exit_code, len(backend.cancelled)) == (USAGE, 1)
    assert result.stderr.startswith("no point `n09` in this study; it has n01-g1-b")


def test_without_an_answer_nothing_is_called_cancelled(run: Run, study: Study, backend: Cancelling) -> None:
    backend.states |= {job: JobState(phase="unknown", detail="squeue: Unable to contact slurm controller") for job in ("1", "2")}
    result = run("cancel", study.folder, "-y")
    assert (result.exit_code, backend.cancelled) == (FAILED, [])
    assert result.stderr == (
        "The state of 2 runs is unknown: squeue: Unable to contact slurm controller. "
        "Nothing was cancelled. Run `hpcddp cancel` again when Slurm answers.\n"
    )
    assert {line.event for line in latest_events(study).values()} == {"submitted"}
    assert run("cancel", study.folder, SECOND, "-y").exit_code == 0
    assert backend.cancelled == [{"4": f"{SECOND}.r2"}]


@pytest.mark.parametrize("arrived", [True, False])
def test_the_job_of_an_interrupted_submission_is_cancelled_too(
    run: Run, study: Study, backend: Cancelling, arrived: bool
) -> None:
    jobs = {(f"{FIRST}.r3", "i"): "9"} if arrived else {}
    backend.find = lambda study, name, token: jobs.get((name, token))  # type: ignore[method-assign]
    log_event(study, FIRST, "intent", run=3, token="i")
    assert run("cancel", study.folder, "-y").exit_code == 0
    (cancelled,) = backend.cancelled
    assert (cancelled.get("9"), len(cancelled)) == ((f"{FIRST}.r3", 4) if arrived else (None, 3))
    assert latest_events(study)[RunKey(FIRST, 3)].event == ("cancelled" if arrived else "lost")


def test_cancel_asks(run: Run, study: Study, backend: Cancelling) -> None:
    assert run("cancel", study.folder).exit_code == FAILED
    assert backend.cancelled == []


def test_logs_are_those_of_the_rank_at_fault(run: Run, study: Study) -> None:
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
    assert (missing.exit_code, missing.stderr) == (USAGE, f"{folder}: no log of rank 7; the job has logs of ranks 0 to 1\n")


def test_logs_of_a_point_by_the_beginning_of_its_label(run: Run, study: Study) -> None:
    for job in "34":
        study.job_dir(job).mkdir(parents=True)
        (study.job_dir(job) / "batch.err").write_text(f"job {job}")
    begun = study.folder / SECOND[:11]
    assert run("logs", begun).stdout.endswith("batch.err\njob 4\n")
    assert run("logs", begun / "r1").stdout.endswith("batch.err\njob 3\n")
    both = run("logs", study.folder / "n01")
    assert (both.exit_code, both.stdout) == (USAGE, "")
    assert both.stderr == f"{study.folder / 'n01'}: 2 points match: {SECOND}, {FIRST}. Give more characters of one.\n"
    none = run("logs", study.folder / "n09" / "r1")
    assert none.stderr.endswith(f"no point `n09` in {study.folder}; it has {SECOND}, {FIRST}\n")
    (study.folder / "n09").mkdir()
    assert run("logs", study.folder / "n09").exit_code == USAGE  # it has no job


def test_of_a_long_log_the_end_is_shown(run: Run, study: Study) -> None:
    log = study.job_dir("4") / "4_0_log.err"
    log.parent.mkdir(parents=True)
    log.write_text("".join(f"line {number}\n" for number in range(20_000)))
    lines = run("logs", study.folder / SECOND).stdout.splitlines()
    assert lines[0] == f"== {log} (its last 64 kB of 209 kB)"
    assert lines[1].startswith("line ")
    assert lines[-1] == "line 19999"


def test_clean_lists_and_removes_on_demand(run: Run, study: Study, backend: Cancelling) -> None:
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


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that everybody may look at."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def test_clean_of_another_users_study_says_whose_it_is(run: Run, public: Path) -> None:
    """Who may not remove anything there hears whose study it is, not what a submission would need."""
    need_root()
    study = write_study(public / "s", [synthetic_point(1, 1)])
    (study.code / "0123456789abcdef").mkdir(parents=True)
    assert "to remove: hpcddp clean" in run("clean", study.folder).stdout  # and what it imports is there

    def clean() -> None:
        result = run("clean", study.folder, "-y")
        expected = f"{study.folder}: nothing can be changed there (Permission denied); it belongs to root\n"
        assert (result.exit_code, result.stderr) == (FAILED, expected)

    as_nobody(clean, public)


class InArrays(Cancelling):
    """All runs of a call as one array."""

    def batches(self, requests: list[Submission]) -> list[Batch]:  # type: ignore[override]
        return [Batch(submissions=tuple(requests))]

    def submit_batch(self, batch: Batch) -> list[str]:
        array = self.submit(batch.submissions[0])
        return [f"{array}_{task}" for task in range(len(batch.submissions))]


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    """Points of one and of two ranks, twice each: four runs."""
    file = tmp_path / "small.yaml"
    file.write_text(SWEEP)
    return file


def finish(study: Path, phase: str = "done", **which: list[str]) -> None:
    """Every run of study.json is done, or those of some points."""
    for point in json.loads((study / "study.json").read_text())["points"]:
        for run in range(1, point["repeat"] + 1):
            if point["label"] in which.get("labels", [point["label"]]):
                end: dict[str, object] = {"state": phase, "reason": None, "gates": []}
                write_json(Study(study).attempt_dir(point["label"], run, f"{run}", 0) / "end.json", end)


def labels(study: Path) -> list[str]:
    return [entry["label"] for entry in json.loads((study / "study.json").read_text())["points"]]


def unwrapped(text: str) -> str:
    return " ".join(text.split())


def gone(run: Run, where: Path) -> set[tuple[str, int]]:
    """What `status` says is not in the sweep."""
    (study,) = json.loads(run("status", where, "--format", "json").stdout)["studies"]
    return {(one["label"], one["run"]) for one in study["runs"] if not one["in_sweep"]}


def test_a_point_taken_out_is_named_and_ended(run: Run, sweep: Path, backend: Cancelling) -> None:
    study = sweep.with_suffix("")
    assert run("submit", sweep, "-y").exit_code == 0
    one, two = labels(study)
    sweep.write_text(SWEEP.replace("[1, 2]", "[1]"))
    named = f"2 runs no longer in the sweep wait or run: {two} r1-2; `hpcddp cancel {sweep.name} --not-in-sweep` ends them"
    assert f"! {named.replace('sweep wait', 'sweep may wait')}" in run("plan", sweep).stderr
    assert named in unwrapped(run("status", sweep).stdout)
    stdout = run("cancel", study, "--not-in-sweep", "-y").stdout
    assert stdout.endswith("is queued or running according to the last submit. To use the sweep file, name it.\n")
    assert gone(run, study) == set()  # study.json knows of the last submission only
    assert f"! {named}" in run("submit", sweep, "-y").stderr
    assert gone(run, study) == gone(run, sweep) == {(two, 1), (two, 2)}
    result = run("cancel", study, "--not-in-sweep", "-y")
    assert (result.exit_code, result.stdout.splitlines()[-1]) == (0, "cancelled    2 runs")
    assert backend.cancelled_jobs == {job for job, request in backend.queued.items() if request.spec.label == two}
    nothing = "Nothing to cancel: no run outside the sweep is queued or running.\n"
    assert run("cancel", sweep, "--not-in-sweep", "-y").stdout == nothing
    finish(study, labels=[one])
    result = run("status", study)
    assert result.exit_code == 0, result.stdout
    assert "cancelled by you (CANCELLED), no longer in the sweep" in result.stdout
    assert result.stdout.endswith("next: hpcddp analyze small\n")
    assert f"2 runs are no longer in the sweep and not submitted again: {two} r1-2" in run("submit", sweep, "-y").stderr
    elsewhere = run("submit", sweep, "-y", "--runs", "other")
    sweep.write_text(SWEEP.replace("[1, 2]", "[2]").replace("[1]", "[2]"))
    assert elsewhere.exit_code == 0
    other = "`hpcddp cancel other/small --not-in-sweep`"
    assert other in run("submit", sweep, "-y", "--runs", "other").stderr


def test_runs_above_a_lowered_repeat_are_not_submitted_again(run: Run, sweep: Path, backend: Cancelling) -> None:
    """r2 failed, and the sweep asks for one run: nobody is advised to submit it, and it keeps nothing incomplete."""
    study = sweep.with_suffix("")
    run("submit", sweep, "-y")
    jobs = {job: one.spec.run for job, one in backend.queued.items()}
    backend.states = {job: JobState(phase="failed", detail="exit code 1 (FAILED)") for job, number in jobs.items() if number == 2}
    assert "submit it again" in run("status", study).stdout
    sweep.write_text(SWEEP.replace("repeat: 2", "repeat: 1"))
    assert "nothing to submit" in run("submit", sweep, "-y").stdout
    result = run("status", study)
    assert result.stdout.count("exit code 1 (FAILED), no longer in the sweep") == 1
    assert "submit it again" not in result.stdout
    finish(study)
    assert run("status", study).exit_code == 0
    assert run("submit", sweep, "-y", "--wait").exit_code == 0


def test_single_tasks_of_an_array_are_ended(run: Run, sweep: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = use(monkeypatch, InArrays())
    run("submit", sweep, "-y")
    sweep.write_text(SWEEP.replace("repeat: 2", "repeat: 1"))
    run("cancel", sweep, "--not-in-sweep", "-y")
    (array,) = map(base_id, backend.queued)
    assert backend.cancelled_jobs == {f"{array}_2", f"{array}_3"}  # repetition by repetition: the second ones


@pytest.mark.parametrize(
    "options",
    [
        ("--where", "layout.gpus_per_node == 1"),
        ("--group", "alone"),
        ("--set", "measure.steps=5"),
        ("--set", "repeat=1"),
        ("--set", "repeat=3"),
        ("--comm", "off", "--comm", "on"),
        ("--cluster", "local"),
    ],
    ids=str,
)
def test_options_of_submit_take_nothing_out(run: Run, sweep: Path, backend: Cancelling, options: tuple[str, ...]) -> None:
    run("submit", sweep, "-y")
    run("submit", sweep, "-y", *options)
    assert gone(run, sweep) == gone(run, sweep.with_suffix("")) == set()
    run("submit", sweep, "-y")
    assert gone(run, sweep) == gone(run, sweep.with_suffix("")) == set()
    assert "not in the sweep" not in run("plan", sweep, *options).stderr


def test_runs_that_until_ci_added_and_baselines_are_in_the_sweep(run: Run, sweep: Path, backend: Cancelling) -> None:
    study = sweep.with_suffix("")
    sweep.write_text(re.sub(r"  ranks: .*\n  alone: .*", "  several: {layout.gpus_per_node: [2, 3]}", SWEEP))
    assert "1 baseline is added" in run("submit", sweep, "-y", "--until-ci", "2").stderr
    run("bench", "comm", sweep, "-y")
    assert {request.spec.run for request in backend.queued.values()} == {1, 2, 3, 4, 5, 6}
    run("submit", sweep, "-y")
    assert gone(run, sweep) == gone(run, study) == set()
    sweep.write_text(sweep.read_text() + "baselines: false\n")
    assert len(gone(run, sweep)) == 6


def test_what_an_older_hpcddp_recorded_is_not_called_taken_out(run: Run, sweep: Path, backend: Cancelling) -> None:
    """Nobody knows with which options its points were submitted; nor is anything where the file cannot be read."""
    study = sweep.with_suffix("")
    run("submit", sweep, "-y")
    recorded = json.loads((study / "study.json").read_text())
    older = [{key: entry[key] for key in ("label", "id", "groups", "repeat")} for entry in recorded["points"]]
    (study / "study.json").write_text(json.dumps({**recorded, "points": older}))
    sweep.write_text(SWEEP.replace("[1, 2]", "[1]"))
    assert gone(run, sweep) == set()
    sweep.write_text("schema: 2\n")
    assert run("status", sweep).exit_code == INCOMPLETE
