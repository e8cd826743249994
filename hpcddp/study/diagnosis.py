"""Why a run did not finish, as a sentence, and what to do next: from Slurm's word, end.json and the end of the logs.

What Slurm itself ended comes first, since whatever ranks say of it is a consequence; then what the ranks recorded; then the logs.
`{node}` of a next step is the node at fault, where that is known.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from hpcddp.backends.base import JobState
from hpcddp.backends.slurm_words import ENDED, end_sentence, limit_min
from hpcddp.core.attempt_records import AttemptEnd, Fault
from hpcddp.core.causes import (
    AGAIN,
    CAUSES_IN_LOGS,
    EXCLUDE_NODE,
    EXCLUDE_WITHOUT_GPU,
    FIX_COMPUTE,
    HARMLESS,
    MAKE_ROOM,
    MORE_MEMORY,
    PROVIDE_DATA,
    WRITABLE_RUNS,
    cause_of,
)
from hpcddp.study.logs import LogLine

READ_LOGS = "read its output with `hpcddp logs`; then submit it again"

NO_STEP_IN_TIME = (
    "find what the ranks waited for with `hpcddp logs`; fix that, then submit it again. A longer limit alone would not help"
)
"""Of a run whose time limit was over before it made a step."""

BY_STATE: Mapping[str, str] = {
    "CANCELLED": f"{AGAIN} if that was not meant",
    "TIMEOUT": "raise slurm.walltime_min in the sweep{above}, or time fewer steps; then submit it again",
    "DEADLINE": "omit --deadline, or set a later one; then submit it again",
    "OUT_OF_MEMORY": MORE_MEMORY,
    "NODE_FAIL": EXCLUDE_NODE,
    "BOOT_FAIL": EXCLUDE_NODE,
    "PREEMPTED": f"{AGAIN}; with measure.resume: true a run resumes from its last checkpoint",
}
"""By Slurm's word for what it ended itself; slurm_words.ENDED has the sentences. `{above}`: the time limit it had."""

BY_FAULT: Mapping[str, str] = {
    "died": EXCLUDE_NODE,
    "silent": EXCLUDE_NODE,
    "hung": "check the place that it names, and `hpcddp logs`; if {node} fails every time: --set slurm.exclude={node}",
    "late": "find with `hpcddp logs` where it was, and fix the delay; if {node} fails every time: --set slurm.exclude={node}",
    "stuck": "submit it again; if it recurs, ask the site to check the network between these nodes",
    "out_of_memory": "set workload.batch_per_gpu{fits} in the sweep, which creates a different point; then submit",
    "disk": MAKE_ROOM,
    "loader": "lower workload.loader_workers_per_rank in the sweep, which creates a different point; then submit",
    "contact": "submit it again; if it recurs, read each rank's log with `hpcddp logs POINT --rank N`",
    "time_out": "submit it again; if it recurs, read each rank's log with `hpcddp logs POINT --rank N`",
    "user": "fix that; then submit it again",
    "diverged": "lower workload.optimizer.lr in the sweep, which creates a different point; then submit",
    "interrupted": AGAIN,
    "error": "find the place in the code with `hpcddp logs`; fix it, then submit it again",
}
"""Kind of a fault (worker/watchdog/detector.py and worker/faults.py) -> next step; its sentence is the worker's own."""

NO_GPU = re.compile(r"finds no GPU")
"""worker/gpus.py's words; torch has said why in the rank's log."""

BY_SENTENCE: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"the script's batch"), "fix it in the script, or by workload.args where its batch is one; then submit"),
    (re.compile(r"the script's DataLoader"), "fix it in the script, or by workload.args where that is one; then submit"),
    (re.compile(r"no such folder on|No such file|data prepare|data fetch|workload\.data\.root|fetch it again"), PROVIDE_DATA),
    (re.compile(r"cannot write the log"), WRITABLE_RUNS),
    (NO_GPU, EXCLUDE_WITHOUT_GPU),
    (
        re.compile(r"`ulimit -[vd]`"),
        "raise that limit where the ranks start, or lower workload.batch_per_gpu, which creates a different point; then submit",
    ),
    (
        re.compile(r"could not be allocated, though"),
        "find the limit (`ulimit -a` in a job, vm.overcommit_memory, another rank's GPU); then submit",
    ),
    (
        re.compile(r"the job is not requeued"),
        "raise slurm.walltime_min in the sweep, or let Slurm warn later (-J --signal=USR2@SECONDS); then submit it again",
    ),
    (re.compile(r"under `compute`|is built without CUDA|install a build"), FIX_COMPUTE),
)
"""Next steps for some of the sentences of kinds `user`, `disk`, `error`, `loader` and `out_of_memory`, and of Slurm's."""


