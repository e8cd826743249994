"""A node that is not there: its processors, NUMA nodes and GPUs as files of /sys and /proc, and ranks that are bound on it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hpcddp.core.launch_record import RankBinding
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
