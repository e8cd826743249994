"""Queries of Slurm: the command of each, what a line of its output means, and which Slurm it is. Checked against Slurm 22.05."""

from __future__ import annotations

import os
import pwd
import re
import selectors
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from hpcddp.backends.slurm_words import limit_min
from hpcddp.core.errors import REFUSED, HpcddpError
from hpcddp.core.job_ids import base_id, each_task, slurm_environment

SEPARATOR = "\x1f"
"""Between columns: names and comments of other jobs may hold anything printable."""

COMMAND_TIMEOUT_S = 40.0
"""A frozen controller makes a command give up by itself after 10-20 s (MessageTimeout), a busy one may answer later."""

AGAIN_TIMEOUT_S = 15.0
"""The same while the controller is away: with that, a command of hpcddp that gives up does so within a minute."""

SILENT_S = 5.0
"""After so long a user wonders: what is waited for is said."""

UNANSWERED = re.compile(
    r"timed out|did not answer|unable to contact|connection refused|zero bytes|transport endpoint|communication"
    r"|message (send|receive) failure",
    re.IGNORECASE,
)
"""A command's stderr when no answer came (slurm_errno.c). Slurm 22.05, controller frozen: sbatch says `Socket timed out on
send/recv operation`, and the job was queued."""


NAMES_PER_QUERY = 2000
"""Names or ids in a command: an argument may have 128 KiB (MAX_ARG_STRLEN of Linux), and no job's name has 60 bytes."""

SBATCH_RETRIES = "sleeping and retrying"
"""sbatch's words where the controller takes no more jobs (MaxJobCount): it goes on for two minutes (sbatch.c, MAX_RETRIES)."""


QUEUED = {"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD"}

RUNNING = {"RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING"}


NOT_BY_CONTROLLER = {"sacct", "sacctmgr", "srun"}
"""Commands that slurmdbd answers; `srun --version` asks nobody."""


class UnansweredError(HpcddpError):
    """The controller did not answer: ask again, or later."""

    exit_code = REFUSED


@dataclass(frozen=True, kw_only=True)
class JobRow:
    """A job as squeue or sacct lists it."""

    job: str
    name: str
    state: str
    """Slurm's word without what follows it (`CANCELLED`, not `CANCELLED by 0`)."""
    by: str | None = None
    """Who cancelled it: the number of the user, from sacct only."""
    reason: str
    nodes: str
    workdir: str
    exit_code: str = ""
    """`code:signal`, from sacct only."""
    time_limit: str = ""
    """As Slurm writes it: `1-12:00:00`."""
    time_left: str = ""
    """The same, of a job that runs; `UNLIMITED` or `INVALID` where there is none."""
    start: str = ""
    """Of a job that waits: when Slurm expects to start it, as ISO 8601; `N/A` where it does not know."""

    @property
    def is_live(self) -> bool:
        """Whether the job waits or runs."""
        return self.state in QUEUED | RUNNING


class _Absence:
    """Of the controller."""

    since_s: float | None = None
    """When the first command began that it did not answer, on the monotonic clock; None: it answered the last one."""
    is_said = False


def away_s() -> float:
    """For how long the controller has answered nothing; 0 if it answered the last command."""
    return 0.0 if _Absence.since_s is None else time.monotonic() - _Absence.since_s


def say_absence(why: str) -> None:
    """What is waited for on stderr, once until the controller answers again."""
    if not _Absence.is_said:
        _Absence.is_said = True
        print(f"! waiting for Slurm: {why}", file=sys.stderr, flush=True)


def run_command(command: Sequence[str], timeout_s: float | None = None) -> subprocess.CompletedProcess[str]:
    """Runs a command of Slurm outside any allocation; ends an sbatch that retries. UnansweredError where it takes too long."""
    start_s, unanswered = time.monotonic(), False
    try:
        done = _run(command, timeout_s or (AGAIN_TIMEOUT_S if away_s() else COMMAND_TIMEOUT_S))
        unanswered = done.returncode != 0 and UNANSWERED.search(done.stderr) is not None
    except UnansweredError:
        unanswered = True
        raise
    finally:
        if command[0] not in NOT_BY_CONTROLLER:
            _Absence.since_s = (_Absence.since_s or start_s) if unanswered else None
            _Absence.is_said = _Absence.is_said and unanswered
    return done


