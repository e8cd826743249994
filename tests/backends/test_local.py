"""Runs on this machine, by torchrun too: real processes, really killed; nothing may be left of them."""

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

from hpcddp.backends.base import JobState, Submission
from hpcddp.backends.local import LocalBackend, threads_per_rank
from hpcddp.core.errors import UsageError
from hpcddp.core.jobspec import JobSpec, spec_to_dict
from hpcddp.core.launcher import first_failure, forget_failure, note_failure
from hpcddp.core.lock import process_start
from hpcddp.core.point import Data, Layout, Point, Workload
from hpcddp.core.records import steps_file
from hpcddp.core.run_root import Study
from hpcddp.study.status import run_states
from hpcddp.submit.snapshot import take_snapshot
from tests.fake_slurm import wait_for
from tests.given_plan import log_event
from tests.worker import given

HERE = Path(__file__).parent


@pytest.fixture
def study(tmp_path: Path) -> Iterator[Study]:
    """A study of its own; every process that knows of it is killed at the end."""
    yield Study(tmp_path / "a study")
    kill_processes(tmp_path)


def kill_processes(folder: Path) -> None:
    """Those that know of it: a runner without runs may end by itself meanwhile."""
    for pid in processes(folder):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def submission(study: Study, what: str, *, walltime_min: float = 5.0, token: str = "t", nodes: int = 1) -> Submission:
    """A run of two stand-in ranks."""
    workload = Workload(model="mnist-cnn", data=Data(name="synthetic-mnist"))
    point = Point(cluster="local", workload=workload, layout=Layout(gpus_per_node=2, nodes=nodes), device="cpu")
    return Submission(
        spec=JobSpec(point=point, study=str(study.folder), backend="local"),
        code=take_snapshot(study, ["standin:x"], near=[HERE]),
        python="python3",
        walltime_min=walltime_min,
        token=token,
        entry=f"standin:{what}",
    )


