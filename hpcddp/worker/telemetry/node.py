"""What a node uses: processors, memory and network as the kernel counts them, energy and power, and this job's processor time.

Standard library only, Python 3.10. Energy and power of a whole node, or of its modules, are from what every user may read.

Cray: `energy` in /sys/cray/pm_counters, joules since the node started, and `power`, watts, GPUs included, at about 10 Hz
(Cray-HPE/docs-csm, operations/power_management, "User Access to Compute Node Power Data"). The files say `VALUE J TIME us` and
`VALUE W TIME us`; ARCHER2's tests expect the former as `\\S+ J \\S+ us`. GH200 nodes of Alps have them as well (CSCS's
documentation of its clusters, "Power measurements").

Grace Hopper: `device/power1_average` in /sys/class/hwmon/hwmonN, microwatts, of each meter whose `power1_oem_info` beside it
begins with `Module Power Socket` (NVIDIA/DCGM, DcgmSystemMonitor.cpp). It is the power of a module with its regulators, DRAM, GPU
and HBM (Alumet's user book, plug-in grace-hopper), without network, disks and fans.

The job's processor time is that of Slurm's cgroup of the job or, without one, of its processes.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

MODULE = "Module Power Socket"
"""How NVIDIA's firmware calls the meter of a module."""


class NodeEnergy(Protocol):
    """A source of a node's energy."""

    source: str
    """Its name, with what it counts."""

    def read(self) -> tuple[int | None, int | None]:
        """Millijoules so far, where it counts them, and milliwatts; OSError or ValueError where it cannot be read."""


class CrayCounters:
    """Cray's counters of this node."""

    source = "pm_counters"

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self) -> tuple[int, int]:
        """Both from the same counters."""
        return self._value("energy", "J") * 1000, self._value("power", "W") * 1000

    def _value(self, name: str, unit: str) -> int:
        value, found, *_ = (self._folder / name).read_text(encoding="ascii").split()
        if found != unit:
            raise ValueError(f"{name} is in {found}, not in {unit}")
        return int(value)


class HopperModules:
    """The modules of this node, summed."""

    source = "module power"

    def __init__(self, meters: Sequence[Path]) -> None:
        self._meters = meters

    def read(self) -> tuple[None, int]:
        """Power alone: the meters count no energy."""
        return None, sum(int(meter.read_text(encoding="ascii")) for meter in self._meters) // 1000


def node_energy(sys: Path = Path("/sys")) -> NodeEnergy | None:
    """The first source that gives a reading, counters first; None where there is none."""
    meters = [
        info.with_name("power1_average") for info in sorted(sys.glob("class/hwmon/*/device/power1_oem_info")) if _is_module(info)
    ]
    sources: list[NodeEnergy] = [CrayCounters(sys / "cray" / "pm_counters"), *([HopperModules(meters)] if meters else [])]
    return next(filter(_readable, sources), None)


def _is_module(info: Path) -> bool:
    try:
        return info.read_text(encoding="utf-8", errors="replace").startswith(MODULE)
    except OSError:
        return False


def _readable(source: NodeEnergy) -> bool:
    try:
        source.read()
    except (OSError, ValueError):
        return False
    return True


TICK_NS = 10**9 // os.sysconf("SC_CLK_TCK")
"""The unit of processor times in /proc."""

IB_WORD_BYTES = 4
"""port_xmit_data and port_rcv_data count words of four octets (InfiniBand Architecture Specification, PortCounters)."""

Reading = Callable[[], tuple[int | None, ...]]


class NodeMemory(NamedTuple):
    """Bytes."""

    total: int
    available: int
    """Linux's own estimate of what can be had without swapping, proc(5)."""


def node_memory(proc: Path = Path("/proc")) -> NodeMemory:
    """OSError or KeyError where the node does not say."""
    lines = (proc / "meminfo").read_text(encoding="ascii").splitlines()
    sizes = {name: int(rest.split()[0]) * 1024 for name, _, rest in (line.partition(":") for line in lines[:3])}
    return NodeMemory(sizes["MemTotal"], sizes["MemAvailable"])


