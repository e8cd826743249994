"""Arrays, many runs in one job, and jobs that wait for others, on a real Slurm: cut short, found again, limited, requeued."""

from __future__ import annotations

import dataclasses
import re
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from hpcddp.backends import slurm_commands
from hpcddp.backends.slurm import SlurmBackend
from hpcddp.backends.slurm_commands import longest_min
from hpcddp.cluster.settings import load_settings
from hpcddp.cluster.slurm_rules import SlurmRules
from hpcddp.core.errors import FullError
from hpcddp.core.job_ids import base_id, slurm_id
from hpcddp.core.run_root import Study
from hpcddp.study.status import all_states, study_states
from hpcddp.submit.cancel import cancel_runs, live_runs
from hpcddp.submit.choose import ChosenPoints
from hpcddp.submit.options import SubmitOptions
from hpcddp.submit.submission_plan import SubmissionPlan, plan_submission
from hpcddp.submit.submit import submit_runs
from hpcddp.sweep.expand import expand
from hpcddp.sweep.file import read_sweep
from tests.fake_slurm import wait_for
from tests.twin.daemons import wait_until
from tests.twin.twin import Twin
from tests.twin.userland import (
    MODEL,
    SMALL,
    CutShort,
    User,
    at_the_end,
    counted_steps,
    own_slurm,
    read,
    wait_for_steps,
    without_torch,
)

SWEEP = (
    SMALL
    + """
layout: {gpus_per_node: 1, node_type: v100, physical_cores_per_rank: 1, exclusive: false}
points: {all: {AXIS}}
baselines: false
measure: {warmup_steps: 1, steps: 3}
repeat: 2
account: proj
slurm: {walltime_min: 5, mem_mb: 2000}
"""
)
SEEDS, NODES = (SWEEP.replace("AXIS", axis) for axis in ("workload.seed: [1, 2, 3]", "layout.nodes: [1, 2]"))

WAITS = "held by its user; release it with `scontrol release` (JobHeldUser)"


@pytest.fixture
def slurm(rcc_twin: Twin, tmp_path: Path) -> Iterator[Twin]:
    with own_slurm(rcc_twin, {"XDG_CONFIG_HOME": str(tmp_path / "config")}):
        yield rcc_twin


def held(folder: Path, twin: Twin, *settings: str, sweep: str = SEEDS, **options: Any) -> SubmissionPlan:
    """The sweep, its jobs held."""
    file = folder / "small.yaml"
    file.write_text(sweep)
    source = read_sweep(file, ["slurm.options=[--hold]", *settings])
    chosen = ChosenPoints(source=source, profile=twin.profile, points=expand(source, twin.profile))
    return plan_submission(chosen, load_settings()[0], SubmitOptions(**options))


def queue(twin: Twin, column: str) -> list[str]:
    """A column of squeue, tasks one by one, in the order in which jobs were submitted."""
    lines = twin.run(["squeue", "-h", "-r", "--sort=V,i", "-o", f"%A|{column}"]).stdout.splitlines()
    return [line.partition("|")[2] for line in sorted(lines, key=lambda line: int(line.partition("|")[0]))]


def interrupted(study: Study, plan: SubmissionPlan) -> list[str]:
    """The jobs of a submission that was gone once sbatch had answered: found by the next one, which adds none."""
    with pytest.raises(KeyboardInterrupt):
        submit_runs(study, plan, CutShort())
    assert {state.phase for state in study_states(study)} == {"unknown"}
    assert submit_runs(study, plan, SlurmBackend()) == []
    states = study_states(study)
    assert {state.phase for state in states} == {"queued"}
    return sorted(str(state.job) for state in states)


def test_array_whose_submission_was_interrupted_is_found(slurm: Twin, tmp_path: Path) -> None:
    study = Study(tmp_path / "small")
    jobs = interrupted(study, held(tmp_path, slurm))
    assert (len(jobs), jobs) == (6, sorted(queue(slurm, "%i")))
    assert study.job_dir(jobs[0]).is_dir()


