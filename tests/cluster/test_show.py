"""What `clusters list` and `clusters show` print."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hpcddp.cluster.fact_text import WIDTH
from hpcddp.cluster.profile_file import load_profile, read_profile
from hpcddp.cluster.profile_names import profile_names
from hpcddp.cluster.show import cluster_plain, clusters_table, list_clusters, show_cluster, unreadable_profiles
from tests.cluster.conftest import own_profile
from tests.golden import check

BARE = "schema: 1\nname: bare\ntitle: Nothing is known\n"


@pytest.mark.parametrize("name", ["aws-g5", "local", "marconi100", "rcc"])
def test_show(name: str) -> None:
    """`show` prints a profile as its golden: these have between them every part that a profile can have."""
    check(f"clusters/show-{name}.txt", show_cluster(load_profile(name)) + "\n")


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


@pytest.mark.parametrize("name", profile_names())
def test_width(name: str) -> None:
    """No line is wider than 100 columns."""
    text = show_cluster(load_profile(name))
    assert max(len(line) for line in text.splitlines()) <= WIDTH == 100


@pytest.mark.parametrize("name", profile_names())
def test_nothing_is_left_out(name: str) -> None:
    """`show` tells every fact's note, and the grade and source of every fact and of every conflict; sources are explained."""
    profile = load_profile(name)
    text = " ".join(show_cluster(profile).split())
    for fact in profile.facts.values():
        assert " ".join((fact.note or "").split()) in text
        assert f" {fact.grade} {fact.source} " in text
        assert profile.sources[fact.source] in text
        for other in fact.conflicts:
            assert f"{other.value} [{other.grade} {other.source}]" in text


def test_plain_is_json() -> None:
    """The plain form survives JSON and holds values and facts."""
    plain = json.loads(json.dumps(cluster_plain(load_profile("rcc"))))
    assert plain["node_types"]["v100-sxm2"]["gpus"] == 8
    assert plain["facts"]["node_types.v100-sxm2.gpus"]["conflicts"][0]["value"] == 4


def test_bare_profile(tmp_path: Path) -> None:
    """A profile of three lines can be shown: what is not known takes no room."""
    file = tmp_path / "bare.yaml"
    file.write_text(BARE)
    assert show_cluster(read_profile(file)).splitlines() == [
        "bare: Nothing is known",
        "",
        "Slurm",
        "  gpu_request  gres",
        "",
        "Environment of the workers",
        "  kind    system",
        "  python  python3",
    ]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("null", "unknown"),
        ('{value: null, grade: "?", source: wiki}', "unknown [?]"),
        ("{value: false, grade: A, source: wiki}", "no"),
    ],
)
def test_a_rule_that_is_not_documented_is_unknown(tmp_path: Path, value: str, shown: str) -> None:
    """Null is shown for what it is, and is not the `no` that a site documents."""
    file = tmp_path / "bare.yaml"
    file.write_text(f"{BARE}sources: {{wiki: the wiki}}\nslurm: {{exclusive_needs_all_gpus: {value}}}\n")
    assert f"  exclusive_needs_all_gpus  {shown}\n" in show_cluster(read_profile(file))


def test_many_types_are_stacked(tmp_path: Path) -> None:
    """Node types that do not fit side by side stand one below the other."""
    types = "".join(f"  type-{i}: {{cpu: a processor with a long name, gpus: {i}}}\n" for i in range(1, 5))
    file = tmp_path / "wide.yaml"
    file.write_text(f"{BARE}node_types:\n{types}")
    text = show_cluster(read_profile(file))
    assert "Node type type-4\n  cpu   a processor with a long name\n  gpus  4\n" in text
