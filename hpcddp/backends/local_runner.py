"""The runner: one detached process per study that executes the queued runs one after another, each in a process group of its own.

Started by LocalBackend as `bootstrap.py --module hpcddp.backends.local_runner STUDY LOCK [--trust GIDS]`, where LOCK is the
inherited handle that holds runner.lock. On SIGTERM and SIGINT it ends the run at hand and marks all that wait as failed.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from submitit.local.local import LocalExecutor, LocalJob

from hpcddp.backends import local_queue as queue
from hpcddp.backends.local_queue import Entry
from hpcddp.backends.local_ranks import EXIT_FILE, GRACE_S, WALLTIME_VARIABLE, RanksExit
from hpcddp.core.bootstrap import PARENT_VARIABLE, ownership_problems
from hpcddp.core.job_ids import slurm_environment
from hpcddp.core.jobspec import spec_from_dict
from hpcddp.core.launcher import call, command_from_snapshot, trust_option
from hpcddp.core.records import not_for_others
from hpcddp.core.run_root import Study
from hpcddp.core.schema import decode

POLL_EVERY_S = 0.1

PORTS = range(20000, 32768)
"""Below Linux's ephemeral range, which starts at 32768."""


_TERMINATED = "its runner was terminated"


class Runner:
    """Executes the runs of one study's queue."""

    def __init__(self, study: Study, lock: int, trusted: Sequence[int]) -> None:
        """`trusted`: groups, by number, that may write in the study."""
        self._study = study
        self._lock = lock
        self._trusted = trusted
        self._terminated = False

    def end(self, *_: object) -> None:
        """Handler of SIGTERM and SIGINT."""
        self._terminated = True

    def work(self) -> None:
        """Runs what is queued until nothing is left, or until a signal ends it."""
        while job := self._take():
            self._run(job)

    def _take(self) -> str | None:
        """The next run, marked as running. With none the lock goes while the queue is held: who adds one starts a runner."""
        with queue.queue_lock(self._study):
            if self._terminated:
                queue.fail_all(self._study, {"running": _TERMINATED, "queued": f"{_TERMINATED} before it started"})
            job = queue.next_queued(self._study)
            if job is None:
                os.close(self._lock)
            else:
                queue.write_job_state(self._study, job, "running")
            return job

    def _run(self, job: str) -> None:
        folders = [self._study.code, self._study.jobs, self._study.job_dir(job)]
        if problems := list(ownership_problems(self._study.folder, folders, self._trusted)):
            queue.write_job_state(self._study, job, "failed", problems[0])
            return
        print(f"{time.strftime('%F %T')} {job} {queue.read_entry(self._study, job).name}", flush=True)
        process = start(self._study, job)
        stopped = None
        while stopped is None and not _has_ended(process):
            time.sleep(POLL_EVERY_S)
            stopped = self._stop_reason(job)
        end_group(process)
        reason = stopped or _why(self._study, job)
        queue.write_job_state(self._study, job, "failed" if reason else "done", reason)

    def _stop_reason(self, job: str) -> str | None:
        if self._terminated:
            return _TERMINATED
        return "cancelled" if queue.cancel_file(self._study, job).exists() else None


class _Executor(LocalExecutor):
    """submitit's local executor, with our controller in a session of its own, both sides from the job's snapshot."""

    def __init__(self, study: Study, job: str, entry: Entry, umask: int) -> None:
        super().__init__(study.job_dir(job), max_num_timeout=0, python=entry.python)
        self._umask = umask
        self._entry = entry
        self._job = job
        self._code = study.code / entry.code
        self._point = spec_from_dict(entry.spec).point

    @property
    def _submitit_command_str(self) -> str:
        return command_from_snapshot(self.python, self._code, shlex.quote(str(self.folder)), self._point, self._entry.trusted)

    def _submit_command(self, command: str) -> LocalJob[Any]:
        environment = {**_environment(self._entry, self._job, command), **self._point.env}
        if self._point.layout.launcher == "torchrun":
            environment |= _for_torchrun(environment)
        leader = [*_from_snapshot(self._code, self._entry), "hpcddp.backends.local_ranks", str(self.folder)]
        process = _start_leader(self.folder, leader, environment, self._umask)
        tasks = list(range(self._entry.ranks))
        return LocalJob(folder=self.folder, job_id=str(process.pid), process=process, tasks=tasks)


