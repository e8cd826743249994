"""A rule that the profile lacks, found by a real Slurm before the first job: `submit --dry-run` and `--smoke`."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from hpcddp.backends.slurm_test_only import refusal_words
from hpcddp.cluster.profile import ClusterProfile, NodeType
from hpcddp.cluster.profile_file import load_profile
from hpcddp.cluster.slurm_rules import AccountForm, Partition, Qos, SlurmRules
from hpcddp.core.jobspec import JobSpec
from hpcddp.script.job_request import User
from hpcddp.script.render import launch_by_hand, render
from hpcddp.script.resources import job_request
from hpcddp.submit.refused_requests import refusal_of
from hpcddp.sweep.expand import expand
from hpcddp.sweep.file import read_sweep
from tests.commands.conftest import Run, run
from tests.twin.controllers import Controller, Controllers

__all__ = ["run"]  # a fixture

SWEEP = """
schema: 1
cluster: rcc
device: cpu
workload: {model: mnist-cnn, data: {name: synthetic-mnist}, batch_per_gpu: 8, loader_workers_per_rank: 0}
layout: {nodes: 3, gpus_per_node: 1, node_type: v100, physical_cores_per_rank: 1}
points: {all: {workload.batch_per_gpu: [8]}}
baselines: false
measure: {warmup_steps: 1, steps: 3}
repeat: 1
slurm: {walltime_min: 30}
"""


A100 = NodeType(
    count=40, physical_cores=32, smt=2, memory_mb=500000, gpus=4, gres_type="a100", constraint="a100",
    account_form=AccountForm(pattern=".*@a100", sentence="accounts end in @a100"),
)  # fmt: skip
V100 = NodeType(count=1000, physical_cores=20, memory_mb=180000, gpus=4, constraint="v100-16g|v100-32g")
FAT = NodeType(count=10, physical_cores=24, memory_mb=700000, gpus=8, partition="fat", max_mb_per_core=20000)
THREE = ClusterProfile(
    schema=1,
    name="three",
    title="three partitions",
    node_types={"a100": A100, "v100": V100, "fat": FAT},
    slurm=SlurmRules(
        partitions={
            "small": Partition(node_types=("a100",), default=True, max_nodes=8, max_walltime_min=600, max_mb_per_core=15000),
            "large": Partition(node_types=("v100",), min_nodes=2, default_mb_per_core=7500, qos=("long",)),
        },
        qos=(
            Qos(partition="small", max_walltime_min=300),
            Qos(partition="large", max_nodes=91, max_walltime_min=120),
            Qos(partition="large", min_nodes=92, max_nodes=183, max_walltime_min=360),
            Qos(partition="fat", max_walltime_min=60),
            Qos(name="long", max_nodes=4, max_walltime_min=6000),
            Qos(name="dev", partition="small", max_nodes=2, max_walltime_min=300, max_gpus=4),
        ),
    ),
)
"""Three partitions, rules by QOS and node type, and forms of accounts."""


def without_rules(profile: ClusterProfile, **facts: Any) -> ClusterProfile:
    """What somebody writes who knows the nodes of a cluster and none of its limits."""
    names = {rule.name for rule in profile.slurm.qos}
    free: dict[str, Any] = {
        "qos": tuple(Qos(name=name) for name in names),
        "max_gpus_per_user": None,
        "max_cores_per_user": None,
        "account_form": None,
        "partitions": {},
    }
    kinds = {key: dataclasses.replace(kind, count=None, account_form=None) for key, kind in profile.node_types.items()}
    return dataclasses.replace(profile, node_types=kinds, slurm=dataclasses.replace(profile.slurm, **{**free, **facts}))


def sentence(controller: Controller, profile: ClusterProfile, folder: Path, *settings: str) -> str:
    """What the user reads of the sweep's largest point on that cluster, by this profile of it."""
    file = folder / "small.yaml"
    file.write_text(SWEEP)
    source = read_sweep(file, settings)
    planned = expand(source, profile)[-1]
    request = job_request(profile, planned.point, source.sweep.slurm, User(account=source.sweep.account or "proj"))
    launch = launch_by_hand(profile, JobSpec(point=planned.point, study="."), None)
    taken, words = controller.test_only(render(profile, planned.point, request, launch))
    assert not taken
    return refusal_of(profile, planned.point, request, refusal_words(words)).text


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (["slurm.walltime_min=10081"], "Add max_walltime_min to"),
        (["slurm.qos=dev"], "Add max_nodes to the rule dev of slurm.qos"),
        (["slurm.qos=dev", "layout.nodes=1", "slurm.walltime_min=481"], "Add max_walltime_min to the rule dev of slurm.qos"),
        (["layout.nodes=8", "device=cuda", "layout.gpus_per_node=4"], "Add slurm.max_gpus_per_user to the profile of rcc"),
        (["layout.nodes=8", "device=cuda"], "node_types.v100 of the profile of rcc states more than they have"),
        (["slurm.partition=normal"], "has no partition normal"),
        (["account=nobody"], "refuses account nobody in partition gpu"),
        (["slurm.nodelist=gn77"], "Slurm has no such nodes in partition gpu"),
    ],
)
def test_the_key_that_the_profile_lacks_is_named(
    controllers: Controllers, tmp_path: Path, settings: list[str], says: str
) -> None:
    """By the words of a Slurm with the rules of rcc, for a profile of rcc without them."""
    rcc = load_profile("rcc")
    assert says in sentence(controllers.get(rcc), without_rules(rcc), tmp_path, *settings)


