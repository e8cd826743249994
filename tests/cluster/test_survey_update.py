"""A survey's values in a profile: the unknown is filled in, what others said stays with the survey's word beside it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from hpcddp.cluster.profile import ClusterProfile
from hpcddp.cluster.profile_file import read_profile
from hpcddp.cluster.survey_facts import disagreements, network, software_words, survey_values
from hpcddp.cluster.survey_update import Update, update_profile
from hpcddp.core.launch_record import GpuFacts, NodeFacts
from hpcddp.core.survey_record import Adapter, Disk, LinkSurvey, NodeSurvey, SurveyRecord

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


def profile_of(tmp_path: Path, text: str) -> ClusterProfile:
    """The text as a profile."""
    file = tmp_path / "mine.yaml"
    file.write_text(text)
    return read_profile(file)


def updated(tmp_path: Path, found: SurveyRecord = SURVEY, text: str = TEXT) -> Update:
    """The text with what the survey found."""
    source = f"hpcddp clusters survey of {found.date}, job {found.job}"
    return update_profile(text, profile_of(tmp_path, text), survey_values(found, "fat"), source, f"{found.date}, gn01, gn02")


def test_the_unknown_is_filled_in(tmp_path: Path) -> None:
    """Values and where they come from; comments stay."""
    update = updated(tmp_path)
    profile = profile_of(tmp_path, update.text)
    node = profile.node_types["fat"]
    assert (node.cpu, node.gpu_memory_gb, node.local_disk_gb, node.local_disk_gbs) == ("AMD EPYC 7742", 16, 900, 2.4)
    assert node.links.topology == NODE.topology
    fabric = profile.fabric
    assert (fabric.adapters_per_node, fabric.gbps_per_node, fabric.protocol, fabric.latency_us) == (2, 200, "rdma", 1.83)
    fact = profile.facts["node_types.fat.cpu"]
    assert (fact.grade, fact.source, fact.note) == ("A", "survey", "2026-05-04, gn01, gn02")
    assert profile.sources["survey"] == "hpcddp clusters survey of 2026-05-04, job 4711"
    assert "# hearsay" in update.text
    guess = profile.facts["node_types.fat.local_disk_gb"].conflicts
    assert [(each.value, each.grade, each.source) for each in guess] == [(800, "?", "friend")]


def test_what_another_source_says_stays(tmp_path: Path) -> None:
    """With the survey's value among its conflicts; a value without a source is left as it is. Both are said."""
    update = updated(tmp_path)
    profile = profile_of(tmp_path, update.text)
    fact = profile.facts["node_types.fat.gpu"]
    assert (fact.value, fact.source) == ("V100", "guide")
    assert [(each.value, each.source) for each in fact.conflicts] == [("Tesla V100-SXM2-16GB", "survey")]
    assert profile.node_types["fat"].sockets == 1
    assert len(update.conflicts) == 2
    assert "node_types.fat.sockets is 1 without a source, the survey says 2" in update.conflicts[0]
    assert "V100 by guide, the survey says Tesla V100-SXM2-16GB" in update.conflicts[1]


def test_a_later_survey_replaces_an_earlier_one(tmp_path: Path) -> None:
    """In values and among conflicts, which do not grow."""
    later = replace(SURVEY, date="2026-06-01", link=LinkSurvey(latency_s=1.5e-6, bytes_per_s=2e10))
    profile = profile_of(tmp_path, updated(tmp_path, later, updated(tmp_path).text).text)
    assert (profile.fabric.latency_us, profile.facts["fabric.latency_us"].note) == (1.5, "2026-06-01, gn01, gn02")
    assert len(profile.facts["node_types.fat.gpu"].conflicts) == 1
    assert profile.sources["survey"].startswith("hpcddp clusters survey of 2026-06-01")


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
