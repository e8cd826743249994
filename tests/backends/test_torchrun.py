"""torchrun as the launcher on this machine: what it starts leaves what directly started ranks leave."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

from hpcddp.backends.base import Submission
from hpcddp.backends.local import LocalBackend
from hpcddp.core.jobspec import JobSpec, spec_to_dict
from hpcddp.core.launcher import first_failure, forget_failure, note_failure
from hpcddp.core.point import Point
from hpcddp.core.records import steps_file
from hpcddp.core.run_root import Study
from hpcddp.study.status import run_states
from hpcddp.submit.snapshot import take_snapshot
from tests.backends.test_local import end_state, kill_processes, processes, submission
from tests.backends.waiting import wait_for
from tests.given_event import log_event
from tests.worker import given

VARIABLES = {"UCX_OF_STUDY": "it's $HOME"}
"""One that launch.json has."""

Launcher = Literal["direct", "torchrun"]


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Study]:
    """A study of this module's own; every process that knows of it is killed at the end."""
    folder = tmp_path_factory.mktemp("torchrun")
    yield Study(folder / "it's a study")
    kill_processes(folder)


def point(launcher: Launcher, **changes: Any) -> Point:
    """Two ranks that train the MNIST CNN on this machine's CPU."""
    base = given.point(2, **changes)
    measure = dataclasses.replace(base.measure, comm="on", telemetry_hz=0.0)
    return dataclasses.replace(base, layout=dataclasses.replace(base.layout, launcher=launcher), measure=measure, env=VARIABLES)


def submitted(study: Study, what: Point) -> tuple[str, Submission]:
    spec = JobSpec(point=what, study=str(study.folder), backend="local")
    code = take_snapshot(study, [], near=[])
    request = Submission(spec=spec, code=code, python="python3", walltime_min=3, token="t")
    return LocalBackend(study).submit(request), request


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where processes of the jobs put what is theirs alone."""
    with pytest.MonkeyPatch.context() as changed:
        folder = tmp_path_factory.mktemp("scratch")
        changed.setenv("TMPDIR", str(folder))
        yield folder


@pytest.fixture(scope="module")
def attempts(study: Study, scratch: Path) -> dict[str, Path]:
    """The records of the same point with both launchers."""
    found = {}
    for launcher in ("direct", "torchrun"):
        job, request = submitted(study, point(launcher))
        assert end_state(study, job, request).phase == "done", (study.job_dir(job) / "batch.err").read_text()
        found[launcher] = request.spec.attempt_dir(job, 0)
    return found


@pytest.mark.dear
@pytest.mark.usefixtures("attempts")
def test_torchrun_leaves_nothing_on_its_node(scratch: Path) -> None:
    """Its own folder for logs, of which hpcddp has better ones, goes with it."""
    assert [*scratch.glob("torchelastic*"), *scratch.glob("hpcddp*")] == []


def names(folder: Path) -> set[str]:
    """Files below a folder, without the process id in the names of logs."""
    return {re.sub(r"\d+_", "PID_", str(file.relative_to(folder)), count=1) for file in folder.rglob("*") if file.is_file()}


def read(file: Path) -> dict[str, Any]:
    plain: dict[str, Any] = json.loads(file.read_text())
    return plain


def gate(attempt: Path, name: str) -> dict[str, Any]:
    (found,) = [gate for gate in read(attempt / "end.json")["gates"] if gate["name"] == name]
    return dict(found)


def test_both_launchers_leave_the_same_records(attempts: dict[str, Path], study: Study) -> None:
    """The same files, columns, steps, gates, losses and, by their checksums, parameters; and a log of each rank."""
    one, other = attempts.values()
    assert names(one) == names(other)
    assert names(study.job_dir("L0001")) == names(study.job_dir("L0002"))
    assert [log.read_text() for log in study.job_dir("L0002").glob("*_log.err")] == ["", ""]
    for rank in range(2):
        with steps_file(one, rank).open() as direct, steps_file(other, rank).open() as torchrun:
            rows = [[(*row, row["step"], row["flags"]) for row in csv.DictReader(lines)] for lines in (direct, torchrun)]
        assert rows[0] == rows[1]
    ends = [read(attempt / "end.json") for attempt in attempts.values()]
    assert [[gate["name"], gate["passed"]] for gate in ends[0]["gates"]] == [[g["name"], g["passed"]] for g in ends[1]["gates"]]
    assert all(gate["passed"] for gate in ends[0]["gates"])
    assert ends[0].keys() == ends[1].keys()
    assert [end["loss_last"] for end in ends] == [ends[0]["loss_last"]] * 2
    assert gate(one, "parameters agree") == gate(other, "parameters agree")
    assert [rank.keys() for rank in ends[0]["ranks"]] == [rank.keys() for rank in ends[1]["ranks"]]


def test_the_record_names_the_launcher(attempts: dict[str, Path]) -> None:
    """launch.json says who started the ranks and how they talk; all else that it has is there with both."""
    launches = {launcher: read(attempt / "launch.json") for launcher, attempt in attempts.items()}
    assert all(VARIABLES.items() <= launch["environment"].items() for launch in launches.values())
    assert {launcher: launch["launcher"] for launcher, launch in launches.items()} == {"direct": "direct", "torchrun": "torchrun"}
    shape = ("communication", "ranks", "ranks_per_node")
    assert {tuple(launch[key] for key in shape) for launch in launches.values()} == {("gloo", 2, 2)}
    assert launches["direct"].keys() == launches["torchrun"].keys()


def of_rank(folder: Path, rank: int) -> list[int]:
    """The live processes that torchrun started as this rank."""
    mine = f"\0RANK={rank}\0".encode()
    return [pid for pid in processes(folder) if mine in b"\0" + _environ(pid)]


def _environ(pid: int) -> bytes:
    """Nothing of a process that has just ended."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/environ").read_bytes()
    return b""