def test_job_of_many_runs_is_found_and_cancelled(slurm: Twin, tmp_path: Path) -> None:
    """One run cancelled leaves the others in it, the last ones end it."""
    study, plan = Study(tmp_path / "small"), held(tmp_path, slurm, sweep=NODES, one_allocation=True)
    jobs = interrupted(study, plan)
    (job,) = queue(slurm, "%i")
    assert jobs == [f"{job}+{task}" for task in range(4)]
    backend = SlurmBackend(SlurmRules(), study)
    states = study_states(study)
    cancel_runs(study, states[:1], [backend])
    found = [(state.phase, state.detail) for state in study_states(study, backend)[:2]]
    assert found == [("failed", "cancelled by you (CANCELLED)"), ("queued", WAITS)]
    assert [(run.label, run.run) for run in submit_runs(study, plan, backend)] == [(states[0].label, 1)]
    cancel_runs(study, live_runs(study, study_states(study, backend), []), [backend])
    wait_for(lambda: not queue(slurm, "%i"))
    assert {state.detail for state in study_states(study, backend)} == {"cancelled by you (CANCELLED)"}


def test_no_more_jobs_than_slurm_lets_a_user_have(slurm: Twin, tmp_path: Path) -> None:
    """MaxSubmitJobs 4: of six runs four are sent, first runs first; the others are missing, and go once there is room."""
    study = Study(tmp_path / "small")
    limit = ["sacctmgr", "-iQ", "modify", "user", "root", "set"]
    shown = ["scontrol", "show", "assoc_mgr", "users=root", "flags=assoc"]
    slurm.run([*limit, "MaxSubmitJobs=4"])
    try:
        wait_for(lambda: "MaxSubmitJobs=4(" in slurm.run(shown).stdout)
        with pytest.raises(FullError, match="2 runs not submitted yet"):
            submit_runs(study, held(tmp_path, slurm), SlurmBackend())
        phases = {(state.label, state.run): state.phase for state in study_states(study)}
        assert sorted(phases.values()) == ["missing"] * 2 + ["queued"] * 4
        assert {phase for (_, run), phase in phases.items() if run == 1} == {"queued"}
        assert len(queue(slurm, "%i")) == 4
    finally:
        slurm.run([*limit, "MaxSubmitJobs=-1"])
    wait_for(lambda: "MaxSubmitJobs=4(" not in slurm.run(shown).stdout)
    assert len(submit_runs(study, held(tmp_path, slurm), SlurmBackend())) == 2
    assert len(set(queue(slurm, "%i"))) == 6


def test_runs_wait_for_another_job_and_for_each_other(slurm: Twin, tmp_path: Path) -> None:
    """Arrays of two shapes by turns, throttled, and all behind another job; and what Slurm says of its limits."""
    ask = ["sbatch", "--parsable", "--account=proj", "--partition=gpu", "--hold", "--wrap=true"]
    prepares = slurm.run(ask, cwd=tmp_path).stdout.strip()
    plan = held(tmp_path, slurm, max_running=1, after=(prepares,))
    other = held(tmp_path, slurm, "layout.physical_cores_per_rank=2")
    both = dataclasses.replace(plan, points=[*plan.points, *other.points], requests={**plan.requests, **other.requests})
    submitted = submit_runs(Study(tmp_path / "small"), both, SlurmBackend())
    arrays = list(dict.fromkeys(base_id(run.job) for run in submitted))
    assert ([run.run for run in submitted], len(arrays)) == ([1] * 6 + [2] * 6, 4)
    after = {array: re.sub(r"\([a-z]*\)", "", what) for array, what in zip(queue(slurm, "%F"), queue(slurm, "%E"), strict=True)}
    before = [f",afterany:{array}_*" for array in arrays[:-1]]
    assert [after[array] for array in arrays] == [f"afterok:{prepares}{each}" for each in ["", *before]]
    for array in arrays:
        assert "ArrayTaskThrottle=1 " in slurm.run(["scontrol", "show", "job", array]).stdout
    limits = [rule.max_walltime_min for rule in slurm.profile.slurm.qos]
    assert (longest_min("gpu"), longest_min("nosuch")) == (max(limit for limit in limits if limit is not None), None)
    assert SlurmBackend().max_array_size == 1001


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
    by = " by you" if ("failed", "cancelled by you (CANCELLED)") in phases["a"] else ""  # accounting says so, seconds later
    assert phases == {"a": {("failed", f"cancelled{by} (CANCELLED)")}, "b": {("queued", WAITS)}, "c": {("queued", WAITS)}}
    assert len(commands) <= 3