@dataclass(frozen=True, kw_only=True)
class Reason:
    """`line`: the line of a log or error that says so, where the sentence is not that line already."""

    sentence: str
    next_step: str
    line: str | None = None


_CONSEQUENCES = ("died", "silent", "contact", "time_out", "interrupted")
"""Kinds of faults that ranks record when Slurm ends them."""

_STATE_BY_LOG = (
    (re.compile(r"DUE TO TIME LIMIT"), "TIMEOUT"),
    (re.compile(r"DUE TO NODE FAILURE"), "NODE_FAIL"),
    (re.compile(r"DUE TO PREEMPTION"), "PREEMPTED"),
)
"""slurmstepd's words in the log of a job that Slurm itself has forgotten."""

_CAUSE_IN_LOG = ("died", "contact", "time_out")
"""Kinds whose cause may stand in the log of another rank, or of the same before it died."""

_RANK = re.compile(r"rank \d+ on [^\s:]+: ")

_FITS = re.compile(r": (\d+) is the largest power of two that may fit|take a smaller one, such as (\d+)")
"""worker/memory_fit.py's words."""


def reason_of(
    job: JobState, end: AttemptEnd | None, log: Sequence[LogLine], cancelled_by: str | None = None, steps_done: int | None = None
) -> Reason:
    """`job`: what the backend says of it; `end`: its newest end.json, or what stands for it; `log`: the last lines of its logs,
    those of a rank before the batch script's; `cancelled_by`: who said so to hpcddp; `steps_done`: by its newest attempt, None
    where that is not known or nothing is trained.
    """
    log = [line for line in log if not HARMLESS.match(line.text)]
    recorded = (end.reason or None) if end else None
    if end and recorded and end.state == "interrupted":
        return Reason(sentence=recorded, next_step=_by_sentence(recorded) or AGAIN)
    state = _slurm_state(job, log, cancelled_by)
    if state is not None:
        reason = _by_slurm(state, job, end, log, cancelled_by)
        return _without_a_step(reason, log) if state == "TIMEOUT" and steps_done == 0 else reason
    if recorded is None:
        return _by_log(job, log) or _by_backend(job, log)
    fault = end.fault if end else None
    unsaid = (fault and fault.kind in _CAUSE_IN_LOG) or NO_GPU.search(recorded)
    found = _by_log(job, [line for line in log if cause_of([line.text])]) if unsaid else None
    return replace(found, sentence=f"{found.sentence}; {recorded}") if found else _by_fault(recorded, fault, job)


def never_started(after: Sequence[str]) -> Reason:
    """Of a run that Slurm itself took out of the queue: a job that it waited for had failed."""
    jobs = f"job {after[0]}" if len(after) == 1 else f"one of jobs {', '.join(after)}"
    sentence = f"it never started: it depends on {jobs}, which did not complete successfully"
    return Reason(sentence=sentence, next_step=f"find why that job failed; then {AGAIN}")


def without_node(job: JobState, end: AttemptEnd | None) -> tuple[JobState, AttemptEnd | None]:
    """For reason_of, where no scheduler places the job: no node could be excluded."""
    nameless = replace(end, fault=replace(end.fault, host="")) if end and end.fault else end
    return replace(job, nodes=None), nameless


def _slurm_state(job: JobState, log: Sequence[LogLine], cancelled_by: str | None) -> str | None:
    """Slurm's word for what it ended itself; None where it did not end the job. From the log only where Slurm has forgotten the
    job: else the log may be that of the start before a requeue.
    """
    if job.word is not None:
        return job.word if job.word in ENDED else None
    if cancelled_by:
        return "CANCELLED"
    return next((state for pattern, state in _STATE_BY_LOG for line in log if pattern.search(line.text)), None)


