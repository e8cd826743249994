"""What `clusters list` and `clusters show` print."""

from __future__ import annotations

import json

import pytest

from hpcddp.cluster.facts import strip_facts
from hpcddp.cluster.paths import typed_path
from hpcddp.cluster.profile import Fact
from hpcddp.cluster.profile_file import load_profile
from hpcddp.cluster.profile_names import FOLDER, profile_names
from hpcddp.cluster.show import cluster_plain, clusters_table, list_clusters, show_cluster, unreadable_profiles
from hpcddp.cluster.yaml_text import flow
from hpcddp.cluster.yamlfile import parse_yaml
from hpcddp.core.schema import Path
from tests.cluster.conftest import own_profile
from tests.golden import check


@pytest.mark.parametrize("name", profile_names())
def test_show_is_the_profile(name: str) -> None:
    """As YAML that is read as the file is, with grade, source and note of every fact, and what other sources say."""
    text = show_cluster(load_profile(name))
    facts: dict[Path, Fact] = {}
    plain = strip_facts(parse_yaml((FOLDER / f"{name}.yaml").read_text(), name), (), facts)
    assert parse_yaml(text, "shown") == plain
    words = " ".join(text.replace("\n  #", " ").split()).replace(" # ", " ")
    for fact in facts.values():
        assert f" {fact.grade} {fact.source}" + (f" ({' '.join(fact.note.split())})" if fact.note else "") in words
        assert all(f"but {flow(other.value)}: {other.grade} {other.source}" in words for other in fact.conflicts)


def test_show_merges_what_is_extended() -> None:
    """And says so; the golden has a rule with a command, values that sources differ on, and comments above and behind."""
    file = own_profile("mine", "extends: rcc\nnode_types: {v100-sxm2: null}\nfabric: {latency_us: 4}\n")
    said, *lines = show_cluster(load_profile("mine")).splitlines()
    assert said == f"# {typed_path(file)}, merged into rcc"
    check("clusters/show-extended.txt", "\n".join(lines) + "\n")


def test_list() -> None:
    """`list` prints the shipped profiles as its golden, unknown numbers as a dash."""
    text = clusters_table(list_clusters())
    check("clusters/list.txt", text + "\n")
    assert max(len(line) for line in text.splitlines()) <= 80


def test_ones_own_are_listed_with_where_they_come_from() -> None:
    """Behind the shipped ones; what cannot be read is said, and the others are listed."""
    mine = own_profile("mine", "extends: rcc\nnode_types: {v100-sxm2: null}\n")
    own_profile("other", "")
    clash, wrong = own_profile("local", ""), own_profile("wrong", "extends: rc\n")
    rows = list_clusters()
    assert [row["name"] for row in rows] == [*profile_names(), "mine", "other"]
    assert (rows[-2]["nodes"], rows[-2]["extends"], rows[-2]["file"]) == (10, "rcc", str(mine))
    assert clusters_table(rows).splitlines()[-1] == f"Yours, in {mine.parent}: mine (extends rcc), other"
    assert [text.partition(": ")[0] for text in unreadable_profiles()] == [f"{clash}:2:1", f"{wrong}:4:1"]


def test_plain_is_json() -> None:
    """The plain form survives JSON and holds values and facts."""
    plain = json.loads(json.dumps(cluster_plain(load_profile("rcc"))))
    assert plain["node_types"]["v100-sxm2"]["gpus"] == 8
    assert plain["facts"]["node_types.v100-sxm2.gpus"]["conflicts"][0]["value"] == 4
