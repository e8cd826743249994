"""submitit's Slurm executor with a script of ours: submitit brings function and result across, the text is the template's.

Single submissions only: submitit 1.5.4 submits arrays with its own base class, whatever the subclass says. Its names that are
relied upon here are held by a test.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from submitit.slurm.slurm import SlurmExecutor, SlurmJob

from hpcddp.backends.base import Submission
from hpcddp.errors import UsageError
from hpcddp.script import Launch

SCRIPT = "job.sbatch"


class TemplateExecutor(SlurmExecutor):
    """Submits one run. `send` takes the sbatch command line and returns the job's id."""

    def __init__(self, folder: Path, request: Submission, send: Callable[[Sequence[str]], str]) -> None:
        super().__init__(folder, max_num_timeout=0, python=request.python)
        layout = request.spec.point.layout
        self.update_parameters(time=math.ceil(request.walltime_min), nodes=layout.nodes, ntasks_per_node=layout.gpus_per_node)
        self._request = request
        self._send = send

    @classmethod
    def name(cls) -> str:
        """The job's side must answer to `slurm`."""
        return "slurm"

    @property
    def _submitit_command_str(self) -> str:
        return f"{self.python} -u {shlex.join([str(self._request.code / 'bootstrap.py'), str(self.folder)])}"

    def _make_submission_file_text(self, command: str, uid: str) -> str:
        if self._request.render_text is None:
            raise UsageError(f"{self._request.spec.label}: a Slurm job needs a script")
        logs = self.folder / "%j_%t_log"
        return self._request.render_text(Launch(command=command, output=f"{logs}.out", error=f"{logs}.err"))

    def _make_submission_command(self, submission_file_path: Path) -> list[str]:
        """Name, comment and the batch script's own logs ride on the command line: the script stays as `render` prints it."""
        request = self._request
        return [
            "sbatch",
            f"--job-name={request.name}",
            f"--comment=hpcddp:{request.study.name}:{request.spec.label}:r{request.spec.run}",
            f"--output={self.folder / 'batch.out'}",
            f"--error={self.folder / 'batch.err'}",
            f"--chdir={self.folder}",
            str(submission_file_path),
        ]

    def _submit_command(self, command: str) -> SlurmJob[Any]:
        """In place of the base class's: the script keeps its name, and a submission that timed out is looked for."""
        script = self.folder / SCRIPT
        script.write_text(self._make_submission_file_text(command, ""), encoding="utf-8")
        job = self._send(self._make_submission_command(script))
        return SlurmJob(folder=self.folder, job_id=job, tasks=list(range(self._num_tasks())))
