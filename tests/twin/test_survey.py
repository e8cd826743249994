"""`hpcddp clusters survey` on a real Slurm: one short job, whose findings end up in the profile's file."""

from __future__ import annotations

from pathlib import Path

from hpcddp.cluster.profile_file import read_profile
from hpcddp.cluster.profile_names import FOLDER
from tests.twin.twin import Twin
from tests.twin.userland import User


def test_two_nodes_are_surveyed(rcc_twin: Twin, tmp_path: Path) -> None:
    """Processors, disk and the latency between both nodes; nodes of a twin are one machine without a GPU."""
    user = User(rcc_twin, tmp_path)
    file = user.home / "mine.yaml"
    file.write_text((FOLDER / "rcc.yaml").read_text())
    said = user.hpcddp("clusters", "survey", "mine.yaml", "--gpus-per-node", "1", "--set", "device=cpu", "-y")
    assert "mine.yaml: filled in from" in said.stdout
    profile = read_profile(file)
    assert profile.fabric.latency_us
    fact = profile.facts["fabric.latency_us"]
    assert (fact.source, [other.value for other in fact.conflicts]) == ("survey", [5])
    assert "hpcddp clusters survey of" in profile.sources["survey"]
    assert user.failures() == {}
