"""The fault of a published study, planted in the sweep that repeats it, ends in a gate."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from hpcddp.cluster.profile_file import load_profile
from hpcddp.core.point import Point
from hpcddp.sweep.expand import expand
from hpcddp.sweep.file import read_sweep
from tests.worker.test_gates_planted import called_outside_ddp, failed, planted

JOBS = Path(__file__).parents[2] / "jobs"

SMALL = [
    *("cluster=local", "device=cpu", "layout.node_type=null", "layout.physical_cores_per_rank=1"),
    *("workload.data.name=synthetic-cifar10", "workload.precision=fp32", "workload.batch_per_gpu=2"),
    *("workload.loader_workers_per_rank=0", "measure.warmup_steps=2", "measure.steps=3", "measure.telemetry_hz=0"),
]
"""Changes under a sweep's groups, so that its points train on two processes of one machine."""


def two_ranks(study: str) -> Point:
    """The point of the sweep's group `nodes` with one GPU on each of two, made small, its two ranks on one machine."""
    source = read_sweep(JOBS / f"{study}.yaml", SMALL)
    points = [each.point for each in expand(source, load_profile("local"), ["nodes"])]
    (point,) = (each for each in points if each.layout.nodes == 2)
    return dataclasses.replace(point, layout=dataclasses.replace(point.layout, nodes=1, gpus_per_node=2))


@pytest.mark.dear
def test_the_bare_model_in_the_loop_of_ec2_resnet18(tmp_path: Path) -> None:
    """Two instances that exchange no gradient: their ResNet-18 are two after the first step. As it is meant, they are one."""
    point = two_ranks("ec2-resnet18")
    found = failed(planted(tmp_path / "fault", point, called_outside_ddp)[1])
    assert "after step 1 1 of 2 ranks differ from rank 0" in found["parameters agree"]
    assert failed(planted(tmp_path / "right", point, lambda _: None)[1]) == {}
