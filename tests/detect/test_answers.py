"""The text of Slurm's answers, field by field; a field that is not there is unknown."""

from __future__ import annotations

import dataclasses
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcddp.core.written_lists import expand_node_list
from hpcddp.detect.fields import NO_LIMIT, gpus, is_slice, limit, names, pairs, smallest, tres
from hpcddp.detect.nodes import LiveNode, node_list, nodes_of_text
from hpcddp.detect.partitions import Association, associations_of_text, partitions_of_text, qos_of_text
from tests.detect.given_live import ASSOCIATIONS, NODES, PARTITIONS, QOS, node, partition, qos

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
