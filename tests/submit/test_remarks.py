"""What is said before data are copied to nodes' own disks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hpcddp.cluster.profile_file import load_profile
from hpcddp.core.point import Data, Layout, Point, Workload
from hpcddp.submit.remarks import staging_remarks


def point(node_type: str | None = None, stage: Any = "tmpdir") -> Point:
    data = Data(name="bigmnist", root="/data", stage=stage)
    return Point(cluster="x", workload=Workload(model="mnist-cnn", data=data), layout=Layout(node_type=node_type))


@pytest.mark.parametrize("cluster", ["leonardo", "lumi-g", "alps"])
def test_a_copy_in_memory_is_named(cluster: str) -> None:
    """Of clusters whose sites say that nodes have no disk; once for a point, with what the site says."""
    (said,) = staging_remarks(load_profile(cluster), point())
    assert "has no disk that is known (" in said
    assert said.endswith("Set it to none, or keep it on purpose.")
    assert list(staging_remarks(load_profile(cluster), point(stage="none"))) == []


def test_copies_that_stay_are_named() -> None:
    """Nothing where they go with the job, and where nobody knows."""
    rcc = load_profile("rcc")
    assert list(staging_remarks(rcc, point("a40"))) == []
    assert list(staging_remarks(load_profile("jupiter"), point())) == []
    staying = replace(rcc, node_types={"a40": replace(rcc.node_types["a40"], local_disk_per_job=False)})
    (said,) = staging_remarks(staying, point("a40"))
    assert "a node of type a40 keeps what a job leaves on its disk" in said
