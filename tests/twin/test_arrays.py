"""Arrays on a real Slurm: sent, cut short, found again, limited, requeued, and read like any other job."""

from __future__ import annotations

import dataclasses
import re
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from hpcddp.backends import slurm_commands
from hpcddp.backends.slurm import SlurmBackend
from hpcddp.cluster.settings import load_settings
from hpcddp.cluster.slurm_rules import SlurmRules
from hpcddp.core.errors import FullError
from hpcddp.core.job_ids import base_id
from hpcddp.core.run_root import Study
from hpcddp.study.status import all_states, study_states
from hpcddp.submit.choose import ChosenPoints
from hpcddp.submit.options import SubmitOptions
from hpcddp.submit.submission_plan import SubmissionPlan, plan_submission
from hpcddp.submit.submit import submit_runs
from hpcddp.sweep.expand import expand
from hpcddp.sweep.file import read_sweep
from tests.backends.fake_slurm import wait_for
from tests.twin.own_slurm import CutShort, own_slurm
from tests.twin.processes import wait_until
from tests.twin.twin import Twin
from tests.twin.userland import SMALL, User

SWEEP = (
    SMALL
    + """
layout: {gpus_per_node: 1, node_type: v100, physical_cores_per_rank: 1, exclusive: false}
points: {all: {workload.seed: [1, 2, 3]}}
measure: {warmup_steps: 1, steps: 3}
repeat: 2
account: proj
slurm: {walltime_min: 5, mem_mb: 2000}
"""
)


@pytest.fixture
def slurm(rcc_twin: Twin, tmp_path: Path) -> Iterator[Twin]:
    with own_slurm(rcc_twin, {"XDG_CONFIG_HOME": str(tmp_path / "config")}):
        yield rcc_twin


def held(folder: Path, twin: Twin, *settings: str, max_running: int | None = None) -> SubmissionPlan:
    """The sweep, its jobs held."""
    file = folder / "small.yaml"
    file.write_text(SWEEP)
    source = read_sweep(file, ["slurm.options=[--hold]", *settings])
    points, options = expand(source, twin.profile), SubmitOptions(max_running=max_running)
    return plan_submission(ChosenPoints(source=source, profile=twin.profile, points=points), load_settings()[0], options)


def queue(twin: Twin, column: str) -> list[str]:
    """A column of squeue, tasks one by one, in the order in which jobs were submitted."""
    lines = twin.run(["squeue", "-h", "-r", "--sort=V,i", "-o", f"%A|{column}"]).stdout.splitlines()
    return [line.partition("|")[2] for line in sorted(lines, key=lambda line: int(line.partition("|")[0]))]


def test_array_whose_submission_was_interrupted_is_found(slurm: Twin, tmp_path: Path) -> None:
    """All its tasks, once each; submitting again adds none, and the job's folder is linked."""
    study = Study(tmp_path / "small")
    with pytest.raises(KeyboardInterrupt):
        submit_runs(study, held(tmp_path, slurm), CutShort())
    assert {state.phase for state in study_states(study)} == {"unknown"}
    assert submit_runs(study, held(tmp_path, slurm), SlurmBackend()) == []
    states = study_states(study)
    assert sorted(str(state.job) for state in states) == sorted(queue(slurm, "%i"))
    assert len(states) == 6
    assert {state.phase for state in states} == {"queued"}
    assert study.job_dir(str(states[0].job)).is_dir()


def test_no_more_jobs_than_slurm_lets_a_user_have(slurm: Twin, tmp_path: Path) -> None:
    """MaxSubmitJobs 4: of six runs four are sent, first runs first; the others are missing, and go once there is room."""
    study = Study(tmp_path / "small")
    limit = ["sacctmgr", "-iQ", "modify", "user", "root", "set"]
    slurm.run([*limit, "MaxSubmitJobs=4"])
    try:
        wait_for(lambda: "MaxSubmitJobs=4(" in slurm.run(["scontrol", "show", "assoc_mgr", "users=root", "flags=assoc"]).stdout)
        with pytest.raises(FullError, match="2 runs left"):
            submit_runs(study, held(tmp_path, slurm), SlurmBackend())
        phases = {(state.label, state.run): state.phase for state in study_states(study)}
        assert sorted(phases.values()) == ["missing"] * 2 + ["queued"] * 4
        assert {phase for (_, run), phase in phases.items() if run == 1} == {"queued"}
        assert len(queue(slurm, "%i")) == 4
    finally:
        slurm.run([*limit, "MaxSubmitJobs=-1"])
    wait_for(lambda: "MaxSubmitJobs=4(" not in slurm.run(["scontrol", "show", "assoc_mgr", "users=root", "flags=assoc"]).stdout)
    assert len(submit_runs(study, held(tmp_path, slurm), SlurmBackend())) == 2
    assert len(set(queue(slurm, "%i"))) == 6


def test_serial_runs_one_task_at_a_time_and_one_job_after_the_other(slurm: Twin, tmp_path: Path) -> None:
    """Of two shapes: four arrays by turns, each with a throttle of one, each waiting for the end of the one before."""
    study = Study(tmp_path / "small")
    plan = held(tmp_path, slurm, max_running=1)
    other = held(tmp_path, slurm, "layout.physical_cores_per_rank=2", max_running=1)
    both = SubmissionPlan(
        **{**vars(plan), "points": [*plan.points, *other.points], "requests": {**plan.requests, **other.requests}}
    )
    submitted = submit_runs(study, both, SlurmBackend())
    arrays = list(dict.fromkeys(base_id(run.job) for run in submitted))
    assert [run.run for run in submitted] == [1] * 6 + [2] * 6
    assert len(arrays) == 4
    after = dict(zip(queue(slurm, "%F"), queue(slurm, "%E"), strict=True))
    assert [after[array].partition("(")[0] for array in arrays] == ["", *(f"afterany:{array}_*" for array in arrays[:-1])]
    for array in arrays:
        assert "ArrayTaskThrottle=1 " in slurm.run(["scontrol", "show", "job", array]).stdout


