"""What is worth reading before data are copied to nodes' own disks."""

from __future__ import annotations

from collections.abc import Iterator

from hpcddp.cluster.profile import ClusterProfile
from hpcddp.core.point import Point


def staging_remarks(profile: ClusterProfile, point: Point) -> Iterator[str]:
    """Where the profile knows that nodes have no disk, or that copies may stay on it."""
    node_type = point.layout.node_type or profile.default_node_type
    if point.workload.data.stage == "none" or not profile.node_types:
        return
    node, fact = profile.node_type(node_type), profile.facts.get(f"node_types.{node_type}.local_disk_gb")
    if node.local_disk_gb is None and node.local_disk_path is None and fact is not None and fact.grade != "?":
        why = f" ({fact.note})" if fact.note else ""
        yield (
            f"workload.data.stage is tmpdir, and a node of type {node_type} has no disk that is known{why}: a copy may take half "
            f"of the memory that is free there. Set it to none, or keep it on purpose."
        )
    elif node.local_disk_per_job is False:
        yield (
            f"workload.data.stage is tmpdir, and a node of type {node_type} keeps what a job leaves on its disk: the copy of a "
            f"cancelled run goes with your next run with a copy there."
        )
