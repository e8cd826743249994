"""`hpcddp bench comm` on a real Slurm, on one node and across two, beside a study that trains."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from hpcddp.core.point import point_from_dict
from tests.twin.twin import Twin
from tests.twin.userland import User

pytestmark = pytest.mark.soak

SWEEP = """
schema: 1
cluster: rcc
workload: {model: mnist-cnn, data: {name: bigmnist}}
layout: {nodes: 1, gpus_per_node: 1, physical_cores_per_rank: 1}
points:
  layouts: {layout.nodes: [1, 2], layout.gpus_per_node: [1, 2], workload.batch_per_gpu: [8, 16]}
device: cpu
repeat: 3
slurm: {walltime_min: 60, mem_mb: 24}
"""
"""With so little memory, which this Slurm counts but does not enforce, messages stay small and the test short."""

CHOSEN = ("small.yaml", "--where", "ranks == 2")


@pytest.fixture(scope="module")
def finished(rcc_twin: Twin, tmp_path_factory: pytest.TempPathFactory) -> User:
    """The benchmarks of 2 ranks on one node and on two, run to their end after a smoke test."""
    user = User(rcc_twin, tmp_path_factory.mktemp("user"))
    (user.home / "small.yaml").write_text(SWEEP)
    said = user.hpcddp("bench", "comm", *CHOSEN, "--smoke", "-y").stdout
    assert "2 runs to submit of 2 runs, at most 0.8 node hours" in said
    assert "submitted    2 jobs" in said
    rcc_twin.wait_jobs(300)
    return user


def test_done_and_not_submitted_twice(finished: User) -> None:
    """Slurm and status say so; study.json has the benchmarks, one run each, and the sweep as it is written."""
    assert finished.failures() == {}
    assert "2 runs: 2 done" in finished.hpcddp("status", "small").stdout
    assert "nothing to submit" in finished.hpcddp("bench", "comm", *CHOSEN, "-y").stdout
    described = json.loads((finished.home / "small" / "study.json").read_text())
    assert [entry["repeat"] for entry in described["points"]] == [1, 1]
    assert described["sweep"]["repeat"] == 3
    points = [point_from_dict(json.loads(file.read_text())["point"]) for file in finished.home.glob("small/*/point.json")]
    assert {(point.work, point.layout.nodes, point.ranks) for point in points} == {("comm", 1, 2), ("comm", 2, 2)}


def test_both_layouts_are_measured(finished: User) -> None:
    """Every operation on one node and across two, as far as memory goes, and the table of them."""
    assert "gates     2 of 2 runs pass" in finished.hpcddp("analyze", "small").stdout
    rows = read(finished.home / "small" / "report" / "comm.csv")
    assert {(row["nodes"], row["ranks"], row["backend"]) for row in rows} == {("1", "2", "gloo"), ("2", "2", "gloo")}
    assert {row["op"] for row in rows} == {"all_reduce", "reduce_scatter", "all_gather", "broadcast", "send_recv"}
    largest = {nodes: max(int(row["bytes"]) for row in rows if row["nodes"] == nodes) for nodes in ("1", "2")}
    assert largest == {"1": 4 * 2**20, "2": 4 * 2**20}
    assert {row["correct"] for row in rows} == {"True"}


def test_a_layout_without_a_sweep(finished: User) -> None:
    """Flags alone leave a study of their own, ./bench-comm."""
    layout = ("--nodes", 2, "--gpus-per-node", 1)
    changes = ("--set", "device=cpu", "--set", "layout.physical_cores_per_rank=1", "--set", "slurm.mem_mb=2")
    finished.hpcddp("bench", "comm", "--cluster", "rcc", *layout, *changes, "-y", "--wait")
    assert "2 nodes x 1 rank" in finished.hpcddp("analyze", "bench-comm").stdout


def read(file: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(file.read_text(encoding="utf-8").splitlines()))
