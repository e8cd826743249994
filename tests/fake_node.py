"""Nodes that are not there: processors, NUMA nodes and GPUs as files of /sys and /proc, and readings of preflight.

GPUs of one type in one cluster differ by 8 % on average (arXiv:2208.11035): products are drawn evenly from a range of that width.
Nobody has published the spread of the other readings; 6 % stands for it.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from hpcddp.core.launch_record import RankBinding
from hpcddp.core.preflight import RankReadings
from hpcddp.core.written_lists import cpu_list
from hpcddp.worker.binding import read_binding


@dataclass(frozen=True, kw_only=True)
class FakeNode:
    """Logical CPUs are numbered as Linux does on x86: the first thread of every core, socket by socket, then the second ones."""

    sockets: int = 2
    cores: int = 8
    """Of each socket."""
    threads: int = 1
    numa_per_socket: int = 1
    gpus: Sequence[int] = ()
    """The NUMA node of each; -1 where the firmware does not say."""

    @property
    def all_cores(self) -> int:
        return self.sockets * self.cores

    @property
    def cpus(self) -> range:
        return range(self.all_cores * self.threads)

    def threads_of(self, cores: Iterable[int]) -> set[int]:
        """All logical CPUs of these cores."""
        return {core + self.all_cores * thread for core in cores for thread in range(self.threads)}

    def numa_node(self, node: int) -> set[int]:
        """Its logical CPUs."""
        size = self.cores // self.numa_per_socket
        return self.threads_of(range(node * size, (node + 1) * size))

    def address(self, gpu: int) -> str:
        return f"0000:{0x17 + 16 * gpu:02x}:00.0"

    def write(self, folder: Path) -> Path:
        """The files, below `folder`/sys and `folder`/proc."""
        cpus = folder / "sys/devices/system/cpu"
        _put(cpus / "online", cpu_list(self.cpus))
        for cpu in self.cpus:
            core = cpu % self.all_cores
            _put(cpus / f"cpu{cpu}/topology/thread_siblings_list", cpu_list(self.threads_of([core])))
            _put(cpus / f"cpu{cpu}/topology/physical_package_id", str(core // self.cores))
        for node in range(self.sockets * self.numa_per_socket):
            _put(folder / f"sys/devices/system/node/node{node}/cpulist", cpu_list(self.numa_node(node)))
        for gpu, node in enumerate(self.gpus):
            device = folder / "sys/bus/pci/devices" / self.address(gpu)
            _put(device / "numa_node", str(node))
            _put(device / "local_cpulist", cpu_list(self.numa_node(node) if node >= 0 else self.cpus))
        return folder

    def binding(
        self, folder: Path, cpus: Iterable[int], gpu: int | None = None, memory: str = "", policy: str = "default"
    ) -> RankBinding:
        """What a rank finds there that may run on these CPUs; `memory`: NUMA nodes that its cpuset leaves it, all if none."""
        every = cpu_list(range(self.sockets * self.numa_per_socket))
        _put(folder / "proc/status", f"Name:\tpython\nMems_allowed_list:\t{memory or every}")
        _put(folder / "proc/numa_maps", f"5567f3971000 {policy} file=/usr/bin/python3 mapped=2 N0=2 kernelpagesize_kB=4")
        address = None if gpu is None else self.address(gpu)
        return read_binding(set(cpus), address, folder / "sys", folder / "proc")


def _put(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{text}\n", encoding="ascii")


TYPICAL = {
    "matrix_flops_per_s": (90e12, 0.08),
    "memory_bytes_per_s": (790e9, 0.06),
    "copy_bytes_per_s": (60e9, 0.06),
    "node_bytes_per_s": (130e9, 0.06),
    "neighbour_bytes_per_s": (21e9, 0.06),
}
"""Reading -> its middle, and how far apart nodes are, as a share of it."""

PLANTED = (0.875, 0.85, 0.8, 0.67)
"""Of the median: one network adapter of eight lost (12.5 %), and up to the outliers of the source, 1.5 times slower."""


def clean(seed: int, nodes: int | None = None, ranks_per_node: int = 4) -> list[RankReadings]:
    """Of so many sound nodes; without a number from 2 to 64, some sets without copies or without all-reduces in a node."""
    draw = Random(seed)
    count = nodes or draw.choice([2, 3, 4, 5, 8, 16, 33, 64])
    missing = () if nodes else draw.choice([(), ("copy_bytes_per_s",), ("node_bytes_per_s",)])
    found = []
    for node in range(count):
        shared = {name: _drawn(draw, name) for name in ("node_bytes_per_s", "neighbour_bytes_per_s")}
        for local in range(ranks_per_node):
            values: dict[str, Any] = {name: shared.get(name) or _drawn(draw, name) for name in TYPICAL if name not in missing}
            found.append(RankReadings(rank=node * ranks_per_node + local, host=f"r{node:03d}", **values))
    return found


def _drawn(draw: Random, name: str) -> float:
    middle, width = TYPICAL[name]
    return middle * (1 + draw.uniform(-width, width) / 2)


def slowed(readings: Sequence[RankReadings], reading: str, factor: float, hosts: Collection[str]) -> list[RankReadings]:
    """The same, these hosts at that share of the median over nodes."""
    by_host: dict[str, float] = {}
    for each in readings:
        value = getattr(each, reading)
        by_host[each.host] = min(value, by_host.get(each.host, value))
    slow: dict[str, Any] = {reading: factor * statistics.median(by_host.values())}
    return [dataclasses.replace(each, **slow) if each.host in hosts else each for each in readings]
