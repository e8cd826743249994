from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from hpcddp.backends.base import JobState
from hpcddp.core.errors import HpcddpError
from hpcddp.core.hours import Hours
from hpcddp.core.point import Data, Measure, Point, Workload, point_to_dict
from hpcddp.core.records import STEP_COLUMNS, STEP_COLUMNS_1, RowWriter, error_file, steps_file, write_json
from hpcddp.core.run_root import Study
from hpcddp.study.progress import last_rows, planned_steps
from hpcddp.study.status import Phase, RunState, run_states, states_to_plain
from hpcddp.study.status_text import next_lines, short_labels, status_table
from hpcddp.study.study_status import StudyStatus, status_text
from hpcddp.study.submission_log import Event, user_name
from hpcddp.study.used_hours import StudyHours
from tests.fake_slurm import FakeBackend
from tests.given_plan import log_event

POINT = Point(
    cluster="c",
    workload=Workload(model="mnist-cnn", data=Data(name="synthetic-mnist"), batch_per_gpu=10),
    measure=Measure(warmup_steps=20, steps=100),
)
LABEL = POINT.label


@pytest.fixture
def fresh(tmp_path: Path) -> Study:
    """One point, asked for twice."""
    study = Study(tmp_path / "s")
    write_json(study.study_file, {"schema": 1, "repeat": 1, "points": [{"label": LABEL, "repeat": 2}]})
    write_json(study.point_file(LABEL), {"schema": 1, "id": POINT.id, "point": point_to_dict(POINT)})
    return study


@pytest.fixture
def study(fresh: Study) -> Study:
    """The first run was submitted as job 7."""
    log_event(fresh, LABEL, job="7")
    return fresh


def logged(study: Study, event: Event = "submitted", **facts: Any) -> None:
    log_event(study, LABEL, event, **({"job": "7"} if event == "submitted" and not facts else facts))


def first(study: Study, *backends: FakeBackend) -> RunState:
    return run_states(study, *backends)[0]


def answer(phase: str, detail: str | None = None) -> FakeBackend:
    return FakeBackend({"7": JobState(phase=phase, detail=detail, nodes="gn01")})  # type: ignore[arg-type]


def attempt(study: Study, name: str = "7.0") -> Path:
    job, _, restart = name.partition(".")
    return study.attempt_dir(LABEL, 1, job, int(restart))


def write_steps(study: Study, steps: int, step_ns: int = 2_000_000, name: str = "7.0") -> Path:
    file = steps_file(attempt(study, name), 0)
    with RowWriter(file, STEP_COLUMNS) as writer:
        for step in range(steps):
            writer.row((step, 0, 1_700_000_000_000_000_000 + step * step_ns, *[1000] * (len(STEP_COLUMNS) - 3)))
    return file


def write_end(study: Study, **facts: Any) -> None:
    write_json(attempt(study) / "end.json", {"reason": None, "gates": [], **facts})


def write_error(study: Study, rank: int, unix_ns: int, message: str) -> None:
    record = {"rank": rank, "host": "gn02", "unix_ns": unix_ns, "type": "RuntimeError", "message": message}
    write_json(error_file(attempt(study), rank), record)


def test_what_was_never_submitted_is_missing_and_a_point_without_its_folder_dropped(fresh: Study) -> None:
    assert run_states(fresh) == [RunState(label=LABEL, run=run, phase="missing") for run in (1, 2)]
    log_event(fresh, LABEL, job="7")
    shutil.rmtree(fresh.point_file(LABEL).parent)
    assert run_states(fresh) == []


def test_a_time_limit_without_a_step_asks_for_the_log(study: Study) -> None:
    out_of_time = FakeBackend({"7": JobState(phase="failed", detail="(TIMEOUT)", word="TIMEOUT", time_limit="20:00")})
    assert "find what the ranks waited for with `hpcddp logs`" in str(first(study, out_of_time).next_step)
    write_steps(study, 3)
    assert "raise slurm.walltime_min in the sweep above 20" in str(first(study, out_of_time).next_step)


def test_queued_run_says_why(study: Study) -> None:
    backend = answer("queued", "required nodes are busy (Resources)")
    state = first(study, backend)
    assert (state.phase, state.detail, state.job) == ("queued", "required nodes are busy (Resources)", "7")
    assert backend.polled == [{"7": f"{LABEL}.r1"}]


def test_running_run_shows_steps_and_rate(study: Study) -> None:
    state = first(study, answer("running"))
    assert (state.phase, state.steps_done, state.samples_per_s) == ("running", 0, None)
    write_steps(study, 90, name="7.0")
    write_steps(study, 60, name="7.1")
    state = first(study, answer("running"))
    assert (state.steps_done, state.steps_total, state.samples_per_s, state.left_s) == (60, 120, 5000.0, 0.12)