@pytest.mark.parametrize(
    ("settings", "facts", "says"),
    [
        (["layout.nodes=9"], {"partition": "small"}, "Add min_nodes and max_nodes to slurm.partitions.small of the profile"),
        (["slurm.walltime_min=301"], {"partition": "small"}, "Add max_walltime_min to"),
        (["layout.nodes=2", "account=proj"], {"partition": "small"}, "slurm.account_form of the profile of three"),
        (["layout.nodes=2", "slurm.qos=dev"], {"partition": "large"}, "Add the valid QOS to qos of slurm.partitions.large"),
        (["layout.nodes=100", "slurm.walltime_min=361"], {"partition": "large"}, "fit no rule of this QOS"),
    ],
)
def test_a_partition_that_the_profile_lacks_is_named(
    controllers: Controllers, tmp_path: Path, settings: list[str], facts: dict[str, Any], says: str
) -> None:
    kind = "a100" if facts["partition"] == "small" else "v100"
    account = (
        []
        if any(text.startswith("account=") for text in settings)
        else ["account=proj@a100" if kind == "a100" else "account=proj"]
    )
    profile = without_rules(THREE, **facts)
    found = sentence(controllers.get(THREE), profile, tmp_path, f"layout.node_type={kind}", *account, *settings)
    assert says in found


def test_dry_run_and_smoke_ask_slurm(controllers: Controllers, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A point that Slurm would refuse is remarked by the dry run, and ends --smoke with 5 before any job; plan is silent."""
    three = controllers.get(THREE)
    for name, value in three.env.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "three.yaml").write_text(OWN)
    (tmp_path / "small.yaml").write_text(SWEEP)
    arguments = ("small.yaml", "--cluster", "three.yaml", "--set", "layout.node_type=a100", "--set", "account=proj@a100")
    dry = run("submit", *arguments, "--dry-run", "--set", "layout.nodes=9")
    assert (dry.exit_code, "Add min_nodes and max_nodes to slurm.partitions.small" in dry.stderr) == (0, True), dry.output
    smoke = run("submit", *arguments, "--smoke", "-y", "--set", "layout.nodes=9")
    assert (smoke.exit_code, "Add min_nodes and max_nodes" in smoke.stderr) == (5, True), smoke.output
    assert three.run(["squeue", "-h"]).stdout == ""
    fits = run("submit", *arguments, "--dry-run")
    assert (fits.exit_code, "sbatch" in fits.stderr, "not checked" in fits.stderr) == (0, False, False), fits.output
    plan = run("plan", *arguments, "--set", "layout.nodes=9")
    assert (plan.exit_code, "sbatch" in plan.output) == (0, False)


OWN = """
schema: 1
name: three-of-mine
title: What somebody knows of the cluster
default_node_type: a100
node_types:
  a100: {physical_cores: 32, smt: 2, memory_mb: 500000, gpus: 4, gres_type: a100, constraint: a100}
slurm: {partition: small, max_mb_per_core: 15000}
"""
