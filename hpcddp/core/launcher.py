"""How ranks are started: by the backend, each of them, or by one torchrun per node; both leave the same files.

torchrun is told where to meet by PET_ variables (torch/distributed/argparse_util.py), since a node's number and a step's port are
known inside the step only. An array, or runs that share an allocation, have a list of tasks, and a folder for each:

    .jobs/NAME/            the array's: job.sbatch, tasks.jsonl, submitted.pkl that all tasks load
    .jobs/NAME/7/          a task's: logs and results, as a single job's folder has them
    .jobs/ARRAYID -> NAME
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import shlex
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hpcddp.core.errors import HpcddpError
from hpcddp.core.job_ids import base_id, slurm_id, slurm_job
from hpcddp.core.point import Point
from hpcddp.core.records import write_file, write_json

TASKS = "tasks.jsonl"

PICKLE = "submitted.pkl"
"""In the folder of an array and of a single job: what submitit shall run."""

OWN = ("point", "run", "data_root", "script")
"""Keys of a job's spec that differ from task to task; the others are the same in all of an array."""


def prepare_array(folder: Path, specs: Sequence[Mapping[str, object]]) -> None:
    """Makes the folder of an array of these specs (of jobspec.spec_to_dict), task by task from 0."""
    folder.mkdir(parents=True)
    lines = [json.dumps({key: spec[key] for key in OWN if key in spec}, sort_keys=True, separators=(",", ":")) for spec in specs]
    write_file(folder / TASKS, "\n".join([*lines, ""]))
    for task in range(len(specs)):
        (folder / str(task)).mkdir()


def shared_by_all(spec: Mapping[str, object]) -> dict[str, object]:
    """The spec without what is a task's own."""
    return {key: value for key, value in spec.items() if key not in OWN}


def read_task(folder: Path) -> dict[str, Any]:
    """A task's own part of its spec; `folder` is the task's. HpcddpError where the array's list has no such line."""
    with (folder.parent / TASKS).open(encoding="utf-8") as lines:
        for number, line in enumerate(lines):
            if number == int(folder.name):
                own: dict[str, Any] = json.loads(line)
                return own
    raise HpcddpError(f"{folder.parent / TASKS} has no task {folder.name}")


def link_pickle(folder: Path, env: Mapping[str, str]) -> None:
    """Puts the pickle where submitit looks for it, by the job's id: the first rank that comes makes the link."""
    job = slurm_job(env) or ""
    with contextlib.suppress(FileExistsError):
        (folder / f"{slurm_id(job)}_submitted.pkl").symlink_to(PICKLE if base_id(job) == job else Path("..", PICKLE))


RUN_ID = "TORCHELASTIC_RUN_ID"
"""torchrun sets it in every process that it starts."""

SUBMITIT = {"slurm": ("SLURM_PROCID", "SLURM_LOCALID"), "local": ("SUBMITIT_LOCAL_GLOBALID", "SUBMITIT_LOCAL_LOCALID")}
"""By SUBMITIT_EXECUTOR: where submitit's job side finds rank and local rank (its `_env` tables)."""


def command_by_hand(python: str, point: Point) -> str:
    """Shell text of a step's tasks where `python`, also shell text, has hpcddp installed."""
    start = f"-m torch.distributed.run {torchrun_options(point)} " if point.layout.launcher == "torchrun" else ""
    return f"{python} -u {start}-m hpcddp.worker"


def command_from_snapshot(python: str, code: Path, folder: str, point: Point, trusted: Sequence[int] = ()) -> str:
    """The same where ranks run submitit's job side, from the snapshot `code`, on the files in `folder` (shell text too)."""
    bootstrap = " ".join([shlex.quote(str(code / "bootstrap.py")), *trust_option(trusted)])
    if point.layout.launcher == "direct":
        return f"{python} -u {bootstrap} {folder}"
    start = f"{python} -u {bootstrap} --module hpcddp.worker.torchrun {folder}"
    return f"{start} {torchrun_options(point)} {bootstrap} {folder}"


