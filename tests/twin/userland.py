"""A user on a twin's login node: hpcddp's own command line in a folder of theirs, and runs that are interrupted and go on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from hpcddp.analysis.records.attempts import read_attempts
from hpcddp.analysis.records.json_files import read_launch, read_training_end
from hpcddp.analysis.records.steps import joined
from hpcddp.analysis.runs.load_run import load_run
from hpcddp.analysis.runs.run import Run
from hpcddp.backends.base import Batch
from hpcddp.backends.slurm import SlurmBackend
from hpcddp.core.job_ids import base_id
from hpcddp.core.jobspec import JobSpec, spec_to_dict
from hpcddp.core.point import Point, point_from_dict
from hpcddp.core.records import steps_file
from hpcddp.core.run_root import Study
from hpcddp.study.progress import last_rows
from hpcddp.worker.main import run
from tests.machine import CHECKOUT
from tests.twin.daemons import wait_until
from tests.twin.twin import Twin
from tests.worker import forked

PATIENCE_S = 300.0

SMALL = """
schema: 1
cluster: rcc
device: cpu
workload: {model: mnist-cnn, data: {name: synthetic-mnist}, batch_per_gpu: 8, loader_workers_per_rank: 0}
"""
"""How a sweep begins whose runs need nothing and take no time."""


@dataclass(frozen=True)
class User:
    """Runs commands; `home` holds their sweeps, runs and configuration, `variables` is what their profile sets."""

    twin: Twin
    home: Path
    variables: Mapping[str, str] = field(default_factory=dict)

    def hpcddp(self, *arguments: object, exit_code: int = 0) -> subprocess.CompletedProcess[str]:
        """Runs `hpcddp ARGUMENTS` and asserts its exit code."""
        done = subprocess.run(
            [sys.executable, "-m", "hpcddp", *(str(argument) for argument in arguments)],
            cwd=self.home,
            env=self.env,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == exit_code, f"{done.args} gave {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def json(self, *arguments: object, exit_code: int = 0) -> Any:
        return json.loads(self.hpcddp(*arguments, "--format", "json", exit_code=exit_code).stdout)

    @property
    def env(self) -> dict[str, str]:
        """The login shell's environment: this twin's Slurm, an empty configuration, one thread per rank."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "SBATCH_", "HPCDDP_"))}
        return {
            **inherited,
            **self.twin.env,
            **self.variables,
            "XDG_CONFIG_HOME": str(self.home / ".config"),
            "SBATCH_ACCOUNT": "proj",
        }

    def jobs(self) -> list[dict[str, str]]:
        """What sacct says of the jobs that hpcddp submitted for this user: the twin may have run others' too."""
        mine = {link.name for link in self.home.rglob(".jobs/*") if link.is_symlink()}
        return [job for job in self.twin.sacct() if base_id(job["JobID"]) in mine]

    def failures(self) -> dict[str, str]:
        """Job -> how it ended and the end of its error logs, for those that did not complete."""
        return {
            job["JobID"]: f"{job['JobName']} {job['State']} {job['ExitCode']}\n{self._logs(job['JobID'])}"
            for job in self.jobs()
            if job["State"] != "COMPLETED"
        }

    def wait_until_completed(self) -> None:
        """sacct may hear of a requeued job's last end seconds later."""
        self.twin.wait_jobs(PATIENCE_S)
        wait_until(lambda: not self.failures(), [], "the last end of each job in sacct", 60, lambda: str(self.failures()))

    def _logs(self, job: str) -> str:
        folders = self.home.rglob(f".jobs/{job.replace('_', '/')}")
        files = [file for folder in folders for file in sorted(folder.glob("*.err"))]
        return "\n".join(f"{file.name}: {file.read_text()[-2000:]}" for file in files)


SITE = """
import importlib.util, sys

class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        return importlib.util.spec_from_file_location(name, {file!r}) if name in {modules!r} else None

sys.meta_path.insert(0, Finder)
sys.path.append({checkout!r})
"""
"""sitecustomize.py on PYTHONPATH: a process that imports what imports torch gets stand_in.py."""


def without_torch(user: User) -> User:
    """The same, whose ranks write the records of a run and train nothing."""
    folder = user.home / ".site"
    folder.mkdir(exist_ok=True)
    modules = ("hpcddp.worker.attempt", "hpcddp.worker.script_run")
    site = SITE.format(file=str(Path(__file__).with_name("stand_in.py")), modules=modules, checkout=str(CHECKOUT))
    (folder / "sitecustomize.py").write_text(site, encoding="utf-8")
    return replace(user, variables={**user.variables, "PYTHONPATH": str(folder)})


