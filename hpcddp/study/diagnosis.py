"""Why a run did not finish, as a sentence, and what to do next: from Slurm's word, end.json and the end of the logs.

What Slurm itself ended comes first, since whatever ranks say of it is a consequence; then what the ranks recorded; then the logs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from hpcddp.backends.base import JobState
from hpcddp.backends.slurm_time import limit_min

AGAIN = "submit it again"


@dataclass(frozen=True, kw_only=True)
class Reason:
    """`line`: the line of a log or error that says so, where the sentence is not that line already."""

    sentence: str
    next_step: str
    line: str | None = None


class LogLine(NamedTuple):
    """A line of a log, and the name of its file."""

    file: str
    text: str


_KEEP_OFF = "submit it again; to keep off {node}: --set slurm.exclude={node}"

_MEMORY = (
    "ask for more with slurm.mem_mb in the sweep, or lower workload.loader_workers_per_rank or batch_per_gpu; "
    "then submit it again"
)

_ROOM = "make room where the runs are, or put them elsewhere with --runs; then submit it again"

_WRITABLE = "put the runs where the compute nodes may write, with --runs; then submit it again"

_ENVIRONMENT = "mend `compute` of the cluster's profile, which `hpcddp clusters show` shows; then submit it again"

_PREEMPTED = f"{AGAIN}; with measure.resume: true a run goes on from its last checkpoint"

_BY_SLURM: Mapping[str, tuple[str, str]] = {
    "CANCELLED": ("cancelled{by}", f"{AGAIN} if that was not meant"),
    "TIMEOUT": (
        "its time limit{limit} was over",
        "raise slurm.walltime_min in the sweep{above}, or take fewer steps; then submit it again",
    ),
    "DEADLINE": ("its deadline passed before it was done", "leave --deadline out, or give a later one; then submit it again"),
    "OUT_OF_MEMORY": ("it used more memory than Slurm gave it", _MEMORY),
    "NODE_FAIL": ("{node} failed", _KEEP_OFF),
    "BOOT_FAIL": ("{node} did not boot", _KEEP_OFF),
    "PREEMPTED": ("it had to make room for a job of higher priority", _PREEMPTED),
}
"""Slurm's word for what it ended itself -> sentence and next step."""

_STUCK = "`hpcddp logs` shows what its ranks waited for, and a longer limit alone would not help; mend that, then submit it again"
"""Of a run whose time limit was over before it made a step."""

_CONSEQUENCES = ("died", "silent", "contact", "time_out", "interrupted")
"""Kinds of faults that ranks see when Slurm ends them."""

_BY_FAULT: Mapping[str, str] = {
    "died": _KEEP_OFF,
    "silent": _KEEP_OFF,
    "hung": "look at the place it names, and at `hpcddp logs`; if it is always on {node}: --set slurm.exclude={node}",
    "late": "`hpcddp logs` shows where it was: mend what takes it so long; if it is always on {node}: --set slurm.exclude={node}",
    "stuck": "submit it again; if it comes back, have the network between these nodes looked at",
    "out_of_memory": "set workload.batch_per_gpu{fits} in the sweep, which makes it another point; then submit",
    "disk": _ROOM,
    "loader": "lower workload.loader_workers_per_rank in the sweep, which makes it another point; then submit",
    "contact": "submit it again; if it comes back, `hpcddp logs` shows what each rank said",
    "time_out": "submit it again; if it comes back, `hpcddp logs` shows what each rank said",
    "user": "mend that; then submit it again",
    "diverged": "lower workload.optimizer.lr in the sweep, which makes it another point; then submit",
    "interrupted": AGAIN,
    "error": "`hpcddp logs` shows where in the code; mend it, then submit it again",
}
"""Kind of a fault (worker/faults.py) -> next step; its sentence is the worker's own."""

_DATA = "put the data where every node sees them, or name their folder with workload.data.root; then submit it again"

_NO_GPU = "submit it again; if it is always {node}, tell its administrators, and keep off it: --set slurm.exclude={node}"

