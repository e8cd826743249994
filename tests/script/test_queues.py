from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from hpcddp.cluster.profile import ClusterProfile
from hpcddp.cluster.profile_file import read_profile
from hpcddp.script.job_request import JobRequest
from tests.script.test_resources import refusal, request_on

HEAD = """\
schema: 1
name: site
title: A site
default_node_type: a100
node_types:
  a100: {physical_cores: 32, gpus: 4, memory_mb: 320000, constraint: a100}
  v100: {physical_cores: 40, gpus: 4, memory_mb: 160000, constraint: v100, partition: old}
"""

PARTITIONS = """\
  partitions:
    small: {node_types: [a100], max_nodes: 4, max_walltime_min: 4320, max_mb_per_core: 5000}
    main: {node_types: [a100], default: true, min_nodes: 1, max_nodes: 64, max_walltime_min: 1440}
    large: {node_types: [a100], min_nodes: 65, max_nodes: 1024, max_walltime_min: 720}
    old: {node_types: [v100], max_nodes: 8, qos: [prod]}
"""

RULES = """\
  qos:
    - {name: prod, automatic: true, max_nodes: 32, max_walltime_min: 1200}
    - {name: debug, automatic: true, intent: debug, max_nodes: 2, max_walltime_min: 120, partition: main}
    - {name: week, automatic: true, intent: long, max_nodes: 4, max_walltime_min: 10080, partition: small}
    - {name: big, automatic: false, min_nodes: 33, max_walltime_min: 600}
    - {name: spare, automatic: false, node_types: [v100]}
"""

BINS = """\
  qos:
    - {min_nodes: 1, max_nodes: 91, max_walltime_min: 120}
    - {min_nodes: 92, max_nodes: 183, max_walltime_min: 360}
    - {min_nodes: 184, max_walltime_min: 720}
"""


def site(tmp_path: Path, *slurm: str) -> ClusterProfile:
    file = tmp_path / "site.yaml"
    file.write_text(HEAD + "".join(["slurm:\n", *slurm] if slurm else []))
    return read_profile(file)


def queue(request: JobRequest) -> tuple[str | None, str | None]:
    return request.partition, request.qos


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, ("main", "prod")),
        ({"layout__nodes": 32, "slurm__walltime_min": 1200}, ("main", "prod")),
        ({"slurm__intent": "debug"}, ("main", "debug")),
        ({"slurm__intent": "debug", "layout__nodes": 3}, ("main", "prod")),
        ({"slurm__intent": "long", "slurm__walltime_min": 4320}, ("small", "week")),
        ({"slurm__intent": "production"}, ("main", "prod")),
        ({"slurm__partition": "small"}, ("small", "prod")),
        ({"slurm__qos": "big", "layout__nodes": 33}, ("main", "big")),
        ({"slurm__qos": "big", "layout__nodes": 65}, ("large", "big")),
        ({"slurm__qos": "week"}, ("small", "week")),
        ({"layout__node_type": "v100", "layout__nodes": 8}, ("old", "prod")),
    ],
    ids=str,
)
def test_first_rule_that_fits(tmp_path: Path, settings: dict[str, Any], expected: tuple[str, str]) -> None:
    """The first automatic one, in its partition or the node type's, or else in the first that fits; what the sweep names wins."""
    assert queue(request_on(site(tmp_path, PARTITIONS, RULES), **settings)) == expected


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"layout__nodes": 33}, "33 nodes requested, at most 32 allowed on site QOS prod. Use `--set slurm.qos=big`."),
        ({"layout__nodes": 65, "slurm__walltime_min": 500}, "65 nodes requested, at most 32.*Use `--set slurm.qos=big`."),
        (
            {"slurm__qos": "week", "slurm__walltime_min": 60, "layout__nodes": 5},
            "5 nodes .* at most 4 allowed on site QOS week in partition small.*`--set slurm.qos=prod --set slurm.partition=main`",
        ),
        (
            {"layout__nodes": 33, "slurm__partition": "small"},
            "33 nodes .* at most 4 allowed on site in partition small.*`--set slurm.qos=big --set slurm.partition=main`",
        ),
        ({"slurm__walltime_min": 1201}, "slurm.walltime_min is 1201, at most 1200 minutes.*--set slurm.qos=week"),
        (
            {"slurm__intent": "debug", "slurm__qos": "debug", "slurm__walltime_min": 121},
            "slurm.walltime_min is 121, at most 120 minutes allowed on site QOS debug in partition main",
        ),
        ({"slurm__qos": "spare"}, "nodes of type a100 requested, v100 needed on site QOS spare.*slurm.qos=prod"),
        ({"slurm__qos": "week", "slurm__partition": "main"}, "partition main requested, small needed on site QOS week"),
        ({"layout__node_type": "v100", "slurm__qos": "spare"}, "QOS spare requested, prod needed on site .*--set slurm.qos=prod"),
        (
            {"layout__node_type": "v100", "layout__nodes": 9},
            "9 nodes requested, at most 8 allowed on site .*`hpcddp clusters show.*yaml`",
        ),
        ({"slurm__partition": "nope"}, "slurm.partition is nope, but the profile of site defines small, main, large, old"),
        ({"slurm__qos": "nope"}, "slurm.qos is nope, but the profile of site defines prod, debug, week, big, spare"),
        (
            {"slurm__partition": "small", "slurm__mem_mb": 160001},
            "mem_mb is 160001, at most 160000 allowed with 5000 a core on site in partition small.*slurm.partition=main",
        ),
        (
            {"slurm__partition": "small", "layout__nodes": 2, "slurm__mem_mb": 160001},
            "slurm.mem_mb is 160001, at most 160000 allowed with 5000 a core on site in partition small",
        ),
    ],
    ids=str,
)
def test_refused(tmp_path: Path, settings: dict[str, Any], message: str) -> None:
    assert re.search(message, refusal(site(tmp_path, PARTITIONS, RULES), **settings), re.DOTALL)


