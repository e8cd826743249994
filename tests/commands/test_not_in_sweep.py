"""Points and runs that were taken out of a sweep after they were submitted: named by every command, ended by one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from hpcddp.backends.base import Batch, JobState, Submission
from hpcddp.core.errors import INCOMPLETE
from hpcddp.core.job_ids import base_id
from hpcddp.core.records import write_json
from hpcddp.core.run_root import Study
from tests.commands.conftest import Run
from tests.fake_backend import FakeBackend
from tests.given_plan import SWEEP


class Cancelling(FakeBackend):
    """Notes what it was asked to cancel, and does so."""

    def cancel(self, jobs: Mapping[str, str]) -> None:
        self.states |= {job: JobState(phase="failed", detail="cancelled (CANCELLED)", word="CANCELLED") for job in jobs}

    @property
    def cancelled(self) -> set[str]:
        return {job for job, state in self.states.items() if state.word == "CANCELLED"}


class InArrays(Cancelling):
    """All runs of a call as one array."""

    def batches(self, requests: list[Submission]) -> list[Batch]:  # type: ignore[override]
        return [Batch(submissions=tuple(requests))]

    def submit_batch(self, batch: Batch) -> list[str]:
        array = self.submit(batch.submissions[0])
        return [f"{array}_{task}" for task in range(len(batch.submissions))]


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> Cancelling:
    return use(monkeypatch, Cancelling())


def use(monkeypatch: pytest.MonkeyPatch, backend: Cancelling) -> Cancelling:
    monkeypatch.setattr("hpcddp.backends.choose.make_backend", lambda *given, **more: backend)
    return backend


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
    """plan, status and submit name it with what ends it; `cancel --not-in-sweep` ends it alone, and all is well with the rest."""
    study = sweep.with_suffix("")
    assert run("submit", sweep, "-y").exit_code == 0
    one, two = labels(study)
    sweep.write_text(SWEEP.replace("[1, 2]", "[1]"))
    named = f"2 runs not in the sweep any more wait or run: {two} r1-2; `hpcddp cancel {sweep} --not-in-sweep` ends them"
    assert f"! {named.replace('more wait', 'more may wait')}" in run("plan", sweep).stderr
    assert named in unwrapped(run("status", sweep).stdout)
    stdout = run("cancel", study, "--not-in-sweep", "-y").stdout
    assert stdout.endswith("waits or runs by the last submit; name the sweep file to go by that\n")
    assert gone(run, study) == set()  # study.json knows of the last submission only
    assert f"! {named}" in run("submit", sweep, "-y").stderr
    assert gone(run, study) == gone(run, sweep) == {(two, 1), (two, 2)}
    result = run("cancel", study, "--not-in-sweep", "-y")
    assert (result.exit_code, result.stdout.splitlines()[-1]) == (0, "cancelled    2 runs")
    assert backend.cancelled == {job for job, request in backend.queued.items() if request.spec.label == two}
    assert (
        run("cancel", sweep, "--not-in-sweep", "-y").stdout
        == "nothing to cancel: no run that is not in the sweep waits or runs\n"
    )
    finish(study, labels=[one])
    result = run("status", study)
    assert result.exit_code == 0, result.stdout
    assert "cancelled by you (CANCELLED), not in the sweep any more" in result.stdout
    assert "next:" not in result.stdout
    assert f"2 runs are not in the sweep any more and not submitted again: {two} r1-2" in run("submit", sweep, "-y").stderr
    elsewhere = run("submit", sweep, "-y", "--runs", "other")
    sweep.write_text(SWEEP.replace("[1, 2]", "[2]").replace("[1]", "[2]"))
    assert elsewhere.exit_code == 0
    other = f"`hpcddp cancel {sweep.parent / 'other' / 'small'} --not-in-sweep`"
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
    assert result.stdout.count("exit code 1 (FAILED), not in the sweep any more") == 2
    assert "submit it again" not in result.stdout
    finish(study)
    assert run("status", study).exit_code == 0
    assert run("submit", sweep, "-y", "--wait").exit_code == 0


def test_single_tasks_of_an_array_are_ended(run: Run, sweep: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others of the array go on."""
    backend = use(monkeypatch, InArrays())
    run("submit", sweep, "-y")
    sweep.write_text(SWEEP.replace("repeat: 2", "repeat: 1"))
    run("cancel", sweep, "--not-in-sweep", "-y")
    (array,) = map(base_id, backend.queued)
    assert backend.cancelled == {f"{array}_2", f"{array}_3"}  # repetition by repetition: the second ones


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
    """What the whole sweep, or the sweep with other options, has asked for is in it, whatever a submission chooses; so is what
    an option made.
    """
    run("submit", sweep, "-y")
    run("submit", sweep, "-y", *options)
    assert gone(run, sweep) == gone(run, sweep.with_suffix("")) == set()
    run("submit", sweep, "-y")
    assert gone(run, sweep) == gone(run, sweep.with_suffix("")) == set()
    assert "not in the sweep" not in run("plan", sweep, *options).stderr


def test_runs_that_until_ci_added_and_baselines_are_in_the_sweep(run: Run, sweep: Path, backend: Cancelling) -> None:
    """They are beyond `repeat`, or in no group; a benchmark of communication is in no sweep file at all."""
    study = sweep.with_suffix("")
    sweep.write_text(
        SWEEP.replace(
            "  ranks: {layout.gpus_per_node: [1, 2]}\n  alone: {layout.gpus_per_node: [1]}",
            "  several: {layout.gpus_per_node: [2, 3]}",
        )
    )
    assert "added to compare" in run("submit", sweep, "-y", "--until-ci", "2").stderr
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
