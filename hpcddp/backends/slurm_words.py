"""Slurm's words, told in ours: why a job waits, how it ended; and its durations, `1-12:00:00` or `20:00`, as numbers."""

from __future__ import annotations

import re
from collections.abc import Mapping

from hpcddp.core.text import thousands

WAITING: Mapping[str, str] = {
    "None": "just submitted",
    "Priority": "waits for jobs of higher priority",
    "Resources": "required nodes are busy",
    "Nodes_required_for_job_are_DOWN,_DRAINED_or_reserved_for_jobs_in_higher_priority_partitions": (
        "required nodes are down, drained or reserved"
    ),
    "ReqNodeNotAvail": "required nodes are down, drained or reserved",
    "Reservation": "waits for its reservation",
    "ReservationDeleted": "its reservation no longer exists: it will not start",
    "Dependency": "waits for another job",
    "DependencyNeverSatisfied": "waits for a job that failed: it will never start",
    "BeginTime": "waits for its begin time (after a requeue: about 2 min)",
    "JobArrayTaskLimit": "its array has reached --max-running",
    "Licenses": "waits for a licence",
    "Cleaning": "Slurm cleans up after its last attempt",
    "Prolog": "Slurm prepares its nodes",
    "JobHeldUser": "held by its user; release it with `scontrol release`",
    "JobHeldAdmin": "held by an administrator",
    "JobHoldMaxRequeue": "held: it was requeued too often; release it with `scontrol release`",
    "launch_failed_requeued_held": "held: a node could not start it; release it with `scontrol release`",
    "BadConstraints": "no node has what it requests: it will never start",
    "PartitionDown": "its partition is down",
    "PartitionInactive": "its partition is inactive",
    "PartitionNodeLimit": "it requests more or fewer nodes than its partition allows: it will not start",
    "PartitionTimeLimit": "it requests more time than its partition allows: it will not start",
    "AccountNotAllowed": "its account may not use this partition: it will not start",
    "QOSNotAllowed": "it may not use its QOS: it will not start",
    "InvalidAccount": "its account is not valid: it will not start",
    "InvalidQOS": "its QOS is not valid: it will not start",
    "NodeDown": "a required node is down",
    "FrontEndDown": "no front-end node is up",
    "QOSJobLimit": "its QOS has reached its job limit",
    "QOSResourceLimit": "its QOS has reached its resource limit",
    "QOSTimeLimit": "the time budget of its QOS is used up",
    "QOSUsageThreshold": "its share of the QOS is used up at present",
    "AssociationJobLimit": "its account has reached its job limit",
    "AssociationResourceLimit": "its account has reached its resource limit",
    "AssociationTimeLimit": "the time budget of its account is used up",
}
"""Of limits see _LIMIT."""

_LIMIT = re.compile(
    r"(?P<whose>Assoc|QOS)(?P<which>Grp|Max)(?P<what>Billing|CPU|GRES|SubmitJobs?|Jobs?|Memory|Mem|Nodes?|Wall|Energy)"
    r"(?P<time>RunMinutes|Minutes|Duration)?(?P<per>PerUser|PerAccount|PerJob|PerNode)?(?:Limit)?",
    re.IGNORECASE,
)
"""`QOSMaxNodePerUserLimit`, `AssocGrpCPUMinutesLimit`: slurm.h has some sixty of them."""

_WHAT = {
    "billing": "billing units",
    "cpu": "processors",
    "gres": "GPUs",
    "job": "jobs at a time",
    "jobs": "jobs at a time",
    "submitjob": "jobs in the queue",
    "submitjobs": "jobs in the queue",
    "mem": "memory",
    "memory": "memory",
    "node": "nodes",
    "nodes": "nodes",
    "wall": "time",
    "energy": "energy",
}

_PER = {"peruser": " a user", "peraccount": " an account", "perjob": " a job", "pernode": " a node"}

ENDED: Mapping[str, str] = {
    "CANCELLED": "cancelled{by}",
    "TIMEOUT": "it reached its time limit{limit}",
    "DEADLINE": "it did not finish before its deadline",
    "OUT_OF_MEMORY": "it used more memory than Slurm gave it",
    "NODE_FAIL": "{node} failed",
    "BOOT_FAIL": "{node} did not boot",
    "PREEMPTED": "it was preempted by a job of higher priority",
}
"""Slurm's word for what it ended itself -> the sentence; study/diagnosis.py says what to do."""


def waiting_words(reason: str) -> str:
    """Why a job waits: `required nodes are busy (Resources)`; a reason that is not known is shown as it is."""
    word = reason.split(",", maxsplit=1)[0]
    words = WAITING.get(reason) or WAITING.get(word) or _limit_words(word)
    return f"{words} ({reason})" if words and reason != "None" else words or reason


def _limit_words(word: str) -> str | None:
    """A limit of an account or a QOS: what it counts, and whether the job can start some day."""
    found = _LIMIT.fullmatch(word)
    if found is None:
        return None
    whose = "its account" if found["whose"].lower() == "assoc" else "its QOS"
    what, per = _WHAT[found["what"].lower()], (found["per"] or "").lower()
    if per in ("perjob", "pernode"):
        return f"it requests more {what} than {whose} allows{_PER[per]}: it will not start"
    if (found["time"] or "").lower() == "minutes" or what == "time":
        return f"the budget of {whose} is used up"
    return f"{whose} allows{_PER.get(per, '')} no more {what} at present"


_LOG_FAILED = "0:53"
"""sacct's exit code where slurmstepd could not open the log, or enter the job's folder: it is read-only on the node, or missing
(Slurm 22.05)."""


def end_sentence(state: str, *, by: str | None = None, limit_min: int | None = None, node: str = "its node") -> str:
    """`it reached its time limit of 30 min (TIMEOUT)`; `state` is one of ENDED."""
    limit = f" of {thousands(limit_min)} min" if limit_min else ""
    return f"{ENDED[state].format(by=f' by {by}' if by else '', limit=limit, node=node)} ({state})"


def slurm_ended_words(state: str, exit_code: str) -> str:
    """How a job failed: `its node failed (NODE_FAIL)`, `exit code 15 (FAILED)`; `exit_code` as sacct has it."""
    code, _, signal = exit_code.partition(":")
    if state == "FAILED" and exit_code == _LOG_FAILED:
        return f"its node cannot write the log of its job script ({state}, {exit_code})"
    if state == "FAILED" and exit_code:
        return f"killed by signal {signal} (FAILED)" if code == "0" and signal != "0" else f"exit code {code} (FAILED)"
    return end_sentence(state) if state in ENDED else state


def limit_min(text: str | None) -> int | None:
    """Slurm's `1-12:00:00`, `20:00` or `00:20:00` in whole minutes; None where there is no limit, or none is known."""
    seconds = time_s(text)
    return None if seconds is None else int(seconds) // 60


def time_s(text: str | None) -> float | None:
    """The same in seconds."""
    found = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)", text or "")
    if found is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return 60.0 * ((days * 24 + hours) * 60 + minutes) + seconds
