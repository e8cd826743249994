"""From a point to what is asked of Slurm, and what is refused before Slurm sees it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from hpcddp.cluster.profile import ClusterProfile
from hpcddp.cluster.profile_file import load_profile
from hpcddp.core.errors import UsageError
from hpcddp.core.hours import Hours
from hpcddp.core.point import Data, Layout, Point, Workload
from hpcddp.script.job_request import JobRequest, User
from hpcddp.script.resources import hours_at_most, job_request
from hpcddp.sweep.expand import resolve
from hpcddp.sweep.file import SlurmOptions, make_sweep


def request_of(cluster: str, **settings: Any) -> JobRequest:
    """The request of a one-point sweep with `--set key=value`."""
    return request_on(load_profile(cluster), **settings)


def request_on(profile: ClusterProfile, **settings: Any) -> JobRequest:
    document = {"schema": 1, "cluster": profile.name, "workload": {"model": "resnet18", "data": {"name": "cifar10"}}}
    sweep = make_sweep(document, [f"{key.replace('__', '.')}={value}" for key, value in settings.items()], Path("x")).sweep
    return job_request(profile, resolve(sweep, profile), sweep.slurm, User(account="proj"))


def test_logical_cpus_on_marconi100() -> None:
    """SMT4: 8 physical cores of a rank are 32 CPUs to Slurm, four ranks take the node's 128."""
    request = request_of("marconi100", layout__gpus_per_node=4)
    assert (request.physical_cores_per_rank, request.cpus_per_rank) == (8, 32)


def test_one_process_with_all_gpus() -> None:
    """data_parallel is one task with all GPUs and the cores of all; without room for them it is refused like ranks."""
    request = request_of("rcc", layout__gpus_per_node=4, workload__parallel="data_parallel")
    assert (request.ranks_per_node, request.tasks_per_node, request.gpus_per_node) == (1, 1, 4)
    assert (request.physical_cores_per_rank, request.cpus_per_rank, request.cpus_per_task) == (48, 48, 48)
    with pytest.raises(UsageError, match="gpus_per_node is 5"):
        request_of("rcc", layout__gpus_per_node=5, workload__parallel="data_parallel")


def test_torchrun_is_one_task_with_the_cpus_of_its_ranks() -> None:
    """What srun starts changes, what the ranks get does not."""
    settings = {"layout__nodes": 2, "layout__gpus_per_node": 4}
    direct, torchrun = (request_of("marconi100", **settings, layout__launcher=name) for name in ("direct", "torchrun"))
    assert (direct.ranks_per_node, direct.tasks_per_node, direct.cpus_per_task) == (4, 4, 32)
    assert (torchrun.ranks_per_node, torchrun.tasks_per_node, torchrun.cpus_per_task) == (4, 1, 128)
    assert torchrun.physical_cores_per_rank == direct.physical_cores_per_rank == 8


def test_exclusive_needs_all_gpus_on_marconi100() -> None:
    """A 1-GPU baseline there is alone on its node only if it asks for all four GPUs."""
    assert request_of("marconi100").gpus_per_node == 4
    assert request_of("marconi100", layout__exclusive="false").gpus_per_node == 1
    assert request_of("rcc").gpus_per_node == 1


def test_a_rule_that_is_not_documented_is_taken_as_no() -> None:
    """Null in a profile is for the reader; what is asked of Slurm is its own default."""
    profile = load_profile("marconi100")
    rules = dataclasses.replace(profile.slurm, exclusive_needs_all_gpus=None)
    assert request_on(dataclasses.replace(profile, slurm=rules)).gpus_per_node == 1


def test_no_gpus_for_a_cpu_run() -> None:
    """`device: cpu` asks for GPUs only where the node type, or a node of one's own, is not to be had without."""
    assert request_of("rcc", device="cpu", layout__node_type="v100-sxm2").gpus_per_node == 0
    assert request_of("rcc", device="cpu").gpus_per_node == 1
    assert request_of("marconi100", device="cpu").gpus_per_node == 4
    more_ranks_than_gpus = {"device": "cpu", "layout__gpus_per_node": 6, "layout__physical_cores_per_rank": 1}
    assert request_of("rcc", **more_ranks_than_gpus).gpus_per_node == 4
    assert request_of("marconi100", **more_ranks_than_gpus).gpus_per_node == 4


def test_memory() -> None:
    """All of an exclusive node's memory, the share of the cores on a shared one, what the user says before both."""
    assert request_of("rcc").mem_mb == 360_000
    assert request_of("rcc", layout__exclusive="false").mem_mb == 90_000
    assert request_of("rcc", slurm__mem_mb=1000).mem_mb == 1000
    assert request_of("rcc", layout__node_type="v100-sxm2").mem_mb is None


def test_a_type_without_a_gpu_type_is_pinned() -> None:
    """Where the GPU type has no name in Slurm, the one node is asked for by its own; two types never mix unseen."""
    assert request_of("rcc", layout__node_type="v100-sxm2").nodelist == "gn09"
    assert request_of("rcc", layout__node_type="v100-sxm2", slurm__nodelist="gn09x").nodelist == "gn09x"
    assert request_of("rcc").nodelist is None


def test_hours_at_most() -> None:
    """Nodes x wall time: 4 nodes for 90 minutes are 6 hours, of one GPU each. Where a node comes with all its GPUs, all count."""
    changes = {"layout__nodes": 4, "slurm__walltime_min": 90}
    assert hours_at_most(request_of("rcc", **changes)) == Hours(node=6.0, gpu=6.0)
    assert hours_at_most(request_of("marconi100", **changes)) == Hours(node=6.0, gpu=24.0)


