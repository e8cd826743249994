"""A survey's values as lines of a profile."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from hpcddp.cluster.profile_file import read_profile
from hpcddp.cluster.survey_facts import disagreements, network, software_words, survey_text, survey_values
from hpcddp.cluster.yamlfile import parse_yaml
from hpcddp.core.job_records import Adapter, Disk, LinkSurvey, NodeSurvey, SurveyRecord
from hpcddp.core.launch_record import GpuFacts, NodeFacts

TEXT = """\
schema: 1
name: mine
title: A cluster
sources: {guide: the user guide, friend: a colleague}
default_node_type: fat
node_types:
  fat:
    cpu: {value: null, grade: "?", source: guide, note: ask lscpu}
    sockets: 1
    gpus: 2
    gpu: {value: V100, grade: A, source: guide}
    local_disk_gb: {value: 800, grade: "?", source: friend}   # hearsay
fabric:
  latency_us: {value: null, grade: "?", source: guide}
"""

FACTS = NodeFacts(
    host="gn01",
    machine="x86_64",
    kernel="5.14",
    cpu="AMD EPYC 7742",
    cpus=128,
    cpus_usable=128,
    memory_bytes=2**39,
    gpu_driver="NVRM version: 550.54.15",
    gpus=(GpuFacts(name="Tesla V100-SXM2-16GB", memory_bytes=16 * 2**30, capability="7.0"),) * 2,
)

NODE = NodeSurvey(
    host="gn01",
    node=FACTS,
    sockets=2,
    cores=128,
    threads_per_core=1,
    topology={"GPU0": ("X", "NV2", "PHB"), "GPU1": ("NV2", "X", "SYS"), "mlx5_0": ("PHB", "SYS", "X")},
    adapters=(
        Adapter(name="mlx5_0", gbps=100, kind="InfiniBand"),
        Adapter(name="mlx5_1", gbps=100, kind="InfiniBand"),
        Adapter(name="mlx5_bond_0", gbps=25, kind="RoCE"),
        Adapter(name="eno1", gbps=1, kind="Ethernet"),
    ),
    disk=Disk(path="/tmp", gb=900, read_gbs=2.512),
    versions={"torch": "2.5.1", "cuda": "12.4", "nccl": "2.21.5"},
    arch_list=("sm_70", "sm_80"),
)

SURVEY = SurveyRecord(
    date="2026-05-04",
    job="4711",
    node_type="fat",
    nodes=(NODE, replace(NODE, host="gn02", disk=Disk(path="/tmp", gb=900, read_gbs=2.4))),
    link=LinkSurvey(latency_s=1.834e-6, bytes_per_s=2e10),
)


def test_the_lines_are_of_what_a_profile_lacks(tmp_path: Path) -> None:
    """As facts of this survey, with what other sources say instead; nothing that the profile says, and nothing twice."""
    (tmp_path / "mine.yaml").write_text(TEXT)
    text = survey_text(SURVEY, read_profile(tmp_path / "mine.yaml"), "fat")
    more = tmp_path / "more.yaml"
    more.write_text(f"schema: 1\nname: more\nextends: mine.yaml\n{text}")
    profile = read_profile(more)
    node, fabric = profile.node_types["fat"], profile.fabric
    assert (node.cpu, node.gpu_memory_gb, node.local_disk_gb, node.local_disk_gbs) == ("AMD EPYC 7742", 16, 900, 2.4)
    assert node.links.topology == NODE.topology
    assert (fabric.adapters_per_node, fabric.gbps_per_node, fabric.protocol, fabric.latency_us) == (2, 200, "rdma", 1.83)
    fact = profile.facts["node_types.fat.cpu"]
    assert (fact.grade, fact.source, fact.note, fact.conflicts) == ("A", "survey", "2026-05-04, gn01, gn02", ())
    assert profile.sources["survey"].startswith("hpcddp clusters survey of 2026-05-04, job 4711, NVRM version: 550.54.15, CUDA")
    for name, other in (("local_disk_gb", (800, "?", "friend")), ("gpu", ("V100", "A", "guide"))):
        conflicts = profile.facts[f"node_types.fat.{name}"].conflicts
        assert [(each.value, each.grade, each.source) for each in conflicts] == [other]
    assert str(profile.facts["node_types.fat.sockets"].note).endswith("; the profile has 1, without a source")
    assert survey_text(SURVEY, profile, "fat") == ""
    later = replace(SURVEY, date="2026-06-01", link=LinkSurvey(latency_s=1.5e-6, bytes_per_s=2e10))
    assert parse_yaml(survey_text(later, profile, "fat"), "lines").keys() == {"sources", "fabric"}


def test_nodes_that_differ_say_nothing_together(tmp_path: Path) -> None:
    """What they do not agree on is left open, and named."""
    other = replace(NODE, host="gn02", node=replace(FACTS, host="gn02", cpu="AMD EPYC 7763"))
    found = replace(SURVEY, nodes=(NODE, other))
    assert ("node_types", "fat", "cpu") not in survey_values(found, "fat")
    assert list(disagreements(found)) == ["cpu: AMD EPYC 7742 on gn01, AMD EPYC 7763 on gn02"]


def test_network_is_what_joins_nodes() -> None:
    """InfiniBand before Ethernet; of one kind the fastest, as slower ones are for storage or management."""
    assert [each.name for each in network(NODE.adapters)] == ["mlx5_0", "mlx5_1"]
    assert [each.name for each in network(NODE.adapters[2:])] == ["mlx5_bond_0"]
    assert network(()) == []


def test_software_in_words() -> None:
    """Driver, CUDA, NCCL, torch and what it was built for."""
    assert software_words(SURVEY) == "NVRM version: 550.54.15, CUDA 12.4, NCCL 2.21.5, torch 2.5.1 (sm_70 sm_80)"