def running_in(minutes: int, limit: str = "00:20:00") -> FakeBackend:
    return FakeBackend({"7": JobState(phase="running", time_limit=limit, time_left_s=60.0 * minutes)})


def test_a_run_that_will_not_finish_in_its_time_says_so(study: Study) -> None:
    """60 steps of 60 s are left, and 12 of 20 minutes; 8 min gone and 60 to go are 75 with a tenth more."""
    write_steps(study, 60, step_ns=60_000_000_000)
    state = first(study, running_in(12))
    assert state.detail == "the run will not finish: it has 12 min until its time limit"
    assert str(state.next_step).startswith("cancel the run, then submit it with --set slurm.walltime_min=75 or more, or with ")
    for fits in (running_in(61, "02:00:00"), answer("running"), running_in(58)):
        assert (first(study, fits).detail, first(study, fits).next_step) == (None, None)
    steps_file(attempt(study), 0).unlink()
    write_steps(study, 20, step_ns=60_000_000_000)
    assert first(study, running_in(12)).next_step is None


def test_a_run_that_resumes_goes_on_after_its_time_limit(study: Study) -> None:
    resumes = dataclasses.replace(POINT, measure=dataclasses.replace(POINT.measure, resume=True))
    write_json(study.point_file(LABEL), {"schema": 1, "id": resumes.id, "point": point_to_dict(resumes)})
    write_steps(study, 60, step_ns=60_000_000_000)
    state = first(study, running_in(12))
    assert (state.detail, state.next_step) == ("its time limit is in 12 min; Slurm then requeues it, and it resumes", None)


@pytest.mark.parametrize("backend", ["slurm", "local"])
def test_a_rank_that_died_is_kept_off_its_node_where_slurm_places_jobs(fresh: Study, backend: str) -> None:
    log_event(fresh, LABEL, backend=backend, job="7")
    fault = {"kind": "died", "rank": 1, "host": "gn01", "sentence": "rank 1 on gn01 died", "line": None}
    write_end(fresh, state="failed", reason=fault["sentence"], fault=fault)
    step = first(fresh, answer("failed", "exit code 1")).next_step or ""
    assert ("--set slurm.exclude=gn01" in step) == (backend == "slurm")
    assert step.startswith("submit it again")


def test_an_interrupted_run_says_what_to_do(study: Study) -> None:
    reason = "stopped by SIGUSR2, with a checkpoint after step 72; submit it again to resume from it"
    write_end(study, state="interrupted", reason=reason)
    for phase in ("done", "failed"):
        state = first(study, answer(phase, "it reached its time limit (TIMEOUT)" if phase == "failed" else None))
        assert (state.phase, state.detail) == ("failed", reason)


@pytest.mark.parametrize("columns", [STEP_COLUMNS_1, STEP_COLUMNS])
def test_torn_tail_is_not_a_row(fresh: Study, monkeypatch: pytest.MonkeyPatch, columns: tuple[str, ...]) -> None:
    """A long file is read from its tail. A job may run an earlier version."""
    monkeypatch.setattr("tests.study.test_status.STEP_COLUMNS", columns)
    file = write_steps(fresh, 1000)
    with file.open("ab") as rows:
        rows.write(b"1000,0,17000000")
    rows_read = last_rows(file)
    assert rows_read[-1]["step"] == 999
    assert 10 < len(rows_read) < 100


def test_length_of_epochs_is_unknown_of_ones_own_data_and_where_accuracy_ends_them() -> None:
    own, known = (Workload(model="mnist-cnn", data=Data(name=name), batch_per_gpu=32) for name in ("my.data:make", "mnist"))
    assert planned_steps(Point(cluster="c", workload=own, work="epoch")) is None
    assert planned_steps(Point(cluster="c", workload=known, work="epoch")) == 1875
    training = Point(cluster="c", workload=known, work="train", measure=Measure(epochs=3))
    assert planned_steps(training) == 3 * 1875
    measure = dataclasses.replace(training.measure, target_accuracy=0.9)
    assert planned_steps(dataclasses.replace(training, measure=measure)) is None


def test_end_json_is_the_end_whatever_the_backend_says(study: Study) -> None:
    write_end(study, state="done")
    backend = answer("failed", "exit code 1 (FAILED)")
    assert first(study, backend) == RunState(label=LABEL, run=1, phase="done", job="7")
    assert backend.polled == []


