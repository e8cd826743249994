"""A study as a cluster leaves it: hosts, people and their folders in every kind of file, and what no one should be given."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

from hpcddp.core.records import append_line, write_json
from hpcddp.core.run_root import Study
from tests.analysis.synthetic import MS, Recorded, point, write_run, write_study

ALICE = "/home/alice/runs"
HOSTS = ("gpu-a07.example.edu", "gpu-a11.example.edu")

SCRIPT = f"""#!/bin/bash
#SBATCH --account=phys042
#SBATCH --mail-user=alice.l@example.edu
#SBATCH --exclude=gpu-a[03-05]
module load /opt/modules/cuda
cd {ALICE}/scaling/.jobs && srun -A phys042 python /scratch/g/phys042/venv/bin/python
"""

SECRETS = ("alice", "phys042", "gpu-a", "example.edu", "10.4.0.7", "/scratch")
"""What must not be in anything that is given away."""


def write_given(folder: Path) -> Study:
    """Two points of two runs, one of which failed; the second point ran on two nodes."""
    points = [point(1, 1), point(2, 1)]
    study = write_study(folder, points, repeat=2)
    for each in points:
        for run in (1, 2):
            _write_run(study, each.label, write_run(study, each, _recorded(each.layout.nodes, run), run), each.layout.nodes)
    _write_job(study)
    return study


def _recorded(nodes: int, run: int) -> Recorded:
    environment = {
        "SLURM_JOB_USER": "alice",
        "SLURM_JOB_ACCOUNT": "phys042",
        "SLURM_JOB_UID": "4711",
        "SLURM_JOB_NODELIST": "gpu-a[07,11].example.edu",
        "MASTER_ADDR": HOSTS[0],
        "VIRTUAL_ENV": "/scratch/g/phys042/venv",
        "LOADEDMODULES": "cuda/12.1:nccl/2.18",
    }
    failed = nodes == 2 and run == 2
    return Recorded(
        step_ns=(100 + nodes + run) * MS,
        job=str(100 + run),
        state="failed" if failed else "done",
        reason=f"{HOSTS[1]} could not reach 10.4.0.7: see {ALICE}/scaling/.jobs" if failed else None,
        launch={
            "hosts": list(HOSTS[:nodes]),
            "environment": environment,
            "data": {"name": "synthetic-imagenet", "root": "/scratch/g/phys042/imagenet", "samples": 1000},
        },
        of_rank={"host": HOSTS[nodes - 1]},
    )


def _write_run(study: Study, label: str, attempt: Path, nodes: int) -> None:
    for host in HOSTS[:nodes]:
        write_json(attempt / "nodes" / f"{host}.json", {"schema": 1, "host": host, "cpu": "POWER9", "kernel": "4.18.0-553.5.1"})
        (attempt / "nodes" / f"{host}.node.csv").write_text("unix_ns\n1\n")
    line = {"event": "submitted", "label": label, "run": 1, "backend": "slurm", "token": "ab12", "job": "101", "unix_s": 1.0}
    append_line(study.submissions_file, {**line, "reason": f"account phys042 of alice on {HOSTS[0].partition('.')[0]}"})


def _write_job(study: Study) -> None:
    folder = study.jobs / "n01-g1-b32.r1.ab12"
    folder.mkdir(parents=True)
    (folder / "job.sbatch").write_text(SCRIPT)
    append_line(folder / "tasks.jsonl", {"data_root": "/scratch/g/phys042/imagenet"})
    (folder / "101_submitted.pkl").write_bytes(pickle.dumps(os.getcwd))
    (folder / "101_0_log.out").write_text("alice was here\n")
    (study.jobs / "101").symlink_to(folder.name)
    (study.code / "0123").mkdir(parents=True)
    (study.code / "0123" / "bootstrap.py").write_text("raise SystemExit\n")
    (study.folder / "notes.txt").write_text("to be forgotten\n")