def start(study: Study, job: str) -> subprocess.Popen[bytes]:
    """The controller of the run's ranks, leader of its process group."""
    entry = queue.read_entry(study, job)
    if entry.hosts:
        folder, snapshot = study.job_dir(job), _from_snapshot(study.code / entry.code, entry)
        leader = [*snapshot, "hpcddp.backends.hosts_run", str(folder), str(study.folder)]
        return _start_leader(folder, leader, {**os.environ, PARENT_VARIABLE: str(os.getpid())})
    with not_for_others(entry.trusted) as umask:  # the pickle, which every rank loads
        executor = _Executor(study, job, entry, umask)
        submitted = cast(LocalJob[Any], executor.submit(call, entry.entry, dict(entry.spec)))
    return cast("subprocess.Popen[bytes]", submitted._process)


def _from_snapshot(code: Path, entry: Entry) -> list[str]:
    """Before the name of a module."""
    return [sys.executable, "-u", str(code / "bootstrap.py"), *trust_option(entry.trusted), "--module"]


def _start_leader(folder: Path, command: Sequence[str], env: Mapping[str, str], umask: int = -1) -> subprocess.Popen[bytes]:
    with (folder / "batch.out").open("ab") as out, (folder / "batch.err").open("ab") as err:
        return subprocess.Popen(
            command, env=env, cwd=folder, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True, umask=umask
        )


def _environment(entry: Entry, job: str, command: str) -> dict[str, str]:
    """What submitit's controller and ranks read (submitit.local.local), and what the worker reads."""
    environment = slurm_environment(os.environ)
    environment.update(
        SUBMITIT_EXECUTOR="local",
        SUBMITIT_LOCAL_NTASKS=str(entry.ranks),
        SUBMITIT_LOCAL_COMMAND=command,
        SUBMITIT_LOCAL_TIMEOUT_S="0",
        SUBMITIT_LOCAL_SIGNAL_DELAY_S="0",
        SUBMITIT_LOCAL_NODEID="0",
        SUBMITIT_LOCAL_JOB_NUM_NODES="1",
        SUBMITIT_LOCAL_WITH_SHELL="",
        SUBMITIT_STDERR_TO_STDOUT="",
        HPCDDP_JOB=job,
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(free_port()),
        OMP_NUM_THREADS=str(entry.threads_per_rank),
    )
    environment[PARENT_VARIABLE] = str(os.getpid())
    environment[WALLTIME_VARIABLE] = str(entry.walltime_s)
    if entry.device == "cpu":
        environment["CUDA_VISIBLE_DEVICES"] = ""
    return environment


def _for_torchrun(environment: Mapping[str, str]) -> dict[str, str]:
    """One torchrun is all that submitit's controller starts; its ranks meet where it listens."""
    where = {f"PET_{name}": environment[name] for name in ("MASTER_ADDR", "MASTER_PORT")}
    return {"SUBMITIT_LOCAL_NTASKS": "1", "PET_NODE_RANK": "0", **where}


def free_port() -> int:
    """A port nobody listens on just now."""
    for port in random.sample(PORTS, k=100):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise OSError(f"none of 100 ports tried between {PORTS.start} and {PORTS.stop} is free")


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    """True once the process has ended; it is not reaped, so that no other group can get its id."""
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def end_group(process: subprocess.Popen[bytes]) -> None:
    """Lets the controller end its ranks (SIGTERM), then kills what is left of the group."""
    if not _has_ended(process):
        process.send_signal(signal.SIGTERM)
    deadline_s = time.monotonic() + 2 * GRACE_S
    while time.monotonic() < deadline_s and not _has_ended(process):
        time.sleep(POLL_EVERY_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _why(study: Study, job: str) -> str | None:
    """Why a run failed, None if all its ranks came to their end."""
    try:
        return decode(RanksExit, json.loads((study.job_dir(job) / EXIT_FILE).read_text(encoding="utf-8"))).why
    except FileNotFoundError:
        return f"the process that watches its ranks died; see {study.job_dir(job).relative_to(study.folder)}/batch.err"


def main() -> None:
    """`STUDY LOCK [--trust GIDS]`, as LocalBackend starts it."""
    trusted = [int(number) for option in sys.argv[4:] for number in option.split(",")]
    runner = Runner(Study(Path(sys.argv[1])), int(sys.argv[2]), trusted)
    signal.signal(signal.SIGTERM, runner.end)
    signal.signal(signal.SIGINT, runner.end)
    os.set_inheritable(int(sys.argv[2]), False)
    runner.work()


if __name__ == "__main__":
    main()
