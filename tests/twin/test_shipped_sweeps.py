"""What hpcddp renders, the cluster's Slurm takes: every point of every shipped sweep, and each profile's own workload."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcddp.cluster.profile import ClusterProfile, NodeType
from hpcddp.cluster.profile_file import load_profile
from hpcddp.core.jobspec import JobSpec
from hpcddp.core.point import Data, Layout, Point, Workload
from hpcddp.script.job_request import User
from hpcddp.script.render import launch_by_hand, render
from hpcddp.script.resources import job_request
from hpcddp.sweep.expand import expand
from hpcddp.sweep.file import SlurmOptions, read_sweep
from tests.twin.controllers import Controller, Controllers, of_controller, slurm_profiles
from tests.twin.rules import account_for

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
    """`sbatch --test-only` takes the script of every point of the shipped sweep."""
    source = read_sweep(JOBS / f"{sweep}.yaml")
    profile = load_profile(str(source.sweep.cluster))
    points = [planned.point for planned in expand(source, profile)]
    assert points
    assert refused(shipped.get(profile), points, source.sweep.slurm) == {}


@pytest.mark.parametrize("cluster", [of_controller(name) for name in slurm_profiles()])
def test_whole_nodes_of_each_type_are_taken(shipped: Controllers, cluster: str) -> None:
    """One and four nodes with all their GPUs, as `hpcddp render` has them by default."""
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
