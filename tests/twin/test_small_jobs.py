"""Jobs that measure nodes on a real Slurm: preflight, `clusters survey`, `bench comm`. Its nodes share two cores."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from hpcddp.cluster.yamlfile import parse_yaml
from hpcddp.core.job_ids import slurm_id
from hpcddp.core.preflight import PreflightRecord
from hpcddp.core.run_root import Study
from hpcddp.study.study_status import preflights_of
from tests.twin.twin import Twin
from tests.twin.userland import SMALL, User, read, without_torch

SWEEP = (
    SMALL
    + """
layout: {gpus_per_node: 2, node_type: v100, physical_cores_per_rank: 1, exclusive: false}
points: {batches: {workload.batch_per_gpu: [4, 8]}}
baselines: false
measure: {warmup_steps: 1, steps: 3}
account: proj
slurm: {walltime_min: 5, mem_mb: 2000, spare_nodes: 1}
"""
)


def the_only(study: Path) -> PreflightRecord:
    """What preflight found; each rank of two nodes could be measured."""
    (record,) = preflights_of(Study(study))
    assert (record.device, len(record.hosts), len(record.ranks), record.restart) == ("cpu", 2, 4, 0)
    for each in record.ranks:
        assert all((each.matrix_flops_per_s, each.memory_bytes_per_s, each.node_bytes_per_s, each.neighbour_bytes_per_s))
        assert each.problems == ()
    return record


def test_nodes_are_measured_and_the_runs_go_on(rcc_twin: Twin, tmp_path: Path) -> None:
    """In one allocation with a spare node the runs are on a node that is left; by a job of its own, before the others."""
    user = without_torch(User(rcc_twin, tmp_path))
    (tmp_path / "small.yaml").write_text(SWEEP)
    said = user.hpcddp("submit", "small.yaml", "--runs", "in-one", "--one-allocation", "-y").stdout
    assert "one job of 2 nodes, 1 of them spare, for 10 min" in said
    said = user.hpcddp("submit", "small.yaml", "--runs", "apart", "--preflight", "-y").stdout
    rcc_twin.wait_jobs(200)
    assert user.failures() == {}
    in_one, apart = the_only(tmp_path / "in-one/small"), the_only(tmp_path / "apart/small")
    assert f"preflight    job {apart.job}   2 nodes, " in said
    assert apart.excluded == ()
    launches = [read(file) for file in (tmp_path / "in-one/small").glob("*/r1/*/launch.json")]
    assert {slurm_id(launch["job"]) for launch in launches} == {in_one.job}
    assert {host for launch in launches for host in launch["hosts"]} == {
        next(host for host in in_one.hosts if host not in in_one.excluded)
    }
    for runs, record in (("in-one", in_one), ("apart", apart)):
        status = user.hpcddp("status", runs).stdout
        assert "2 runs: 2 done" in status
        assert f"preflight of job {record.job}: 2 nodes, " in status


def test_two_nodes_are_surveyed(rcc_twin: Twin, tmp_path: Path) -> None:
    """The nodes are one machine without a GPU; where it is busy, the latency is said to be hidden."""
    user = User(rcc_twin, tmp_path)
    said = user.hpcddp("clusters", "survey", "rcc", "--gpus-per-node", "1", "--set", "device=cpu", "-y")
    found = parse_yaml(said.stdout, "the lines")
    assert "hpcddp clusters survey of" in found["sources"]["survey"]
    assert "cpu" in found["node_types"]["v100"]
    fact = found["fabric"]["latency_us"] if "latency between the nodes is not known" not in said.stderr else None
    assert fact is None or (fact["value"] > 0, fact["source"], fact["conflicts"][0]["value"]) == (True, "survey", 5)
    assert user.failures() == {}


COMM = """
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


@pytest.mark.soak
def test_collectives_of_a_sweeps_layouts(rcc_twin: Twin, tmp_path: Path) -> None:
    """Of 2 ranks on one node and on two, once each, as far as memory goes, after a smoke test; study.json has the sweep as it is
    written.
    """
    user, chosen = User(rcc_twin, tmp_path), ("bench", "comm", "small.yaml", "--where", "ranks == 2", "-y")
    (tmp_path / "small.yaml").write_text(COMM)
    said = user.hpcddp(*chosen, "--smoke").stdout
    assert "2 runs to submit of 2 runs, at most 0.8 node hours" in said
    assert "submitted    2 jobs" in said
    rcc_twin.wait_jobs(300)
    assert user.failures() == {}
    assert "2 runs: 2 done" in user.hpcddp("status", "small").stdout
    assert "nothing to submit" in user.hpcddp(*chosen).stdout
    described = read(tmp_path / "small" / "study.json")
    assert ([entry["repeat"] for entry in described["points"]], described["sweep"]["repeat"]) == ([1, 1], 3)
    assert "gates     2 of 2 runs pass" in user.hpcddp("analyze", "small").stdout
    table = (tmp_path / "small" / "report" / "comm.csv").read_text(encoding="utf-8")
    rows = list(csv.DictReader(table.splitlines()))
    assert {(row["nodes"], row["ranks"], row["backend"]) for row in rows} == {("1", "2", "gloo"), ("2", "2", "gloo")}
    assert {row["op"] for row in rows} == {"all_reduce", "reduce_scatter", "all_gather", "broadcast", "send_recv"}
    largest = {nodes: max(int(row["bytes"]) for row in rows if row["nodes"] == nodes) for nodes in ("1", "2")}
    assert largest == {"1": 4 * 2**20, "2": 4 * 2**20}
    assert {row["correct"] for row in rows} == {"True"}


@pytest.mark.soak
def test_collectives_of_a_layout_without_a_sweep(rcc_twin: Twin, tmp_path: Path) -> None:
    user, layout = User(rcc_twin, tmp_path), ("--nodes", 2, "--gpus-per-node", 1)
    changes = ("--set", "device=cpu", "--set", "layout.physical_cores_per_rank=1", "--set", "slurm.mem_mb=2")
    user.hpcddp("bench", "comm", "--cluster", "rcc", *layout, *changes, "-y", "--wait")
    assert "2 nodes x 1 rank" in user.hpcddp("analyze", "bench-comm").stdout
