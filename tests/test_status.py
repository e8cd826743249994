"""What became of a run: from its records, its submissions and its backend's answer."""

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from hpcddp.backends.base import JobState
from hpcddp.errors import HpcddpError
from hpcddp.point import Data, Measure, Point, Workload, point_to_dict
from hpcddp.progress import last_rows, planned_steps
from hpcddp.records import STEP_COLUMNS, StepWriter, error_file, steps_file, write_json
from hpcddp.runroot import Study
from hpcddp.status import RunState, run_states, states_to_plain
from hpcddp.status_text import status_table
from hpcddp.submissions import Event, Told, tell
from tests.told_backend import ToldBackend

POINT = Point(
    cluster="c",
    workload=Workload(model="mnist-cnn", data=Data(name="synthetic-mnist"), batch_per_gpu=10),
    measure=Measure(warmup_steps=20, steps=100),
)
LABEL = POINT.label


@pytest.fixture
def study(tmp_path: Path) -> Study:
    """One point, asked for twice."""
    study = Study(tmp_path / "s")
    write_json(study.study_file, {"schema": 1, "repeat": 1, "points": [{"label": LABEL, "repeat": 2}]})
    write_json(study.point_file(LABEL), {"schema": 1, "id": POINT.id, "point": point_to_dict(POINT)})
    return study


def told(study: Study, event: Event = "submitted", *, run: int = 1, **facts: Any) -> None:
    about = Told(event="intent", token="t", label=LABEL, run=run, backend="slurm", unix_s=0.0)
    tell(study, event, about, **({"job": "7"} if event == "submitted" and not facts else facts))


def first(study: Study, *backends: ToldBackend) -> RunState:
    return run_states(study, *backends)[0]


def answer(phase: str, detail: str | None = None) -> ToldBackend:
    return ToldBackend({"7": JobState(phase=phase, detail=detail, nodes="gn01")})  # type: ignore[arg-type]


def attempt(study: Study, name: str = "7.0") -> Path:
    job, _, restart = name.partition(".")
    return study.attempt_dir(LABEL, 1, job, int(restart))


def write_steps(study: Study, steps: int, step_ns: int = 2_000_000, name: str = "7.0") -> Path:
    file = steps_file(attempt(study, name), 0)
    with StepWriter(file) as writer:
        for step in range(steps):
            writer.row((step, 0, 1_700_000_000_000_000_000 + step * step_ns, *[1000] * (len(STEP_COLUMNS) - 3)))
    return file


def write_error(study: Study, rank: int, unix_ns: int, message: str) -> None:
    record = {"rank": rank, "host": "gn02", "unix_ns": unix_ns, "type": "RuntimeError", "message": message}
    write_json(error_file(attempt(study), rank), record)


def test_what_was_asked_for_and_never_submitted_is_missing(study: Study) -> None:
    """Every repetition of study.json is a run; a point's own number of repetitions counts."""
    assert run_states(study) == [RunState(label=LABEL, run=run, phase="missing") for run in (1, 2)]


def test_a_point_without_its_folder_is_dropped(study: Study) -> None:
    """Removing a point's folder takes it out of the study, whatever was submitted of it."""
    told(study)
    shutil.rmtree(study.point_file(LABEL).parent)
    assert run_states(study) == []


def test_queued_run_says_why(study: Study) -> None:
    """The backend's reason is shown, and it is asked by id and name."""
    told(study)
    backend = answer("queued", "the nodes it needs are busy (Resources)")
    state = first(study, backend)
    assert (state.phase, state.detail, state.job) == ("queued", "the nodes it needs are busy (Resources)", "7")
    assert backend.polled == [{"7": f"{LABEL}.r1"}]


def test_running_run_shows_steps_and_rate(study: Study) -> None:
    """Steps of the newest attempt of the job, of warm-up plus timed ones; the rate is over the last rows: 10 samples in 2 ms."""
    told(study)
    write_steps(study, 90, name="7.0")
    write_steps(study, 60, name="7.1")
    state = first(study, answer("running"))
    assert (state.steps_done, state.steps_total, state.samples_per_s) == (60, 120, 5000.0)


def test_running_run_without_rows_yet_has_no_rate(study: Study) -> None:
    """Before the first rows there is no step and no rate, and no error."""
    told(study)
    state = first(study, answer("running"))
    assert (state.phase, state.steps_done, state.samples_per_s) == ("running", 0, None)


