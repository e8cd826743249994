"""A user on a twin's login node: hpcddp's own command line, in a folder of theirs, on that Slurm."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hpcddp.core.job_ids import base_id
from tests.twin.twin import Twin

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

    def _logs(self, job: str) -> str:
        folders = self.home.rglob(f".jobs/{job.replace('_', '/')}")
        files = [file for folder in folders for file in sorted(folder.glob("*.err"))]
        return "\n".join(f"{file.name}: {file.read_text()[-2000:]}" for file in files)