class NodeReader:
    """Reads rows of NODE_COLUMNS; a figure the node does not give is None."""

    def __init__(
        self,
        job_cpu_ns: Callable[[], int | None],
        energy: NodeEnergy | None = None,
        *,
        proc: Path = Path("/proc"),
        sys: Path = Path("/sys"),
    ) -> None:
        self._job_cpu_ns = job_cpu_ns
        self._energy = energy
        self._proc = proc
        self._net = sys / "class" / "net"
        self._ports = sorted((sys / "class" / "infiniband").glob("*/ports/*/counters"))

    def row(self) -> tuple[int | None, ...]:
        """One reading, in about 0.1 ms."""
        now = time.time_ns()
        cpu = readings_of(self._cpu, 2)
        traffic = *readings_of(self._network, 2), *readings_of(self._infiniband, 2)
        energy = readings_of(self._energy.read, 2) if self._energy else (None, None)
        return now, *cpu, self._job_cpu_ns(), *readings_of(self._memory, 2), *traffic, *energy

    def _cpu(self) -> tuple[int, int]:
        """Busy and all time of all processors since boot: idle and waiting for a disk is not busy, time of other machines is."""
        first, _, _ = (self._proc / "stat").read_bytes().partition(b"\n")
        user, nice, system, idle, iowait, irq, softirq, steal = map(int, first.split()[1:9])
        busy = user + nice + system + irq + softirq + steal
        return busy * TICK_NS, (busy + idle + iowait) * TICK_NS

    def _memory(self) -> tuple[int, int]:
        """Used, which is all but what the kernel could give at once, and all."""
        memory = node_memory(self._proc)
        return memory.total - memory.available, memory.total

    def _network(self) -> tuple[int, int]:
        """Received and sent by the interfaces that are devices: a bond, a bridge or a VLAN would count the same bytes again. In a
        network namespace there may be none of them; then all but the loopback count."""
        lines = (self._proc / "net" / "dev").read_text(encoding="utf-8").splitlines()[2:]
        counters = {name.strip(): rest.split() for name, _, rest in (line.partition(":") for line in lines)}
        counters.pop("lo", None)
        devices = [name for name in counters if (self._net / name / "device").exists()]
        chosen = [counters[name] for name in devices or counters]
        return sum(int(fields[0]) for fields in chosen), sum(int(fields[8]) for fields in chosen)

    def _infiniband(self) -> tuple[int | None, int | None]:
        """Received and sent by all ports, IP over InfiniBand included."""
        if not self._ports:
            return None, None
        return self._words("port_rcv_data") * IB_WORD_BYTES, self._words("port_xmit_data") * IB_WORD_BYTES

    def _words(self, name: str) -> int:
        return sum(int((port / name).read_text(encoding="ascii")) for port in self._ports)


def readings_of(read: Reading, count: int) -> Iterable[int | None]:
    """What `read` gives; `count` times None where it cannot be read."""
    try:
        return read()
    except (OSError, ValueError, KeyError):
        return (None,) * count


SCAN_EVERY_S = 10.0
"""Between two scans of all processes of the node only the known ones of the job are read."""

_JOB = re.compile(r"(\d+):([^:]*):(/(?:.*/)?job_\d+)(?:/.*)?")
"""A line of /proc/PID/cgroup, cut at Slurm's folder of the job."""


def job_cpu_ns(
    rank_pid: int, ranks: int, *, proc: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup")
) -> Callable[[], int | None]:
    """Reads the job's processor time on this node in ns, None where unknown; `rank_pid` is one of the node's `ranks` ranks."""
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
    """A rank and all processes below it or, of several ranks, those below the process that started them. What has ended counts
    with its parent, which has waited for it; what has left the tree (a daemon) is lost, and the counter falls."""

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
    children: dict[int, list[int]] = {}
    for pid, parent in parents.items():
        children.setdefault(parent, []).append(pid)
    found = [root]
    for pid in found:
        found.extend(children.get(pid, ()))
    return found
