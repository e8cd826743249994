"""The marconi100 study at its full width: 16 nodes with 4 ranks each, on one small machine."""

from __future__ import annotations

import dataclasses
import shlex
from pathlib import Path

import pytest

from hpcddp.analysis import analyze
from hpcddp.cluster.profile_file import load_profile
from hpcddp.core.jobspec import JobSpec
from hpcddp.script.job_request import User
from hpcddp.script.render import launch_by_hand, render
from hpcddp.script.resources import job_request
from hpcddp.sweep.expand import resolve
from hpcddp.sweep.file import make_sweep
from tests.twin.twin import Twin

NODE = Path(__file__).with_name("forked_node.py")

SWEEP = {
    "schema": 1,
    "cluster": "marconi100",
    "device": "cpu",
    "workload": {"model": "mnist-cnn", "data": {"name": "synthetic-mnist"}, "batch_per_gpu": 8, "loader_workers_per_rank": 0},
    "layout": {"nodes": 16, "gpus_per_node": 4, "physical_cores_per_rank": 1},
    "measure": {"warmup_steps": 2, "steps": 10},
}


@pytest.mark.soak
def test_sixty_four_ranks(marconi100_twin: Twin, tmp_path: Path) -> None:
    """64 ranks of the MNIST CNN train together, pass every gate, and analyze as one point of 16 nodes."""
    profile = load_profile("marconi100")
    sweep = make_sweep(SWEEP, ["slurm.walltime_min=20"], Path("soak")).sweep
    point = resolve(sweep, profile)
    request = job_request(profile, point, sweep.slurm, User(account="proj"))
    launch = launch_by_hand(profile, JobSpec(point=point, study="$HPCDDP_RUNS/adhoc"), str(tmp_path))
    forked = dataclasses.replace(launch, command=f"python3 -u {shlex.quote(str(NODE))} 4")
    script = render(profile, point, dataclasses.replace(request, ranks_per_node=1, cpus_per_rank=16), forked)
    sbatch = ["sbatch", "--parsable", f"--output={tmp_path}/log"]
    job = marconi100_twin.run(sbatch, text=script, cwd=tmp_path).stdout.strip()
    marconi100_twin.wait_jobs(600)
    assert {row["JobID"]: row["State"] for row in marconi100_twin.sacct()}[job] == "COMPLETED", (tmp_path / "log").read_text()
    (result,) = analyze(tmp_path)
    assert "64" in result.text
    assert not result.missing