def test_tasks_run_are_requeued_and_are_read_like_any_job(rcc_twin: Twin, tmp_path: Path) -> None:
    user = without_torch(User(rcc_twin, tmp_path))
    (tmp_path / "small.yaml").write_text(SEEDS)
    sweep = ["small.yaml", "--set", "repeat=1", "--where", "workload.seed <= 2"]
    said = user.hpcddp("submit", *sweep, "--max-running", 2, "-y").stdout
    study = Study(tmp_path / "small")
    array = base_id(str(study_states(study)[0].job))
    assert f"submitted    2 jobs    {array}_[0-1], at most 2 at a time" in said
    rcc_twin.wait_jobs(200)
    rcc_twin.run(["scontrol", "requeue", f"{array}_1"])
    again = f"*/r1/{array}_1.1/end.json"
    wait_until(lambda: any(study.folder.glob(again)), [], again, 200, lambda: str(user.failures()))
    user.wait_until_completed()
    assert "2 runs: 2 done" in user.hpcddp("status", ".").stdout
    states = {str(state.job): state for state in study_states(study)}
    assert sorted(states) == [f"{array}_0", f"{array}_1"]
    for job, state in states.items():
        names = {file.name for file in study.job_dir(job).iterdir()}
        assert {"batch.out", "batch.err", f"{job}_0_log.out", f"{job}_0_log.err", f"{job}_0_result.pkl"} <= names
        attempts = [attempt.name for attempt in study.attempts(state.label, 1)]
        assert attempts == ([f"{job}.0"] if job.endswith("_0") else [f"{job}.0", f"{job}.1"])
    assert {job["JobName"].partition("-x2.")[0] for job in user.jobs()} == {"n01-g1"}
    assert "2 of 2 runs pass" in user.hpcddp("analyze", ".").stdout
    assert "nothing to submit" in user.hpcddp("submit", *sweep, "-y").stdout


def attempts(study: Path) -> dict[int, Path]:
    """Nodes of a point -> its one attempt."""
    found = {len(read(file)["hosts"]): file.parent for file in study.glob("*/r1/*/launch.json")}
    assert len(found) == len(list(study.glob("*/r1/*")))
    return found


def comparable(attempt: Path) -> dict[str, Any]:
    """Of an attempt, all that does not tell of the moment or the place."""
    launch, end = read(attempt / "launch.json"), read(attempt / "end.json")
    keys = ("point", "run", "restart", "backend", "launcher", "communication", "ranks", "ranks_per_node", "data", "env_id")
    facts = ("state", "steps", "first_step", "loss_first", "loss_last", "global_batch")
    return {
        "files": sorted(str(file.relative_to(attempt)) for file in attempt.rglob("*.csv") if "nodes" not in file.parts),
        "launch": {"keys": sorted(launch), **{key: launch[key] for key in keys}},
        "variables": sorted(name for name in launch["environment"] if not name.startswith("SLURM_")),
        "threads": launch["environment"]["OMP_NUM_THREADS"],
        "end": {"keys": sorted(end), **{key: end[key] for key in facts}},
        "gates": [(gate["name"], gate["passed"]) for gate in end["gates"]],
        "parameters": at_the_end(attempt),
        "rows": [(rank["rank"], rank["rows"]) for rank in end["ranks"]],
    }


