"""Where this process may run and take memory, and which socket its GPU is attached to, from /proc and /sys.

Linux documents these files in Documentation/admin-guide/cputopology.rst, ABI/stable/sysfs-devices-node and
ABI/testing/sysfs-bus-pci. Standard library only but for the GPU's address.
"""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcddp.core.launch_record import RankBinding
from hpcddp.core.written_lists import cpu_list, parse_cpu_list

SYS, PROC = Path("/sys"), Path("/proc/self")

NO_CPUS = frozenset[int]()


def own_binding(gpu: str | None) -> RankBinding:
    """Of this process; `gpu` is its GPU's address on the PCI bus, None without a GPU."""
    return read_binding(os.sched_getaffinity(0), gpu)


def read_binding(cpus: Collection[int], gpu: str | None, sys: Path = SYS, proc: Path = PROC) -> RankBinding:
    """Of the process that may run on these CPUs and whose files `proc` has."""
    node = Topology(sys)
    allowed, policy = _memory_nodes(proc), _memory_policy(proc)
    memory_nodes = _bound_nodes(policy) & allowed or allowed
    return RankBinding(
        cpus=cpu_list(cpus),
        cores=cpu_list(node.cores(cpus)),
        node_cores=len(node.cores(node.cpus())) or None,
        sockets=node.sockets(cpus),
        numa_nodes=cpu_list(node.numa_nodes(cpus)),
        memory_nodes=cpu_list(memory_nodes),
        memory_policy=policy,
        memory_sockets=node.sockets(cpu for each in memory_nodes for cpu in node.cpus_of_node(each)),
        gpu=gpu,
        gpu_numa_node=node.numa_node_of_gpu(gpu) if gpu else None,
        gpu_socket=node.socket_of_gpu(gpu) if gpu else None,
    )


def pci_address(index: int) -> str | None:
    """Of a GPU as this process numbers them, `0000:17:00.0`; None where neither torch nor NVML says."""
    import torch

    gpu: Any = torch.cuda.get_device_properties(index)
    if hasattr(gpu, "pci_bus_id"):  # later versions of torch
        return f"{gpu.pci_domain_id:04x}:{gpu.pci_bus_id:02x}:{gpu.pci_device_id:02x}.0"
    with contextlib.suppress(Exception):  # NVML's module is the user's to install, and its errors are its own
        return _address_by_nvml(index)
    return None


def _address_by_nvml(index: int) -> str:
    """NVML writes `00000000:17:00.0`, the kernel four digits of a domain."""
    from hpcddp.worker.telemetry.gpu import GpuReader

    pynvml = importlib.import_module("pynvml")
    gpu = pynvml.nvmlDeviceGetHandleByUUID(GpuReader(pynvml, index + 1).describe()[index]["uuid"])
    address: str = pynvml.nvmlDeviceGetPciInfo(gpu).busId
    return address.lower()[-len("0000:00:00.0") :]


@dataclass(frozen=True)
class Topology:
    """The processors, NUMA nodes and GPUs of this machine, by its /sys."""

    sys: Path

    def cpus(self) -> frozenset[int]:
        """All logical CPUs that are online."""
        return _cpus_in(self.sys / "devices/system/cpu/online")

    def cores(self, cpus: Iterable[int]) -> frozenset[int]:
        """The first logical CPU of each core that these belong to; none where that is not known of all."""
        firsts = [min(_cpus_in(self._cpu(cpu) / "thread_siblings_list"), default=None) for cpu in cpus]
        return frozenset(first for first in firsts if first is not None) if None not in firsts else NO_CPUS

    def sockets(self, cpus: Iterable[int]) -> tuple[int, ...]:
        """That these are on; none where that is not known of all. A virtual machine may say -1."""
        found = {_number(self._cpu(cpu) / "physical_package_id") for cpu in cpus}
        return tuple(sorted(socket for socket in found if socket is not None)) if None not in found else ()

    def numa_nodes(self, cpus: Iterable[int]) -> frozenset[int]:
        """That these are in."""
        wanted, folders = frozenset(cpus), (self.sys / "devices/system/node").glob("node[0-9]*")
        return frozenset(int(path.name.removeprefix("node")) for path in folders if wanted & _cpus_in(path / "cpulist"))

    def cpus_of_node(self, node: int) -> frozenset[int]:
        """Of a NUMA node; one that is a GPU's memory has none."""
        return _cpus_in(self.sys / f"devices/system/node/node{node}/cpulist")

    def numa_node_of_gpu(self, address: str) -> int | None:
        """None where the firmware does not say."""
        return _number(self.sys / "bus/pci/devices" / address / "numa_node")

    def socket_of_gpu(self, address: str) -> int | None:
        """None where the processors near it are not on one socket."""
        near = _cpus_in(self.sys / "bus/pci/devices" / address / "local_cpulist")
        sockets = self.sockets(near)
        return sockets[0] if len(sockets) == 1 and self._says_where(address) else None

    def _says_where(self, address: str) -> bool:
        """A machine of several sockets whose firmware does not say where a GPU is has all processors near it."""
        return self.numa_node_of_gpu(address) is not None or len(self.sockets(self.cpus())) == 1

    def _cpu(self, cpu: int) -> Path:
        return self.sys / f"devices/system/cpu/cpu{cpu}/topology"


def _memory_nodes(proc: Path) -> frozenset[int]:
    """`Mems_allowed_list` of /proc/self/status: what the job's cpuset leaves it."""
    for line in _text(proc / "status").splitlines():
        name, _, value = line.partition(":")
        if name == "Mems_allowed_list":
            return _parsed(value)
    return NO_CPUS


def _memory_policy(proc: Path) -> str | None:
    """Of its first mapping, which has the process's own (numa(7)); the first line is all that is read."""
    try:
        with (proc / "numa_maps").open(encoding="utf-8", errors="replace") as file:
            words = file.readline().split()
    except OSError:  # of a kernel without NUMA
        return None
    return words[1] if len(words) > 1 else None


def _bound_nodes(policy: str | None) -> frozenset[int]:
    """NUMA nodes that a policy takes memory of and no other: `bind:0-1` and `bind=static:0-1`."""
    kind, _, nodes = (policy or "").partition(":")
    return _parsed(nodes) if kind.partition("=")[0] == "bind" else NO_CPUS


def _cpus_in(file: Path) -> frozenset[int]:
    return _parsed(_text(file))


def _parsed(text: str) -> frozenset[int]:
    try:
        return parse_cpu_list(text)
    except ValueError:
        return NO_CPUS


def _number(file: Path) -> int | None:
    """Not below 0: Linux writes -1 for what it does not know."""
    text = _text(file)
    return int(text) if text.isdecimal() else None


def _text(file: Path) -> str:
    """Empty where it cannot be read."""
    try:
        return file.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