def test_runs_wait_until_another_job_has_ended_well(slurm: Twin, tmp_path: Path) -> None:
    """Every array of them, beside the one whose turn is before its own: a job that prepares data comes before all."""
    ask = ["sbatch", "--parsable", "--account=proj", "--partition=gpu", "--hold", "--wrap=true"]
    prepares = slurm.run(ask, cwd=tmp_path).stdout.strip()
    plan = held(tmp_path, slurm, max_running=1)
    other = held(tmp_path, slurm, "layout.physical_cores_per_rank=2")
    both = dataclasses.replace(
        plan,
        points=[*plan.points, *other.points],
        requests={**plan.requests, **other.requests},
        options=dataclasses.replace(plan.options, after=(prepares,)),
    )
    submitted = submit_runs(Study(tmp_path / "small"), both, SlurmBackend())
    arrays = list(dict.fromkeys(base_id(run.job) for run in submitted))
    after = {array: re.sub(r"\([a-z]*\)", "", what) for array, what in zip(queue(slurm, "%F"), queue(slurm, "%E"), strict=True)}
    before = [f",afterany:{array}_*" for array in arrays[:-1]]
    assert [after[array] for array in arrays] == [f"afterok:{prepares}{other}" for other in ["", *before]]


def test_arrays_are_split_at_the_largest_size(slurm: Twin, tmp_path: Path) -> None:
    """Two arrays of four and two; Slurm itself says how large one may be where the profile does not."""
    study = Study(tmp_path / "small")
    assert SlurmBackend().max_array_size == 1001
    submitted = submit_runs(study, held(tmp_path, slurm), SlurmBackend(SlurmRules(max_array_size=4)))
    assert [run.job.partition("_")[2] for run in submitted] == ["0", "1", "2", "3", "0", "1"]
    assert sorted(run.job for run in submitted) == sorted(queue(slurm, "%i"))


def test_status_of_several_studies_asks_slurm_three_times_at_most(
    slurm: Twin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two arrays that wait and one that was cancelled: squeue, sacct, and squeue again for what neither knows."""
    studies = [Study(tmp_path / name) for name in ("a", "b", "c")]
    jobs = [submit_runs(study, held(tmp_path, slurm), SlurmBackend())[0].job for study in studies]
    slurm.run(["scancel", base_id(jobs[0])])
    commands = list[str]()
    run = slurm_commands.run_command

    def noted(command: Sequence[str], timeout_s: float | None = None) -> subprocess.CompletedProcess[str]:
        commands.append(command[0])
        return run(command, timeout_s)

    monkeypatch.setattr(slurm_commands, "run_command", noted)
    phases = {name: {(state.phase, state.detail) for state in states} for name, states in all_states(studies).items()}
    waits = {("queued", "held by its user; `scontrol release` lets it go (JobHeldUser)")}
    by = " by you" if ("failed", "cancelled by you (CANCELLED)") in phases["a"] else ""  # accounting says so, seconds later
    assert phases == {"a": {("failed", f"cancelled{by} (CANCELLED)")}, "b": waits, "c": waits}
    assert len(commands) <= 3


def test_tasks_run_are_requeued_and_are_read_like_any_job(rcc_twin: Twin, tmp_path: Path) -> None:
    """Each task runs its own point and leaves its records as ARRAY_TASK.RESTART, its logs in a folder of its own; nothing is
    submitted again.
    """
    user = User(rcc_twin, tmp_path)
    (tmp_path / "small.yaml").write_text(SWEEP)
    sweep = ["small.yaml", "--set", "repeat=1", "--where", "workload.seed <= 2"]
    said = user.hpcddp("submit", *sweep, "--max-running", 2, "-y").stdout
    study = Study(tmp_path / "small")
    array = base_id(str(study_states(study)[0].job))
    assert f"submitted    2 jobs    {array}_[0-1], at most 2 at a time" in said
    rcc_twin.wait_jobs(200)
    rcc_twin.run(["scontrol", "requeue", f"{array}_1"])
    again = f"*/r1/{array}_1.1/end.json"
    wait_until(lambda: any(study.folder.glob(again)), [], again, 200, lambda: str(user.failures()))
    wait_until(lambda: not user.failures(), [], "the second end of the task in sacct", 60, lambda: str(user.failures()))
    assert "2 runs: 2 done" in user.hpcddp("status", ".").stdout
    states = {str(state.job): state for state in study_states(study)}
    assert sorted(states) == [f"{array}_0", f"{array}_1"]
    for job, state in states.items():
        names = {file.name for file in study.job_dir(job).iterdir()}
        assert {"batch.out", "batch.err", f"{job}_0_log.out", f"{job}_0_log.err", f"{job}_0_result.pkl"} <= names
        attempts = [attempt.name for attempt in study.attempts(state.label, 1)]
        assert attempts == ([f"{job}.0"] if job.endswith("_0") else [f"{job}.0", f"{job}.1"])
    assert {job["JobName"].partition("-x2.")[0] for job in user.jobs()} == {"n01-g1"}
    assert "gates     2 of 2 runs pass" in user.hpcddp("analyze", ".").stdout
    assert "nothing to submit" in user.hpcddp("submit", *sweep, "-y").stdout