_BY_SENTENCE: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"no such folder on|No such file|data prepare|workload\.data\.root|fetch it again"), _DATA),
    (re.compile(r"Read-only file system|cannot write the log"), _WRITABLE),
    (re.compile(r"finds no GPU"), _NO_GPU),
    (
        re.compile(r"`ulimit -[vd]`"),
        "raise that limit where the ranks start, or set workload.batch_per_gpu lower, which makes it another point; then submit",
    ),
    (
        re.compile(r"the job is not requeued"),
        "raise slurm.walltime_min in the sweep, or let Slurm warn later (-J --signal=USR2@SECONDS); then submit it again",
    ),
    (re.compile(r"under `compute`|is built without CUDA|install a build"), _ENVIRONMENT),
)
"""Next steps for some of the sentences of kinds `user`, `disk`, `error` and `out_of_memory`, and of Slurm's."""

_BY_LOG: tuple[tuple[re.Pattern[str], str, str], ...] = (
    (
        re.compile(r"oom[-_ ]kill|out-of-memory handler|exceeded (?:(?:job|step|virtual) )?memory limit", re.IGNORECASE),
        "it used more memory than Slurm gave it",
        _MEMORY,
    ),
    (re.compile(r"Node failure on (?P<node>[\w.-]+)"), "{node} failed", _KEEP_OFF),
    (
        re.compile(r"CUDA out of memory|OutOfMemoryError|DefaultCPUAllocator|\bMemoryError\b"),
        "memory ran out",
        "take a smaller workload.batch_per_gpu in the sweep, which makes it another point; then submit",
    ),
    (re.compile(r"no `module` command"), "its node has no `module` command", _ENVIRONMENT),
    (
        re.compile(
            r"Unable to locate a modulefile for '(?P<a>[^']+)'|The following module\(s\) are unknown: \"(?P<b>[^\"]+)\""
            r"|script failed with status \d+: module load (?P<c>\S+)"
        ),
        "there is no module `{0}` on its node",
        "name one that `module avail` lists there in `compute` of the cluster's profile; then submit it again",
    ),
    (re.compile(r"No module named '?(?P<a>torch)\b"), "the Python of its node has no torch", _ENVIRONMENT),
    (
        re.compile(r"No module named '?(?P<a>[\w.]+)"),
        "the Python of its node has no module `{0}`",
        "put it beside the sweep, or install it in the compute environment; then submit it again",
    ),
    (
        re.compile(
            r"(?P<a>[^\s:]+): command not found|exec: (?P<b>[^\s:]+): (?:cannot execute: )?(?:not found|No such file)"
            r"|execve\(\): (?P<c>[^\s:]+): No such file|line \d+: (?P<d>[^\s:]+): No such file"
        ),
        "`{0}` is not there on its node",
        _ENVIRONMENT,
    ),
    (
        re.compile(r"script failed with status \d+: (?P<a>.+)"),
        "a line of its job script failed: {0}",
        _ENVIRONMENT,
    ),
    (
        re.compile(r"error while loading shared libraries: (?P<a>[^\s:]+)|(?P<b>lib[\w.+-]+): cannot open shared object file"),
        "its node lacks the library {0}",
        "load the module that brings it, in `compute` of the cluster's profile; then submit it again",
    ),
    (
        re.compile(r"version `(?P<a>GLIBC\w*_[\d.]+)' not found|Illegal instruction|cannot execute binary file"),
        "its environment was built for another machine than its node",
        _ENVIRONMENT,
    ),
    (
        re.compile(
            r"No CUDA GPUs are available|no CUDA-capable device|no NVIDIA driver|couldn't communicate with the NVIDIA driver"
        ),
        "its node shows torch no GPU",
        _NO_GPU,
    ),
    (re.compile(r"No space left on device|[Dd]isk quota exceeded"), "its disk is full", _ROOM),
    (re.compile(r"Read-only file system"), "its file system is mounted read-only there", _WRITABLE),
    (
        re.compile(r"(?:FileNotFoundError|No such file or directory):? ?'?(?P<a>/[^']+)?"),
        "a file or folder is missing on its node",
        _DATA,
    ),
    (
        re.compile(r"Permission denied"),
        "it may not use a file that it needs",
        "give yourself the right to it; then submit it again",
    ),
    (re.compile(r"Bus error"), "its node's /dev/shm is full", _BY_FAULT["loader"]),
    (re.compile(r"Address already in use"), "a port it needs is taken on its node", AGAIN),
    (
        re.compile(r"srun: error: (?P<node>[\w.-]+): (?P<a>tasks? [\d,-]+: (?:Killed|Segmentation fault|Aborted|Bus error))"),
        "a process on {node} ended without a word ({0})",
        "submit it again; if memory ran out, ask for more with slurm.mem_mb; to keep off {node}: --set slurm.exclude={node}",
    ),
)
"""What a log says -> sentence and next step; `{0}` is what the pattern found. The first pattern that fits any line counts."""

