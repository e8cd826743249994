"""`python -m hpcddp.worker`, as a script submitted by hand starts it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from hpcddp.core.errors import HpcddpError
from hpcddp.core.jobspec import JobSpec, expanded, spec_to_dict
from hpcddp.core.launch_record import LaunchRecord
from hpcddp.core.point import point_from_dict
from hpcddp.core.schema import decode_record
from hpcddp.core.start_up import start_up
from tests.worker import given

STEP = {
    "SLURM_PROCID": "0",
    "SLURM_LOCALID": "0",
    "SLURM_STEP_NUM_TASKS": "1",
    "SLURM_STEP_NUM_NODES": "1",
    "SLURM_JOB_ID": "815",
    "SLURM_JOB_PARTITION": "prod",
    "SLURM_JWT": "secret",
    "NCCL_SECRET_TOKEN": "secret",
    "MASTER_ADDR": "127.0.0.1",
}

ABSENT = ("numpy", "click", "jinja2", "pandas", "submitit", "yaml", "torchvision")
"""What a site's own torch may lack."""


def worker(runs: Path, spec: JobSpec | None) -> subprocess.CompletedProcess[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    spec_variable = {} if spec is None else {"HPCDDP_SPEC": json.dumps(spec_to_dict(spec))}
    env = {**os.environ, **STEP, **spec_variable, "MASTER_PORT": port, "HPCDDP_RUNS": str(runs), "OMP_NUM_THREADS": "1"}
    env["PYTHONPATH"] = str(_absent(runs / "absent"))
    return subprocess.run(
        [sys.executable, "-m", "hpcddp.worker"], env=env, capture_output=True, text=True, timeout=120, check=False
    )


def _absent(folder: Path) -> Path:
    """A folder that, first on the path, makes the names absent."""
    folder.mkdir()
    for name in ABSENT:
        (folder / f"{name}.py").write_text("raise ModuleNotFoundError(f'no {__name__}')\n")
    return folder


@pytest.mark.dear
def test_a_step_of_slurm_where_there_is_torch_alone(tmp_path: Path) -> None:
    """The study's variables are filled in; the point is described beside the records, the summary is the last line."""
    spec = JobSpec(point=given.point(1, steps=1, loader_workers_per_rank=1), study="$HPCDDP_RUNS/adhoc")
    done = worker(tmp_path, spec)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["gates_passed"] is True
    described = json.loads((tmp_path / "adhoc" / spec.label / "point.json").read_text())
    assert (described["schema"], described["id"]) == (1, spec.point.id)
    assert point_from_dict(described["point"]) == spec.point
    attempt = tmp_path / "adhoc" / spec.label / "r1" / "815.0"
    launch = json.loads((attempt / "launch.json").read_text())
    took = start_up(attempt, decode_record(LaunchRecord, launch))
    assert took is not None
    assert 0.1 < took.until_met_s < took.until_first_step_s < 120  # torch is imported in no less
    assert launch["backend"] == "slurm"
    assert launch["environment"]["SLURM_JOB_PARTITION"] == "prod"
    assert "secret" not in launch["environment"].values()


def test_without_a_spec(tmp_path: Path) -> None:
    """It says where workers come from."""
    assert "hpcddp render" in worker(tmp_path, None).stderr


def test_paths_with_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable the job does not have is named; a dollar in a variable's value is left alone."""
    monkeypatch.setenv("SCRATCH", "/scratch/a$b")
    assert expanded("${SCRATCH}/mnist", "data root") == "/scratch/a$b/mnist"
    with pytest.raises(HpcddpError, match=r"data root `\$NOWHERE/mnist`: \$NOWHERE is not set"):
        expanded("$NOWHERE/mnist", "data root")
