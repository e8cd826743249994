"""Many runs in one job on a real Slurm: the records of separate jobs, time limits in the middle of runs, lost answers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hpcddp.backends.slurm import SlurmBackend
from hpcddp.backends.slurm_commands import longest_min
from hpcddp.cluster.settings import load_settings
from hpcddp.cluster.slurm_rules import SlurmRules
from hpcddp.core.job_ids import slurm_id
from hpcddp.core.run_root import Study
from hpcddp.study.status import study_states
from hpcddp.submit.cancel import cancel_runs, live_runs
from hpcddp.submit.choose import ChosenPoints
from hpcddp.submit.options import SubmitOptions
from hpcddp.submit.submission_plan import SubmissionPlan, plan_submission
from hpcddp.submit.submit import submit_runs
from hpcddp.sweep.expand import expand
from hpcddp.sweep.file import read_sweep
from tests.backends.fake_slurm import wait_for
from tests.twin.own_slurm import CutShort, own_slurm
from tests.twin.processes import wait_until
from tests.twin.resumed import MODEL, at_the_end, counted_steps, read, wait_for_steps
from tests.twin.twin import Twin
from tests.twin.userland import SMALL, User

SWEEP = (
    SMALL
    + """
layout: {gpus_per_node: 1, node_type: v100, physical_cores_per_rank: 1, exclusive: false}
points: {nodes: {layout.nodes: [1, 2]}}
baselines: false
measure: {warmup_steps: 1, steps: 3}
account: proj
slurm: {walltime_min: 5, mem_mb: 2000}
"""
)

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


@pytest.fixture
def slurm(rcc_twin: Twin, tmp_path: Path) -> Iterator[Twin]:
    with own_slurm(rcc_twin, {"XDG_CONFIG_HOME": str(tmp_path / "config")}):
        yield rcc_twin


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
def test_the_records_are_those_of_separate_jobs(rcc_twin: Twin, tmp_path: Path) -> None:
    """Fields, gates, steps, losses and the parameters' checksum; here the small run is on a node of the large one."""
    user = User(rcc_twin, tmp_path)
    (tmp_path / "small.yaml").write_text(SWEEP)
    user.hpcddp("submit", "small.yaml", "--runs", "apart", "-y")
    said = user.hpcddp("submit", "small.yaml", "--runs", "together", "--one-allocation", "-y").stdout
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
    assert "gates     2 of 2 runs pass" in user.hpcddp("analyze", "together").stdout
    assert "nothing to submit" in user.hpcddp("submit", "small.yaml", "--runs", "together", "--one-allocation", "-y").stdout


def test_time_limits_in_the_middle_of_runs(rcc_twin: Twin, tmp_path: Path) -> None:
    """Told twice that its time is nearly over, the job is requeued twice. A run that writes checkpoints goes on where it was, one
    that does not begins anew, and what was done stays: each is measured once, with each of its steps.
    """
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
    rcc_twin.wait_jobs(300)
    wait_until(lambda: not user.failures(), [], "the last end of the job in sacct", 60, lambda: str(user.failures()))
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


def held(folder: Path, twin: Twin) -> SubmissionPlan:
    """The sweep's runs in one job that is held."""
    file = folder / "small.yaml"
    file.write_text(SWEEP)
    source = read_sweep(file, ["slurm.options=[--hold]", "repeat=2"])
    points, options = expand(source, twin.profile), SubmitOptions(one_allocation=True)
    return plan_submission(ChosenPoints(source=source, profile=twin.profile, points=points), load_settings()[0], options)


def test_a_job_whose_submission_was_interrupted_is_found_and_cancelled(slurm: Twin, tmp_path: Path) -> None:
    """With all its runs; submitting again adds none. One run cancelled leaves the others in it, the last ones end it."""
    study = Study(tmp_path / "small")
    with pytest.raises(KeyboardInterrupt):
        submit_runs(study, held(tmp_path, slurm), CutShort())
    assert {state.phase for state in study_states(study)} == {"unknown"}
    assert submit_runs(study, held(tmp_path, slurm), SlurmBackend()) == []
    states = study_states(study)
    (job,) = slurm.run(["squeue", "-h", "-o", "%i"]).stdout.split()
    assert sorted(str(state.job) for state in states) == [f"{job}+{task}" for task in range(4)]
    assert {state.phase for state in states} == {"queued"}
    backend = SlurmBackend(SlurmRules(), study)
    cancel_runs(study, states[:1], [backend])
    after = study_states(study, backend)
    assert [(state.phase, state.detail) for state in after[:2]] == [
        ("failed", "cancelled by you (CANCELLED)"),
        ("queued", "held by its user; `scontrol release` lets it go (JobHeldUser)"),
    ]
    assert [(run.label, run.run) for run in submit_runs(study, held(tmp_path, slurm), backend)] == [(states[0].label, 1)]
    cancel_runs(study, live_runs(study, study_states(study, backend), []), [backend])
    wait_for(lambda: not slurm.run(["squeue", "-h", "-o", "%i"]).stdout.split())
    assert {state.detail for state in study_states(study, backend)} == {"cancelled by you (CANCELLED)"}


def test_slurm_knows_how_long_a_job_may_be(slurm: Twin) -> None:
    """By the partition; what it does not know has no limit."""
    limits = [rule.max_walltime_min for rule in slurm.profile.slurm.qos]
    assert longest_min("gpu") == max(limit for limit in limits if limit is not None)
    assert longest_min("nosuch") is None
