"""What a submission leaves in its folder before sbatch is asked, and how sbatch is asked. submitit brings function and result
across, the text is the template's.

The pickle does not bear the job's id, which nobody knows yet: a job whose submission died before sbatch answered finds it too.
"""

from __future__ import annotations

import math
import pickle
import shlex
from pathlib import Path

from submitit.core.utils import DelayedSubmission

from hpcddp import job_array
from hpcddp.backends.base import Batch
from hpcddp.entry import call, call_task
from hpcddp.errors import UsageError
from hpcddp.jobspec import spec_to_dict
from hpcddp.launcher import command_from_snapshot
from hpcddp.script import Launch

SCRIPT = "job.sbatch"


def prepare(folder: Path, batch: Batch) -> list[str]:
    """Makes the folder with script, pickle and, of an array, the list of its tasks; the command that submits it."""
    first = batch.requests[0]
    specs = [spec_to_dict(request.spec) for request in batch.requests]
    if batch.is_array:
        job_array.prepare(folder, specs)
        delayed = DelayedSubmission(call_task, first.entry, job_array.shared_by_all(specs[0]))
    else:
        folder.mkdir(parents=True)
        delayed = DelayedSubmission(call, first.entry, specs[0])
    delayed.set_timeout(math.ceil(first.walltime_min), max_num_timeout=0)
    (folder / job_array.PICKLE).write_bytes(pickle.dumps(delayed, protocol=5))
    (folder / SCRIPT).write_text(_script(folder, batch), encoding="utf-8")
    return _command(folder, batch)


def _script(folder: Path, batch: Batch) -> str:
    first = batch.requests[0]
    point = first.spec.point
    if first.render_text is None:
        raise UsageError(f"{first.spec.label}: a Slurm job needs a script")
    own = shlex.quote(str(folder)) + ('/"$SLURM_ARRAY_TASK_ID"' if batch.is_array else "")
    command = command_from_snapshot(first.python, first.code, own, point)
    array = batch.name if batch.is_array else None
    if point.layout.launcher == "torchrun":  # its ranks open their logs themselves
        return first.render_text(Launch(command=command, array=array))
    logs = folder / ("%a/%A_%a_%t_log" if batch.is_array else "%j_%t_log")
    return first.render_text(Launch(command=command, output=f"{logs}.out", error=f"{logs}.err", array=array))


def _command(folder: Path, batch: Batch) -> list[str]:
    """Name, comment and the batch script's own logs ride on the command line: the script stays as `render` prints it."""
    spec = batch.requests[0].spec
    own = folder / "%a" if batch.is_array else folder
    awaited = [f"{kind}:{':'.join(jobs)}" for kind, jobs in (("afterok", batch.after_ok), ("afterany", batch.after)) if jobs]
    return [
        "sbatch",
        f"--job-name={batch.name}",
        f"--comment=hpcddp:{batch.study.name}:{f'{len(batch.requests)} runs' if batch.is_array else f'{spec.label}:r{spec.run}'}",
        f"--output={own / 'batch.out'}",
        f"--error={own / 'batch.err'}",
        f"--chdir={folder}",
        *([f"--array=0-{len(batch.requests) - 1}{f'%{batch.at_once}' if batch.at_once else ''}"] if batch.is_array else []),
        *([f"--dependency={','.join(awaited)}"] if awaited else []),
        str(folder / SCRIPT),
    ]