def test_torn_tail_is_not_a_row(study: Study) -> None:
    """A last line without its end is left out; what is read of a long file is its tail."""
    file = write_steps(study, 1000)
    with file.open("ab") as rows:
        rows.write(b"1000,0,17000000")
    rows_read = last_rows(file)
    assert rows_read[-1]["step"] == 999
    assert 10 < len(rows_read) < 100


def test_length_of_an_epoch_of_ones_own_data_is_unknown() -> None:
    """Only the files know how many samples a user's own data set has; a known one's epoch is divided by the global batch."""
    own, known = (Workload(model="mnist-cnn", data=Data(name=name), batch_per_gpu=32) for name in ("my.data:make", "mnist"))
    assert planned_steps(Point(cluster="c", workload=own, work="epoch")) is None
    assert planned_steps(Point(cluster="c", workload=known, work="epoch")) == 1875


def test_end_json_is_the_end_whatever_the_backend_says(study: Study) -> None:
    """A run whose end.json says done is done; its job is not even asked about."""
    told(study)
    write_json(attempt(study) / "end.json", {"state": "done", "reason": None, "gates": []})
    backend = answer("failed", "exit code 1 (FAILED)")
    assert first(study, backend) == RunState(label=LABEL, run=1, phase="done", job="7")
    assert backend.polled == [{}]


def test_done_with_a_failed_gate_says_so(study: Study) -> None:
    """A run that will be rejected by analysis is done, with the gate's name."""
    gates = [{"name": "loss is finite", "passed": True}, {"name": "parameters agree", "passed": False}]
    write_json(attempt(study) / "end.json", {"state": "done", "reason": None, "gates": gates})
    assert first(study).detail == "gate failed: parameters agree; analyze says why"


def test_resubmitted_run_is_judged_by_its_new_job(study: Study) -> None:
    """After a failure the newest submission counts, not the old attempt's records."""
    told(study)
    write_error(study, 0, 5, "old")
    told(study, job="8")
    state = first(study, ToldBackend({"8": JobState(phase="failed", detail="cancelled (CANCELLED)")}))
    assert (state.detail, state.job) == ("cancelled (CANCELLED)", "8")


@pytest.mark.parametrize(
    ("seen", "detail"),
    [
        ("exit code 1 (FAILED)", "rank 3 on gn02: RuntimeError: no data"),
        ("rank 3 ended with exit code 1", "rank 3 on gn02: RuntimeError: no data"),
        ("out of memory (OUT_OF_MEMORY)", "out of memory (OUT_OF_MEMORY); rank 3 on gn02: RuntimeError: no data"),
        ("the wall time was over (TIMEOUT)", "the wall time was over (TIMEOUT); rank 3 on gn02: RuntimeError: no data"),
    ],
)
def test_failure_names_the_earliest_error(study: Study, seen: str, detail: str) -> None:
    """The rank that failed first is the cause; what the backend saw stands before it where it says more than an exit code."""
    told(study)
    write_error(study, 0, 9, "connection closed by peer")
    write_error(study, 3, 5, "no data")
    assert first(study, answer("failed", seen)).detail == detail


def test_failure_that_rank_0_recorded(study: Study) -> None:
    """The reason in end.json is the reason."""
    told(study)
    write_json(attempt(study) / "end.json", {"state": "failed", "reason": "rank 0 on gn01: E: m"})
    assert first(study, answer("failed", "exit code 1 (FAILED)")).detail == "rank 0 on gn01: E: m"


def test_failure_without_records_shows_the_last_line_of_stderr(study: Study) -> None:
    """A job that died before any record: the last line a rank wrote to stderr, else the batch script's."""
    told(study)
    folder = study.job_dir("7")
    folder.mkdir(parents=True)
    (folder / "batch.err").write_text("srun: error: gn01: task 0: Exited with exit code 1\n")
    seen = answer("failed", "exit code 1 (FAILED)")
    expected = "exit code 1 (FAILED); batch.err ends: srun: error: gn01: task 0: Exited with exit code 1"
    assert first(study, seen).detail == expected
    (folder / "7_0_log.err").write_text("\n\n")
    frames = "Exception raised from f at f.cpp\nframe #1: main\n\n"
    signal = "submitit WARNING (2026-01-01 00:00:00,000) - Bypassing signal SIGTERM\n"
    (folder / "7_1_log.err").write_text(f"Traceback\nModuleNotFoundError: No module named 'torch'\n{frames}{signal}")
    expected = "exit code 1 (FAILED); 7_1_log.err ends: ModuleNotFoundError: No module named 'torch'"
    assert first(study, seen).detail == expected


