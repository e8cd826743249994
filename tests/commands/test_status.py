"""`hpcddp status`: what it prints, and how it watches."""

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
from tests.fake_backend import FakeBackend
from tests.given_event import log_event

POINT = Point(cluster="c", workload=Workload(model="mnist-cnn", data=Data(name="synthetic-mnist")))


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> FakeBackend:
    found = FakeBackend({"7": JobState(phase="running")})
    monkeypatch.setattr("hpcddp.backends.choose.make_backend", lambda *_, **__: found)
    return found


@pytest.fixture
def study(tmp_path: Path, backend: FakeBackend) -> Study:
    """One run, in job 7."""
    study = Study(tmp_path / "s")
    write_json(study.study_file, {"schema": 1, "repeat": 1, "points": [{"label": POINT.label}]})
    write_json(study.point_file(POINT.label), {"schema": 1, "id": POINT.id, "point": point_to_dict(POINT)})
    log_event(study, POINT.label, job="7")
    return study


def finish(study: Study) -> None:
    write_json(study.attempt_dir(POINT.label, 1, "7", 0) / "end.json", {"state": "done", "reason": None, "gates": []})


def test_json_tells_all_that_the_table_does(run: Run, study: Study, backend: FakeBackend) -> None:
    """Each run with its reason and next step; of each study the node hours."""
    backend.states["7"] = JobState(phase="failed", detail="out of memory (OUT_OF_MEMORY)", word="OUT_OF_MEMORY")
    result = run("status", study.folder, "--format", "json")
    (found,) = json.loads(result.stdout)["studies"]
    assert result.exit_code == INCOMPLETE
    assert (found["name"], found["node_hours"]) == ("s", 0.0)
    assert [found[key] for key in ("gpu_hours", "node_hours_to_come", "gpu_hours_to_come")] == [0.0, 0.0, 0.0]
    assert found["runs"][0]["detail"].startswith("it used more memory")
    assert found["runs"][0]["next_step"].startswith("ask for more with slurm.mem_mb")


def test_hours_of_nodes_and_gpus_are_on_the_last_line(run: Run, study: Study, backend: FakeBackend) -> None:
    """At most to come: the job's two hours on one node of four GPUs."""
    log_event(study, POINT.label, job="7", gpus_per_node=4)
    backend.states["7"] = JobState(phase="queued", time_limit="2:00:00")
    last = run("status", study.folder).stdout.splitlines()[-1]
    assert last == "1 run: 1 queued; at most 2.0 node hours, 8.0 GPU hours to come"


def test_watch_goes_on_until_all_runs_are_over(run: Run, study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    """It looks again after each pause, and ends with what the last look came to."""
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            finish(study)

    monkeypatch.setattr(time, "sleep", pause)
    result = run("status", study.folder, "--watch")
    assert (result.exit_code, pauses) == (0, [30, 30])
    assert [line for line in result.stdout.splitlines() if line.startswith("1 run")] == [
        *["1 run: 1 running"] * 2,
        "1 run: 1 done",
    ]


def test_watch_ends_by_ctrl_c_as_status_would(run: Run, study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    """What runs goes on: it is incomplete, and no error."""
    monkeypatch.setattr(time, "sleep", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
    result = run("status", study.folder, "--watch", "5")
    assert (result.exit_code, result.stderr) == (INCOMPLETE, "")


def test_watch_is_polite_and_for_people(run: Run, study: Study) -> None:
    """No more often than every 5 s, and not as JSON."""
    assert run("status", study.folder, "--watch", "1").exit_code == USAGE
    assert run("status", study.folder, "--watch", "--format", "json").exit_code == USAGE