def trust_option(trusted: Sequence[int]) -> list[str]:
    """For the bootstrap: groups, by number, that may write where code is."""
    return ["--trust", ",".join(map(str, trusted))] if trusted else []


def torchrun_options(point: Point) -> str:
    """A rank that fails ends the job, and torchrun notices at once (torch 2.1 polls every 5 s by default)."""
    return f"--nnodes={point.layout.nodes} --nproc-per-node={point.ranks_per_node} --max-restarts=0 --monitor-interval=0.1"


def by_torchrun(env: Mapping[str, str] = os.environ) -> bool:
    """Whether torchrun started this process."""
    return RUN_ID in env


def become_submitit_task(folder: Path) -> None:
    """Makes this process the one that submitit expects in `folder`: the pickle is there, and a rank of torchrun has the number
    that it would have if each rank were a task, and logs of its own.
    """
    executor = os.environ.get("SUBMITIT_EXECUTOR", "")
    if executor == "slurm":
        link_pickle(folder, os.environ)
    if not by_torchrun():
        return
    rank, job = os.environ["RANK"], slurm_job(os.environ) if executor == "slurm" else os.environ["SUBMITIT_LOCAL_JOB_ID"]
    os.environ.update(zip(SUBMITIT[executor], (rank, os.environ["LOCAL_RANK"]), strict=True))
    write_logs_into(folder, str(job), rank)


LOGS = "HPCDDP_LOGS"
"""The folder of a rank's logs, where torchrun starts the worker without submitit."""

HOST_BUSY = 75
"""Exit code of a host's part of a run (sysexits.h, EX_TEMPFAIL): another run has the host."""


def write_logs_into(folder: Path, job: str, rank: str) -> None:
    """What this process writes goes into logs of its rank's own."""
    for handle, kind in ((1, "out"), (2, "err")):
        log = os.open(folder / f"{job}_{rank}_log.{kind}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        os.dup2(log, handle)
        os.close(log)


def ended_words(rank: int, code: int) -> str:
    """How a rank ended, by the exit code that its parent sees."""
    return f"rank {rank} was killed by {signal.Signals(-code).name}" if code < 0 else f"rank {rank} failed with exit code {code}"


def forget_failure(folder: Path, node: str) -> None:
    """A requeued job has the folder of its first start."""
    _note(folder, node).unlink(missing_ok=True)


def note_failure(folder: Path, node: str, codes: Mapping[int, int]) -> str:
    """Writes into the job's folder which rank ended a torchrun, by the exit codes of those that failed; returns the sentence. A
    rank that was killed comes before those that miss it, and these before those that torchrun itself then ended by SIGTERM.
    """
    first = min(codes, key=lambda rank: (codes[rank] == -signal.SIGTERM, codes[rank] > 0))
    words = ended_words(first, codes[first])
    write_json(_note(folder, node), {"killed": codes[first] < 0, "unix_ns": time.time_ns(), "words": words})
    return words


def first_failure(folder: Path) -> str | None:
    """The sentence of the node that failed first; a killed rank before those that miss it. None where torchrun noted nothing."""
    notes = [json.loads(file.read_text(encoding="utf-8")) for file in folder.glob("torchrun.*.json")]
    first = min(notes, key=lambda note: (not note["killed"], note["unix_ns"]), default=None)
    return None if first is None else str(first["words"])


def _note(folder: Path, node: str) -> Path:
    return folder / f"torchrun.{node}.json"


WORKER = "hpcddp.worker.main:run"


def call(entry: str, spec: Mapping[str, object]) -> object:
    """Calls `package.module:function` with `spec`: submitit pickles text, so that the login side never loads torch."""
    if by_torchrun():  # it ends the other ranks by SIGTERM when one fails; submitit had that ignored
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    module, _, function = entry.partition(":")
    return getattr(importlib.import_module(module), function)(spec)


def call_task(entry: str, shared: Mapping[str, object]) -> object:
    """The same in a task of an array, with `shared` and what is the task's own; submitit says the task's folder."""
    return call(entry, {**shared, **read_task(Path(os.environ["SUBMITIT_FOLDER"]))})
