"""Requests on a controller of each shipped profile: hpcddp takes what Slurm takes, and detects it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings

from hpcddp.backends import slurm_commands
from hpcddp.cluster.profile import ClusterProfile, NodeType
from hpcddp.cluster.profile_file import load_profile, read_profile
from hpcddp.core.jobspec import JobSpec
from hpcddp.core.point import Data, Layout, Point, Workload
from hpcddp.detect.check import check_cluster
from hpcddp.detect.detect import detect_cluster
from hpcddp.script.job_request import User
from hpcddp.script.render import launch_by_hand, render
from hpcddp.script.resources import job_request
from hpcddp.sweep.expand import expand
from hpcddp.sweep.file import SlurmOptions, read_sweep
from tests.twin.controllers import Controller, Controllers, of_controller, slurm_profiles
from tests.twin.given_requests import (
    Request,
    documented_limits,
    refusal_by_hpcddp,
    refusal_by_slurm,
    requests,
    unreachable_limits,
)
from tests.twin.rules import account_for

UNKNOWN_TO_SLURM = {
    "rcc node type v100-sxm2: count": "neither GPU type nor feature is known: Slurm gives any node, hpcddp refuses",
    "alps node type gh200: gpus": "nodes come with their GPUs, and a request does not say how many",
    "vista node type gh: gpus": "nodes come with their GPUs, and a request does not say how many",
}
"""Limits of profiles for which a request has no words."""


NARROWER = {
    "rcc: max_cores_per_user": "a user's GPUs and the cores of one type's nodes are fewer",
    "leonardo: node type booster: count": "no QOS allows so many nodes",
    "lumi-g: node type mi250x: count": "no partition allows so many nodes",
    "marconi100: node type ac922: count": "no QOS allows so many nodes",
    "marenostrum5-acc: node type h100: count": "no QOS allows so many nodes",
    "vista: node type gh: count": "no partition allows so many nodes",
}
"""Limits that nobody meets, as another one comes first."""


def test_every_limit_is_met_by_a_request() -> None:
    """But for those behind a narrower one."""
    profiles = [load_profile(name) for name in slurm_profiles()]
    assert {f"{each.name}: {limit}" for each in profiles for limit in unreachable_limits(each)} == set(NARROWER)


@pytest.mark.parametrize("cluster", [of_controller(name) for name in slurm_profiles()])
def test_limits_are_those_of_the_cluster(shipped: Controllers, cluster: str) -> None:
    profile = load_profile(cluster)
    controller = shipped.get(profile)
    wrong = {}
    for limit in documented_limits(profile):
        within = refusal_by_hpcddp(profile, limit.within), refusal_by_slurm(controller, limit.within)
        past = refusal_by_hpcddp(profile, limit.past), refusal_by_slurm(controller, limit.past)
        if (within != (None, None) or None in past) and f"{cluster} {limit.name}" not in UNKNOWN_TO_SLURM:
            wrong[limit.name] = within, past
    assert wrong == {}


@dataclass(frozen=True, kw_only=True)
class Case:
    """A kind of request that one takes and the other does not."""

    rule: str
    """Slurm's rule behind it, and why hpcddp differs."""
    is_met: Callable[[ClusterProfile, Request, str, str], bool]
    """Of the profile, the request, and what hpcddp and Slurm say against it."""


CASES: Sequence[Case] = (
    Case(
        rule="Slurm knows its partitions (Invalid partition name). A profile that lists none leaves slurm.partition to the user.",
        is_met=lambda profile, request, ours, slurms: (
            not ours and "Invalid partition name" in slurms and not profile.slurm.partitions
        ),
    ),
    Case(
        rule="Slurm gives a job without GPU type and feature any node. hpcddp refuses it, as other nodes could be timed.",
        is_met=lambda profile, request, ours, slurms: "Slurm could allocate nodes of type" in ours and not slurms,
    ),
    Case(
        rule="MaxMemPerCPU: Slurm raises the CPUs of a task where --mem is more (CPUs/Task in `scontrol show job`, 22.05). "
        "hpcddp refuses, as the job would not be what its point says.",
        is_met=lambda profile, request, ours, slurms: "MB to the cores of this job" in ours and not slurms,
    ),
    Case(
        rule="Where nodes come with their GPUs, a request does not say how many: Slurm cannot refuse more than there are.",
        is_met=lambda profile, request, ours, slurms: (
            profile.slurm.gpu_request == "none" and ours.startswith("layout.gpus_per_node is") and not slurms
        ),
    ),
)

AT_MOST = 2
"""Cases of one profile."""


@pytest.mark.soak
@pytest.mark.parametrize("valid", [True, False])
@pytest.mark.parametrize("cluster", slurm_profiles())
def test_hpcddp_and_slurm_agree(shipped: Controllers, cluster: str, valid: bool) -> None:
    """On a hundred random requests that hpcddp takes, and on as many that it refuses; limit by limit above."""
    assert undocumented(shipped.get(load_profile(cluster)), valid, 100) == []


