"""Runs on this machine: real processes, really killed; nothing may be left of them."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hpcddp.backends.base import JobState, Submission
from hpcddp.backends.local import LocalBackend, threads_per_rank
from hpcddp.core.errors import UsageError
from hpcddp.core.jobspec import JobSpec
from hpcddp.core.lock import process_start
from hpcddp.core.point import Data, Layout, Point, Workload
from hpcddp.core.run_root import Study
from hpcddp.submit.snapshot import take_snapshot
from tests.backends.waiting import wait_for

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
    """Two ranks come to their end: done; they had the job's id, an address, a port of their own and no GPU, and nothing of an
    enclosing Slurm allocation; when all is done no process is left.
    """
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
    """A rank killed before the ranks have met fails the run at once, by rank and signal, and its sibling is gone by then."""
    request = submission(study, "last_rank_is_killed")
    job = LocalBackend(study).submit(request)
    assert end_state(study, job, request) == JobState(phase="failed", detail="rank 1 was killed by SIGKILL")
    assert [process_start(rank["pid"]) for rank in noted_by_ranks(study, job)] == [None, None]
    wait_for(lambda: not processes(tmp_path))


def test_rank_that_raises_fails_the_run_and_leaves_its_words(study: Study) -> None:
    """An exception in a rank fails the run; the traceback is in that rank's log."""
    request = submission(study, "first_rank_raises")
    job = LocalBackend(study).submit(request)
    assert end_state(study, job, request) == JobState(phase="failed", detail="rank 0 ended with exit code 1")
    (log,) = study.job_dir(job).glob("*_0_log.err")
    assert "no such data" in log.read_text()


def test_hanging_ranks_are_timed_out_with_their_children(study: Study, tmp_path: Path) -> None:
    """Ranks that hang, deaf to SIGTERM, end at the wall time; so do processes they started."""
    request = submission(study, "hang_with_children", walltime_min=0.05)
    job = LocalBackend(study).submit(request)
    assert end_state(study, job, request) == JobState(phase="failed", detail="timed out: still running after 0.05 min")
    wait_for(lambda: not processes(tmp_path))


def test_killed_runner_leaves_no_orphan_and_is_seen(study: Study, tmp_path: Path) -> None:
    """After SIGKILL of the runner its ranks and their children end by themselves, status says so, and the next submission
    starts a new runner that does not take up the old runs.
    """
    backend, hanging = LocalBackend(study), submission(study, "hang_with_children")
    first, second = backend.submit(hanging), backend.submit(hanging)
    noted_by_ranks(study, first)
    states = backend.poll({first: hanging.name, second: hanging.name})
    assert states[second] == JobState(phase="queued", detail="waiting for its turn")
    running = states[first]
    assert (running.phase, running.detail, running.time_limit) == ("running", None, "5:00")
    assert 200 < (running.time_left_s or 0) < 300
    os.kill(runner_pid(study), signal.SIGKILL)
    wait_for(lambda: not processes(tmp_path))
    assert state(study, first, hanging) == JobState(phase="failed", detail="its runner has gone")
    assert state(study, second, hanging) == JobState(phase="failed", detail="its runner had gone before it started")

    request = submission(study, "succeed")
    third = backend.submit(request)
    assert end_state(study, third, request).phase == "done"
    assert state(study, second, hanging).phase == "failed"
    assert not list((study.folder / "seen").glob(f"{second}.*"))


def test_runner_told_to_end_stops_its_ranks(study: Study, tmp_path: Path) -> None:
    """On SIGTERM the runner ends the run at hand and closes the queue before it goes."""
    backend, request = LocalBackend(study), submission(study, "hang_with_children")
    first, second = backend.submit(request), backend.submit(request)
    noted_by_ranks(study, first)
    os.kill(runner_pid(study), signal.SIGTERM)
    wait_for(lambda: not processes(tmp_path))
    assert state(study, first, request) == JobState(phase="failed", detail="its runner was told to end")
    assert state(study, second, request) == JobState(phase="failed", detail="its runner was told to end before it started")


def test_killed_watcher_of_ranks_fails_the_run_and_leaves_nothing(study: Study, tmp_path: Path) -> None:
    """When the process between runner and ranks is killed, the runner ends the whole group and goes on to the next run."""
    backend, hanging, request = LocalBackend(study), submission(study, "hang_with_children"), submission(study, "succeed")
    first, second = backend.submit(hanging), backend.submit(request)
    os.kill(os.getpgid(noted_by_ranks(study, first)[0]["pid"]), signal.SIGKILL)
    ended = end_state(study, first, hanging)
    assert ended == JobState(phase="failed", detail=f"the process that watches its ranks died; see .jobs/{first}/batch.err")
    assert end_state(study, second, request).phase == "done"
    wait_for(lambda: not processes(tmp_path))


def test_runs_take_turns_and_outlive_their_submitter(study: Study) -> None:
    """Submitted by a process that ends at once, runs go on, one after another."""
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
    """A cancelled run is over whether it had started or not, and the runner goes on to the next."""
    backend, hanging, request = LocalBackend(study), submission(study, "hang_with_children"), submission(study, "succeed")
    first, second, third = backend.submit(hanging), backend.submit(hanging), backend.submit(request)
    noted_by_ranks(study, first)
    backend.cancel({first: hanging.name, second: hanging.name})
    assert end_state(study, third, request).phase == "done"
    assert [state(study, job, hanging) for job in (first, second)] == [JobState(phase="failed", detail="cancelled")] * 2
    wait_for(lambda: not processes(tmp_path))


def test_submission_is_found_again_by_its_token(study: Study) -> None:
    """A run whose id never arrived is found by its token; another token finds nothing."""
    backend, request = LocalBackend(study), submission(study, "succeed", token="abc")
    job = backend.submit(request)
    assert backend.find(study, request.name, "abc") == job
    assert backend.find(study, request.name, "abd") is None
    end_state(study, job, request)


def test_an_id_stands_for_a_job_only_with_its_name(study: Study) -> None:
    """An id that is not in the queue, or is another run's, is not mistaken for the run asked about."""
    request = submission(study, "succeed")
    job = LocalBackend(study).submit(request)
    polled = LocalBackend(study).poll({job: "other.r1", "L0099": request.name})
    assert {answer.detail for answer in polled.values()} == {"not in the local queue any more"}
    end_state(study, job, request)


def test_two_nodes_are_refused(study: Study) -> None:
    """One machine is one node."""
    with pytest.raises(UsageError, match=r"layout\.nodes is 2"):
        LocalBackend(study).check(submission(study, "succeed", nodes=2))


@pytest.mark.parametrize(("ranks", "cores", "threads"), [(1, 1, 1), (10_000, None, 1), (10_000, 4, 1)])
def test_threads_never_exceed_the_share(ranks: int, cores: int | None, threads: int) -> None:
    """Threads per rank: the cores of the point, at most the equal share, at least one."""
    assert threads_per_rank(ranks, cores) == threads