def test_done_with_a_failed_gate_says_so(fresh: Study) -> None:
    gates = [{"name": name, "passed": name == "loss", "evidence": ""} for name in ("loss", "parameters agree")]
    write_end(fresh, state="done", gates=gates)
    assert first(fresh).detail == "check failed: parameters agree; `hpcddp analyze` shows the reason"


def test_resubmitted_run_is_judged_by_its_new_job(study: Study) -> None:
    write_error(study, 0, 5, "old")
    logged(study, job="8")
    cancelled = JobState(phase="failed", detail="cancelled (CANCELLED)", word="CANCELLED", by="alice")
    state = first(study, FakeBackend({"8": cancelled}))
    assert (state.detail, state.job) == ("cancelled by alice (CANCELLED)", "8")


@pytest.mark.parametrize(
    ("ended", "detail"),
    [
        ("exit code 1 (FAILED)", "rank 3 on gn02: RuntimeError: no data"),
        ("rank 3 failed with exit code 1", "rank 3 on gn02: RuntimeError: no data"),
        ("killed by signal 9 (FAILED)", "killed by signal 9 (FAILED); rank 3 on gn02: RuntimeError: no data"),
    ],
)
def test_failure_names_the_earliest_error(study: Study, ended: str, detail: str) -> None:
    write_error(study, 0, 9, "connection closed by peer")
    write_error(study, 3, 5, "no data")
    assert first(study, answer("failed", ended)).detail == detail
    write_end(study, state="failed", reason="rank 0 on gn01: E: m")
    assert "rank 0 on gn01: E: m" in str(first(study, answer("failed", ended)).detail)


def test_failure_without_records_shows_the_last_line_of_stderr(study: Study) -> None:
    completed = first(study, answer("done"))
    assert (completed.phase, completed.detail) == ("failed", "it ended without a complete end.json")
    folder = study.job_dir("7")
    folder.mkdir(parents=True)
    (folder / "batch.err").write_text("srun: error: gn01: task 0: Exited with exit code 1\n")
    ended = answer("failed", "exit code 1 (FAILED)")
    expected = "exit code 1 (FAILED); batch.err ends: srun: error: gn01: task 0: Exited with exit code 1"
    assert first(study, ended).detail == expected
    (folder / "7_0_log.err").write_text("\n\n")
    frames = "Exception raised from f at f.cpp\nframe #1: main\n\n"
    signal = "submitit WARNING (2026-01-01 00:00:00,000) - Bypassing signal SIGTERM\n"
    (folder / "7_1_log.err").write_text(f"Traceback\nModuleNotFoundError: No module named 'torch'\n{frames}{signal}")
    assert first(study, ended).detail == "the Python of its node has no torch"
    assert first(study, ended).line == "7_1_log.err: ModuleNotFoundError: No module named 'torch'"


def test_what_hpcddp_cancelled_is_cancelled_by_whoever_did(fresh: Study) -> None:
    forgotten = answer("failed", "Slurm no longer lists this job")
    logged(fresh, "cancelled", job="7", reason=user_name())
    assert first(fresh, forgotten).detail == "cancelled by you (CANCELLED)"
    logged(fresh, "cancelled", job="7", reason="alice")
    assert first(fresh, forgotten).detail == "cancelled by alice (CANCELLED)"


def test_run_that_ends_while_its_job_is_asked_about_is_done(study: Study) -> None:
    class EndsMeanwhile(FakeBackend):
        def poll(self, jobs: Mapping[str, str]) -> dict[str, JobState]:
            write_end(study, state="done")
            return super().poll(jobs)

    assert first(study, EndsMeanwhile({"7": JobState(phase="done")})).phase == "done"


def test_refused_and_interrupted_submissions(fresh: Study) -> None:
    logged(fresh, "refused", reason="Invalid account")
    assert (first(fresh).phase, first(fresh).detail) == ("failed", "refused: Invalid account")
    logged(fresh, "intent")
    assert first(fresh).phase == "unknown"
    logged(fresh, "lost")
    assert first(fresh).phase == "missing"


def test_records_alone_without_a_backend(study: Study) -> None:
    write_steps(study, 5)
    state = first(study)
    assert (state.phase, state.steps_done, state.steps_total) == ("unknown", 5, 120)
    assert first(study, answer("unknown", "squeue: no controller")).detail == "squeue: no controller"
    write_error(study, 1, 5, "no data")
    assert (first(study).phase, first(study).detail) == ("failed", "rank 1 on gn02: RuntimeError: no data")