def test_job_that_completed_without_an_end_has_failed(study: Study) -> None:
    """COMPLETED is not enough: without end.json there are no figures."""
    told(study)
    state = first(study, answer("done"))
    assert (state.phase, state.detail) == ("failed", "it ended without leaving an end.json")


def test_run_that_ends_while_its_job_is_asked_about_is_done(study: Study) -> None:
    """end.json that appears after the records were read and before the backend says COMPLETED counts."""

    class EndsMeanwhile(ToldBackend):
        def poll(self, jobs: Mapping[str, str]) -> dict[str, JobState]:
            write_json(attempt(study) / "end.json", {"state": "done", "reason": None, "gates": []})
            return super().poll(jobs)

    told(study)
    assert first(study, EndsMeanwhile({"7": JobState(phase="done")})).phase == "done"


def test_refused_and_interrupted_submissions(study: Study) -> None:
    """A refused run has failed with Slurm's words; one whose submission broke off is not known; a lost one is missing."""
    told(study, "refused", reason="Invalid account")
    assert (first(study).phase, first(study).detail) == ("failed", "refused: Invalid account")
    told(study, "intent")
    assert first(study).phase == "unknown"
    told(study, "lost")
    assert first(study).phase == "missing"


def test_records_alone_without_a_backend(study: Study) -> None:
    """Where no backend answers, errors are failures, and anything else is not known, with how far it got."""
    told(study)
    write_steps(study, 5)
    state = first(study)
    assert (state.phase, state.steps_done, state.steps_total) == ("unknown", 5, 120)
    assert first(study, answer("unknown", "squeue: no controller")).detail == "squeue: no controller"
    write_error(study, 1, 5, "no data")
    assert (first(study).phase, first(study).detail) == ("failed", "rank 1 on gn02: RuntimeError: no data")


def test_jobs_submitted_by_hand_have_states(tmp_path: Path) -> None:
    """Without study.json and submissions, folders of records are runs."""
    study = Study(tmp_path / "adhoc")
    write_json(study.attempt_dir(LABEL, 1, "55", 0) / "end.json", {"state": "done", "reason": None, "gates": []})
    assert run_states(study) == [RunState(label=LABEL, run=1, phase="done", job="55")]


@pytest.mark.parametrize("broken", [b"{broken\n", b"\xff\n"])
def test_damaged_line_is_named(study: Study, broken: bytes) -> None:
    """A line of submissions.jsonl that hpcddp did not write is named by file and number."""
    told(study)
    with study.submissions_file.open("ab") as lines:
        lines.write(broken)
    with pytest.raises(HpcddpError, match=r"submissions\.jsonl:2: "):
        run_states(study)


def test_damaged_study_file_is_named(study: Study) -> None:
    """A study.json that hpcddp did not write is named."""
    study.study_file.write_text("{broken")
    with pytest.raises(HpcddpError, match=r"study\.json: not a file hpcddp wrote"):
        run_states(study)


def test_table_fits_80_columns_and_loses_nothing(study: Study) -> None:
    """Runs in the same state share a line; a long reason is wrapped below; the last line counts."""
    reason = "rank 0 on gn01: FileNotFoundError: no bigmnist in /scratch/g/group/bigmnist: `hpcddp data prepare bigmnist`"
    states = [
        *[RunState(label=LABEL, run=run, phase="done", job=str(run)) for run in (1, 2, 3)],
        RunState(label=LABEL, run=4, phase="running", job="9", steps_done=60, steps_total=120, samples_per_s=5000.4),
        RunState(label=LABEL, run=5, phase="failed", job="10", detail=reason),
        RunState(label=LABEL, run=6, phase="missing"),
    ]
    lines = status_table(states).splitlines()
    assert lines[0] == f"{LABEL}  r1-3   done"
    assert lines[1] == f"{LABEL}  r4     running 9        step 60 of 120, 5,000 samples/s"
    assert lines[2] == f"{LABEL}  r5     failed  10"
    assert " ".join(line.strip() for line in lines[3:5]) == reason
    assert lines[5:] == [f"{LABEL}  r6     missing", "6 runs: 3 done, 1 running, 1 failed, 1 missing"]
    assert max(map(len, lines)) <= 80
    assert json.loads(json.dumps(states_to_plain(states)))[4]["detail"] == reason


def test_status_loads_nothing_heavy() -> None:
    """The login node's status needs neither torch nor pandas, matplotlib, submitit, Jinja or YAML."""
    text = (
        "import sys, hpcddp.status, hpcddp.status_text, hpcddp.backends.slurm, hpcddp.backends.local\n"
        "print(sorted({'torch', 'pandas', 'matplotlib', 'submitit', 'jinja2', 'ruamel', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
