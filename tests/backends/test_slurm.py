"""The Slurm backend, on the rcc twin."""

import dataclasses
import difflib
import json
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest

from hpcddp.backends import slurm_commands
from hpcddp.backends.base import JobState, Submission
from hpcddp.backends.slurm import SlurmBackend
from hpcddp.backends.slurm_job_files import SCRIPT
from hpcddp.core.errors import HpcddpError, RefusedError, UsageError
from hpcddp.core.jobspec import JobSpec
from hpcddp.core.launcher import first_failure
from hpcddp.core.lock import process_start
from hpcddp.core.point import Data, Layout, Point, Workload
from hpcddp.core.run_root import Study
from hpcddp.script.job_request import User
from hpcddp.script.render import ScriptLaunch, render
from hpcddp.script.resources import job_request
from hpcddp.submit.snapshot import take_snapshot
from hpcddp.sweep.file import SlurmOptions
from tests.fake_slurm import PATIENCE_S, wait_for
from tests.twin.twin import Twin
from tests.twin.userland import own_slurm

HERE = Path(__file__).parent


@pytest.fixture
def slurm(rcc_twin: Twin) -> Iterator[Twin]:
    """This process believes itself inside an allocation with SBATCH_* set."""
    with own_slurm(rcc_twin, {"SBATCH_PARTITION": "normal", "SLURM_JOB_ID": "999999", "SLURM_NTASKS": "7"}):
        yield rcc_twin


@pytest.fixture
def study(tmp_path: Path) -> Study:
    return Study(tmp_path / "it's a $(study)")


@dataclasses.dataclass(frozen=True)
class Ask:
    """A run of stand-in ranks on the twin."""

    nodes: int = 1
    account: str = "proj"
    options: tuple[str, ...] = ()
    run: int = 1
    token: str = "t1"
    launcher: Literal["direct", "torchrun"] = "direct"


def submission(twin: Twin, study: Study, what: str, ask: Ask = Ask()) -> Submission:
    layout = Layout(nodes=ask.nodes, gpus_per_node=2, node_type="v100", physical_cores_per_rank=1, exclusive=False)
    layout = dataclasses.replace(layout, launcher=ask.launcher)
    workload = Workload(model="mnist-cnn", data=Data(name="synthetic-mnist"))
    point = Point(cluster="rcc", workload=workload, layout=layout, device="cpu")
    options = SlurmOptions(walltime_min=3, mem_mb=500, options=ask.options)
    request = job_request(twin.profile, point, options, User(account=ask.account))
    return Submission(
        spec=JobSpec(point=point, run=ask.run, study=str(study.folder)),
        code=take_snapshot(study, ["standin:x"], near=[HERE]),
        python=twin.profile.compute.python,
        walltime_min=3,
        token=ask.token,
        render_text=lambda launch: render(twin.profile, point, request, launch),
        account=ask.account,
        entry=f"standin:{what}",
    )


def state(job: str, request: Submission) -> JobState:
    return SlurmBackend().poll({job: request.name})[job]


def end_state(job: str, request: Submission) -> JobState:
    wait_for(lambda: state(job, request).phase not in ("queued", "running"))
    return state(job, request)


def test_job_runs_from_its_own_folder_and_leaves_everything_there(slurm: Twin, study: Study) -> None:
    request = submission(slurm, study, "succeed", Ask(nodes=2))
    job = SlurmBackend().submit(request)
    ended = end_state(job, request)
    assert ended == JobState(phase="done", nodes=ended.nodes)
    assert ended.nodes
    assert ended.nodes.startswith("gn[")
    folder = study.job_dir(job)
    assert not Path(os.readlink(folder)).is_absolute()
    names = {file.name for file in folder.iterdir()}
    assert {SCRIPT, "batch.out", "batch.err", f"{job}_submitted.pkl"} <= names
    assert {f"{job}_{rank}_{what}" for rank in range(4) for what in ("log.out", "log.err", "result.pkl")} <= names
    ranks = [json.loads((study.folder / "seen" / f"{job}.{rank}.json").read_text()) for rank in range(4)]
    assert {rank["env"]["SLURM_JOB_ID"] for rank in ranks} == {job}
    assert {rank["env"]["SBATCH_PARTITION"] for rank in ranks} == {None}
    assert {Path(rank["code"]).parent for rank in ranks} == {request.code}
    assert {Path(rank["cwd"]) for rank in ranks} == {folder.resolve()}
    slurm.wait_jobs(PATIENCE_S)
    row = slurm.sacct()[-1]
    assert (row["JobName"], row["State"]) == (request.name, "COMPLETED")
    assert row["Comment"] == f"hpcddp:{study.name}:{request.spec.label}:r1"


def test_submitted_script_differs_from_a_rendered_one_in_the_launch_block_only(slurm: Twin, study: Study) -> None:
    request = submission(slurm, study, "succeed")
    job = SlurmBackend().submit(request)
    assert request.render_text is not None
    rendered = request.render_text(ScriptLaunch(command="python3 -m hpcddp.worker", spec="{}")).splitlines()
    submitted = (study.job_dir(job) / SCRIPT).read_text().splitlines()
    start, end = rendered.index("# --- launch ---"), rendered.index("rc=$?")
    for tag, low, high, _, _ in difflib.SequenceMatcher(None, rendered, submitted, autojunk=False).get_opcodes():
        assert tag == "equal" or (start < low <= end and start < high <= end)
    end_state(job, request)


