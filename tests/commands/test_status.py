"""`hpcddp status`, and where runs are looked for."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from hpcddp.backends.base import JobState
from hpcddp.core.errors import INCOMPLETE, USAGE
from hpcddp.core.point import Data, Point, Workload, point_to_dict
from hpcddp.core.records import write_json
from hpcddp.core.run_root import Study
from tests.commands.conftest import Run
from tests.fake_slurm import FakeBackend
from tests.given_plan import log_event

POINT = Point(cluster="c", workload=Workload(model="mnist-cnn", data=Data(name="synthetic-mnist")))


@pytest.fixture
def study(tmp_path: Path, backend: FakeBackend) -> Study:
    """One run, in job 7."""
    backend.states["7"] = JobState(phase="running")
    study = Study(tmp_path / "s")
    write_json(study.study_file, {"schema": 1, "repeat": 1, "points": [{"label": POINT.label}]})
    write_json(study.point_file(POINT.label), {"schema": 1, "id": POINT.id, "point": point_to_dict(POINT)})
    log_event(study, POINT.label, job="7")
    return study


def finish(study: Study) -> None:
    write_json(study.attempt_dir(POINT.label, 1, "7", 0) / "end.json", {"state": "done", "reason": None, "gates": []})


def test_json_tells_all_that_the_table_does(run: Run, study: Study, backend: FakeBackend) -> None:
    backend.states["7"] = JobState(phase="failed", detail="out of memory (OUT_OF_MEMORY)", word="OUT_OF_MEMORY")
    result = run("status", study.folder, "--format", "json")
    (found,) = json.loads(result.stdout)["studies"]
    assert result.exit_code == INCOMPLETE
    assert (found["name"], found["node_hours"]) == ("s", 0.0)
    assert [found[key] for key in ("gpu_hours", "node_hours_to_come", "gpu_hours_to_come")] == [0.0, 0.0, 0.0]
    assert found["runs"][0]["detail"].startswith("it used more memory")
    assert found["runs"][0]["next_step"].startswith("request more with slurm.mem_mb")


def test_hours_of_nodes_and_gpus_are_on_the_last_line(run: Run, study: Study, backend: FakeBackend) -> None:
    log_event(study, POINT.label, job="7", gpus_per_node=4)
    backend.states["7"] = JobState(phase="queued", time_limit="2:00:00")
    last = run("status", study.folder).stdout.splitlines()[-1]
    assert last == "1 run: 1 queued; at most 2.0 node hours, 8.0 GPU hours to come"


def test_watch_goes_on_until_all_runs_are_over(run: Run, study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            finish(study)

    monkeypatch.setattr(time, "sleep", pause)
    result = run("status", study.folder, "--watch")
    assert (result.exit_code, pauses) == (0, [30, 30])
    lines = [line for line in result.stdout.splitlines() if line.startswith("1 run")]
    assert lines == ["1 run: 1 running", "1 run: 1 running", "1 run: 1 done"]


def test_watch_fits_the_terminal(run: Run, study: Study, backend: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the line that the cursor is on."""
    monkeypatch.setattr(time, "sleep", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
    for job in range(8, 48):
        log_event(study, POINT.label, run=job, job=str(job))
        backend.states[str(job)] = JobState(phase="failed", detail=f"rank {job} died ({'of something ' * 5})", word="FAILED")
    assert len(run("status", study.folder).stdout.splitlines()) > 80
    assert 16 < len(run("status", study.folder, "--watch").stdout.splitlines()) < 24


def test_watch_ends_by_ctrl_c_as_status_would(run: Run, study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
    result = run("status", study.folder, "--watch", "5")
    assert (result.exit_code, result.stderr) == (INCOMPLETE, "")
    assert run("status", study.folder, "--watch", "1").exit_code == USAGE
    assert run("status", study.folder, "--watch", "--format", "json").exit_code == USAGE


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    """Its content is of no matter: its name says where its runs are."""
    file = tmp_path / "mine.yaml"
    file.write_text("schema: 1\n")
    return file


def submitted(root: Path) -> Path:
    """The folder of a study of one point of which nothing has run."""
    study = Study(root / "mine")
    write_json(study.study_file, {"schema": 1, "repeat": 1, "points": [{"label": "n01"}]})
    return study.folder


@pytest.mark.parametrize("command", ["status", "clean"])
def test_it_stands_for_the_folder_of_its_runs(run: Run, sweep: Path, command: str) -> None:
    folder = submitted(sweep.parent)
    assert run(command, sweep).stdout == run(command, folder).stdout


def test_runs_elsewhere_are_found(run: Run, sweep: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = submitted(tmp_path / "scratch")
    monkeypatch.setenv("HPCDDP_RUNS", str(tmp_path / "scratch"))
    assert run("status", sweep).stdout == run("status", folder).stdout


def test_of_a_sweep_that_was_not_submitted_the_missing_folder_is_named(run: Run, sweep: Path) -> None:
    said = run("status", sweep)
    assert said.exit_code == USAGE
    assert f"{sweep.parent / 'mine'} does not exist" in said.stderr