_ENDED_BY = (
    (re.compile(r"DUE TO TIME LIMIT"), "TIMEOUT"),
    (re.compile(r"DUE TO NODE FAILURE"), "NODE_FAIL"),
    (re.compile(r"DUE TO PREEMPTION"), "PREEMPTED"),
)
"""slurmstepd's words in the log of a job that Slurm itself has forgotten."""

_FITS = re.compile(r": (\d+) is the largest power of two that may fit|take a smaller one, such as (\d+)")
"""worker/memory_fit.py's words."""


def reason_of(
    seen: JobState,
    end: Mapping[str, Any] | None,
    log: Sequence[LogLine],
    cancelled_by: str | None = None,
    steps_made: int | None = None,
) -> Reason:
    """`seen`: what the backend says of the job; `end`: its newest end.json, or what stands for it (`reason`, `fault`);
    `log`: the last lines of its logs, those of a rank before the batch script's; `cancelled_by`: who said so to hpcddp;
    `steps_made`: by its newest attempt, None where that is not known or nothing is trained.
    """
    told = str(end["reason"]) if end and end.get("reason") else None
    if told and end and end.get("state") == "interrupted":
        return Reason(sentence=told, next_step=_by_sentence(told) or AGAIN)
    word = _word(seen, log, cancelled_by)
    if word is not None:
        reason = _by_slurm(word, seen, end, log, cancelled_by)
        return _stuck(reason, log) if word == "TIMEOUT" and steps_made == 0 else reason
    fault = (end or {}).get("fault") or {}
    if told is None or fault.get("kind") == "died":
        found = _by_log(seen, log)
        if found and (told is None or found.next_step == _MEMORY):
            return (
                found
                if told is None
                else Reason(sentence=f"{found.sentence}; {told}", next_step=found.next_step, line=found.line)
            )
    if told is not None:
        return _by_fault(told, fault, seen)
    sentence = _seen_words(seen)
    if not log:
        return Reason(sentence=sentence, next_step=_by_sentence(sentence) or AGAIN)
    sentence += f"; {log[0].file} ends: {log[0].text}"
    return Reason(sentence=sentence, next_step="`hpcddp logs` shows what it wrote; submit it again")


def without_node(seen: JobState, end: Mapping[str, Any] | None) -> tuple[JobState, Mapping[str, Any] | None]:
    """For reason_of, where no scheduler places the job: no node could be kept off."""
    return replace(seen, nodes=None), {**end, "fault": {**end["fault"], "host": None}} if end and end.get("fault") else end


def _word(seen: JobState, log: Sequence[LogLine], cancelled_by: str | None) -> str | None:
    """What Slurm itself ended; by the log where it has forgotten the job: else that may tell of the start before a requeue."""
    if seen.word is not None:
        return seen.word if seen.word in _BY_SLURM else None
    if cancelled_by:
        return "CANCELLED"
    return next((word for pattern, word in _ENDED_BY for line in log if pattern.search(line.text)), None)