def processes(folder: Path) -> list[int]:
    """Ids of all live processes, but this one, with the folder in their command line or environment."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            text = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
        except OSError:
            continue
        if os.fsencode(folder) in text and process_start(int(entry.name)) is not None:
            found.append(int(entry.name))
    return found


def state(study: Study, job: str, request: Submission) -> JobState:
    return LocalBackend(study).poll({job: request.name})[job]


def end_state(study: Study, job: str, request: Submission) -> JobState:
    wait_for(lambda: state(study, job, request).phase not in ("queued", "running"))
    return state(study, job, request)


def noted_by_ranks(study: Study, job: str) -> list[dict[str, Any]]:
    """What both ranks of the run have noted, once they have."""
    files = [study.folder / "seen" / f"{job}.{rank}.json" for rank in range(2)]
    wait_for(lambda: all(file.exists() for file in files))
    return [json.loads(file.read_text()) for file in files]


def runner_pid(study: Study) -> int:
    return int(json.loads((study.jobs / "runner.json").read_text())["pid"])


def test_ranks_run_to_the_end(study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "77")
    monkeypatch.setenv("SBATCH_PARTITION", "debug")
    request = submission(study, "succeed")
    job = LocalBackend(study).submit(request)
    assert job == "L0001"
    assert end_state(study, job, request) == JobState(phase="done")
    ranks = noted_by_ranks(study, job)
    for rank in ranks:
        port = int(rank["env"].pop("MASTER_PORT"))
        assert 20000 <= port < 32768
        assert rank["env"].pop("OMP_NUM_THREADS") == str(threads_per_rank(2, None))
        assert rank["env"].pop("SBATCH_PARTITION") is None
        assert rank["env"] == {"HPCDDP_JOB": job, "MASTER_ADDR": "127.0.0.1", "CUDA_VISIBLE_DEVICES": "", "SLURM_JOB_ID": None}
        assert rank["cwd"] == str(study.job_dir(job))
    wait_for(lambda: not processes(tmp_path))


def test_dead_rank_ends_its_siblings(study: Study, tmp_path: Path) -> None:
    request = submission(study, "last_rank_is_killed")
    job = LocalBackend(study).submit(request)
    assert end_state(study, job, request) == JobState(phase="failed", detail="rank 1 was killed by SIGKILL")
    assert [process_start(rank["pid"]) for rank in noted_by_ranks(study, job)] == [None, None]
    wait_for(lambda: not processes(tmp_path))


def test_rank_that_raises_fails_the_run_and_leaves_its_words(study: Study) -> None:
    request = submission(study, "first_rank_raises")
    job = LocalBackend(study).submit(request)
    assert end_state(study, job, request) == JobState(phase="failed", detail="rank 0 failed with exit code 1")
    (log,) = study.job_dir(job).glob("*_0_log.err")
    assert "no such data" in log.read_text()


def test_hanging_ranks_are_timed_out_with_their_children(study: Study, tmp_path: Path) -> None:
    request = submission(study, "hang_with_children", walltime_min=0.05)
    job = LocalBackend(study).submit(request)
    assert end_state(study, job, request) == JobState(phase="failed", detail="timed out: still running after 0.05 min")
    wait_for(lambda: not processes(tmp_path))


def test_killed_runner_leaves_no_orphan_and_is_seen(study: Study, tmp_path: Path) -> None:
    backend, hanging = LocalBackend(study), submission(study, "hang_with_children")
    first, second = backend.submit(hanging), backend.submit(hanging)
    noted_by_ranks(study, first)
    states = backend.poll({first: hanging.name, second: hanging.name})
    assert states[second] == JobState(phase="queued", detail="waits for earlier runs")
    running = states[first]
    assert (running.phase, running.detail, running.time_limit) == ("running", None, "5:00")
    assert 200 < (running.time_left_s or 0) < 300
    os.kill(runner_pid(study), signal.SIGKILL)
    wait_for(lambda: not processes(tmp_path))
    assert state(study, first, hanging) == JobState(phase="failed", detail="its runner process died")
    assert state(study, second, hanging) == JobState(phase="failed", detail="its runner process died before it started")

    request = submission(study, "succeed")
    third = backend.submit(request)
    assert end_state(study, third, request).phase == "done"
    assert state(study, second, hanging).phase == "failed"
    assert not list((study.folder / "seen").glob(f"{second}.*"))


def test_runner_told_to_end_stops_its_ranks(study: Study, tmp_path: Path) -> None:
    backend, request = LocalBackend(study), submission(study, "hang_with_children")
    first, second = backend.submit(request), backend.submit(request)
    noted_by_ranks(study, first)
    os.kill(runner_pid(study), signal.SIGTERM)
    wait_for(lambda: not processes(tmp_path))
    assert state(study, first, request) == JobState(phase="failed", detail="its runner was terminated")
    assert state(study, second, request) == JobState(phase="failed", detail="its runner was terminated before it started")


def test_killed_watcher_of_ranks_fails_the_run_and_leaves_nothing(study: Study, tmp_path: Path) -> None:
    backend, hanging, request = LocalBackend(study), submission(study, "hang_with_children"), submission(study, "succeed")
    first, second = backend.submit(hanging), backend.submit(request)
    os.kill(os.getpgid(noted_by_ranks(study, first)[0]["pid"]), signal.SIGKILL)
    ended = end_state(study, first, hanging)
    assert ended == JobState(phase="failed", detail=f"the process that watches its ranks died; see .jobs/{first}/batch.err")
    assert end_state(study, second, request).phase == "done"
    wait_for(lambda: not processes(tmp_path))


def test_runs_take_turns_and_outlive_their_submitter(study: Study) -> None:
    text = (
        f"import sys; sys.path.insert(0, {str(HERE.parent.parent)!r})\n"
        "from pathlib import Path\n"
        "from tests.backends.test_local import LocalBackend, Study, submission\n"
        "study = Study(Path(sys.argv[1]))\n"
        "print(*(LocalBackend(study).submit(submission(study, 'succeed')) for _ in range(2)))\n"
    )
    done = subprocess.run([sys.executable, "-c", text, study.folder], capture_output=True, text=True, check=True, timeout=180)
    jobs = done.stdout.split()
    assert jobs == ["L0001", "L0002"]
    request = submission(study, "succeed")
    assert [end_state(study, job, request).phase for job in jobs] == ["done", "done"]
    first, second = (noted_by_ranks(study, job) for job in jobs)
    assert max(rank["start_s"] for rank in first) + 0.2 <= min(rank["start_s"] for rank in second)


def test_cancel_ends_what_runs_and_what_waits(study: Study, tmp_path: Path) -> None:
    backend, hanging, request = LocalBackend(study), submission(study, "hang_with_children"), submission(study, "succeed")
    first, second, third = backend.submit(hanging), backend.submit(hanging), backend.submit(request)
    noted_by_ranks(study, first)
    backend.cancel({first: hanging.name, second: hanging.name})
    assert end_state(study, third, request).phase == "done"
    assert [state(study, job, hanging) for job in (first, second)] == [JobState(phase="failed", detail="cancelled")] * 2
    wait_for(lambda: not processes(tmp_path))


def test_a_job_is_found_by_token_and_by_id_with_its_name(study: Study) -> None:
    backend, request = LocalBackend(study), submission(study, "succeed", token="abc")
    job = backend.submit(request)
    assert backend.find(study, request.name, "abc") == job
    assert backend.find(study, request.name, "abd") is None
    end_state(study, job, request)
    request = submission(study, "succeed")
    job = LocalBackend(study).submit(request)
    polled = LocalBackend(study).poll({job: "other.r1", "L0099": request.name})
    assert {answer.detail for answer in polled.values()} == {"no longer in the local queue"}
    end_state(study, job, request)
    with pytest.raises(UsageError, match=r"layout\.nodes is 2"):
        LocalBackend(study).check(submission(study, "succeed", nodes=2))


@pytest.mark.parametrize(("ranks", "cores", "threads"), [(1, 1, 1), (10_000, None, 1), (10_000, 4, 1)])
def test_threads_never_exceed_the_share(ranks: int, cores: int | None, threads: int) -> None:
    assert threads_per_rank(ranks, cores) == threads


VARIABLES = {"UCX_OF_STUDY": "it's $HOME"}
"""One that launch.json has."""

Launcher = Literal["direct", "torchrun"]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Study]:
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
def attempts(shared: Study, scratch: Path) -> dict[str, Path]:
    """The records of the same point with both launchers."""
    found = {}
    for launcher in ("direct", "torchrun"):
        job, request = submitted(shared, point(launcher))
        assert end_state(shared, job, request).phase == "done", (shared.job_dir(job) / "batch.err").read_text()
        found[launcher] = request.spec.attempt_dir(job, 0)
    return found


def names(folder: Path) -> set[str]:
    """Files below a folder, without the process id in the names of logs."""
    return {re.sub(r"\d+_", "PID_", str(file.relative_to(folder)), count=1) for file in folder.rglob("*") if file.is_file()}


def read(file: Path) -> dict[str, Any]:
    plain: dict[str, Any] = json.loads(file.read_text())
    return plain


def gate(attempt: Path, name: str) -> dict[str, Any]:
    (found,) = [gate for gate in read(attempt / "end.json")["gates"] if gate["name"] == name]
    return dict(found)


def test_both_launchers_leave_the_same_records(attempts: dict[str, Path], shared: Study, scratch: Path) -> None:
    one, other = attempts.values()
    assert names(one) == names(other)
    assert names(shared.job_dir("L0001")) == names(shared.job_dir("L0002"))
    assert [log.read_text() for log in shared.job_dir("L0002").glob("*_log.err")] == ["", ""]
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
    assert [*scratch.glob("torchelastic*"), *scratch.glob("hpcddp*")] == []


def test_the_record_names_the_launcher(attempts: dict[str, Path]) -> None:
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


def test_a_killed_rank_is_named(shared: Study) -> None:
    job, request = submitted(shared, point("torchrun", steps=1_000_000))
    attempt = request.spec.attempt_dir(job, 0)
    wait_for(lambda: (file := steps_file(attempt, 1)).exists() and file.read_text().count("\n") > 3)
    (pid,) = of_rank(shared.folder, 1)
    os.kill(pid, signal.SIGKILL)
    assert end_state(shared, job, request).detail == "rank 1 was killed by SIGKILL"
    wait_for(lambda: not processes(shared.folder))
    label = request.spec.label
    log_event(shared, label, backend="local", job=job)
    (state,) = [state for state in run_states(shared, LocalBackend(shared)) if state.label == label]
    assert state.phase == "failed"
    assert str(state.detail).startswith("rank 1 was killed by SIGKILL")


def test_ranks_that_wait_are_ended_too(shared: Study) -> None:
    request = submission(shared, "last_rank_is_killed")
    layout = dataclasses.replace(request.spec.point.layout, launcher="torchrun")
    spec = dataclasses.replace(request.spec, point=dataclasses.replace(request.spec.point, layout=layout))
    request = dataclasses.replace(request, spec=spec)
    job = LocalBackend(shared).submit(request)
    assert end_state(shared, job, request).detail == "rank 1 was killed by SIGKILL"
    (log,) = shared.job_dir(job).glob("*_0_log.err")  # torchrun's own words too
    assert "closing signal SIGTERM" in log.read_text()
    assert "forcefully exiting" not in log.read_text()  # as it would after 30 s, on ranks deaf to SIGTERM
    wait_for(lambda: not processes(shared.folder))


TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")


def by_hand(folder: Path, what: Point, *launcher: str, **rank: str) -> subprocess.CompletedProcess[str]:
    """`torchrun -m hpcddp.worker` as someone types it inside an allocation, where a rendered script's variables are set."""
    spec = JobSpec(point=what, study="$HPCDDP_RUNS/adhoc")
    env = {**os.environ, "HPCDDP_SPEC": json.dumps(spec_to_dict(spec)), "HPCDDP_RUNS": str(folder), "SLURM_JOB_ID": "815"}
    env |= {"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NTASKS": "1", "SLURM_NNODES": "1", "OMP_NUM_THREADS": "1", **rank}
    command = [sys.executable, *launcher, "-m", "hpcddp.worker"]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.dear
