"""`hpcddp clusters survey` on a real Slurm: one short job, whose findings are lines of a profile."""

from __future__ import annotations

from pathlib import Path

from hpcddp.cluster.yamlfile import parse_yaml
from tests.twin.twin import Twin
from tests.twin.userland import User


def test_two_nodes_are_surveyed(rcc_twin: Twin, tmp_path: Path) -> None:
    """Processors, disk and the latency between both nodes, which a busy machine may hide: then that is said. Nodes of a twin are
    one machine without a GPU."""
    user = User(rcc_twin, tmp_path)
    said = user.hpcddp("clusters", "survey", "rcc", "--gpus-per-node", "1", "--set", "device=cpu", "-y")
    found = parse_yaml(said.stdout, "the lines")
    assert "hpcddp clusters survey of" in found["sources"]["survey"]
    assert "cpu" in found["node_types"]["v100"]
    fact = found["fabric"]["latency_us"] if "latency between the nodes is not known" not in said.stderr else None
    assert fact is None or (fact["value"] > 0, fact["source"], fact["conflicts"][0]["value"]) == (True, "survey", 5)
    assert user.failures() == {}
