"""Profiles: what is shipped, and how a profile is read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hpcddp.cluster.environment import When
from hpcddp.cluster.profile import ClusterProfile
from hpcddp.cluster.profile_file import load_profile, read_profile
from hpcddp.cluster.profile_names import profile_names
from hpcddp.cluster.slurm_rules import Qos
from hpcddp.cluster.yamlfile import read_yaml
from hpcddp.core.catalog import check_workload
from hpcddp.core.errors import UsageError
from hpcddp.core.gpu_peaks import gpu_peak

SHIPPED = profile_names()
SITES = [name for name in SHIPPED if name != "local"]

OUR_CHOICES = {"kind", "module_init", "python", "activate"}
"""Keys under `compute` that say how we go about it, not what the cluster is."""

TEXT = """\
schema: 1
name: mine
title: A cluster
sources: {guide: the user guide, friend: a colleague}
node_types:
  fat:
    gpus: {value: 4, grade: A, source: guide, conflicts: [{value: 8, grade: C, source: friend}]}
    physical_cores: 8
    smt: 2
slurm:
  qos:
    - {name: {value: "no", grade: B, source: friend}}
    - {name: 1:30:00}
env_rules:
  - {name: NCCL_NET, value: AWS Libfabric, source: guide, when: {fabric: Slingshot}}