def test_a_killed_rank_is_named(study: Study) -> None:
    """A rank killed while all train ends the run at once, and status names it, whatever its peers said of their lost link."""
    job, request = submitted(study, point("torchrun", steps=1_000_000))
    attempt = request.spec.attempt_dir(job, 0)
    wait_for(lambda: (file := steps_file(attempt, 1)).exists() and file.read_text().count("\n") > 3)
    (pid,) = of_rank(study.folder, 1)
    os.kill(pid, signal.SIGKILL)
    assert end_state(study, job, request).detail == "rank 1 was killed by SIGKILL"
    wait_for(lambda: not processes(study.folder))
    label = request.spec.label
    log_event(study, label, backend="local", job=job)
    (state,) = [state for state in run_states(study, LocalBackend(study)) if state.label == label]
    assert state.phase == "failed"
    assert str(state.detail).startswith("rank 1 was killed by SIGKILL")


def test_ranks_that_wait_are_ended_too(study: Study) -> None:
    """Ranks that hear nothing of a dead one, since they have not met yet, are ended with it."""
    request = submission(study, "last_rank_is_killed")
    layout = dataclasses.replace(request.spec.point.layout, launcher="torchrun")
    spec = dataclasses.replace(request.spec, point=dataclasses.replace(request.spec.point, layout=layout))
    request = dataclasses.replace(request, spec=spec)
    job = LocalBackend(study).submit(request)
    assert end_state(study, job, request).detail == "rank 1 was killed by SIGKILL"
    (log,) = study.job_dir(job).glob("*_0_log.err")  # torchrun's own words too
    assert "closing signal SIGTERM" in log.read_text()
    assert "forcefully exiting" not in log.read_text()  # as it would after 30 s, on ranks deaf to SIGTERM
    wait_for(lambda: not processes(study.folder))


def by_hand(folder: Path, what: Point) -> subprocess.CompletedProcess[str]:
    """`torchrun -m hpcddp.worker` as someone types it inside an allocation, where a rendered script's variables are set."""
    spec = JobSpec(point=what, study="$HPCDDP_RUNS/adhoc")
    env = {**os.environ, "HPCDDP_SPEC": json.dumps(spec_to_dict(spec)), "HPCDDP_RUNS": str(folder), "SLURM_JOB_ID": "815"}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "hpcddp.worker"]
    env |= {"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NTASKS": "1", "SLURM_NNODES": "1", "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.dear
def test_torchrun_by_hand(tmp_path: Path) -> None:
    """Inside an allocation, where Slurm counts one task, the ranks are torchrun's."""
    what = point("torchrun", steps=1)
    done = by_hand(tmp_path, what)
    assert done.returncode == 0, done.stderr
    attempt = tmp_path / "adhoc" / what.label / "r1" / "815.0"
    assert read(attempt / "launch.json")["ranks"] == 2
    assert json.loads(done.stdout.splitlines()[-1])["gates_passed"] is True


@pytest.mark.dear
def test_another_launcher_than_the_points_is_refused(tmp_path: Path) -> None:
    """Records must not say `direct` of ranks that torchrun started: the launcher is part of the point."""
    done = by_hand(tmp_path, point("direct"))
    assert done.returncode == 1
    assert "--set layout.launcher=torchrun" in done.stderr


@pytest.mark.parametrize(
    ("codes", "words"),
    [
        ({0: 1, 1: -9}, "rank 1 was killed by SIGKILL"),
        ({2: -15, 3: 1}, "rank 3 ended with exit code 1"),
        ({2: -15, 3: -15}, "rank 2 was killed by SIGTERM"),
    ],
)
def test_who_failed_first_on_a_node(tmp_path: Path, codes: dict[int, int], words: str) -> None:
    """A killed rank, then one that ended by itself, then those that torchrun ended."""
    assert note_failure(tmp_path, "0", codes) == words


def test_who_failed_first_of_all_nodes(tmp_path: Path) -> None:
    """A killed rank is the cause even where another node was quicker to note its own; nothing noted is None."""
    assert first_failure(tmp_path) is None
    note_failure(tmp_path, "0", {0: 1})
    note_failure(tmp_path, "1", {2: 1})
    assert first_failure(tmp_path) == "rank 0 ended with exit code 1"
    note_failure(tmp_path, "2", {5: -9})
    assert first_failure(tmp_path) == "rank 5 was killed by SIGKILL"
    for node in ("0", "2"):
        forget_failure(tmp_path, node)
    assert first_failure(tmp_path) == "rank 2 ended with exit code 1"
