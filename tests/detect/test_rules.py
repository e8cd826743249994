"""What partitions, QOS and associations come to for a job."""

from __future__ import annotations

import dataclasses

import pytest

from hpcddp.detect.accounting import Association, LiveQos
from hpcddp.detect.check import compare_profile
from hpcddp.detect.fields import NO_LIMIT
from hpcddp.detect.live import LiveSlurm
from hpcddp.detect.node_types import live_node_types
from hpcddp.detect.rules import enforces_accounts, my_partitions, my_qos, partition_limits, qos_to_try
from tests.detect.given_live import ONE, detected, node, partition


def test_a_partition_with_some_of_a_types_nodes() -> None:
    """A job there cannot have more of them than it has, whatever MaxNodes says."""
    few = dataclasses.replace(partition("few"), max_nodes=NO_LIMIT)
    nodes = [node(f"g{i}", 4, ("gpu", "few") if i < 3 else ("gpu",)) for i in range(8)]
    live = LiveSlurm(nodes=tuple(nodes), partitions=(few,), qos=())
    limits = partition_limits(live, few, live_node_types(nodes))
    assert (limits.max_nodes, limits.few_nodes) == (3, True)
    gpu = dataclasses.replace(partition("gpu"), max_nodes=NO_LIMIT)
    assert partition_limits(live, gpu, live_node_types(nodes)).max_nodes == NO_LIMIT


def test_the_qos_of_a_partition_limits_it() -> None:
    """Its jobs have both limits."""
    rule = LiveQos(name="part", max_nodes=3, max_walltime_min=60, min_nodes=NO_LIMIT)
    live = LiveSlurm(qos=(rule,))
    limits = partition_limits(live, dataclasses.replace(partition("gpu"), qos="part"), ())
    assert (limits.max_nodes, limits.max_walltime_min) == (3, 60)


def test_memory_rounded_down_is_no_drift() -> None:
    """7,501 MB a core are 3,750 a CPU of two: what Slurm has is the same limit."""
    profile = detected(ONE)
    rules = dataclasses.replace(profile.slurm, max_mb_per_core=16001)
    findings = compare_profile(dataclasses.replace(profile, slurm=rules), ONE)
    assert [finding for finding in findings if finding.verdict == "differs"] == []


def test_partitions_that_the_user_may_not_use() -> None:
    """By account, or for root only; the default one comes first, hidden ones last."""
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
    """In the order to try them: none named, what charges least, what ranks least, the widest."""
    qos = [
        LiveQos(name="premium", usage_factor=2.0, priority=9),
        LiveQos(name="debug", usage_factor=1.0, priority=5, max_walltime_min=30),
        LiveQos(name="regular", usage_factor=1.0, priority=5, max_walltime_min=NO_LIMIT),
        LiveQos(name="staff"),
    ]
    live = LiveSlurm(qos=tuple(qos), associations=(Association(account="a", qos=("premium", "debug", "regular")),))
    assert qos_to_try(live) == [None, "regular", "debug", "premium"]
    assert len(my_qos(dataclasses.replace(live, associations=None))) == 4


@pytest.mark.parametrize(
    ("enforce", "found"), [("associations,limits,qos", True), ("none", False), ("wckeys", False), ("(null)", False)]
)
def test_whether_accounts_are_enforced(enforce: str, found: bool) -> None:
    """By slurm.conf, where that is known."""
    config = {"AccountingStorageType": "accounting_storage/slurmdbd", "AccountingStorageEnforce": enforce}
    assert enforces_accounts(LiveSlurm(config=config)) is found
    assert enforces_accounts(LiveSlurm(config={"AccountingStorageType": "accounting_storage/none"})) is False
    assert enforces_accounts(LiveSlurm()) is None