def _run(command: Sequence[str], timeout_s: float) -> subprocess.CompletedProcess[str]:
    try:
        process = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**slurm_environment(os.environ), "SLURM_BITSTR_LEN": "0"},  # lists of tasks in full
        )
    except FileNotFoundError as error:
        raise HpcddpError(f"This machine has no `{command[0]}`. Slurm's commands are on a cluster's login nodes.") from error
    except OSError as error:
        raise HpcddpError(f"{command[0]} cannot be run: {error.strerror}") from error
    with process:
        out, err = _read_output(process, command[0], timeout_s)
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def _read_output(process: subprocess.Popen[bytes], name: str, timeout_s: float) -> tuple[str, str]:
    """Its stdout and stderr until it closes them; UnansweredError where it was killed after that time. In this thread: starting
    others to read and to watch the time took a tenth of a submission.
    """
    start_s = time.monotonic()
    deadline = start_s + timeout_s
    output = {pipe.fileno(): bytearray() for pipe in (process.stdout, process.stderr) if pipe}
    out, err = output.values()
    with selectors.DefaultSelector() as pipes:
        for pipe in output:
            pipes.register(pipe, selectors.EVENT_READ)
        while pipes.get_map():
            ready = pipes.select(max(0.0, min(deadline, start_s + SILENT_S) - time.monotonic()))
            if not ready and time.monotonic() < deadline:
                say_absence(f"{name} has not answered for {SILENT_S:.0f} s")
                ready = pipes.select(max(0.0, deadline - time.monotonic()))
            if not ready:
                process.kill()
                raise UnansweredError(f"{name} did not answer within {timeout_s:.0f} s")
            for pipe in (key.fd for key, _ in ready):
                data = os.read(pipe, 1 << 16)
                output[pipe] += data
                if not data:
                    pipes.unregister(pipe)
            if SBATCH_RETRIES.encode() in err:
                process.kill()
    return out.decode("utf-8", "replace"), err.decode("utf-8", "replace")  # any other job's name may be in another encoding


def query(command: Sequence[str], timeout_s: float | None = None) -> str:
    """What the command prints; HpcddpError with its stderr where it fails, UnansweredError where no controller answered."""
    done = run_command(command, timeout_s)
    if done.returncode:
        words = done.stderr.strip() or f"exit code {done.returncode}"
        raise (UnansweredError if UNANSWERED.search(words) else HpcddpError)(f"{command[0]}: {words}")
    return done.stdout


def my_jobs() -> dict[str, JobRow]:
    """All of the user's jobs that squeue knows, finished ones too (for MinJobAge), by id. Not by id: squeue fails for a single
    unknown one.
    """
    return _squeue("-u", str(os.getuid()))


def jobs_named(names: Iterable[str]) -> dict[str, JobRow]:
    """The same for all jobs of these names that this user may see, whoever submitted them."""
    return {job: row for part in _chunks(names) for job, row in _squeue(f"--name={','.join(part)}").items()}


def jobs_of(ids: Sequence[str]) -> dict[str, JobRow]:
    """The same for these ids, whoever submitted them; without those that squeue does not know."""
    try:
        return _squeue("-j", ",".join(ids)) if ids else {}
    except HpcddpError as error:
        if "invalid job id" in str(error).lower():
            return {}
        raise


def accounted(jobs: Iterable[str]) -> dict[str, JobRow]:
    """The jobs that accounting knows, by id; each as it ended last. A new job's row may be seconds late."""
    ids = {base_id(job) for job in jobs}
    return {job: row for part in _chunks(ids) for job, row in _sacct(["-j", ",".join(part)]).items()}


def accounted_by_name(name: str) -> dict[str, JobRow]:
    """Jobs of that name of the last seven days, of all users as far as accounting shows them."""
    return _sacct([f"--name={name}", "--starttime=now-7days", "--allusers"])


