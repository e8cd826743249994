"""Slurm's commands as questions: what is asked, and what a line of the answer means. Checked against Slurm 22.05."""

from __future__ import annotations

import os
import pwd
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from hpcddp.errors import HpcddpError
from hpcddp.settings import sbatch_environment

SEPARATOR = "\x1f"
"""Between columns: names and comments of other jobs may hold anything printable."""

PATIENCE_S = 120
"""A frozen controller makes a command give up by itself after 10-20 s (MessageTimeout)."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """A job as squeue or sacct lists it."""

    job: str
    name: str
    state: str
    """Slurm's word without what follows it (`CANCELLED`, not `CANCELLED by 0`)."""
    reason: str
    nodes: str
    workdir: str
    exit_code: str = ""
    """`code:signal`, from sacct only."""


def run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Runs a command of Slurm outside any enclosing allocation; HpcddpError where it is not installed or does not come back."""
    try:
        return subprocess.run(
            list(command),
            stdin=subprocess.DEVNULL,
            env=sbatch_environment(os.environ),
            capture_output=True,
            encoding="utf-8",
            errors="replace",  # a name of any other job may be in another encoding
            check=False,
            timeout=PATIENCE_S,
        )
    except FileNotFoundError as error:
        raise HpcddpError(f"no `{command[0]}` on this machine; Slurm's commands are on the login nodes of a cluster") from error
    except OSError as error:
        raise HpcddpError(f"{command[0]} cannot be run: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise HpcddpError(f"{command[0]} did not answer within {PATIENCE_S} s") from error


def ask(command: Sequence[str]) -> str:
    """What the command prints; HpcddpError with Slurm's words where it fails."""
    done = run(command)
    if done.returncode:
        raise HpcddpError(f"{command[0]}: {done.stderr.strip() or f'exit code {done.returncode}'}")
    return done.stdout


def my_jobs() -> dict[str, Row]:
    """All of the user's jobs that squeue knows, finished ones too (for MinJobAge), by id.

    Not asked by id: squeue fails for a single unknown one.
    """
    return _squeue("-u", str(os.getuid()))


def jobs_named(names: Iterable[str]) -> dict[str, Row]:
    """The same for all jobs of these names that this user may see, whoever submitted them."""
    return _squeue(f"--name={','.join(sorted(names))}")


def accounted(jobs: Iterable[str]) -> dict[str, Row]:
    """The jobs that accounting knows, by id; each as it ended last. A new job's row may be seconds late."""
    ids = sorted(jobs)
    return _sacct(["-j", ",".join(ids)]) if ids else {}


def accounted_by_name(name: str) -> dict[str, Row]:
    """Jobs of that name of the last seven days, of all users as far as accounting shows them."""
    return _sacct([f"--name={name}", "--starttime=now-7days", "--allusers"])


def accounts() -> list[str] | None:
    """The accounts Slurm lets this user charge; None where it keeps none or does not say."""
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
        text = ask(["sacctmgr", "-nP", "show", "assoc", f"user={user}", "format=account"])
    except (HpcddpError, KeyError):
        return None
    return sorted(set(text.split())) or None


def _squeue(*which: str) -> dict[str, Row]:
    columns = SEPARATOR.join(("%i", "%j", "%T", "%r", "%N", "%Z"))
    return _rows(ask(["squeue", "-h", "-t", "all", "-o", columns, *which]))


def _sacct(which: Sequence[str]) -> dict[str, Row]:
    fields = "JobID,JobName,State,Reason,NodeList,WorkDir,ExitCode"
    return _rows(ask(["sacct", "-nPX", f"--delimiter={SEPARATOR}", "-o", fields, *which]))


def _rows(text: str) -> dict[str, Row]:
    found = {}
    for line in text.split("\n"):
        columns = line.split(SEPARATOR)
        if len(columns) < 6:
            continue  # `CLUSTER: name` above the jobs of one of several clusters, or half of a name with a line break in it
        job, name, state, reason, nodes, workdir, *exit_code = columns
        word = (state.split() or ["UNKNOWN"])[0]
        found[job] = Row(
            job=job,
            name=name,
            state=word,
            reason=reason,
            nodes="" if nodes == "None assigned" else nodes,
            workdir=workdir,
            exit_code=exit_code[0] if exit_code else "",
        )
    return found


QUEUED = {"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD"}

RUNNING = {"RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING"}

WAITING: Mapping[str, str] = {
    "None": "just submitted",
    "Priority": "jobs of higher priority come first",
    "Resources": "the nodes it needs are busy",
    "Dependency": "waits for another job",
    "DependencyNeverSatisfied": "waits for a job that failed: it will never start",
    "BeginTime": "waits for its begin time (a requeued job: some two minutes)",
    "JobHeldUser": "held by its user; `scontrol release` lets it go",
    "JobHeldAdmin": "held by an administrator",
    "Reservation": "waits for its reservation",
    "PartitionDown": "its partition is down",
    "PartitionInactive": "its partition is inactive",
    "ReqNodeNotAvail": "nodes it needs are down, drained or reserved",
    "QOSMaxJobsPerUserLimit": "as many jobs run as its QOS allows a user",
    "AssocGrpCPUMinutesLimit": "its account's budget is used up",
    "AssocGrpBillingMinutes": "its account's budget is used up",
}
"""Reasons of squeue(1) as short sentences; others are shown as they are."""

ENDED: Mapping[str, str] = {
    "CANCELLED": "cancelled",
    "TIMEOUT": "the wall time was over",
    "OUT_OF_MEMORY": "out of memory",
    "NODE_FAIL": "a node failed",
    "BOOT_FAIL": "a node did not boot",
    "PREEMPTED": "preempted",
    "DEADLINE": "the deadline passed",
}


def waiting_words(reason: str) -> str:
    """Why a job waits: `the nodes it needs are busy (Resources)`."""
    words = WAITING.get(reason.split(",", maxsplit=1)[0])
    return f"{words} ({reason})" if words and reason != "None" else words or reason


def ended_words(row: Row) -> str:
    """How a job failed: `out of memory (OUT_OF_MEMORY)`, `exit code 15 (FAILED)`."""
    code, _, signal = row.exit_code.partition(":")
    if row.state == "FAILED" and row.exit_code:
        return f"killed by signal {signal} (FAILED)" if code == "0" and signal != "0" else f"exit code {code} (FAILED)"
    words = ENDED.get(row.state)
    return f"{words} ({row.state})" if words else row.state