def undocumented(controller: Controller, valid: bool, count: int) -> list[tuple[Request, str, str]]:
    """Of so many requests that hpcddp takes, or refuses, those that Slurm does not, unless that is one of CASES.

    A second request of the same case says nothing new: another one is drawn in its place.
    """
    profile, found, cases = controller.profile, list[tuple[Request, str, str]](), set[str]()
    with patch.dict(os.environ, controller.env):
        accounts = slurm_commands.accounts() or []

    @settings(
        max_examples=count, derandomize=True, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
    )
    @given(requests(profile))
    def judge(request: Request) -> None:
        ours = refusal_by_hpcddp(profile, request) or account_refusal(request, accounts)
        assume((not ours) == valid)
        slurms = refusal_by_slurm(controller, request) or ""
        if bool(ours) == bool(slurms):
            return
        case = next((case.rule for case in CASES if case.is_met(profile, request, ours, slurms)), None)
        assume(case is None or case not in cases)
        if case is None:
            found.append((request, ours, slurms))
        else:
            cases.add(case)

    judge()
    print(f"{profile.name}: {count} {'valid' if valid else 'invalid'} requests, {len(cases)} of them documented cases")
    assert len(cases) <= AT_MOST
    return found


def account_refusal(request: Request, accounts: Sequence[str]) -> str:
    """What `submit` says of it before it submits."""
    return "" if request.account in accounts else f"You cannot charge account `{request.account}`"


JOBS = Path(__file__).parent.parent.parent / "jobs"

SWEEPS = [(file.stem, str(read_sweep(file).sweep.cluster)) for file in sorted(JOBS.glob("*.yaml"))]


def refused(controller: Controller, points: list[Point], slurm: SlurmOptions) -> dict[str, str]:
    """Label -> Slurm's words, of the points whose script it does not take."""
    results = {point.label: controller.test_only(script(controller.profile, point, slurm)) for point in points}
    return {label: words for label, (taken, words) in results.items() if not taken}


def script(profile: ClusterProfile, point: Point, slurm: SlurmOptions) -> str:
    """As `hpcddp render` prints it."""
    user = User(account=account_for(profile, str(point.layout.node_type)))
    launch = launch_by_hand(profile, JobSpec(point=point, study="$HPCDDP_RUNS/adhoc"), None)
    return render(profile, point, job_request(profile, point, slurm, user), launch)


@pytest.mark.parametrize("sweep", [of_controller(cluster, sweep) for sweep, cluster in SWEEPS if cluster in slurm_profiles()])
def test_every_point_is_taken(shipped: Controllers, sweep: str) -> None:
    source = read_sweep(JOBS / f"{sweep}.yaml")
    profile = load_profile(str(source.sweep.cluster))
    points = [planned.point for planned in expand(source, profile)]
    assert points
    assert refused(shipped.get(profile), points, source.sweep.slurm) == {}


@pytest.mark.parametrize("cluster", [of_controller(name) for name in slurm_profiles()])
def test_whole_nodes_of_each_type_are_taken(shipped: Controllers, cluster: str) -> None:
    profile = load_profile(cluster)
    layouts = [(key, node, count) for key, node in profile.node_types.items() for count in (1, 4) if count <= (node.count or 4)]
    points = [
        Point(
            cluster=cluster,
            workload=Workload(model="mnist-cnn", data=Data(name="synthetic-mnist"), batch_per_gpu=8),
            layout=Layout(nodes=count, gpus_per_node=node.gpus or 1, node_type=key, physical_cores_per_rank=_share(node)),
        )
        for key, node, count in layouts
    ]
    assert refused(shipped.get(profile), points, SlurmOptions(walltime_min=10)) == {}


def _share(node: NodeType) -> int | None:
    return node.physical_cores and node.physical_cores // (node.gpus or 1)


@pytest.mark.parametrize("cluster", [of_controller(name) for name in slurm_profiles()])
def test_what_it_writes(controllers: Controllers, cluster: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """check finds no drift of it, nor of the shipped profile, which this Slurm is like: it says what that says."""
    controller, file = controllers.get(load_profile(cluster)), tmp_path / "mine.yaml"
    for name, value in controller.env.items():
        monkeypatch.setenv(name, value)
    file.write_text(detect_cluster("mine").text, encoding="utf-8")
    profile = read_profile(file)
    checked = check_cluster(profile)
    assert (checked.of("differs"), checked.of("new")) == ([], [])
    assert check_cluster(controller.profile).of("differs") == []
    said, found = controller.profile.slurm, profile.slurm
    assert found.account_required == bool(said.account_required)
    assert found.gpu_request in {"gres", said.gpu_request}  # a Slurm that takes both has no rule of its own
    assert (found.memory_option, found.max_array_size) == (said.memory_option, 1001)
    account = re.search(r"Accounts you may charge: ([^,.\s]+)", str(profile.note))
    options = ["--cluster", str(file), "--nodes", "2", "--set", f"account={account[1] if account else 'none'}"]
    done = subprocess.run(
        [sys.executable, "-m", "hpcddp", "render", *options], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    taken, message = controller.test_only(done.stdout)
    assert taken, message
