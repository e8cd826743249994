"""Profiles written: shown, listed, as YAML, and a survey's values as lines of one."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcddp.cluster.profile import Fact, strip_facts
from hpcddp.cluster.profile_file import load_profile, read_profile
from hpcddp.cluster.profile_names import FOLDER, profile_names, typed_path
from hpcddp.cluster.show import cluster_plain, clusters_table, list_clusters, show_cluster, unreadable_profiles
from hpcddp.cluster.survey_facts import disagreements, network, survey_text, survey_values
from hpcddp.cluster.yaml_text import WIDTH, flow, yaml_text
from hpcddp.cluster.yamlfile import parse_yaml
from hpcddp.core.job_records import Adapter, Disk, LinkSurvey, NodeSurvey, SurveyRecord
from hpcddp.core.launch_record import GpuFacts, NodeFacts
from tests import check_golden
from tests.cluster.conftest import own_profile


@pytest.mark.parametrize("name", profile_names())
def test_show_is_the_profile(name: str) -> None:
    text = show_cluster(load_profile(name))
    facts: dict[tuple[Any, ...], Fact] = {}
    plain = strip_facts(parse_yaml((FOLDER / f"{name}.yaml").read_text(), name), (), facts)
    assert parse_yaml(text, "shown") == plain
    words = " ".join(text.replace("\n  #", " ").split()).replace(" # ", " ")
    for fact in facts.values():
        assert f" {fact.grade} {fact.source}" + (f" ({' '.join(fact.note.split())})" if fact.note else "") in words
        assert all(f"but {flow(other.value)}: {other.grade} {other.source}" in words for other in fact.conflicts)


def test_show_merges_what_is_extended() -> None:
    file = own_profile("mine", "extends: rcc\nnode_types: {v100-sxm2: null}\nfabric: {latency_us: 4}\n")
    said, *lines = show_cluster(load_profile("mine")).splitlines()
    assert said == f"# {typed_path(file)}, merged into rcc"
    check_golden("clusters/show-extended.txt", "\n".join(lines) + "\n")


def test_list() -> None:
    text = clusters_table(list_clusters())
    check_golden("clusters/list.txt", text + "\n")
    assert max(len(line) for line in text.splitlines()) <= 80


def test_ones_own_are_listed_with_where_they_come_from() -> None:
    mine = own_profile("mine", "extends: rcc\nnode_types: {v100-sxm2: null}\n")
    own_profile("other", "")
    clash, wrong = own_profile("local", ""), own_profile("wrong", "extends: rc\n")
    rows = list_clusters()
    assert [row["name"] for row in rows] == [*profile_names(), "mine", "other"]
    assert (rows[-2]["nodes"], rows[-2]["extends"], rows[-2]["file"]) == (10, "rcc", str(mine))
    assert clusters_table(rows).splitlines()[-1] == f"Yours, in {mine.parent}: mine (extends rcc), other"
    assert [text.partition(": ")[0] for text in unreadable_profiles()] == [f"{clash}:2:1", f"{wrong}:4:1"]


def test_plain_is_json() -> None:
    plain = json.loads(json.dumps(cluster_plain(load_profile("rcc"))))
    assert plain["node_types"]["v100-sxm2"]["gpus"] == 8
    assert plain["facts"]["node_types.v100-sxm2.gpus"]["conflicts"][0]["value"] == 4


TEXTS = st.one_of(
    st.sampled_from(re.split(";", "gn[01-06];a: b;# c;1:30:00;no;null;?;it's;{x};&a;- x;12;~;;0E0;0o17;1e5;.5;TRUE")),
    st.just('say "so"'),
    st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), max_size=300),
)


@given(value=TEXTS, note=st.none() | TEXTS, names=st.lists(TEXTS, max_size=3))
def test_every_text_comes_back(value: str, note: str | None, names: list[str]) -> None:
    def document(fact: object) -> dict[str, object]:
        rules = {"qos": [{"name": fact}, {"name": value}]}
        return {"title": value, "node_types": {"x": {"names": fact}}, "slurm": rules, "list": names}

    plain = {"value": value, "grade": "?", "source": "slurm", **({} if note is None else {"note": note})}
    fact = Fact(value=value, grade="?", source="slurm", note=note)
    assert parse_yaml(yaml_text(document(fact)), "test") == document(plain)


def test_long_facts_and_lines_of_commands() -> None:
    fact = Fact(value=4, grade="A", source="slurm", note="word " * 60)
    text = yaml_text({"node_types": {"x": {"gpus": fact}}})
    assert max(map(len, text.splitlines())) <= WIDTH
    assert parse_yaml(text, "test")["node_types"]["x"]["gpus"]["note"] == " ".join(["word"] * 60)
    values = ["for x in 1; do\n  echo $x \n\ndone\n", "a\nb", " a\nb", "a\n\n", "\n", [{}], [{"a": "b\nc"}, {"d": [{}]}]]
    document = {f"key{i}": value for i, value in enumerate(values)}
    assert parse_yaml(yaml_text({**document, "below": document}), "test") == {**document, "below": document}


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
    versions = "NVRM version: 550.54.15, CUDA 12.4, NCCL 2.21.5, torch 2.5.1 (sm_70 sm_80)"
    assert profile.sources["survey"] == f"hpcddp clusters survey of 2026-05-04, job 4711, {versions}"
    for name, other in (("local_disk_gb", (800, "?", "friend")), ("gpu", ("V100", "A", "guide"))):
        conflicts = profile.facts[f"node_types.fat.{name}"].conflicts
        assert [(each.value, each.grade, each.source) for each in conflicts] == [other]
    assert str(profile.facts["node_types.fat.sockets"].note).endswith("; the profile has 1, without a source")
    assert survey_text(SURVEY, profile, "fat") == ""
    later = replace(SURVEY, date="2026-06-01", link=LinkSurvey(latency_s=1.5e-6, bytes_per_s=2e10))
    assert parse_yaml(survey_text(later, profile, "fat"), "lines").keys() == {"sources", "fabric"}


def test_nodes_that_differ_say_nothing_together(tmp_path: Path) -> None:
    other = replace(NODE, host="gn02", node=replace(FACTS, host="gn02", cpu="AMD EPYC 7763"))
    found = replace(SURVEY, nodes=(NODE, other))
    assert ("node_types", "fat", "cpu") not in survey_values(found, "fat")
    assert list(disagreements(found)) == ["cpu: AMD EPYC 7742 on gn01, AMD EPYC 7763 on gn02"]


def test_network_is_what_joins_nodes() -> None:
    """InfiniBand before Ethernet; of one kind the fastest, as slower ones are for storage or management."""
    assert [each.name for each in network(NODE.adapters)] == ["mlx5_0", "mlx5_1"]
    assert [each.name for each in network(NODE.adapters[2:])] == ["mlx5_bond_0"]
    assert network(()) == []
