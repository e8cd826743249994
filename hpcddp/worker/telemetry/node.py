"""A node's processors, memory and network as the kernel counts them. Standard library only, Python 3.10."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from hpcddp.worker.telemetry.node_energy import NodeEnergy

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
    """Reads rows of NODE_COLUMNS; a figure the node does not give is None. `job_cpu_ns`: of job_cpu.py; `energy`: of
    node_energy.py."""

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
        cpu = known(self._cpu, 2)
        traffic = *known(self._network, 2), *known(self._infiniband, 2)
        energy = known(self._energy.read, 2) if self._energy else (None, None)
        return now, *cpu, self._job_cpu_ns(), *known(self._memory, 2), *traffic, *energy

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
        """Received and sent by the interfaces that are devices: a bond, a bridge or a VLAN would count the same bytes again.

        In a network namespace there may be none of them; then all but the loopback count.
        """
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


def known(read: Reading, count: int) -> Iterable[int | None]:
    """What `read` gives; `count` times None where it cannot be read."""
    try:
        return read()
    except (OSError, ValueError, KeyError):
        return (None,) * count