def accounts() -> list[str] | None:
    """The accounts Slurm lets this user charge; None where it keeps none or does not say."""
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
        text = query(["sacctmgr", "-nP", "show", "assoc", f"user={user}", "format=account"])
    except (HpcddpError, KeyError):
        return None
    return sorted(set(text.split())) or None


def longest_min(partition: str | None) -> int | None:
    """Minutes that a job may take in the partition, by default Slurm's default one; None: no limit, or none known."""
    try:
        text = query(["scontrol", "--oneliner", "show", "partition", *([partition] if partition else [])])
    except HpcddpError:
        return None
    lines = (line for line in text.splitlines() if partition or "Default=YES" in line)
    found = next((re.search(r"\bMaxTime=(\S+)", line) for line in lines), None)
    return limit_min(found[1]) if found else None


def running_steps(job: str) -> dict[str, str]:
    """Of a job's steps that run, name -> id."""
    lines = query(["squeue", "-h", "-s", "-j", job, "-o", f"%i{SEPARATOR}%j"]).splitlines()
    return {name: step for step, _, name in (line.partition(SEPARATOR) for line in lines)}


def max_array_size() -> int:
    """MaxArraySize of slurm.conf, one more than the highest number of a task; 0 where the controller has no arrays."""
    found = re.search(r"^MaxArraySize\s*=\s*(\d+)", query(["scontrol", "show", "config"]), re.MULTILINE)
    return int(found[1]) if found else 0


def _chunks(names: Iterable[str]) -> Iterator[list[str]]:
    """In order; none where there are no names."""
    ordered = sorted(names)
    return (ordered[start : start + NAMES_PER_QUERY] for start in range(0, len(ordered), NAMES_PER_QUERY))


def _squeue(*which: str) -> dict[str, JobRow]:
    columns = SEPARATOR.join(("%i", "%j", "%T", "%r", "%N", "%Z", "", "%l", "%S", "%L"))
    return _rows(query(["squeue", "-h", "-r", "-t", "all", "-o", columns, *which]))


def _sacct(which: Sequence[str]) -> dict[str, JobRow]:
    fields = "JobID,JobName,State,Reason,NodeList,WorkDir,ExitCode,Timelimit"
    return _rows(query(["sacct", "-nPX", f"--delimiter={SEPARATOR}", "-o", fields, *which]))


def _rows(text: str) -> dict[str, JobRow]:
    found = {}
    for line in text.split("\n"):
        columns = line.split(SEPARATOR)
        if len(columns) < 6:
            continue  # `CLUSTER: name` above the jobs of one of several clusters, or half of a name with a line break in it
        job, name, state, reason, nodes, workdir = columns[:6]
        exit_code, time_limit, start, time_left = (*columns[6:], "", "", "", "")[:4]
        word, *who = state.split() or ["UNKNOWN"]
        for task in each_task(job):
            found[task] = JobRow(
                job=task,
                name=name,
                state=word,
                reason=reason,
                nodes="" if nodes == "None assigned" else nodes,
                workdir=workdir,
                exit_code=exit_code,
                time_limit=time_limit,
                time_left=time_left,
                start=start,
                by=who[1] if len(who) == 2 else None,
            )
    return found


OLDEST = (22, 5)
"""The oldest Slurm that hpcddp supports: its commands' output is read as from this one on, and scripts are tried with it."""

TIMEOUT_S = 5
"""`srun --version` asks no controller."""


def version_here() -> str | None:
    """`22.05.8`; None where it does not say."""
    try:
        found = re.search(r"\b\d+\.\d+(\.\w+)*", query(["srun", "--version"], TIMEOUT_S))
    except HpcddpError:
        return None
    return found[0] if found else None


def too_old(version: str | None) -> str | None:
    """A sentence where Slurm of that version is older than any that hpcddp supports; an unknown one is taken for a newer."""
    found = re.match(r"(\d+)\.(\d+)", version or "")
    if found is None or (int(found[1]), int(found[2])) >= OLDEST:
        return None
    return f"Slurm {version} is older than {OLDEST[0]}.{OLDEST[1]:02d}, the oldest that hpcddp supports"
