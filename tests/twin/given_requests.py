"""Requests to a cluster, and whether hpcddp and the cluster's Slurm take them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal
from unittest.mock import patch

from hpcddp.cluster.profile import ClusterProfile
from hpcddp.cluster.slurm_rules import Intent, Qos
from hpcddp.core.errors import UsageError
from hpcddp.core.jobspec import JobSpec
from hpcddp.core.point import Data, Layout, Point, Workload
from hpcddp.script import resources
from hpcddp.script.job_request import User
from hpcddp.script.queues import Queue, choose_queue
from hpcddp.script.render import launch_by_hand, render
from hpcddp.sweep.file import SlurmOptions
from tests.twin.controllers import Controller


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a sweep can ask a cluster for."""

    node_type: str
    nodes: int = 1
    gpus_per_node: int = 1
    cores_per_rank: int | None = 1
    exclusive: bool = False
    launcher: Literal["direct", "torchrun"] = "direct"
    device: Literal["cuda", "cpu"] = "cuda"
    walltime_min: int = 10
    partition: str | None = None
    qos: str | None = None
    intent: Intent | None = None
    mem_mb: int | None = None
    account: str


def script(profile: ClusterProfile, request: Request) -> str:
    """The job script; UsageError where hpcddp refuses the request."""
    point = Point(
        cluster=profile.name,
        workload=Workload(model="mnist-cnn", data=Data(name="synthetic-mnist"), batch_per_gpu=8),
        device=request.device,
        layout=Layout(
            nodes=request.nodes,
            gpus_per_node=request.gpus_per_node,
            node_type=request.node_type,
            physical_cores_per_rank=request.cores_per_rank,
            exclusive=request.exclusive,
            launcher=request.launcher,
        ),
    )
    options = SlurmOptions(
        walltime_min=request.walltime_min,
        partition=request.partition,
        qos=request.qos,
        intent=request.intent,
        mem_mb=request.mem_mb,
    )
    job = resources.job_request(profile, point, options, User(account=request.account))
    return render(profile, point, job, launch_by_hand(profile, JobSpec(point=point, study="."), None))


def refusal_by_hpcddp(profile: ClusterProfile, request: Request) -> str | None:
    """hpcddp's words; None where it takes the request."""
    try:
        script(profile, request)
    except UsageError as error:
        return str(error)
    return None


def refusal_by_slurm(controller: Controller, request: Request) -> str | None:
    """Slurm's words for the script that hpcddp would write if it checked nothing; None where Slurm takes it."""
    with (
        patch.object(resources, "broken_limits", lambda *_: iter(())),
        patch.object(resources, "choose_queue", _choose_any),
    ):
        taken, words = controller.test_only(script(controller.profile, request))
    return None if taken else words


def _choose_any(profile: ClusterProfile, point: Point, slurm: SlurmOptions, job: Any) -> Queue:
    """Where no rule may be used unasked, a job without a QOS."""
    try:
        return choose_queue(profile, point, slurm, job)
    except UsageError:
        return Queue(
            rule=Qos(), partition=slurm.partition or profile.rules_of(profile.node_type(point.layout.node_type)).partition
        )