def test_jobs_submitted_by_hand_have_states(tmp_path: Path) -> None:
    study = Study(tmp_path / "adhoc")
    write_json(study.attempt_dir(LABEL, 1, "55", 0) / "end.json", {"state": "done", "reason": None, "gates": []})
    assert run_states(study) == [RunState(label=LABEL, run=1, phase="done", job="55")]


@pytest.mark.parametrize("broken", [b"{broken\n", b"\xff\n"])
def test_damaged_line_is_named(study: Study, broken: bytes) -> None:
    study.submissions_file.write_bytes(study.submissions_file.read_bytes() + broken)
    with pytest.raises(HpcddpError, match=r"submissions\.jsonl:2: "):
        run_states(study)


@pytest.mark.parametrize("text", ["{broken", "[]", '{"points": [{"repeat": 1}]}', '{"repeat": "2"}'])
def test_damaged_study_file_is_named(fresh: Study, text: str) -> None:
    fresh.study_file.write_text(text)
    with pytest.raises(HpcddpError, match=r"study\.json: not a file hpcddp wrote"):
        run_states(fresh)


def test_damaged_end_fails_its_run_alone(fresh: Study) -> None:
    damaged = fresh.attempt_dir(LABEL, 1, "55", 0) / "end.json"
    damaged.parent.mkdir(parents=True)
    damaged.touch()
    write_json(fresh.attempt_dir(LABEL, 2, "56", 0) / "end.json", {"state": "done", "reason": None, "gates": []})
    first, second = run_states(fresh)[:2]
    assert (first.phase, second.phase) == ("failed", "done")
    assert "end.json: not a file hpcddp wrote" in str(first.detail)


def test_table_fits_80_columns_and_loses_nothing() -> None:
    reason = "rank 0 on gn01: FileNotFoundError: no bigmnist in /scratch/g/group/bigmnist: `hpcddp data prepare bigmnist`"
    states = [
        *[RunState(label=LABEL, run=run, phase="done", job=str(run)) for run in (1, 2, 7)],
        RunState(label=LABEL, run=3, phase="missing"),
        RunState(label=LABEL, run=4, phase="running", job="9", steps_done=60, steps_total=120, samples_per_s=5000.4),
        RunState(label=LABEL, run=5, phase="failed", job="10", detail=reason, next_step="repair that", line="E: no"),
    ]
    lines = status_table(states).splitlines()
    assert lines[:4] == [
        "done     n01-g1-b10  r1-2, r7",
        "missing  n01-g1-b10  r3",
        "running  n01-g1-b10  r4  9  step 60 of 120, 5,000 samples/s",
        "failed   n01-g1-b10  r5  10",
    ]
    assert " ".join(line.strip() for line in lines[4:6]) == reason
    assert lines[6:] == ["    log: E: no", "    next: repair that", "6 runs: 3 done, 1 running, 1 failed, 1 missing"]
    assert max(map(len, lines)) <= 80
    assert json.loads(json.dumps(states_to_plain(states)))[5]["detail"] == reason


MANY = [f"n01-g1-b{number}-{number:012x}" for number in range(200)]


def test_runs_in_one_state_for_one_reason_are_one_entry() -> None:
    reason = "it used more memory than it was given (OUT_OF_MEMORY), all of it on the first node of two"
    same = {"phase": "failed", "detail": reason, "next_step": "ask for more with slurm.mem_mb"}
    states = [RunState(label=label, run=run, job=f"{run}", **same) for label in MANY for run in (1, 2)]  # type: ignore[arg-type]
    other = dataclasses.replace(states[10], detail="cancelled by you (CANCELLED)", next_step="submit it again")
    lines = status_table([*states[:10], other, *states[11:]]).splitlines()
    assert lines[0] == "failed   399 runs of 200 points: n01-g1-b0, n01-g1-b1-, n01-g1-b2- and 197 more"
    assert " ".join(line.strip() for line in lines[1:3]) == reason
    assert lines[3:] == [
        "    next: ask for more with slurm.mem_mb",
        "failed   n01-g1-b5-  r1  1  cancelled by you (CANCELLED)",
        "    next: submit it again",
        "400 runs: 400 failed",
    ]


def test_a_point_is_named_by_what_begins_no_other() -> None:
    labels = ["n01-g1-b8-0123456789ab", "n01-g1-b8-012f00000000", "n01-g1-b80-0123456789ab", "n02-g1-b8-0123456789ab", "old"]
    assert list(short_labels(labels).values()) == ["n01-g1-b8-0123", "n01-g1-b8-012f", "n01-g1-b80", "n02-g1-b8", "old"]