@pytest.mark.soak
def test_records_of_one_allocation_are_those_of_separate_jobs(rcc_twin: Twin, tmp_path: Path) -> None:
    """Fields, gates, steps, losses and the parameters' checksum; here the small run is on a node of the large one."""
    user, once = User(rcc_twin, tmp_path), ("--set", "repeat=1", "-y")
    (tmp_path / "small.yaml").write_text(NODES)
    user.hpcddp("submit", "small.yaml", "--runs", "apart", *once)
    said = user.hpcddp("submit", "small.yaml", "--runs", "together", "--one-allocation", *once).stdout
    assert "one job of 2 nodes for 10 min: the time of its 2 runs" in said
    rcc_twin.wait_jobs(200)
    assert user.failures() == {}
    assert "2 runs: 2 done" in user.hpcddp("status", "together").stdout
    apart, in_one_job = (attempts(tmp_path / runs / "small") for runs in ("apart", "together"))
    assert {nodes: comparable(attempt) for nodes, attempt in in_one_job.items()} == {
        nodes: comparable(attempt) for nodes, attempt in apart.items()
    }
    large, small = (read(in_one_job[nodes] / "launch.json") for nodes in (2, 1))
    assert (small["hosts"], small["job"]) == (large["hosts"][:1], f"{slurm_id(large['job'])}+1")
    assert large["environment"]["MASTER_PORT"] != small["environment"]["MASTER_PORT"]
    assert f"submitted    1 job    {slurm_id(large['job'])}, 2 runs one after the other" in said
    assert "2 of 2 runs pass" in user.hpcddp("analyze", "together").stdout
    assert "nothing to submit" in user.hpcddp("submit", "small.yaml", "--runs", "together", "--one-allocation", *once).stdout


INTERRUPTED = """
schema: 1
cluster: rcc
device: cpu
workload: {model: "held:model", data: {name: synthetic-mnist}, batch_per_gpu: 4, loader_workers_per_rank: 0}
layout: {gpus_per_node: 1, node_type: v100, physical_cores_per_rank: 1, exclusive: false}
points:
  large: {layout.nodes: [2]}
  small: {measure.resume: [true, false]}
baselines: false
measure: {warmup_steps: 5, steps: 225, telemetry_hz: 0}
account: proj
slurm: {walltime_min: 5, mem_mb: 2000}
"""
"""Tasks 0, 1 and 2 are on two nodes, on one with checkpoints, and on one without."""

HELD = """
        task = (os.environ.get("HPCDDP_TASK"), restart)
        while calls[0] == 20 and (task == ("1", 0) and signal.SIGUSR2 not in signal.sigpending() or task == ("2", 1)):
            time.sleep(0.01)
"""
"""In its 20th step the second run waits for the signal, and the third, when it is first begun, for its end."""


def test_time_limits_in_the_middle_of_runs(rcc_twin: Twin, tmp_path: Path) -> None:
    """What has checkpoints goes on, what has none begins anew, what was done stays: each step is measured once."""
    user = User(rcc_twin, tmp_path)
    (tmp_path / "study.yaml").write_text(INTERRUPTED)
    (tmp_path / "held.py").write_text(MODEL.format(wait=HELD.strip()))
    user.hpcddp("submit", "study.yaml", "--one-allocation", "-y")
    study = Study(tmp_path / "study")
    states = user.json("status", "study", exit_code=3)["studies"][0]["runs"]
    by_task = {int(state["job"].partition("+")[2]): study.run_dir(state["label"], 1) for state in states}
    job = slurm_id(states[0]["job"])
    wait_for_steps(user, by_task[1] / f"{job}+1.0")
    states = user.json("status", "study", exit_code=3)["studies"][0]["runs"]
    assert {state["job"]: state["phase"] for state in states} == {f"{job}+0": "done", f"{job}+1": "running", f"{job}+2": "queued"}
    rcc_twin.run(["scancel", "--batch", "--signal=USR2", job])
    wait_for_steps(user, by_task[2] / f"{job}+2.1")
    rcc_twin.run(["scancel", "--batch", "--signal=USR2", job])
    user.wait_until_completed()
    found = {task: sorted(path.name for path in folder.iterdir()) for task, folder in by_task.items()}
    assert found == {0: [f"{job}+0.0"], 1: [f"{job}+1.0", f"{job}+1.1"], 2: [f"{job}+2.1", f"{job}+2.2"]}
    ends = {task: folder / found[task][-1] for task, folder in by_task.items()}
    assert read(by_task[1] / f"{job}+1.0" / "end.json")["state"] == "interrupted"
    assert not (by_task[2] / f"{job}+2.1" / "end.json").exists()
    for task, end in ends.items():
        assert counted_steps(by_task[task], end) == list(range(230))
    assert at_the_end(ends[1]) == at_the_end(ends[2])
    assert "3 runs: 3 done" in user.hpcddp("status", "study").stdout
    assert "nothing to submit" in user.hpcddp("submit", "study.yaml", "--one-allocation", "-y").stdout


