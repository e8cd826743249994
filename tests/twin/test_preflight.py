"""Preflight on a real Slurm: it runs, is recorded, and the runs go on. Readings prove nothing: the nodes share two cores."""

from __future__ import annotations

from pathlib import Path

from hpcddp.core.job_ids import slurm_id
from hpcddp.core.preflight import PreflightRecord
from hpcddp.core.run_root import Study
from hpcddp.study.study_status import preflights_of
from tests.twin.resumed import read
from tests.twin.twin import Twin
from tests.twin.userland import SMALL, User

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
    user = User(rcc_twin, tmp_path)
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