def test_memory_share_stays_below_the_partitions_limit(tmp_path: Path) -> None:
    profile = site(tmp_path, PARTITIONS, RULES)
    assert request_on(profile).mem_mb == 320_000
    assert request_on(profile, slurm__partition="small").mem_mb == 32 * 5000


@pytest.mark.parametrize(("nodes", "most_min"), [(91, 120), (92, 360), (183, 360), (184, 720)])
def test_time_limit_depends_on_the_nodes(tmp_path: Path, nodes: int, most_min: int) -> None:
    profile = site(tmp_path, BINS)
    assert queue(request_on(profile, layout__nodes=nodes, slurm__walltime_min=most_min)) == (None, None)
    said = refusal(profile, layout__nodes=nodes, slurm__walltime_min=most_min + 1)
    assert f"slurm.walltime_min is {most_min + 1}, at most {most_min} minutes" in said


def test_a_rules_partition_stands_above_the_clusters(tmp_path: Path) -> None:
    table = "  partition: main\n  partitions: {main: {}, dev: {}, large: {}, old: {}}\n"
    rules = "  qos: [{max_nodes: 4}, {partition: dev, intent: debug}, {name: big, automatic: false, partition: large}]\n"
    profile = site(tmp_path, table, rules)
    assert [queue(request_on(profile)), queue(request_on(profile, slurm__intent="debug"))] == [("main", None), ("dev", None)]
    assert "Use `--set slurm.qos=big --set slurm.partition=large`." in refusal(profile, layout__nodes=5)


def test_no_rule_is_given_unasked(tmp_path: Path) -> None:
    named = site(tmp_path, "  qos: [{name: a}, {name: b, automatic: false}]\n")
    assert refusal(named) == "site needs a QOS. Set slurm.qos to one of a, b."
    assert queue(request_on(named, slurm__qos="b")) == (None, "b")
    debug = site(tmp_path, "  qos: [{intent: production}, {name: dev, intent: debug, automatic: true}]\n")
    assert "slurm.intent is long, but site has no automatic QOS with that intent" in refusal(debug, slurm__intent="long")
    assert queue(request_on(debug, slurm__intent="debug")) == (None, "dev")


def test_to_name_a_partition_is_to_ask_for_its_rule(tmp_path: Path) -> None:
    rules = "  qos: [{partition: std}, {partition: dev, intent: debug}, {partition: paid, automatic: false}]\n"
    profile = site(tmp_path, "  partitions: {std: {}, dev: {max_nodes: 2}, paid: {}, old: {}}\n", rules)
    assert queue(request_on(profile)) == ("std", None)
    assert queue(request_on(profile, slurm__partition="dev")) == ("dev", None)
    assert queue(request_on(profile, slurm__partition="paid")) == ("paid", None)
    assert "3 nodes requested, at most 2" in refusal(profile, slurm__partition="dev", layout__nodes=3)


def test_limits_of_rule_and_partition_are_said_once_and_of_all_nodes(tmp_path: Path) -> None:
    both = "  partitions: {main: {max_nodes: 4}, old: {}}\n  qos: [{partition: main, max_nodes: 4}]\n"
    said = refusal(site(tmp_path, both), layout__nodes=5)
    assert said.count("5 nodes requested, at most 4 allowed on site in partition main") == 1
    profile = site(tmp_path, "  qos: [{name: prod, automatic: true, max_gpus: 8}]\n")
    assert queue(request_on(profile, layout__nodes=2, layout__gpus_per_node=4)) == (None, "prod")
    said = refusal(profile, layout__nodes=3, layout__gpus_per_node=4)
    assert "12 GPUs requested, at most 8 allowed on site QOS prod" in said


def test_memory_that_no_partition_gives(tmp_path: Path) -> None:
    table = (
        "  partitions: {main: {default: true, max_mb_per_core: 5000}, more: {max_mb_per_core: 6000}, old: {node_types: [v100]}}\n"
    )
    profile = site(tmp_path, table)
    assert "Use `--set slurm.partition=more`." in refusal(profile, slurm__partition="main", slurm__mem_mb=32 * 6000)
    for partition in ("main", "more"):
        said = refusal(profile, slurm__partition=partition, slurm__mem_mb=32 * 6000 + 1)
        assert said.endswith("site.yaml`.")


def test_a_partition_of_other_nodes_is_refused(tmp_path: Path) -> None:
    profile = site(tmp_path)
    said = refusal(profile, slurm__partition="old")
    assert "slurm.partition is old: its nodes are of type v100, and layout.node_type is a100." in said
    assert queue(request_on(profile, layout__node_type="v100")) == ("old", None)
    assert queue(request_on(profile, layout__node_type="v100", slurm__partition="old")) == ("old", None)