def of_many(phase: Phase, number: int) -> RunState:
    """A run that has a text of its own."""
    step = "submit it again" if phase == "failed" else None
    detail = f"rank 0 on gn{number} died without an error message in its training loop (killed by SIGKILL)"
    return RunState(label=MANY[number], run=1, phase=phase, job=str(number), detail=detail, next_step=step)


@pytest.mark.parametrize(
    "phases", [("running",), ("failed",), ("done",), ("unknown",), ("done", "running", "queued", "failed", "unknown", "missing")]
)
def test_two_hundred_points_fit_a_screen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, phases: tuple[Phase, ...]) -> None:
    monkeypatch.chdir(tmp_path)
    states = [of_many(phases[number % len(phases)], number) for number in range(200)]
    hours = StudyHours(used=Hours(node=1234.5, gpu=4938.0), to_come=Hours(node=100.0, gpu=400.0))
    network = "network: NCCL 2.28.9 over InfiniBand (IB), 4 adapters a node, GPUDirect RDMA"
    status = StudyStatus(name="s", path=tmp_path / "s", states=states, hours=hours, preflight=network, network=network)
    for several in (2, 12):
        assert len(status_text([status] * several, 24).splitlines()) <= 24
    lines = status.text(22).splitlines()
    assert len(lines) <= 22
    assert max(map(len, lines)) <= 80
    assert {line.split()[0] for line in lines} >= set(phases)


def test_runs_that_wait_for_the_same_have_the_first_start_of_all() -> None:
    waits = [
        RunState(label=f"n0{n}-g1-b8", run=1, phase="queued", detail="busy (Resources)", start=f"2026-11-2{9 - n}T14:20:00")
        for n in range(5)
    ]
    assert status_table(waits).splitlines() == [
        "queued   5 runs of 5 points: n00-g1-b8, n01-g1-b8, n02-g1-b8 and 2 more",
        "    busy (Resources); Slurm expects 25 Nov 14:20",
        "5 runs: 5 queued",
    ]


def test_table_says_how_long_it_will_take() -> None:
    runs = RunState(label=LABEL, run=3, phase="running", job="9", steps_done=6, steps_total=12, left_s=7_300)
    assert status_table([runs]).splitlines()[0] == "running  n01-g1-b10  r3  9  step 6 of 12, 2.0 h left"


DONE = RunState(label="n01-g1", run=1, phase="done")
FAILED = RunState(label="n02-g1", run=1, phase="failed", next_step="submit it again; to exclude gn07: --set slurm.exclude=gn07")


@pytest.mark.parametrize(
    ("states", "lines"),
    [
        ([DONE, DONE], ["next: ANALYZE"]),
        ([DONE, FAILED], ["next: SUBMIT (1 run failed)"]),
        ([DONE, FAILED, RunState(label="n04-g1", run=1, phase="missing")], ["next: SUBMIT (1 run failed, 1 run missing)"]),
        ([FAILED, dataclasses.replace(FAILED, next_step="raise it")], ["next: SUBMIT (first fix what stopped 1 run)"]),
        ([DONE, dataclasses.replace(FAILED, phase="running")], []),
        ([DONE, dataclasses.replace(FAILED, phase="unknown", job="7")], []),
        ([DONE, dataclasses.replace(FAILED, phase="unknown")], ["next: SUBMIT (1 run unknown)"]),
        ([DONE, dataclasses.replace(FAILED, in_sweep=False)], ["next: ANALYZE"]),
        ([], []),
    ],
)
def test_the_last_line_is_the_next_command(states: list[RunState], lines: list[str]) -> None:
    assert next_lines(states, "SUBMIT", "ANALYZE") == lines
    long = next_lines([FAILED], f"hpcddp submit {'x' * 70}.yaml", "ANALYZE")
    assert long == [f"next: hpcddp submit {'x' * 70}.yaml", "    1 run failed"]


def test_status_loads_nothing_heavy() -> None:
    text = (
        "import sys, hpcddp.study.status, hpcddp.study.status_text, hpcddp.backends.slurm, hpcddp.backends.local\n"
        "print(sorted({'torch', 'pandas', 'matplotlib', 'submitit', 'jinja2', 'ruamel', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"start_up_s": 40.0}, None),
        ({"start_up_s": 180.0}, "first step 3 min after srun"),
        ({"staging_s": 250.0}, "step 60, data copied to the nodes in 4 min"),
    ],
)
def test_what_took_long_before_the_steps_is_said_while_a_run_runs(facts: dict[str, float], said: str | None) -> None:
    text = status_table([RunState(label="n01-g4", run=1, phase="running", job="7", steps_done=60, **facts)])  # type: ignore[arg-type]
    assert said in text if said else " min " not in text