def _by_slurm(state: str, job: JobState, end: AttemptEnd | None, log: Sequence[LogLine], cancelled_by: str | None) -> Reason:
    fault = end.fault if end else None
    limit = limit_min(job.time_limit)
    silent = fault.host if fault and fault.kind == "silent" else None
    lost = next((found[1] for line in log if (found := re.search(r"Node failure on ([\w.-]+)", line.text))), None)
    host = lost or silent or _only_node(job)
    node = host or (f"one of {job.nodes}" if job.nodes else "its node")
    is_consequence = fault and fault.kind in _CONSEQUENCES and state not in ("OUT_OF_MEMORY", "NODE_FAIL")
    more = f"; {end.reason}" if end and end.reason and not is_consequence else ""
    step = _for_node(host, BY_STATE[state]).format(above=f" above {limit}" if limit else "", node=node)
    return Reason(
        sentence=end_sentence(state, by=cancelled_by or job.by, limit_min=limit, node=node) + more,
        next_step=step,
        line=next((line.quoted for line in log if "DUE TO" in line.text or "Node failure" in line.text), None),
    )


def _without_a_step(reason: Reason, log: Sequence[LogLine]) -> Reason:
    """Of a run that waited for something all its time: the last line that is not Slurm's on its end may say for what."""
    line = next((line.quoted for line in log if "DUE TO" not in line.text), None)
    return Reason(sentence=f"{reason.sentence} before it made a step", next_step=NO_STEP_IN_TIME, line=line)


def _by_fault(sentence: str, fault: Fault | None, job: JobState) -> Reason:
    """`sentence`: what the ranks recorded."""
    kind, lines = (fault.kind, (fault.line or "").splitlines()) if fault else ("error", [])
    host = (fault and fault.host) or _only_node(job)
    cause = cause_of([*lines, sentence], host)
    relabelled = kind in ("error", "contact", "time_out")  # by versions that did not know the cause
    if cause and relabelled and cause.sentence not in sentence:
        sentence = f"{found[0]}{cause.sentence}" if (found := _RANK.match(sentence)) else cause.sentence
    step = _by_sentence(sentence) if kind in ("user", "disk", "error", "loader", "out_of_memory") else None
    step = step or (cause and cause.next_step) or BY_FAULT.get(kind, BY_FAULT["error"])
    fits = f" to {found[1] or found[2]}" if (found := _FITS.search(sentence)) else " lower"
    line = " ".join(lines[cause.line :][:1] if cause else lines) or None
    says_more = line and re.sub(r"^\[Errno \d+\] ", "", line.rpartition(": ")[2]) not in sentence
    return Reason(
        sentence=f"{_prefix(job)}{sentence}",
        next_step=_for_node(host, step).format(node=host, fits=fits),
        line=line if says_more else None,
    )


def _by_sentence(sentence: str) -> str | None:
    return next((step for pattern, step in BY_SENTENCE if pattern.search(sentence)), None)


def _by_log(job: JobState, log: Sequence[LogLine]) -> Reason | None:
    cause = cause_of([line.text for line in log], _only_node(job), CAUSES_IN_LOGS)
    if cause is None:
        return None
    return Reason(
        sentence=f"{_prefix(job)}{cause.sentence}",
        next_step=_for_node(cause.node, cause.next_step).format(node=cause.node),
        line=log[cause.line].quoted,
    )


def _by_backend(job: JobState, log: Sequence[LogLine]) -> Reason:
    """Where nothing else is known: what the backend says, with the last line of the logs as it stands."""
    sentence = _state_words(job)
    if not log:
        return Reason(sentence=sentence, next_step=_by_sentence(sentence) or AGAIN)
    return Reason(sentence=f"{sentence}; {log[0].file} ends: {log[0].text}", next_step=READ_LOGS)


def _state_words(job: JobState) -> str:
    if job.phase == "done":
        return "it ended without a complete end.json"
    return job.detail or "it failed"


def _prefix(job: JobState) -> str:
    """What the backend says, where that is more than FAILED or an exit code: what follows explains these."""
    detail = job.detail or "FAILED"
    is_code = job.phase != "done" and (detail == "FAILED" or "exit code" in detail)
    return "" if is_code else f"{_state_words(job)}; "


def _only_node(job: JobState) -> str | None:
    """None where there are several, or none is known."""
    return job.nodes if job.nodes and re.fullmatch(r"[\w.-]+", job.nodes) else None


def _for_node(host: str | None, step: str) -> str:
    """The step without what it says of the node at fault, where that is not known: healthy ones are not to be excluded."""
    return step if host else "; ".join(part for part in step.split("; ") if "{node}" not in part)