"""


def read(tmp_path: Path, text: str) -> ClusterProfile:
    file = tmp_path / "mine.yaml"
    file.write_text(text)
    return read_profile(file)


def refused(tmp_path: Path, old: str, new: str) -> str:
    """The complaint, without the folder, about TEXT with `old` replaced."""
    assert old in TEXT
    with pytest.raises(UsageError) as caught:
        read(tmp_path, TEXT.replace(old, new))
    return str(caught.value).removeprefix(f"{tmp_path}/")


def bare_values(data: Any, path: tuple[str, ...]) -> Iterator[str]:
    """Dotted paths of the values in `data` that are not written as facts; null says nothing."""
    if isinstance(data, dict):
        if "grade" in data:
            return
        for key, item in data.items():
            yield from bare_values(item, (*path, key))
    elif isinstance(data, list):
        for i, item in enumerate(data):
            yield from bare_values(item, (*path, str(i)))
    elif data is not None:
        yield ".".join(path)


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_profile(name: str) -> None:
    profile = load_profile(name)
    assert profile.name == name
    assert profile.node_type(None) is profile.node_types[str(profile.default_node_type)]
    assert profile.default_workload is not None
    check_workload(profile.default_workload)


def test_shipped_names() -> None:
    assert set(SHIPPED) == {
        *("aws-g5", "local", "marconi100", "rcc", "sagemaker"),
        *("alps", "deltaai", "frontier", "isambard-ai", "jean-zay", "juwels-booster", "jupiter", "leonardo", "lumi-g"),
        *("marenostrum5-acc", "perlmutter", "vista"),
    }


@pytest.mark.parametrize("name", SITES)
@pytest.mark.parametrize("part", ["login_hosts", "node_types", "slurm", "rendezvous", "fabric", "storage", "compute", "env"])
def test_every_value_has_a_source(name: str, part: str) -> None:
    data = read_yaml(Path(__file__).parents[2] / "clusters" / f"{name}.yaml").get(part)
    bare = {path for path in bare_values(data, ()) if not (part == "compute" and path.split(".")[0] in OUR_CHOICES)}
    assert bare == set()


@pytest.mark.parametrize("name", SITES)
def test_every_source_is_used(name: str) -> None:
    """A source that no fact and no rule names is left from an earlier edit."""
    profile = load_profile(name)
    facts = [one for fact in profile.facts.values() for one in (fact, *fact.conflicts)]
    assert {fact.source for fact in facts} | {rule.source for rule in profile.env_rules} == set(profile.sources)


@pytest.mark.parametrize("name", SITES)
def test_what_is_unknown_says_how_to_find_it(name: str) -> None:
    facts = load_profile(name).facts
    assert [path for path, fact in facts.items() if fact.grade == "?" and not (fact.note or fact.conflicts)] == []


@pytest.mark.parametrize("name", SITES)
def test_gpus_have_peaks(name: str) -> None:
    """A GPU is named as torch names it, so that its peaks are found; one of which that is not known says so."""
    profile = load_profile(name)
    for key, node in profile.node_types.items():
        fact = profile.facts[f"node_types.{key}.gpu"]
        assert gpu_peak(str(node.gpu)) is not None or "peaks" in str(fact.note) or "nvidia-smi -L" in str(fact.note)


@pytest.mark.parametrize("name", SITES)
def test_nccl_variables_have_a_condition(name: str) -> None:
    profile = load_profile(name)
    assert not [variable for variable in profile.env if variable.startswith(("NCCL_", "FI_", "GLOO_", "RCCL_"))]
    assert [rule.name for rule in profile.env_rules if rule.when == When()] == []


def test_marconi100() -> None:
    profile = load_profile("marconi100")
    assert profile.slurm.qos == (
        Qos(max_nodes=16, max_walltime_min=24 * 60),
        Qos(name="m100_qos_dbg", max_nodes=2, max_walltime_min=2 * 60),
        Qos(name="m100_qos_bprod", min_nodes=17, max_nodes=256, max_walltime_min=24 * 60),
    )
    assert (profile.status, profile.slurm.exclusive_needs_all_gpus) == ("retired", True)
    node = load_profile("marconi100").node_type(None)
    assert (node.physical_cores, node.smt, node.logical_cpus) == (32, 4, 128)


def test_rcc() -> None:
    """A GPU type is asked for where the site documents one; what is claimed is kept beside what is known."""
    profile = load_profile("rcc")
    types = {name: node.gres_type for name, node in profile.node_types.items()}
    assert types == {"v100": "v100", "a40": "a40", "v100-sxm2": None, "l40s": "l40s"}
    assert (profile.node_type("v100-sxm2").names, profile.node_type("v100-sxm2").gpus) == ("gn09", 8)
    gpus = profile.facts["node_types.v100-sxm2.gpus"]
    assert (gpus.grade, gpus.source, [(one.value, one.source) for one in gpus.conflicts]) == ("A", "hardware", [(4, "study")])
    latency = profile.facts["fabric.latency_us"]
    assert (profile.fabric.latency_us, latency.grade) == (None, "?")
    assert [(one.value, one.grade) for one in latency.conflicts] == [(5, "?")]


def test_facts_become_values_and_text_stays_text(tmp_path: Path) -> None:
    profile = read(tmp_path, TEXT)
    assert (profile.node_types["fat"].gpus, profile.node_types["fat"].logical_cpus) == (4, 16)
    assert set(profile.facts) == {"node_types.fat.gpus", "slurm.qos.0.name"}
    assert profile.facts["node_types.fat.gpus"].conflicts[0].value == 8
    assert [qos.name for qos in profile.slurm.qos] == ["no", "1:30:00"]
    assert read(tmp_path, TEXT.replace('"no"', "no")).slurm.qos[0].name == "no"
    assert load_profile(f"{tmp_path}/mine.yaml").name == "mine"


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("    smt: 2", "    smtt: 2", "mine.yaml:9:5: unknown key `smtt` in node_types.fat; did you mean `smt`?"),
        ("title:", "titel:", "mine.yaml:3:1: unknown key `titel`; did you mean `title`?"),
        ("physical_cores: 8", "physical_cores: 0", "mine.yaml:8:5: 0 is below the minimum 1"),
        ("grade: A, ", "", "mine.yaml:7:5: `grade` is missing"),
        ("grade: A", "grade: D", "mine.yaml:7:22: 'D' is not one of A, B, C, ?"),
        ("{value: 4", "{valu: 4", "mine.yaml:7:12: unknown key `valu` in node_types.fat.gpus; did you mean `value`?"),
        ("grade: A", "graed: A", "mine.yaml:7:22: unknown key `graed` in node_types.fat.gpus; did you mean `grade`?"),
        ("source: guide", "source: guid", "mine.yaml:7:32: source `guid` is not among `sources`; did you mean `guide`?"),
        ("grade: C, source: friend", "grade: C, source: fiend", "mine.yaml:7:80: source `fiend` is not among `sources`"),
        ("Libfabric, source: guide", "Libfabric, source: guid", "mine.yaml:15:44: source `guid` is not among `sources`"),
        ("B, source: friend", "B, source: fiend", "mine.yaml:12:38: source `fiend` is not among `sources`"),
        ("schema: 1\n", "schema: 1\nfacts: {}\n", "mine.yaml:2:1: `facts` is not a key of a profile"),
        ("name: mine\n", "name: mine\nname: yours\n", "mine.yaml:3:1: found duplicate key"),
    ],
)
def test_refused_with_its_place(tmp_path: Path, old: str, new: str, complaint: str) -> None:
    assert refused(tmp_path, old, new).startswith(complaint)


def test_unknown_names() -> None:
    with pytest.raises(UsageError, match="no cluster `marconi` in clusters/; did you mean `marconi100`"):
        load_profile("marconi")
    with pytest.raises(UsageError, match="no node type `v10` in rcc; did you mean `v100`"):
        load_profile("rcc").node_type("v10")


def test_aws_g5_network_bursts() -> None:
    """A g5.2xlarge has 5 Gb/s for good and 10 for a while; its memory in Slurm is the user's own setting, and unknown."""
    profile = load_profile("aws-g5")
    fact = profile.facts["fabric.gbps_per_node"]
    assert (fact.value, [one.value for one in fact.conflicts], profile.fabric.burst_gbps) == (5, [10], 10)
    node = profile.node_type(None)
    assert (node.physical_cores, node.logical_cpus, node.memory_mb) == (4, 8, None)
