from __future__ import annotations

from hpcddp.analysis.figures.hosts import short_hosts


def test_hosts_that_begin_alike_keep_names_of_their_own() -> None:
    """Those of clouds and of large clusters differ in their last number."""
    assert short_hosts(["ip-172-31-12-134", "ip-172-31-12-99"]) == {"ip-172-31-12-134": "…134", "ip-172-31-12-99": "…99"}
    assert list(short_hosts(["compute-0-0-0012", "compute-0-0-0013"]).values()) == ["…0012", "…0013"]


def test_other_names_are_cut_to_what_has_room() -> None:
    """Each once, as it begins; a host alone too."""
    long = "login7.cluster.example.edu"
    assert short_hosts(["r001", long, "r001"]) == {long: "login7.clust", "r001": "r001"}
    assert short_hosts([long]) == {long: "login7.clust"}
