"""The files that a submission writes into its folder before it calls sbatch, and the arguments of sbatch. submitit carries the
function and its result, the script is the template's.

The pickle's name has no job id, which nobody knows yet: a job whose submission died before sbatch answered finds it too.
"""

from __future__ import annotations

import math
import pickle
import shlex
from dataclasses import replace
from pathlib import Path

from submitit.core.utils import DelayedSubmission

from hpcddp.backends.base import Batch, Submission
from hpcddp.core.entry import call, call_task
from hpcddp.core.errors import UsageError
from hpcddp.core.jobspec import spec_to_dict
from hpcddp.core.launcher import PICKLE, command_from_snapshot, prepare_array, shared_by_all
from hpcddp.core.records import not_for_others, write_file
from hpcddp.script.render import ScriptLaunch, folders_of

SCRIPT = "job.sbatch"

PREFLIGHT = "preflight"
"""In the folder of one allocation: the files of what measures its nodes."""


def prepare(folder: Path, batch: Batch) -> list[str]:
    """Makes the folder with script, pickle and, of several runs, the list of them; returns the command that submits it."""
    with not_for_others(batch.submissions[0].trusted):
        _write(folder, batch)
    return _command(folder, batch)


def _write(folder: Path, batch: Batch) -> None:
    first = batch.submissions[0]
    specs = [spec_to_dict(submission.spec) for submission in batch.submissions]
    if batch.is_array or batch.one_allocation:
        prepare_array(folder, specs)
        delayed = DelayedSubmission(call_task, first.entry, shared_by_all(specs[0]))
    else:
        folder.mkdir(parents=True)
        delayed = DelayedSubmission(call, first.entry, specs[0])
    _write_pickle(folder, delayed, first.walltime_min)
    if batch.one_allocation:
        preflight = batch.one_allocation.preflight
        (folder / PREFLIGHT).mkdir()
        called = DelayedSubmission(call, preflight.entry, spec_to_dict(preflight.spec))
        _write_pickle(folder / PREFLIGHT, called, preflight.walltime_min)
    write_file(folder / SCRIPT, _script(folder, batch))


def _write_pickle(folder: Path, delayed: DelayedSubmission, walltime_min: float) -> None:
    delayed.set_timeout(math.ceil(walltime_min), max_num_timeout=0)
    write_file(folder / PICKLE, pickle.dumps(delayed, protocol=5))


def _script(folder: Path, batch: Batch) -> str:
    first, quoted = batch.submissions[0], shlex.quote(str(folder))
    if batch.one_allocation:
        launches = [
            _launch(submission, f"{quoted}/{task}", folder / f"{task}/%j_%t_log")
            for task, submission in enumerate(batch.submissions)
        ]
        own = f"{quoted}/{PREFLIGHT}"
        preflight = _launch(batch.one_allocation.preflight, own, folder / f"{PREFLIGHT}/%j_%t_log")
        return batch.one_allocation.render_text(batch.name, str(folder), launches, preflight)
    if first.render_text is None:
        raise UsageError(f"{first.spec.label}: a Slurm job needs a script")
    if batch.is_array:
        launch = _launch(first, f'{quoted}/"$SLURM_ARRAY_TASK_ID"', folder / "%a/%A_%a_%t_log")
        return first.render_text(replace(launch, array=batch.name))
    return first.render_text(_launch(first, quoted, folder / "%j_%t_log"))


def _launch(submission: Submission, own: str, logs: Path) -> ScriptLaunch:
    """`own`: where the run's files are, as shell text; `logs`: those of its ranks, without what tells them apart."""
    command = command_from_snapshot(submission.python, submission.code, own, submission.spec.point, submission.trusted)
    folders = folders_of(submission.spec)
    if submission.spec.point.layout.launcher == "torchrun":  # its ranks open their logs themselves
        return ScriptLaunch(command=command, folders=folders)
    return ScriptLaunch(command=command, output=f"{logs}.out", error=f"{logs}.err", folders=folders)


def _command(folder: Path, batch: Batch) -> list[str]:
    """Name, comment and the logs of the batch script are options of sbatch, so that the script is as `render` prints it."""
    spec, several = batch.submissions[0].spec, batch.is_array or batch.one_allocation
    own = folder / "%a" if batch.is_array else folder
    awaited = [f"{kind}:{':'.join(jobs)}" for kind, jobs in (("afterok", batch.after_ok), ("afterany", batch.after)) if jobs]
    return [
        "sbatch",
        f"--job-name={batch.name}",
        f"--comment=hpcddp:{batch.study.name}:{f'{len(batch.submissions)} runs' if several else f'{spec.label}:r{spec.run}'}",
        f"--output={own / 'batch.out'}",
        f"--error={own / 'batch.err'}",
        f"--chdir={folder}",
        *([f"--array=0-{len(batch.submissions) - 1}{f'%{batch.at_once}' if batch.at_once else ''}"] if batch.is_array else []),
        *([f"--dependency={','.join(awaited)}"] if awaited else []),
        *(["--kill-on-invalid-dep=yes"] if batch.after_ok else []),
        str(folder / SCRIPT),
    ]
