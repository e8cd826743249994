"""Many runs in one job: what is asked for all of them, in which order they go, and what no single job gives."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from hpcddp.backends.slurm_job_files import SCRIPT, prepare
from hpcddp.cluster.slurm_rules import Partition, Qos
from hpcddp.core.errors import UsageError
from hpcddp.core.hours import Hours
from hpcddp.submit.budget import hours_of_runs
from hpcddp.submit.one_allocation import allocation_request, allocation_words
from tests import golden
from tests.given_one_allocation import batch_of, runs_of, submission_plan
from tests.script.test_render import shellcheck


def test_the_job_asks_for_the_most_that_a_run_needs_and_the_time_of_all(tmp_path: Path) -> None:
    """Nodes of the largest point, CPUs, GPUs and memory of the widest; six runs of 30 min; warned two minutes before its end."""
    planned = submission_plan(tmp_path, "layout.gpus_per_node=4", axes="{layout.nodes: [1, 2]}")
    wide = submission_plan(tmp_path, axes="{layout.nodes: [4], layout.physical_cores_per_rank: [3]}")
    both = dataclasses.replace(planned, points=[*planned.points, *wide.points], requests={**planned.requests, **wide.requests})
    request = allocation_request(both, runs_of(both))
    assert (request.nodes, request.tasks_per_node, request.cpus_per_task, request.gpus_per_node) == (4, 4, 1, 4)
    assert (request.mem_mb, request.walltime_min, request.warning_s) == (2000, 180, 120)


def test_the_time_is_no_longer_than_a_job_may_be(tmp_path: Path) -> None:
    """Neither than the profile's limit nor than Slurm's, whichever is less, and the words say what becomes of the rest."""
    planned = submission_plan(tmp_path)
    assert allocation_words(planned, runs_of(planned)) == "one job of 4 nodes for 180 min: the time of its 6 runs"
    short = dataclasses.replace(planned, longest_min=100)
    assert allocation_request(short, runs_of(short)).walltime_min == 100
    assert allocation_words(short, runs_of(short)) == (
        "one job of 4 nodes for 100 min: as long as one may take; the time of its 6 runs is 180 min, and what is left is requeued"
    )
    many = submission_plan(tmp_path, "repeat=1000")
    assert allocation_request(many, runs_of(many)).walltime_min == 10080


def test_the_time_is_that_of_the_rule_for_its_nodes(tmp_path: Path) -> None:
    """Where a time limit depends on the nodes, it is the one of the largest point's range, and of its partition."""
    planned = submission_plan(tmp_path)
    ranges = (Qos(max_nodes=3, max_walltime_min=60), Qos(min_nodes=4, max_walltime_min=150))
    rules = dataclasses.replace(planned.profile.slurm, qos=ranges)
    bins = dataclasses.replace(planned, profile=dataclasses.replace(planned.profile, slurm=rules))
    assert allocation_request(bins, runs_of(bins)).walltime_min == 150
    rules = dataclasses.replace(rules, partitions={"gpu": Partition(max_walltime_min=100)})
    short = dataclasses.replace(planned, profile=dataclasses.replace(planned.profile, slurm=rules))
    assert allocation_request(short, runs_of(short)).walltime_min == 100


def test_the_memory_of_one_torchrun_is_that_of_the_cores_of_its_ranks(tmp_path: Path) -> None:
    """On a shared node as much as 48 cores are given, in one task as in four."""
    shared = ["layout.exclusive=false", "layout.gpus_per_node=4", "layout.physical_cores_per_rank=12", "slurm.mem_mb=null"]
    for launcher in ("direct", "torchrun"):
        planned = submission_plan(tmp_path, *shared, f"layout.launcher={launcher}", axes="{layout.nodes: [1, 2]}")
        assert allocation_request(planned, runs_of(planned)).mem_mb == 360_000


def test_a_run_takes_all_nodes_of_the_job(tmp_path: Path) -> None:
    """Whatever its own size: four nodes, each with the GPU that was asked for, for half an hour."""
    planned = submission_plan(tmp_path)
    assert hours_of_runs(planned, runs_of(planned)) == [Hours(node=2.0, gpu=2.0)] * 6
    assert hours_of_runs(planned, []) == []


def test_repetition_by_repetition_the_largest_first(tmp_path: Path) -> None:
    """So that a job that is cut short has every size."""
    batch = batch_of(submission_plan(tmp_path), tmp_path)
    found = [(request.spec.run, request.spec.point.layout.nodes) for request in batch.submissions]
    assert found == [(1, 4), (1, 2), (1, 1), (2, 4), (2, 2), (2, 1)]
    assert batch.name == "n04-6runs.1f2e3d4c"


def test_the_last_run_keeps_preflight_and_spare_node(tmp_path: Path) -> None:
    """What is left of a study is measured as the rest of it was."""
    planned = submission_plan(tmp_path, "slurm.spare_nodes=1")
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
        ("{layout.nodes: [1, 2]}", ["slurm.options=[--signal=USR2@600]"], "write -J --signal=B:USR2@600"),
        ("{layout.nodes: [1]}", ["cluster=local", "layout.node_type=null"], "local has no jobs of Slurm"),
    ],
)
def test_what_no_single_job_gives(tmp_path: Path, axes: str, settings: list[str], words: str) -> None:
    """Nodes of two kinds, a warning that the script does not hear, a machine without Slurm: refused with what to do."""
    planned = submission_plan(tmp_path, *settings, axes=axes)
    with pytest.raises(UsageError, match=re.escape(words)):
        allocation_request(planned, runs_of(planned))


def test_what_points_need_together_may_be_more_than_is_allowed(tmp_path: Path) -> None:
    """Each point fits; four nodes with four GPUs each are more than rcc lets a user have."""
    small = submission_plan(tmp_path, "layout.gpus_per_node=4", axes="{layout.nodes: [1]}")
    large = submission_plan(tmp_path)
    both = dataclasses.replace(large, points=[*small.points, *large.points], requests={**small.requests, **large.requests})
    rules = dataclasses.replace(both.profile.slurm, max_gpus_per_user=8)
    both = dataclasses.replace(both, profile=dataclasses.replace(both.profile, slurm=rules))
    with pytest.raises(UsageError, match=r"16 GPUs asked for \(4 nodes x 4\): rcc allows 8 a user.\n--one-allocation: one job"):
        allocation_request(both, runs_of(both))


def test_the_script_is_the_one_that_was_reviewed(tmp_path: Path) -> None:
    """Byte for byte; each run's step is what a job of its own would be given, and shellcheck has nothing to remark."""
    planned = submission_plan(tmp_path, "repeat=1", axes="{layout.nodes: [1, 2], measure.resume: [true, false]}")
    batch = batch_of(planned, Path("/runs/s"))
    prepare(tmp_path / "job", batch)
    text = (tmp_path / "job" / SCRIPT).read_text().replace(str(tmp_path), "/runs/s/.jobs")
    golden.check("scripts/rcc-one-allocation.sh", text)
    assert shellcheck(text) == ""


def test_a_template_that_launches_in_its_own_way_is_refused(tmp_path: Path) -> None:
    """It knows one run a job, and would run none."""
    template = tmp_path / "mine.sh.j2"
    template.write_text('{% extends "base.sh.j2" %}\n{% block launch %}\nmpirun {{ launch.command }}\nrc=$?\n{% endblock %}\n')
    planned = submission_plan(tmp_path)
    planned = dataclasses.replace(planned, profile=dataclasses.replace(planned.profile, template=str(template)))
    with pytest.raises(UsageError, match="launches in a way of its own"):
        prepare(tmp_path / "job", batch_of(planned, tmp_path))