def _by_slurm(
    word: str, seen: JobState, end: Mapping[str, Any] | None, log: Sequence[LogLine], cancelled_by: str | None
) -> Reason:
    sentence, next_step = _BY_SLURM[word]
    fault = (end or {}).get("fault") or {}
    limit, who = limit_min(seen.time_limit), cancelled_by or seen.by
    host = _lost_node(log) or (fault.get("host") if fault.get("kind") == "silent" else None) or _only_node(seen)
    facts = {
        "by": f" by {who}" if who else "",
        "limit": f" of {limit:,} min" if limit else "",
        "above": f" above {limit}" if limit else "",
        "node": host or _some_node(seen),
    }
    told = str(end["reason"]) if end and end.get("reason") else None
    consequence = fault.get("kind") in _CONSEQUENCES and word not in ("OUT_OF_MEMORY", "NODE_FAIL")
    more = f"; {told}" if told and not consequence else ""
    line = next((f"{one.file}: {one.text}" for one in log if "DUE TO" in one.text or "Node failure" in one.text), None)
    step = _about(host, next_step).format(**facts)
    return Reason(sentence=f"{sentence.format(**facts)} ({word}){more}", next_step=step, line=line)


def _stuck(reason: Reason, log: Sequence[LogLine]) -> Reason:
    """Of a run that waited for something all its time: the last line that is not Slurm's on its end may say for what."""
    line = next((f"{one.file}: {one.text}" for one in log if "DUE TO" not in one.text), None)
    return Reason(sentence=f"{reason.sentence} before it made a step", next_step=_STUCK, line=line)


def _by_fault(told: str, fault: Mapping[str, Any], seen: JobState) -> Reason:
    kind, line = fault.get("kind", "error"), fault.get("line")
    step = _by_sentence(told) if kind in ("user", "disk", "error", "out_of_memory") else None
    found = _FITS.search(told)
    host, fits = fault.get("host") or _only_node(seen), f" to {found[1] or found[2]}" if found else " lower"
    step = _about(host, step or _BY_FAULT.get(kind, _BY_FAULT["error"])).format(node=host, fits=fits)
    said = line if line and re.sub(r"^\[Errno \d+\] ", "", line.rpartition(": ")[2]) not in told else None
    return Reason(sentence=f"{_before(seen)}{told}", next_step=step, line=said)


def _by_sentence(told: str) -> str | None:
    return next((step for pattern, step in _BY_SENTENCE if pattern.search(told)), None)


def _by_log(seen: JobState, log: Sequence[LogLine]) -> Reason | None:
    for pattern, sentence, step in _BY_LOG:
        for line in log:
            if found := pattern.search(line.text):
                groups = found.groupdict()
                what = next((text for name, text in groups.items() if text and name != "node"), "")
                host = groups.get("node") or _only_node(seen)
                return Reason(
                    sentence=f"{_before(seen)}{sentence.format(what, node=host)}",
                    next_step=_about(host, step).format(what, node=host),
                    line=f"{line.file}: {line.text}",
                )
    return None


def _seen_words(seen: JobState) -> str:
    if seen.phase == "done":
        return "it ended without leaving a whole end.json"
    return seen.detail or "it failed"


def _before(seen: JobState) -> str:
    """What the backend saw, where that is more than FAILED, or a process that ended with a code: what follows explains these."""
    saw = seen.detail or "FAILED"
    only_a_code = seen.phase != "done" and (saw == "FAILED" or "exit code" in saw)
    return "" if only_a_code else f"{_seen_words(seen)}; "


def _lost_node(log: Sequence[LogLine]) -> str | None:
    return next((found[1] for line in log if (found := re.search(r"Node failure on ([\w.-]+)", line.text))), None)


def _only_node(seen: JobState) -> str | None:
    """None where there are several, or none is known."""
    return seen.nodes if seen.nodes and re.fullmatch(r"[\w.-]+", seen.nodes) else None


def _some_node(seen: JobState) -> str:
    return f"one of {seen.nodes}" if seen.nodes else "its node"


def _about(host: str | None, step: str) -> str:
    """The step without what it says of the node at fault, where that is not known: healthy ones are not to be kept off."""
    return step if host else "; ".join(part for part in step.split("; ") if "{node}" not in part)