def wanting_data(user: User, name: str, root: str) -> str:
    """A sweep of two runs of bigMNIST, which is to be there."""
    text = NODES.replace("name: synthetic-mnist", f"name: bigmnist, copies: 1, variants: [plain], root: {root}")
    (user.home / f"{name}.yaml").write_text(text.replace("repeat: 2", "repeat: 1"))
    return f"{name}.yaml"


@pytest.mark.soak
def test_runs_start_when_their_data_are_there(rcc_twin: Twin, tmp_path: Path) -> None:
    user = User(rcc_twin, tmp_path)
    (tmp_path / "data").mkdir()
    sweep = wanting_data(user, "good", str(tmp_path / "data"))
    assert "no data `bigmnist` in" in user.hpcddp("submit", sweep, "-y", exit_code=2).stderr
    user.hpcddp("submit", sweep, "-y", "--prepare", "--wait")
    (study,) = user.json("status", sweep)["studies"]
    (job,) = study["data_jobs"]
    assert (job["phase"], [run["phase"] for run in study["runs"]]) == ("done", ["done"] * 2)
    assert read(tmp_path / "data" / "bigmnist.json")["copies"] == 1
    assert "nothing to submit" in user.hpcddp("submit", sweep, "-y", "--prepare").stdout


def test_runs_whose_data_could_not_be_made_never_start(rcc_twin: Twin, tmp_path: Path) -> None:
    """Slurm takes them out of the queue, and why they did not run is said; when the data can be made, `submit` starts anew."""
    user = User(rcc_twin, tmp_path)
    sweep = wanting_data(user, "bad", "$NOWHERE/data")
    user.hpcddp("submit", sweep, "-y", "--prepare", "--wait", exit_code=1)
    (study,) = user.json("status", sweep, exit_code=3)["studies"]
    (job,) = study["data_jobs"]
    assert job["phase"] == "failed"
    assert "$NOWHERE is not set in the job" in job["detail"]
    words = f"it never started: it depends on job {job['job']}, which did not complete successfully"
    assert [(run["phase"], run["detail"]) for run in study["runs"]] == [("failed", words)] * 2
    assert not list((tmp_path / "bad").glob("*/r1"))
    places = ("--set", f"workload.data.root={tmp_path}/made")
    again = user.hpcddp("submit", sweep, "-y", "--prepare", "--max-jobs", "1", *places, exit_code=3)
    assert re.search(r"^submitted    1 job    \d+, to start after \d+ completed successfully$", again.stdout, re.MULTILINE)
    user.hpcddp("cancel", sweep, "-y")


@pytest.mark.soak
def test_a_command_of_data_is_a_job(rcc_twin: Twin, tmp_path: Path) -> None:
    user = User(rcc_twin, tmp_path, {"SCRATCH": str(tmp_path)})
    small = ("--set", "layout.exclusive=false", "--set", "layout.physical_cores_per_rank=2", "--set", "slurm.mem_mb=4000")
    prepare = ("data", "prepare", "bigmnist", "--root", "$SCRATCH/set", "--copies", "1", "--digits", "sklearn")
    done = user.hpcddp(*prepare, "--cluster", "rcc", *small, "-y", "--wait")
    assert "prepare bigmnist  job " in done.stdout
    assert (tmp_path / "set" / "bigmnist.json").is_file()
    shard = tmp_path / "set" / "train-00000.u8"
    verify = ("data", "verify", "bigmnist", "--root", "$SCRATCH/set", "--cluster", "rcc", *small, "-y", "--wait")
    shard.write_bytes(b"\1" + shard.read_bytes()[1:])
    assert "train-00000.u8" in user.hpcddp(*verify, exit_code=1).stdout
    status = user.hpcddp("status", "jobs", exit_code=3).stdout
    assert status.startswith("data\nprepare bigmnist  job ")
