"""All runs in one job: its request and script, and what is submitted again while it runs and after it."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest

from hpcddp.backends.base import JobState, Submission
from hpcddp.backends.slurm_allocation import STEPS
from hpcddp.backends.slurm_job_files import SCRIPT, prepare
from hpcddp.cluster.slurm_rules import Partition, Qos
from hpcddp.core.errors import FullError, UsageError
from hpcddp.core.hours import Hours
from hpcddp.core.records import write_json
from hpcddp.core.run_root import Study
from hpcddp.study.status import RunState, run_states
from hpcddp.study.submission_log import latest_events
from hpcddp.study.used_hours import StudyHours, study_hours
from hpcddp.submit.budget import account, hours_of_runs
from hpcddp.submit.one_allocation import allocation_request, allocation_words
from hpcddp.submit.options import SubmitOptions
from hpcddp.submit.submission_plan import SubmissionPlan
from hpcddp.submit.submit import submit_runs
from tests import check_golden
from tests.fake_slurm import FakeBackend
from tests.given_plan import allocation_plan, batch_of, runs_of, study_of
from tests.script.test_render import shellcheck


def test_the_job_asks_for_the_most_that_a_run_needs_and_the_time_of_all(tmp_path: Path) -> None:
    planned = allocation_plan(tmp_path, "layout.gpus_per_node=4", axes="{layout.nodes: [1, 2]}")
    wide = allocation_plan(tmp_path, axes="{layout.nodes: [4], layout.physical_cores_per_rank: [3]}")
    both = dataclasses.replace(planned, points=[*planned.points, *wide.points], requests={**planned.requests, **wide.requests})
    request = allocation_request(both, runs_of(both))
    assert (request.nodes, request.tasks_per_node, request.cpus_per_task, request.gpus_per_node) == (4, 4, 1, 4)
    assert (request.mem_mb, request.walltime_min, request.warning_s) == (2000, 180, 120)


def test_the_time_is_no_longer_than_a_job_may_be(tmp_path: Path) -> None:
    planned = allocation_plan(tmp_path)
    assert allocation_words(planned, runs_of(planned)) == "one job of 4 nodes for 180 min: the time of its 6 runs"
    short = dataclasses.replace(planned, longest_min=100)
    assert allocation_request(short, runs_of(short)).walltime_min == 100
    words = "the limit of one job; the time of its 6 runs is 180 min, and the rest is requeued"
    assert allocation_words(short, runs_of(short)) == f"one job of 4 nodes for 100 min: {words}"
    many = allocation_plan(tmp_path, "repeat=1000")
    assert allocation_request(many, runs_of(many)).walltime_min == 10080


def with_rules(planned: SubmissionPlan, **rules: Any) -> SubmissionPlan:
    """On a cluster whose Slurm has other rules."""
    slurm = dataclasses.replace(planned.profile.slurm, **rules)
    return dataclasses.replace(planned, profile=dataclasses.replace(planned.profile, slurm=slurm))


def test_the_time_is_that_of_the_rule_for_its_nodes(tmp_path: Path) -> None:
    planned = allocation_plan(tmp_path)
    bins = with_rules(planned, qos=(Qos(max_nodes=3, max_walltime_min=60), Qos(min_nodes=4, max_walltime_min=150)))
    assert allocation_request(bins, runs_of(bins)).walltime_min == 150
    short = with_rules(bins, partitions={"gpu": Partition(max_walltime_min=100)})
    assert allocation_request(short, runs_of(short)).walltime_min == 100


def test_the_memory_of_one_torchrun_is_that_of_the_cores_of_its_ranks(tmp_path: Path) -> None:
    shared = ["layout.exclusive=false", "layout.gpus_per_node=4", "layout.physical_cores_per_rank=12", "slurm.mem_mb=null"]
    for launcher in ("direct", "torchrun"):
        planned = allocation_plan(tmp_path, *shared, f"layout.launcher={launcher}", axes="{layout.nodes: [1, 2]}")
        assert allocation_request(planned, runs_of(planned)).mem_mb == 360_000


def test_a_run_takes_all_nodes_of_the_job(tmp_path: Path) -> None:
    """Whatever its own size: four nodes, each with the GPU that was asked for, for half an hour."""
    planned = allocation_plan(tmp_path)
    assert hours_of_runs(planned, runs_of(planned)) == [Hours(node=2.0, gpu=2.0)] * 6
    assert hours_of_runs(planned, []) == []


def test_repetition_by_repetition_the_largest_first(tmp_path: Path) -> None:
    """So that a job that is cut short has every size."""
    batch = batch_of(allocation_plan(tmp_path), tmp_path)
    found = [(request.spec.run, request.spec.point.layout.nodes) for request in batch.submissions]
    assert found == [(1, 4), (1, 2), (1, 1), (2, 4), (2, 2), (2, 1)]
    assert batch.name == "n04-6runs.1f2e3d4c"


def test_the_last_run_keeps_preflight_and_spare_node(tmp_path: Path) -> None:
    planned = allocation_plan(tmp_path, "slurm.spare_nodes=1")
    batch = batch_of(planned, tmp_path, runs_of(planned)[:1])
    prepare(tmp_path / "job", batch)
    script = (tmp_path / "job" / SCRIPT).read_text()
    assert f"#SBATCH --nodes={planned.points[0].point.layout.nodes + 1}\n" in script
    assert (script.count("\nrun_step "), "\npreflight" in script) == (1, True)


@pytest.mark.parametrize(
    ("axes", "settings", "words"),
    [
        ("{layout.node_type: [v100, a40]}", [], "layout.node_type is v100 in some points and a40 in others"),
        ("{layout.exclusive: [true, false]}", [], "layout.exclusive is True in some points and False in others"),
        ("{layout.nodes: [1, 2]}", ["slurm.options=[--signal=USR2@600]"], "Write `-J --signal=B:USR2@600`"),
        ("{layout.nodes: [1]}", ["cluster=local", "layout.node_type=null"], "--one-allocation needs Slurm, and local has none"),
    ],
)
def test_what_no_single_job_gives(tmp_path: Path, axes: str, settings: list[str], words: str) -> None:
    planned = allocation_plan(tmp_path, *settings, axes=axes)
    with pytest.raises(UsageError, match=re.escape(words)):
        allocation_request(planned, runs_of(planned))


def test_what_points_need_together_may_be_more_than_is_allowed(tmp_path: Path) -> None:
    small = allocation_plan(tmp_path, "layout.gpus_per_node=4", axes="{layout.nodes: [1]}")
    large = allocation_plan(tmp_path)
    both = dataclasses.replace(large, points=[*small.points, *large.points], requests={**small.requests, **large.requests})
    both = with_rules(both, max_gpus_per_user=8)
    with pytest.raises(UsageError, match=r"16 GPUs requested \(4 nodes x 4\); rcc allows 8 per user.\n--one-allocation: one job"):
        allocation_request(both, runs_of(both))


def test_the_script_is_the_one_that_was_reviewed(tmp_path: Path) -> None:
    planned = allocation_plan(tmp_path, "repeat=1", axes="{layout.nodes: [1, 2], measure.resume: [true, false]}")
    batch = batch_of(planned, Path("/runs/s"))
    prepare(tmp_path / "job", batch)
    text = (tmp_path / "job" / SCRIPT).read_text().replace(str(tmp_path), "/runs/s/.jobs")
    check_golden("scripts/rcc-one-allocation.sh", text)
    assert shellcheck(text) == ""


def test_a_template_that_launches_in_its_own_way_is_refused(tmp_path: Path) -> None:
    """It knows one run a job, and would run none."""
    template = tmp_path / "mine.sh.j2"
    template.write_text('{% extends "base.sh.j2" %}\n{% block launch %}\nmpirun {{ launch.command }}\nrc=$?\n{% endblock %}\n')
    planned = allocation_plan(tmp_path)
    planned = dataclasses.replace(planned, profile=dataclasses.replace(planned.profile, template=str(template)))
    with pytest.raises(UsageError, match="launches one run per job"):
        prepare(tmp_path / "job", batch_of(planned, tmp_path))


HOUR_NS = 3_600_000_000_000

DIED = JobState(phase="failed", detail="it reached its time limit (TIMEOUT)", word="TIMEOUT", time_limit="03:00:00")


def first_done(study: Study, label: str, *events: tuple[str, int | None, int | None]) -> None:
    """Job 100 has brought its first run to its end, and written what followed."""
    write_json(study.attempt_dir(label, 1, "100+0", 0) / "end.json", {"state": "done", "reason": None, "gates": []})
    study.job_dir("100").mkdir(exist_ok=True)
    every = (("begun", None, None), ("started", 0, None), ("ended", 0, 0), *events)
    lines = [json.dumps({"event": event, "task": task, "code": code}) for event, task, code in every]
    (study.job_dir("100") / STEPS).write_text("\n".join([*lines, ""]))


def by_task(states: list[RunState]) -> dict[str, RunState]:
    return {str(state.job): state for state in states}


def test_each_run_is_noted_as_one_of_its_job(tmp_path: Path, study: Study, backend: FakeBackend) -> None:
    runs = submit_runs(study, allocation_plan(tmp_path), backend)
    assert [run.job for run in runs] == [f"100+{task}" for task in range(6)]
    assert [(run.label[:3], run.run) for run in runs] == [(f"n{nodes:02d}", run) for run in (1, 2) for nodes in (4, 2, 1)]
    assert len(backend.queued) == 1
    events = latest_events(study).values()
    (noted,) = {(line.event, line.nodes, line.gpus_per_node, line.name) for line in events}
    assert noted == ("submitted", 4, 1, backend.batches_taken["100"].name)
    assert submit_runs(study, allocation_plan(tmp_path), backend) == []
    single = allocation_plan(tmp_path, options=SubmitOptions(one_allocation=True, max_jobs=1))
    assert [run.job for run in submit_runs(study_of(tmp_path / "other"), single, FakeBackend())] == ["100+0"]


@pytest.mark.parametrize("arrived", [True, False])
def test_an_interrupted_submission_is_looked_up(tmp_path: Path, arrived: bool, study: Study, backend: FakeBackend) -> None:
    with backend.breaking_off(arrived=arrived), pytest.raises(KeyboardInterrupt):
        submit_runs(study, allocation_plan(tmp_path), backend)
    assert len(submit_runs(study, allocation_plan(tmp_path), backend)) == (0 if arrived else 6)
    assert sorted(str(line.job) for line in latest_events(study).values()) == [f"100+{task}" for task in range(6)]


def test_a_cluster_that_takes_no_more_has_none_of_it(tmp_path: Path, study: Study, backend: FakeBackend) -> None:
    def full(request: Submission) -> None:
        raise FullError("QOSMaxSubmitJobPerUserLimit")

    backend.on_submit = full
    with pytest.raises(FullError, match="6 runs not submitted yet"):
        submit_runs(study, allocation_plan(tmp_path), backend)
    assert {state.phase for state in run_states(study, backend)} == {"missing"}


def test_what_failed_is_submitted_again_while_the_others_go_on(tmp_path: Path, study: Study, backend: FakeBackend) -> None:
    runs = submit_runs(study, allocation_plan(tmp_path), backend)
    first_done(study, runs[0].label, ("started", 1, None), ("ended", 1, 7), ("started", 2, None))
    backend.states |= {run.job: JobState(phase="running", nodes="gn[01-04]") for run in runs}
    found = by_task(run_states(study, backend))
    phases = [found[f"100+{task}"].phase for task in range(6)]
    assert phases == ["done", "failed", "running", "queued", "queued", "queued"]
    assert found["100+1"].detail == "exit code 7 (FAILED)"
    assert found["100+3"].detail == "waits for earlier runs of its job"
    (again,) = submit_runs(study, allocation_plan(tmp_path), backend)
    assert (again.label, again.run, again.job) == (runs[1].label, 1, "101+0")


def test_what_its_job_left_is_submitted_again(tmp_path: Path, study: Study, backend: FakeBackend) -> None:
    runs = submit_runs(study, allocation_plan(tmp_path), backend)
    first_done(study, runs[0].label, ("started", 1, None))
    backend.states |= {run.job: DIED for run in runs}
    found = by_task(run_states(study, backend))
    cut, never = found["100+1"], found["100+5"]
    assert cut.detail == "it reached its time limit of 180 min (TIMEOUT)"
    assert str(cut.next_step).startswith("raise slurm.walltime_min in the sweep above 180")
    assert never.detail == "the run did not start: it reached its time limit of 180 min (TIMEOUT)"
    assert never.next_step == "submit it again"
    again = submit_runs(study, allocation_plan(tmp_path), backend)
    assert [(run.label, run.run) for run in again] == [(run.label, run.run) for run in runs[1:]]


def test_a_job_whose_environment_fails_tells_all_its_runs_why(tmp_path: Path, study: Study, backend: FakeBackend) -> None:
    runs = submit_runs(study, allocation_plan(tmp_path), backend)
    study.job_dir("100").mkdir()
    (study.job_dir("100") / "batch.err").write_text("hpcddp: this node has no `module` command; ...\n")
    backend.states |= {run.job: JobState(phase="failed", detail="exit code 1 (FAILED)", word="FAILED") for run in runs}
    details = {state.detail for state in run_states(study, backend)}
    assert details == {"the run did not start: its node has no `module` command"}


def test_the_budget_counts_all_nodes_of_the_job(tmp_path: Path, study: Study, backend: FakeBackend) -> None:
    planned = allocation_plan(tmp_path, "budget.node_hours=12")
    runs = submit_runs(study, planned, backend)
    small = study.attempt_dir(runs[2].label, 1, "100+2", 0)
    launch = {"started_unix_ns": HOUR_NS, "hosts": ["gn01"], "environment": {"SLURM_JOB_NUM_NODES": "4"}}
    write_json(small / "launch.json", launch)
    write_json(small / "end.json", {"state": "done", "ended_unix_ns": HOUR_NS * 5 // 4, "gates": []})
    found = account(study, planned, run_states(study, backend))
    assert (found.used, found.waiting) == (Hours(node=1.0, gpu=1.0), Hours(node=10.0, gpu=10.0))
    assert study_hours(study, run_states(study, backend)) == StudyHours(used=Hours(node=1.0, gpu=1.0), to_come=None)
    with pytest.raises(UsageError, match=r"at most 12\.0 node hours, 12\.0 GPU hours by runs to submit"):
        submit_runs(study_of(tmp_path / "other"), allocation_plan(tmp_path, "budget.node_hours=11.9"), backend)
