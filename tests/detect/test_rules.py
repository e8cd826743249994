"""What partitions, QOS and associations come to for a job, and which nodes are one type."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from hpcddp.detect.check import compare_profile
from hpcddp.detect.fields import NO_LIMIT
from hpcddp.detect.live import LiveSlurm
from hpcddp.detect.node_types import FEATURE_SETS, live_node_types
from hpcddp.detect.nodes import LiveNode
from hpcddp.detect.partitions import Association, LiveQos
from hpcddp.detect.rules import enforces_accounts, my_partitions, my_qos, partition_limits, qos_to_try
from tests.detect.given_live import ONE, detected, node, partition


def test_limits_of_a_partition() -> None:
    few = dataclasses.replace(partition("few"), max_nodes=NO_LIMIT)
    nodes = [node(f"g{i}", 4, ("gpu", "few") if i < 3 else ("gpu",)) for i in range(8)]
    live = LiveSlurm(nodes=tuple(nodes), partitions=(few,), qos=())
    limits = partition_limits(live, few, live_node_types(nodes))
    assert (limits.max_nodes, limits.few_nodes) == (3, True)
    gpu = dataclasses.replace(partition("gpu"), max_nodes=NO_LIMIT)
    assert partition_limits(live, gpu, live_node_types(nodes)).max_nodes == NO_LIMIT
    rule = LiveQos(name="part", max_nodes=3, max_walltime_min=60, min_nodes=NO_LIMIT)
    live = LiveSlurm(qos=(rule,))
    limits = partition_limits(live, dataclasses.replace(partition("gpu"), qos="part"), ())
    assert (limits.max_nodes, limits.max_walltime_min) == (3, 60)


def test_memory_rounded_down_is_no_drift() -> None:
    profile = detected(ONE)
    rules = dataclasses.replace(profile.slurm, max_mb_per_core=16001)
    findings = compare_profile(dataclasses.replace(profile, slurm=rules), ONE)
    assert [finding for finding in findings if finding.verdict == "differs"] == []


def test_partitions_that_the_user_may_not_use() -> None:
    free, hidden, closed, root = (partition(name) for name in ("free", "hidden", "closed", "root"))
    live = LiveSlurm(
        partitions=(
            dataclasses.replace(hidden, hidden=True),
            dataclasses.replace(closed, allowed_accounts=("staff",)),
            dataclasses.replace(root, root_only=True),
            free,
            partition("usual", default=True),
        ),
        associations=(Association(account="bio"),),
    )
    assert [each.name for each in my_partitions(live)] == ["usual", "free", "hidden"]


def test_qos_that_the_user_may_use() -> None:
    premium, staff = LiveQos(name="premium", usage_factor=2.0, priority=9), LiveQos(name="staff")
    debug = LiveQos(name="debug", usage_factor=1.0, priority=5, max_walltime_min=30)
    regular = LiveQos(name="regular", usage_factor=1.0, priority=5, max_walltime_min=NO_LIMIT)
    live = LiveSlurm(
        qos=(premium, debug, regular, staff), associations=(Association(account="a", qos=("premium", "debug", "regular")),)
    )
    assert qos_to_try(live) == [None, "regular", "debug", "premium"]
    assert len(my_qos(dataclasses.replace(live, associations=None))) == 4


@pytest.mark.parametrize(
    ("enforce", "found"), [("associations,limits,qos", True), ("none", False), ("wckeys", False), ("(null)", False)]
)
def test_whether_accounts_are_enforced(enforce: str, found: bool) -> None:
    config = {"AccountingStorageType": "accounting_storage/slurmdbd", "AccountingStorageEnforce": enforce}
    assert enforces_accounts(LiveSlurm(config=config)) is found
    assert enforces_accounts(LiveSlurm(config={"AccountingStorageType": "accounting_storage/none"})) is False
    assert enforces_accounts(LiveSlurm()) is None


OF_20_CORES = dataclasses.replace(node("gn1", 4, ("gpu",), memory_mb=180000), cores_per_socket=20, threads_per_core=1, cpus=40)
V100 = dataclasses.replace(OF_20_CORES, gpus=(("v100", 4),))


def nodes(count: int = 2, start: str = "gn", **changes: Any) -> list[LiveNode]:
    """So many nodes like V100, changed."""
    return [dataclasses.replace(V100, name=f"{start}{i}", **changes) for i in range(1, count + 1)]


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"gpus": (("v100", 8),)}, ["v100-x4", "v100-x8"]),
        ({"memory_mb": 380000}, ["v100-176g", "v100-371g"]),
        ({"cores_per_socket": 24, "cpus": 48}, ["v100-40c", "v100-48c"]),
        ({"gpus": (("nvidia_a100-sxm4-80gb", 4),)}, ["v100", "a100-sxm4-80gb"]),
        ({"features": ("nvlink", "ib")}, ["v100", "v100-nvlink"]),
        ({"gpus": ((None, 4),)}, ["v100", "gpu"]),
        ({"gpus": ((None, 4),), "features": ("ssd", "A40")}, ["v100", "a40"]),
        ({"gpus": (), "features": ("a100",)}, ["v100", "cpu"]),
        ({"gpus": (("v100", 4), ("a100", 2))}, ["v100", "v100-a100"]),
    ],
)
def test_what_differs_is_in_the_names(changes: dict[str, Any], names: list[str]) -> None:
    types = live_node_types([*nodes(count=3), *nodes(start="x", **changes)])
    assert [kind.name for kind in types] == names
    assert [len(kind.nodes) for kind in types] == [3, 2]


def test_order_of_types() -> None:
    mixed = nodes(count=1, gpus=(("a100_1g.5gb", 14), ("a100", 2)))
    sliced = nodes(count=9, start="x", gpus=(("a100_1g.5gb", 28),))
    types = live_node_types([*sliced, *nodes(count=9, start="c", gpus=()), *mixed])
    found = [(kind.gres_type, kind.gpus, kind.is_sliced) for kind in types]
    assert found == [("a100", 2, False), ("a100_1g.5gb", 28, True), (None, 0, False)]
    types = live_node_types([*nodes(count=9, start="c", gpus=()), *nodes(), *nodes(count=3, start="x", memory_mb=99)])
    assert [len(kind.nodes) for kind in types] == [3, 2, 9]


def test_a_feature_selects_what_the_gpu_type_does_not() -> None:
    small, large = live_node_types([*nodes(count=3), *nodes(start="x", memory_mb=380000, features=("himem",))])
    assert (large.constraint, large.rivals) == ("himem", ())
    assert (small.constraint, small.rivals) == (None, ("v100-371g",))
    others = [*nodes(start="x", partitions=("other",), memory_mb=1, features=("b",)), *nodes(start="y", gpus=(("v100", 2),))]
    first = live_node_types([*nodes(count=3, features=("a",)), *others])[0]
    assert (first.constraint, first.rivals) == (None, ())


def test_features_of_places_are_no_types() -> None:
    """Nodes that differ in nothing but many sets of features are one type, with the features they share."""
    racks = [node for i in range(FEATURE_SETS + 1) for node in nodes(start=f"r{i}-", features=("gpu", f"rack{i}"))]
    (kind,) = live_node_types(racks)
    assert kind.features == ("gpu",)
    assert len(kind.other_features) == FEATURE_SETS + 1
    assert len(live_node_types(racks[:-2])) == FEATURE_SETS


def test_hidden_threads_are_no_cores() -> None:
    """CPUs that Slurm counts per core are smt; cores and memory of the system are not for jobs."""
    node = dataclasses.replace(V100, threads_per_core=2, cpus=80, effective_cpus=76, system_cores=2, system_memory_mb=4000)
    assert (node.smt, node.physical_cores, node.job_memory_mb) == (2, 38, 176000)
    assert dataclasses.replace(V100, threads_per_core=2).smt == 1
    assert dataclasses.replace(V100, system_cores=2).physical_cores == 38
