"""What lines of logs say of a run that did not finish."""

from __future__ import annotations

import re
from typing import NamedTuple

from hpcddp.study.next_steps import (
    AGAIN,
    BY_FAULT,
    EXCLUDE_NODE,
    EXCLUDE_WITHOUT_GPU,
    FIX_COMPUTE,
    MAKE_ROOM,
    MORE_MEMORY,
    PROVIDE_DATA,
    WRITABLE_RUNS,
)


class LogPattern(NamedTuple):
    """Lines that fit `pattern` say why a run ended. Its groups fill the texts: `{node}` the one called node, `{0}` any other."""

    pattern: re.Pattern[str]
    sentence: str
    next_step: str


LOG_PATTERNS: tuple[LogPattern, ...] = (
    LogPattern(
        re.compile(r"oom[-_ ]kill|out-of-memory handler|exceeded (?:(?:job|step|virtual) )?memory limit", re.IGNORECASE),
        "it used more memory than Slurm gave it",
        MORE_MEMORY,
    ),
    LogPattern(re.compile(r"Node failure on (?P<node>[\w.-]+)"), "{node} failed", EXCLUDE_NODE),
    LogPattern(
        re.compile(r"CUDA out of memory|OutOfMemoryError|DefaultCPUAllocator|\bMemoryError\b"),
        "memory ran out",
        "take a smaller workload.batch_per_gpu in the sweep, which makes it another point; then submit",
    ),
    LogPattern(re.compile(r"no `module` command"), "its node has no `module` command", FIX_COMPUTE),
    LogPattern(re.compile(r"hpcddp: this node has no (?P<a>[\w -]+)"), "its node has no {0}", FIX_COMPUTE),
    LogPattern(
        re.compile(r"hpcddp: Slurm's address of (?P<node>[\w.-]+) is '(?P<a>[^']*)', which is no number"),
        "Slurm's address of {node} is `{0}`, which is no number",
        "take `rendezvous.master_address` out of the cluster's profile, or give a `master_suffix`; then submit it again",
    ),
    LogPattern(
        re.compile(
            r"Unable to locate a modulefile for '(?P<a>[^']+)'|The following module\(s\) are unknown: \"(?P<b>[^\"]+)\""
            r"|script failed with status \d+: module load (?P<c>\S+)"
        ),
        "there is no module `{0}` on its node",
        "name one that `module avail` lists there in `compute` of the cluster's profile; then submit it again",
    ),
    LogPattern(re.compile(r"No module named '?(?P<a>torch)\b"), "the Python of its node has no torch", FIX_COMPUTE),
    LogPattern(
        re.compile(r"No module named '?(?P<a>[\w.]+)"),
        "the Python of its node has no module `{0}`",
        "put it beside the sweep, or install it in the compute environment; then submit it again",
    ),
    LogPattern(
        re.compile(
            r"(?P<a>[^\s:]+): command not found|exec: (?P<b>[^\s:]+): (?:cannot execute: )?(?:not found|No such file)"
            r"|execve\(\): (?P<c>[^\s:]+): No such file|line \d+: (?P<d>[^\s:]+): No such file"
        ),
        "`{0}` is not there on its node",
        FIX_COMPUTE,
    ),
    LogPattern(
        re.compile(r"script failed with status \d+: (?P<a>.+)"),
        "a line of its job script failed: {0}",
        FIX_COMPUTE,
    ),
    LogPattern(
        re.compile(r"error while loading shared libraries: (?P<a>[^\s:]+)|(?P<b>lib[\w.+-]+): cannot open shared object file"),
        "its node lacks the library {0}",
        "load the module that brings it, in `compute` of the cluster's profile; then submit it again",
    ),
    LogPattern(
        re.compile(r"version `(?P<a>GLIBC\w*_[\d.]+)' not found|Illegal instruction|cannot execute binary file"),
        "its environment was built for another machine than its node",
        FIX_COMPUTE,
    ),
    LogPattern(
        re.compile(
            r"No CUDA GPUs are available|no CUDA-capable device|no NVIDIA driver|couldn't communicate with the NVIDIA driver"
        ),
        "its node shows torch no GPU",
        EXCLUDE_WITHOUT_GPU,
    ),
    LogPattern(re.compile(r"No space left on device|[Dd]isk quota exceeded"), "its disk is full", MAKE_ROOM),
    LogPattern(re.compile(r"Read-only file system"), "its file system is mounted read-only there", WRITABLE_RUNS),
    LogPattern(
        re.compile(r"(?:FileNotFoundError|No such file or directory):? ?'?(?P<a>/[^']+)?"),
        "a file or folder is missing on its node",
        PROVIDE_DATA,
    ),
    LogPattern(
        re.compile(r"Permission denied"),
        "it may not use a file that it needs",
        "give yourself the right to it; then submit it again",
    ),
    LogPattern(re.compile(r"Bus error"), "its node's /dev/shm is full", BY_FAULT["loader"]),
    LogPattern(re.compile(r"Address already in use"), "a port it needs is taken on its node", AGAIN),
    LogPattern(
        re.compile(r"srun: error: (?P<node>[\w.-]+): (?P<a>tasks? [\d,-]+: (?:Killed|Segmentation fault|Aborted|Bus error))"),
        "a process on {node} ended without a word ({0})",
        "submit it again; if memory ran out, ask for more with slurm.mem_mb; to keep off {node}: --set slurm.exclude={node}",
    ),
)
"""The first pattern that fits any line counts."""

STATE_BY_LOG = (
    (re.compile(r"DUE TO TIME LIMIT"), "TIMEOUT"),
    (re.compile(r"DUE TO NODE FAILURE"), "NODE_FAIL"),
    (re.compile(r"DUE TO PREEMPTION"), "PREEMPTED"),
)
"""slurmstepd's words in the log of a job that Slurm itself has forgotten."""