@contextmanager
def own_slurm(twin: Twin, env: Mapping[str, str]) -> Iterator[Twin]:
    """With `env` too, this process's commands of Slurm reach the twin; no job is left after."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**twin.env, **env}.items():
            patch.setenv(name, value)
        yield twin
        if jobs := twin.run(["squeue", "-h", "-o", "%A"]).stdout.split():
            twin.run(["scancel", *jobs])
        twin.wait_jobs(PATIENCE_S)


class CutShort(SlurmBackend):
    """Whoever submits is gone once sbatch has answered."""

    def submit_batch(self, batch: Batch) -> list[str]:
        jobs = super().submit_batch(batch)
        batch.study.job_dir(base_id(jobs[0])).unlink()
        raise KeyboardInterrupt


RUN = """
schema: 1
cluster: rcc
device: cpu
workload: {{model: "held:model", data: {{name: synthetic-mnist}}, batch_per_gpu: 4, loader_workers_per_rank: 1,
           ddp: {{bucket_cap_mb: 0.02}}}}
layout: {{nodes: 2, gpus_per_node: 1, physical_cores_per_rank: 1}}
measure: {{warmup_steps: 5, steps: {steps}, resume: true, telemetry_hz: 2{measure}}}
slurm: {{walltime_min: 10}}
"""

MODEL = """
import os, pathlib, signal, time
from torch import nn

def model(classes):
    net = nn.Sequential(nn.Flatten(), nn.Linear(784, 32), nn.ReLU(), nn.Dropout(0.3), nn.Linear(32, 32), nn.Linear(32, classes))
    calls = [0]
    restart = int(os.environ.get("SLURM_RESTART_COUNT") or 0) if "SLURM_JOB_ID" in os.environ else None

    def wait(*_):
        if not net.training:
            return
        calls[0] += 1
        {wait}

    net.register_forward_pre_hook(wait)
    return net
"""
"""`wait` is done before every step, not where ranks compare what they compute; `restart` is None where nothing interrupts."""


def submitted(user: User, steps: int, wait: str, measure: str = "") -> tuple[str, Path]:
    """The job of a run of 5 and so many steps, and the run's folder; `measure`: more of it, after a comma."""
    (user.home / "study.yaml").write_text(RUN.format(steps=steps, measure=measure), encoding="utf-8")
    (user.home / "held.py").write_text(MODEL.format(wait=wait), encoding="utf-8")
    user.hpcddp("submit", "study.yaml", "-y")
    (study,) = user.json("status", "study", exit_code=3)["studies"]
    (found,) = study["runs"]
    return found["job"], user.home / "study" / found["label"] / "r1"


def read(file: Path) -> Any:
    return json.loads(file.read_text(encoding="utf-8"))


def wait_for_steps(user: User, attempt: Path) -> None:
    def show() -> str:
        logs = (file for file in sorted(user.home.rglob(".jobs/*/*.err")))
        return "\n".join(f"{file.name}: {file.read_text()[-2000:]}" for file in logs)

    wait_until(lambda: bool(last_rows(steps_file(attempt, 0))), [], f"the first steps of {attempt.name}", PATIENCE_S, show)


def at_the_end(attempt: Path) -> str:
    """The checksum of the parameters of a run that passed its gates."""
    end = read(attempt / "end.json")
    assert (end["state"], [gate["name"] for gate in end["gates"] if not gate["passed"]]) == ("done", [])
    (gate,) = [gate for gate in end["gates"] if gate["name"] == "parameters agree"]
    return str(gate["evidence"].rpartition("at the end ")[2])


def in_one_piece(user: User, run_dir: Path) -> str:
    """What the same point comes to in as many processes that nobody interrupts."""
    spec = JobSpec(point=_point(run_dir), study=str(user.home / "whole"), backend="local")
    forked.values(user.home / "output", spec.point.ranks, run, spec_to_dict(spec), nodes=2)
    return at_the_end(spec.attempt_dir("7", 0))


def counted_steps(run_dir: Path, last: Path) -> list[int]:
    """Numbers of the steps that analysis counts in a run that counts, which the attempt `last` ended, with none lost."""
    point, end = _point(run_dir), read_training_end(last)
    blank = Run(label=point.label, run=1, state="missing", point=point)
    found = load_run(Study(run_dir.parents[1]).attempts(point.label, 1), blank, {}, [])
    assert (found.state, found.attempt, found.restarts, found.lost_steps) == ("counts", last.name, len(end.history) - 1, 0)
    parts = read_attempts(last, read_launch(last, point), end, point, [])
    return list(map(int, joined([part.steps for part in parts]).step))


def _point(run_dir: Path) -> Point:
    return point_from_dict(read(run_dir.parent / "point.json")["point"])
