"""A profile that disagrees with Slurm is reported field by field; one that agrees is not."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from hpcddp.cluster.profile import ClusterProfile, Fact
from hpcddp.core.schema import decode, encode
from hpcddp.detect.check import Comparison, compare_profile, comparison_plain, comparison_text
from hpcddp.detect.compare_nodes import FieldFinding
from hpcddp.detect.live import LiveSlurm
from tests.detect.given_live import GPU_NODES, ONE, TWO, detected


def changed(profile: ClusterProfile, path: str, value: object) -> ClusterProfile:
    """The profile with another value there."""
    plain: Any = encode(profile, keep_later=True)
    for key in ("facts", "file"):
        plain.pop(key, None)
    *parents, last = path.split(".")
    place = plain
    for key in parents:
        place = place[int(key) if isinstance(place, list) else key]
    place[last] = value
    return dataclasses.replace(decode(ClusterProfile, plain), facts=profile.facts)


def other(value: object) -> object:
    """Another value of the same kind."""
    match value:
        case bool():
            return not value
        case int():
            return value + 10
        case list():
            return [*value[1:], "other"]
        case _:
            return f"{value or ''}x1"


def value_at(profile: ClusterProfile, path: str) -> Any:
    plain: Any = encode(profile, keep_later=True)
    for key in path.split("."):
        plain = plain[int(key) if isinstance(plain, list) else key]
    return plain


def of(findings: tuple[FieldFinding, ...], verdict: str) -> dict[str, FieldFinding]:
    return {finding.field: finding for finding in findings if finding.verdict == verdict}


CLUSTERS = {"one": (ONE, detected(ONE)), "two": (TWO, detected(TWO))}
FIELDS = [
    (name, field)
    for name, (live, profile) in CLUSTERS.items()
    for field in of(compare_profile(profile, live), "agrees")
    if value_at(profile, field) is not None
]


@pytest.mark.parametrize("name", CLUSTERS)
def test_what_agrees_is_no_drift(name: str) -> None:
    live, profile = CLUSTERS[name]
    findings = compare_profile(profile, live)
    assert {finding.verdict for finding in findings} == {"agrees"}


def test_every_field_that_slurm_knows_is_compared() -> None:
    fields = {field.rpartition(".")[2] for _, field in FIELDS}
    assert fields >= {
        *("count", "names", "sockets", "physical_cores", "smt", "memory_mb", "gpus", "gres_type", "constraint"),
        *("partition", "default", "node_types", "min_nodes", "max_nodes", "max_walltime_min", "default_walltime_min"),
        *("max_mb_per_core", "default_mb_per_core", "qos", "name", "max_gpus", "max_cpus", "always_exclusive"),
        *("max_gpus_per_user", "max_cores_per_user", "max_array_size"),
    }


@pytest.mark.parametrize(("name", "field"), FIELDS)
def test_each_field_that_differs_is_named_with_both_values(name: str, field: str) -> None:
    live, profile = CLUSTERS[name]
    before, value = value_at(profile, field), other(value_at(profile, field))
    differs = of(compare_profile(changed(profile, field, value), live), "differs")
    assert field in differs, differs
    assert differs[field].profile == (", ".join(sorted(value)) if isinstance(value, list) else value)
    if isinstance(before, (bool, int)):
        assert differs[field].slurm == before
        assert list(differs) == [field]


def test_a_limit_that_slurm_does_not_have() -> None:
    (gpu,) = ONE.partitions or ()
    live = dataclasses.replace(ONE, partitions=(dataclasses.replace(gpu, max_mb_per_cpu=0),))
    found = of(compare_profile(CLUSTERS["one"][1], live), "differs")["slurm.max_mb_per_core"]
    assert (found.profile, found.slurm) == (16000, "no limit")


@pytest.mark.parametrize(("grade", "verdict"), [("?", "new"), ("A", "differs")])
def test_a_null_is_drift_only_where_it_says_none(grade: Any, verdict: str) -> None:
    """Grade "?" is not known, which is no drift: what Slurm says is shown all the same."""
    profile, field = changed(CLUSTERS["one"][1], "slurm.max_mb_per_core", None), "slurm.max_mb_per_core"
    facts = {**profile.facts, field: Fact(value=None, grade=grade, source="slurm")}
    found = of(compare_profile(dataclasses.replace(profile, facts=facts), ONE), verdict)
    assert found[field].slurm == 16000


def test_nodes_of_another_partition_and_of_no_type() -> None:
    profile = changed(CLUSTERS["two"][1], "node_types.a100-488g.partition", "cpu")
    found = of(compare_profile(profile, TWO), "differs")["node_types.a100-488g.partition"]
    assert (found.profile, found.slurm) == ("cpu", "gpu")
    profile = CLUSTERS["one"][1]
    types = {key: kind for key, kind in profile.node_types.items() if key == "a100-488g"}
    unknown = of(compare_profile(dataclasses.replace(profile, node_types=types), ONE), "differs")
    assert unknown["node_types"].slurm == "h[1-2] (4 gpu:a100)"


def test_slices_are_no_gpus() -> None:
    profile = changed(CLUSTERS["one"][1], "node_types.a100-488g.gres_type", None)
    nodes = [dataclasses.replace(each, gpus=(*(each.gpus or ()), ("a100_1g.5gb", 14))) for each in GPU_NODES]
    extra = [dataclasses.replace(GPU_NODES[0], name="m1", gpus=(("1g.10gb", 28),))]
    assert of(compare_profile(profile, dataclasses.replace(ONE, nodes=(*nodes, *extra))), "differs") == {}


def test_long_lists_are_cut_in_the_table_only() -> None:
    names = ",".join(f"x{i}" for i in range(0, 200, 2))
    profile = changed(CLUSTERS["one"][1], "node_types.a100-488g.names", names)
    found = Comparison(findings=compare_profile(profile, ONE))
    assert max(map(len, comparison_text(profile, found).splitlines())) <= 100
    assert names in json.dumps(comparison_plain(profile, found))


def test_types_without_names_are_found_by_their_request() -> None:
    profile = CLUSTERS["one"][1]
    for key in profile.node_types:
        profile = changed(profile, f"node_types.{key}.names", None)
    assert of(compare_profile(profile, ONE), "differs") == {}
    differs = of(compare_profile(changed(profile, "node_types.a100-879g.gres_type", "h100"), ONE), "differs")
    assert differs["node_types.a100-879g.gres_type"].slurm == "a100"


@pytest.mark.parametrize(
    ("missing", "fields"),
    [
        ({"nodes": None}, ["node_types"]),
        ({"partitions": None}, ["slurm.partition"]),
        ({"qos": None}, ["slurm.qos.0", "slurm.qos.1.name", "slurm.max_gpus_per_user"]),
        ({"config": None}, ["slurm.max_array_size"]),
    ],
)
def test_what_slurm_does_not_answer_is_not_compared(missing: dict[str, Any], fields: list[str]) -> None:
    live: LiveSlurm = dataclasses.replace(ONE, **missing)
    findings = compare_profile(CLUSTERS["one"][1], live)
    assert of(findings, "differs") == {}
    assert set(fields) <= set(of(findings, "unknown"))
