"""Processor time that this job has taken on this node: Slurm's cgroup of the job or, without one, its processes.

Standard library only, Python 3.10.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from pathlib import Path

from hpcddp.worker.telemetry.node import TICK_NS

SCAN_EVERY_S = 10.0
"""Between two scans of all processes of the node only the known ones of the job are read."""

_JOB = re.compile(r"(\d+):([^:]*):(/(?:.*/)?job_\d+)(?:/.*)?")
"""A line of /proc/PID/cgroup, cut at Slurm's folder of the job."""


def job_cpu_ns(
    rank_pid: int, ranks: int, *, proc: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup")
) -> Callable[[], int | None]:
    """Reads the job's processor time on this node in ns; None where it is unknown.

    `rank_pid` is one of the node's `ranks` ranks.
    """
    folder = _job_cgroup(proc / str(rank_pid) / "cgroup", cgroups)
    if folder is not None:
        return lambda: _cgroup_ns(folder)
    return ProcessTree(rank_pid, ranks, proc).cpu_ns


def _job_cgroup(cgroup_file: Path, cgroups: Path) -> Path | None:
    """The job's cgroup that counts processor time: of version 2 (no controllers named), or version 1's cpuacct."""
    try:
        lines = cgroup_file.read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    for match in filter(None, map(_JOB.fullmatch, lines)):
        controllers = match[2]
        mounts = (controllers, "cpuacct") if "cpuacct" in controllers else () if controllers else (".", "unified")
        for mount in mounts:
            folder = cgroups / mount / match[3].lstrip("/")
            if _cgroup_ns(folder) is not None:
                return folder
    return None


def _cgroup_ns(folder: Path) -> int | None:
    """`usage_usec` of cpu.stat in version 2, `cpuacct.usage` in version 1 (kernel documentation, cgroup-v2 and cpuacct)."""
    try:
        if (folder / "cpuacct.usage").exists():
            return int((folder / "cpuacct.usage").read_bytes())
        fields = dict(line.split() for line in (folder / "cpu.stat").read_text(encoding="ascii").splitlines())
        return int(fields["usage_usec"]) * 1000
    except (OSError, ValueError, KeyError):
        return None


class ProcessTree:
    """A rank and all processes below it or, of several ranks, those below the process that started them.

    What has ended counts with its parent, which has waited for it; what has left the tree (a daemon) is lost, and the counter
    falls.
    """

    def __init__(self, rank_pid: int, ranks: int, proc: Path = Path("/proc")) -> None:
        self._proc = proc
        self._parents: dict[int, int] = {}
        self._scan()
        self._root = rank_pid if ranks == 1 else _launcher(rank_pid, ranks, self._parents)
        self._members: list[int] = []
        self._scan_at_s = 0.0

    def cpu_ns(self) -> int | None:
        """User and system time of all of them; None if their common parent is not to be found or has ended."""
        if self._root is None:
            return None
        if time.monotonic() >= self._scan_at_s:
            self._scan()
            self._members = _below(self._root, self._parents)
            self._scan_at_s = time.monotonic() + SCAN_EVERY_S
        found = [fields for fields in map(self._stat, self._members) if fields]
        return sum(sum(map(int, fields[11:15])) for fields in found) * TICK_NS if found else None

    def _scan(self) -> None:
        """Process -> its parent, of all processes of the node. Only new ones are read, 20 us each: a node has thousands."""
        pids = {int(name) for name in os.listdir(self._proc) if name.isdigit()}
        new = {pid: int(fields[1]) for pid in pids - self._parents.keys() if (fields := self._stat(pid))}
        self._parents = {pid: parent for pid, parent in self._parents.items() if pid in pids} | new

    def _stat(self, pid: int) -> list[bytes] | None:
        """Fields of /proc/PID/stat from the third (state) on: 1 the parent, 11 to 14 utime, stime, cutime, cstime."""
        try:
            return (self._proc / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
        except OSError:
            return None


def _launcher(rank_pid: int, ranks: int, parents: dict[int, int]) -> int | None:
    """The nearest process above the rank with as many children as there are ranks; each rank may have a wrapper of its own."""
    children = list(parents.values())
    above = parents.get(rank_pid, 0)
    while above > 1 and children.count(above) < ranks:
        above = parents.get(above, 0)
    return above if above > 1 else None


def _below(root: int, parents: dict[int, int]) -> list[int]:
    """`root` and its descendants."""
    children: dict[int, list[int]] = {}
    for pid, parent in parents.items():
        children.setdefault(parent, []).append(pid)
    found = [root]
    for pid in found:
        found.extend(children.get(pid, ()))
    return found