def test_torchrun_by_hand(tmp_path: Path) -> None:
    what = point("torchrun", steps=1)
    done = by_hand(tmp_path, what, *TORCHRUN)
    assert done.returncode == 0, done.stderr
    attempt = tmp_path / "adhoc" / what.label / "r1" / "815.0"
    assert read(attempt / "launch.json")["ranks"] == 2
    assert json.loads(done.stdout.splitlines()[-1])["gates_passed"] is True


@pytest.mark.dear
def test_another_launcher_than_the_points_is_refused(tmp_path: Path) -> None:
    """Records must not say `direct` of ranks that torchrun started: the launcher is part of the point."""
    rank = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2", "GROUP_WORLD_SIZE": "1", "TORCHELASTIC_RUN_ID": "x"}
    done = by_hand(tmp_path, point("direct"), **rank, MASTER_ADDR="127.0.0.1", MASTER_PORT="29500")
    assert done.returncode == 1
    assert "--set layout.launcher=torchrun" in done.stderr


@pytest.mark.parametrize(
    ("codes", "words"),
    [
        ({0: 1, 1: -9}, "rank 1 was killed by SIGKILL"),
        ({2: -15, 3: 1}, "rank 3 failed with exit code 1"),
        ({2: -15, 3: -15}, "rank 2 was killed by SIGTERM"),
    ],
)
def test_who_failed_first_on_a_node(tmp_path: Path, codes: dict[int, int], words: str) -> None:
    assert note_failure(tmp_path, "0", codes) == words


def test_who_failed_first_of_all_nodes(tmp_path: Path) -> None:
    assert first_failure(tmp_path) is None
    note_failure(tmp_path, "0", {0: 1})
    note_failure(tmp_path, "1", {2: 1})
    assert first_failure(tmp_path) == "rank 0 failed with exit code 1"
    note_failure(tmp_path, "2", {5: -9})
    assert first_failure(tmp_path) == "rank 5 was killed by SIGKILL"
    for node in ("0", "2"):
        forget_failure(tmp_path, node)
    assert first_failure(tmp_path) == "rank 2 failed with exit code 1"