def test_killed_rank_fails_the_job(slurm: Twin, study: Study) -> None:
    request = submission(slurm, study, "last_rank_is_killed")
    job = SlurmBackend().submit(request)
    ended = end_state(job, request)
    assert ended.phase == "failed"
    assert ended.nodes in {node.name for node in slurm.shape.nodes}
    wait_for(lambda: state(job, request).detail != "FAILED")  # accounting knows the exit code a moment later
    assert state(job, request).detail in ("exit code 9 (FAILED)", "exit code 137 (FAILED)", "killed by signal 9 (FAILED)")


def test_torchrun_names_a_killed_rank(slurm: Twin, study: Study) -> None:
    request = submission(slurm, study, "last_rank_is_killed", Ask(nodes=2, launcher="torchrun"))
    job = SlurmBackend().submit(request)
    assert end_state(job, request).phase == "failed"
    assert first_failure(study.job_dir(job)) == "rank 1 was killed by SIGKILL"
    pids = [json.loads((study.folder / "seen" / f"{job}.{rank}.json").read_text())["pid"] for rank in range(4)]
    wait_for(lambda: [process_start(pid) for pid in pids] == [None] * 4)


def test_waiting_cancelled_and_foreign_jobs(slurm: Twin, study: Study) -> None:
    backend, request = SlurmBackend(), submission(slurm, study, "succeed", Ask(options=("--hold",)))
    job = backend.submit(request)
    held = JobState(
        phase="queued", detail="held by its user; release it with `scontrol release` (JobHeldUser)", time_limit="3:00"
    )
    gone = JobState(phase="failed", detail="Slurm no longer lists this job")
    assert backend.poll({job: request.name, "424242": request.name}) == {job: held, "424242": gone}
    assert backend.poll({job: "other.r1"}) == {job: gone}
    backend.cancel({job: "other.r1"})
    assert state(job, request) == held
    backend.cancel({job: request.name})
    cancelled = state(job, request)
    assert (cancelled.phase, cancelled.detail, cancelled.word) == ("failed", "cancelled (CANCELLED)", "CANCELLED")


def test_unknown_account_is_refused_before_slurm(slurm: Twin, study: Study) -> None:
    assert SlurmBackend().accounts is not None
    with pytest.raises(UsageError, match=r"You cannot charge account `nobody`. Slurm lists .*\bproj\b"):
        SlurmBackend().check(submission(slurm, study, "succeed", Ask(account="nobody")))
    SlurmBackend().check(submission(slurm, study, "succeed"))


@pytest.mark.parametrize("name", ["100%", "a\\b", "a\nb"])
def test_folder_that_sbatch_would_not_take_literally_is_refused(slurm: Twin, tmp_path: Path, name: str) -> None:
    request = submission(slurm, Study(tmp_path / "fine"), "succeed")
    spec = dataclasses.replace(request.spec, study=str(tmp_path / name))
    with pytest.raises(UsageError, match="sbatch cannot use a path with"):
        SlurmBackend().check(dataclasses.replace(request, spec=spec))


def test_refusal_is_slurms_own_words_under_the_points_name(slurm: Twin, study: Study) -> None:
    request = submission(slurm, study, "succeed", Ask(options=("--gres=gpu:v100:9",)))
    with pytest.raises(RefusedError) as caught:
        SlurmBackend().submit(request)
    assert str(caught.value).startswith(f"{request.name}: sbatch: error: ")
    assert "Requested node configuration is not available" in str(caught.value)
    assert [path.name for path in study.jobs.iterdir()] == [f"{request.name}.t1"]


def test_job_whose_id_never_arrived_is_found(slurm: Twin, study: Study) -> None:
    request = submission(slurm, study, "succeed", Ask(run=2, options=("--hold",)))
    slurm.signal_controller(signal.SIGSTOP)
    thaw = threading.Timer(12.0, slurm.signal_controller, (signal.SIGCONT,))
    thaw.start()
    try:
        job = SlurmBackend().submit(request)
    finally:
        thaw.cancel()
        slurm.signal_controller(signal.SIGCONT)
        thaw.join()
    assert state(job, request).phase == "queued"
    assert [row.job for row in slurm_commands.my_jobs().values() if row.name == request.name] == [job]
    assert SlurmBackend().find(study, request.name, "t1") == job
    assert SlurmBackend().find(study, request.name, "t2") is None
    assert study.job_dir(job).is_dir()


def test_without_an_answer_nothing_is_concluded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    polled = SlurmBackend().poll({"1": "a.r1"})["1"]
    assert polled.phase == "unknown"
    assert polled.detail is not None
    assert polled.detail.startswith("This machine has no `squeue`")
    study = Study(tmp_path)
    (study.jobs / "a.r1.t1").mkdir(parents=True)
    with pytest.raises(HpcddpError):
        SlurmBackend().find(study, "a.r1", "t1")
    assert SlurmBackend().find(study, "a.r1", "t2") is None, "of a submission without a folder Slurm was never asked for a job"
