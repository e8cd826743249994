"""Slurm's answers, field by field; what partitions, QOS and associations come to for a job, and which nodes are one type."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcddp.core.written_lists import expand_node_list
from hpcddp.detect.check import compare_profile
from hpcddp.detect.fields import NO_LIMIT, gpus, is_slice, limit, names, pairs, smallest, tres
from hpcddp.detect.live import LiveSlurm
from hpcddp.detect.node_types import FEATURE_SETS, live_node_types
from hpcddp.detect.nodes import LiveNode, node_list, nodes_of_text
from hpcddp.detect.partitions import Association, LiveQos, associations_of_text, partitions_of_text, qos_of_text
from hpcddp.detect.rules import enforces_accounts, my_partitions, my_qos, partition_limits, qos_to_try
from tests.detect.given_live import ASSOCIATIONS, NODES, ONE, PARTITIONS, QOS, detected, node, partition, qos


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


GPU_NODE = dataclasses.replace(
    node("g1", 4, ("gpu",), ("a100", "nvlink"), 515000), effective_cpus=60, system_cores=2, system_memory_mb=4096
)
GPU = dataclasses.replace(
    partition("gpu"), root_only=False, min_nodes=1, max_mb_per_cpu=4096, default_mb_per_cpu=2048, denied_accounts=()
)
WITHOUT_CPUS = {"max_cpus": NO_LIMIT, "max_cpus_per_user": NO_LIMIT}
LONG = dataclasses.replace(qos("long", max_walltime_min=2880), priority=10, usage_factor=1.0, **WITHOUT_CPUS)  # type: ignore[arg-type]


def test_what_was_recorded() -> None:
    gpu, cpu = nodes_of_text(NODES)
    assert gpu == GPU_NODE
    assert (gpu.physical_cores, gpu.smt, gpu.job_memory_mb) == (30, 2, 510904)
    assert (cpu.gpus, cpu.trouble, cpu.reason, cpu.physical_cores) == ((), "drained", "bad DIMM", 32)
    there, other = partitions_of_text(PARTITIONS)
    assert there == GPU
    assert (other.default, other.always_exclusive, other.max_nodes, other.max_walltime_min) == (True, True, NO_LIMIT, NO_LIMIT)
    assert (other.max_mb_per_cpu, other.default_walltime_min, other.allowed_qos) == (NO_LIMIT, NO_LIMIT, ())
    normal, long = qos_of_text(QOS)
    assert long == LONG
    assert (normal.max_walltime_min, normal.max_nodes, normal.max_jobs_per_user) == (NO_LIMIT, NO_LIMIT, NO_LIMIT)
    expected = Association(account="proj", qos=("long", "normal"), default_qos="normal", max_jobs=200)
    assert associations_of_text(ASSOCIATIONS) == (expected,)


@pytest.mark.parametrize("change", ["", "word", "(null)", "-1"])
@pytest.mark.parametrize("key", re.findall(r" (\w+)=", NODES.split("BootTime")[0]))
def test_a_missing_or_strange_field_is_unknown(key: str, change: str) -> None:
    strange = re.sub(rf" {key}=\S*", f" {key}={change}" if change else "", NODES, count=1)
    found = nodes_of_text(strange)
    differ = [each.name for each in dataclasses.fields(LiveNode) if getattr(found[0], each.name) != getattr(GPU_NODE, each.name)]
    assert len(differ) <= 1
    assert found[1:] == nodes_of_text(NODES)[1:]


def test_text() -> None:
    """A line of `scontrol --oneliner show partitions` of 22.05."""
    line = (
        "PartitionName=gpu AllowGroups=ALL DenyAccounts=guest AllowQos=normal,long AllocNodes=ALL Default=YES QoS=part"
        " DefaultTime=01:00:00 Hidden=NO MaxNodes=8 MaxTime=1-00:00:00 MinNodes=1 RootOnly=NO OverSubscribe=NO State=UP"
        " DefMemPerCPU=2048 MaxMemPerNode=UNLIMITED"
    )
    (found,) = partitions_of_text(line)
    assert (found.default, found.hidden, found.max_walltime_min, found.default_walltime_min) == (True, False, 1440, 60)
    assert (found.default_mb_per_cpu, found.max_mb_per_cpu, found.qos) == (2048, NO_LIMIT, "part")
    assert found.allows(("proj", "guest"))
    assert not found.allows(("guest",))


@pytest.mark.parametrize(
    ("gres", "found"),
    [
        ("gpu:v100:4", (("v100", 4),)),
        ("gpu:4", ((None, 4),)),
        ("gpu:4(S:0-1),shard:8", ((None, 4),)),
        ("gpu:tesla", (("tesla", 1),)),
        ("gpu", ((None, 1),)),
        ("gpu:a100:2(S:0,2),gpu:v100:6(S:1-3),shard:16", (("a100", 2), ("v100", 6))),
        ("gpu:a100_1g.5gb:7", (("a100_1g.5gb", 7),)),
        ("gpu:v100:0", ()),
        ("craynetwork:4,bandwidth:lustre:4K", ()),
        ("(null)", ()),
        ("", ()),
        (None, None),
    ],
)
def test_gpus_of_a_gres_text(gres: str | None, found: object) -> None:
    assert gpus(gres) == found


@pytest.mark.parametrize(
    ("names", "slices"),
    [
        (("a100_1g.5gb", "1g.10gb", "1c.3g.20gb", "nvidia_h100_80gb_hbm3_1g.10gb", "1g.12gb+me", "3g20gb"), True),
        (("a100-2g-10gb", "mig-1g", "a100_mig", "a100mig"), True),
        ((None, "a100", "nvidia_a100-sxm4-80gb", "v100-16g", "v100_32gb", "h100_80gb_hbm3", "gtx1060_6gb", "tesla"), False),
    ],
)
def test_types_that_are_slices_of_gpus(names: tuple[str | None, ...], slices: bool) -> None:
    assert {is_slice(name) for name in names} == {slices}


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1-00:00:00", 1440),
        ("02:00:00", 120),
        ("UNLIMITED", NO_LIMIT),
        ("NONE", NO_LIMIT),
        ("", NO_LIMIT),
        ("16", 16),
        (None, None),
    ],
)
def test_limits_in_text(text: str | None, number: int | None) -> None:
    assert limit(text) == number


@pytest.mark.parametrize(
    ("limits", "found"),
    [((4, 8), 4), ((NO_LIMIT, 8), 8), ((None, 8), 8), ((NO_LIMIT, None), NO_LIMIT), ((None, None), None), ((), None)],
)
def test_the_smaller_limit_holds(limits: tuple[int | None, ...], found: int | None) -> None:
    assert smallest(*limits) == found


def test_pairs_resources_and_names() -> None:
    """Free text at the end of a line cannot change what stands before it: of a repeated key the first counts."""
    assert pairs("NodeName=a Gres=gpu:4 Reason=see Gres=gpu:8")["Gres"] == "gpu:4"
    assert tres("node=2,gres/gpu=8,mem=100G") == {"node": 2, "gres/gpu": 8, "mem": 100}
    assert tres("") == {}
    assert (names("a,b"), names("(null)"), names(None)) == (("a", "b"), (), None)


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["gn01"], "gn01"),
        (["gn03", "gn01", "gn02", "gn07"], "gn[01-03,07]"),
        (["n9", "n10"], "n[9-10]"),
        (["n9", "n10", "n001"], "n[9-10],n001"),
        (["login", "r1i0n1", "r1i0n2"], "login,r1i0n[1-2]"),
        (["gn-1-ib", "gn-2-ib"], "gn-[1-2]-ib"),
        ([], ""),
    ],
)
def test_ranges(names: list[str], text: str) -> None:
    assert node_list(names) == text


@given(st.sets(st.from_regex(r"[a-c]{1,2}[0-9]{0,3}", fullmatch=True)))
def test_nothing_is_lost(names: set[str]) -> None:
    assert sorted(expand_node_list(node_list(names))) == sorted(names)
