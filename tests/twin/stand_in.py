"""In a twin's jobs in place of hpcddp.worker.attempt, which imports torch: rank 0 writes what status and analyze read.

All else is real: submission, sbatch, srun, snapshot, bootstrap, submitit, and the worker up to here. userland.py puts it there.
"""

from __future__ import annotations

import itertools
import os
import signal
import time
from pathlib import Path
from typing import Any

from hpcddp.core.jobspec import JobSpec
from hpcddp.core.records import STEP_COLUMNS, RowWriter, steps_file, write_json
from hpcddp.core.run_root import Study
from hpcddp.core.written_lists import expand_node_list
from hpcddp.worker.ranks import Rank
from tests.analysis.synthetic import MS, Recorded, write_run

KILLED, CANCELLED, ENDLESS = "troubled:killed", "troubled:cancelled", "troubled:endless"
"""Models in whose first step rank 0 is killed, and which train until somebody ends them."""

STEP_S = 0.05
MEET_WITHIN_S = 120


def run_attempt(spec: JobSpec, rank: Rank, attempt: Path) -> dict[str, object]:
    """Of a point without trouble done at once."""
    assert (rank.world, rank.nodes) == (spec.point.ranks, spec.point.layout.nodes)
    model = spec.point.workload.model
    if model == KILLED:
        os.kill(os.getpid(), signal.SIGKILL)
    attempt.mkdir(parents=True, exist_ok=True)
    (attempt / f".met.{rank.rank}").touch()
    if rank.rank == 0:
        _wait_for_others(attempt, rank.world)
        launch = _launch(spec)
        if model in (CANCELLED, ENDLESS):
            write_json(attempt / "launch.json", {"schema": 1, "job": rank.job, "restart": rank.restart, **launch})
            _train_until_ended(attempt)
        recorded = Recorded(step_ns=100 * MS, steps=spec.point.measure.steps, job=rank.job, restart=rank.restart, launch=launch)
        write_run(Study(Path(spec.study)), spec.point, recorded, spec.run)
    return {"point": spec.point.id, "run": spec.run, "rank": rank.rank}


run_script = run_attempt


def _wait_for_others(attempt: Path, world: int) -> None:
    """A rank that finds rows of its own on arrival ends: they would be an earlier worker's."""
    deadline_s = time.monotonic() + MEET_WITHIN_S
    while len(list(attempt.glob(".met.*"))) < world:
        assert time.monotonic() < deadline_s, f"{world} ranks did not meet in {MEET_WITHIN_S} s"
        time.sleep(0.02)


def _launch(spec: JobSpec) -> dict[str, Any]:
    hosts = expand_node_list(os.environ["SLURM_STEP_NODELIST"])
    environment = {name: value for name, value in os.environ.items() if name.startswith("SLURM_")}
    return {"hosts": list(hosts), "profile": dict(spec.profile), "environment": environment, "started_unix_ns": time.time_ns()}


def _train_until_ended(attempt: Path) -> None:
    with RowWriter(steps_file(attempt, 0), STEP_COLUMNS) as rows:
        for step in itertools.count():
            cells = {"step": step, "flags": 0, "start_ns": time.time_ns(), "total_ns": round(STEP_S * 1e9)}
            rows.row([cells.get(name) for name in STEP_COLUMNS])
            time.sleep(STEP_S)
