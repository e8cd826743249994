"""`hpcddp plan`."""

from __future__ import annotations

import json
from pathlib import Path

from tests.commands.conftest import Run

JOBS = Path(__file__).parent.parent.parent / "jobs"


def test_points_and_totals(run: Run) -> None:
    """Every point with its hours: 4 nodes x 20 min x 6 runs are 8 node hours; totals are the sums."""
    plain = json.loads(run("plan", JOBS / "rcc-bigmnist.yaml", "--group", "nodes", "--format", "json").stdout)
    assert [(p["nodes"], p["ranks"], p["global_batch"], p["node_hours"]) for p in plain["points"]] == [
        (1, 4, 2048, 2.0),
        (2, 8, 4096, 4.0),
        (4, 16, 8192, 8.0),
    ]
    assert plain["totals"]["node_hours"] == 14.0
    assert plain["totals"]["files"] == sum(p["files"] for p in plain["points"])


def test_table(run: Run) -> None:
    """The table says what kind of scaling it is and what it comes to."""
    text = run("plan", JOBS / "rcc-bigmnist.yaml", "--group", "nodes").stdout
    assert text.startswith("rcc-bigmnist on rcc, weak scaling")
    assert "3 points, 18 runs, at most 14.0 node hours" in text


def test_the_mistake_of_the_2020_study_is_seen(run: Run) -> None:
    """2 physical cores per rank on a node that has 8 per GPU is remarked on; a retired cluster as well."""
    result = run("plan", JOBS / "marconi100-resnet50.yaml", "--set", "layout.physical_cores_per_rank=2", "--group", "nodes")
    assert "layout.physical_cores_per_rank is 2" in result.stderr
    assert "8 physical cores per GPU" in result.stderr
    assert "marconi100 is retired" in result.stderr


def test_node_types_are_told_apart(run: Run) -> None:
    """Points that differ in their node type alone do not look alike; the column is there only where it says something."""
    header, *rows = run("plan", JOBS / "rcc-bigmnist.yaml", "--group", "node-types").stdout.splitlines()[1:]
    assert "node type" in header
    assert {row.split()[1] for row in rows[:6]} == {"v100", "a40", "v100-sxm2"}
    assert "node type" not in run("plan", JOBS / "rcc-bigmnist.yaml", "--group", "nodes").stdout


def test_data_without_a_folder_are_remarked_on(run: Run) -> None:
    """A sweep whose runs are sure to fail for want of data says so while it is planned; exit code 0."""
    result = run("plan", JOBS / "local-mnist.yaml")
    assert (result.exit_code, "data `bigmnist` has no folder" in result.stderr) == (0, True)
    assert run("plan", JOBS / "local-mnist.yaml", "--set", "workload.data.root=/data").stderr == ""


def test_refusals_are_listed(run: Run) -> None:
    """What the cluster would refuse is refused here, exit code 2."""
    result = run("plan", JOBS / "marconi100-resnet50.yaml", "--set", "layout.nodes=17", "--group", "in-node")
    assert result.exit_code == 2
    assert "17 nodes asked for, at most 16" in result.stderr


def test_nothing_left(run: Run) -> None:
    """A condition that leaves no point is an error."""
    assert run("plan", JOBS / "rcc-bigmnist.yaml", "--where", "layout.nodes == 99").exit_code == 2