@pytest.mark.parametrize(
    ("cluster", "settings", "parts"),
    [
        ("rcc", {"layout__nodes": 40}, ["rcc has 6 nodes of type v100 (gn[01-06]); 40 asked for", "hpcddp clusters show rcc"]),
        ("rcc", {"layout__nodes": 7}, ["11 nodes in all if types may mix"]),
        ("rcc", {"layout__gpus_per_node": 5}, ["layout.gpus_per_node is 5", "has 4 GPUs"]),
        ("marconi100", {"layout__gpus_per_node": 5}, ["layout.gpus_per_node is 5", "has 4 GPUs"]),
        ("marconi100", {"layout__nodes": 17}, ["17 nodes asked for, at most 16", "--set slurm.qos=m100_qos_bprod"]),
        (
            "marconi100",
            {"slurm__qos": "m100_qos_dbg", "slurm__walltime_min": 180},
            ["walltime_min is 180, at most 120", "m100_qos_dbg"],
        ),
        ("marconi100", {"slurm__qos": "m100_qos_dbg", "layout__nodes": 3}, ["3 nodes asked for, at most 2", "m100_qos_dbg"]),
        ("marconi100", {"slurm__qos": "m100_qos_bprod", "layout__nodes": 16}, ["16 nodes asked for, at least 17"]),
        ("marconi100", {"slurm__qos": "m100_qos_big"}, ["slurm.qos is m100_qos_big", "m100_qos_dbg, m100_qos_bprod"]),
        ("marconi100", {"slurm__mem_mb": 250000}, ["slurm.mem_mb is 250000", "at most 246000 MB"]),
        (
            "marconi100",
            {"layout__gpus_per_node": 4, "layout__physical_cores_per_rank": 9},
            ["take 36 physical cores", "has 32", "most 8"],
        ),
        (
            "rcc",
            {"slurm__qos": "dev", "layout__gpus_per_node": 2},
            ["2 GPUs asked for, at most 1", "24 CPUs asked for, at most 8"],
        ),
        (
            "rcc",
            {"layout__node_type": "l40s", "layout__nodes": 2, "layout__gpus_per_node": 9},
            ["gpus_per_node is 9", "has 8 GPUs"],
        ),
        ("rcc", {"slurm__walltime_min": 20000}, ["at most 10080 minutes"]),
        (
            "rcc",
            {"measure__resume": "true", "slurm__walltime_min": 11, "slurm__options": "[--signal=USR2@600]"},
            ["slurm.walltime_min is 11", "Slurm warns 600 s before the time limit", "60 s earlier", "slurm.walltime_min=12"],
        ),
        (
            "rcc",
            {"measure__resume": "true", "slurm__walltime_min": 2},
            ["slurm.walltime_min is 2", "Slurm warns 30 s before", "slurm.walltime_min=3"],
        ),
    ],
)
def test_refused(cluster: str, settings: dict[str, Any], parts: list[str]) -> None:
    """What the cluster would not give is refused naming the value and the limit, all of it at once."""
    with pytest.raises(UsageError) as caught:
        request_of(cluster, **settings)
    for part in parts:
        assert part in str(caught.value)


def test_limits_of_a_user() -> None:
    """More GPUs or cores than a user may have are refused."""
    profile = load_profile("rcc")
    many = dataclasses.replace(profile.node_types["v100"], count=20)
    wide = dataclasses.replace(profile, node_types={"v100": many})
    point = Point(
        cluster="rcc",
        workload=Workload(model="resnet18", data=Data(name="cifar10")),
        layout=Layout(nodes=8, gpus_per_node=4, node_type="v100", physical_cores_per_rank=12),
    )
    with pytest.raises(UsageError) as caught:
        job_request(wide, point, SlurmOptions(), User())
    assert "32 GPUs asked for (8 nodes x 4): rcc allows 24 a user" in str(caught.value)
    assert "384 cores asked for on 8 nodes: rcc allows 340 a user" in str(caught.value)


def test_a_mixed_partition_needs_a_way_to_ask() -> None:
    """Two nodes of a type that Slurm has no word for are refused: other nodes would be timed instead."""
    profile: ClusterProfile = load_profile("rcc")
    two = dataclasses.replace(profile.node_types["v100-sxm2"], count=2, names=None)
    changed = dataclasses.replace(profile, node_types={**profile.node_types, "v100-sxm2": two})
    point = Point(
        cluster="rcc", workload=Workload(model="resnet18", data=Data(name="cifar10")), layout=Layout(node_type="v100-sxm2")
    )
    with pytest.raises(UsageError, match=r"Name the nodes with slurm\.nodelist"):
        job_request(changed, point, SlurmOptions(), User())


@pytest.mark.parametrize(
    "settings",
    [
        {"measure__resume": "true", "slurm__walltime_min": 3},
        {"measure__resume": "true", "slurm__walltime_min": 12, "slurm__options": "[--signal=USR2@600]"},
        {"slurm__walltime_min": 11, "slurm__options": "[--signal=USR2@600]"},
        {"measure__resume": "true", "slurm__walltime_min": 3, "slurm__options": "[--signal=USR2@600, --signal=B:USR2]"},
    ],
    ids=str,
)
def test_a_warning_that_leaves_time_to_begin_and_make_steps_is_taken(settings: dict[str, Any]) -> None:
    """A minute for that, after the minute by which Slurm may be early; the last --signal counts, 60 s where it says no time."""
    assert request_of("rcc", **settings).walltime_min == settings["slurm__walltime_min"]
