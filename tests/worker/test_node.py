"""Counters as kernels and drivers write them, in told files and a told NVML.

Where the energy of a whole node is read: files as Cray's and NVIDIA's nodes have them.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import pytest

from hpcddp.core.records import GPU_COLUMNS, NODE_COLUMNS
from hpcddp.worker.telemetry import reader_process
from hpcddp.worker.telemetry.gpu import GpuReader, NoGpus
from hpcddp.worker.telemetry.node import IB_WORD_BYTES, TICK_NS, NodeReader, ProcessTree, job_cpu_ns, node_energy
from hpcddp.worker.telemetry.reader import open_gpus
from tests.worker import forked, given


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def reading(folder: Path, job_cpu: int | None = None) -> dict[str, int | None]:
    row = NodeReader(lambda: job_cpu, proc=folder / "proc", sys=folder / "sys").row()
    return dict(zip(NODE_COLUMNS, row, strict=True))


def interfaces(folder: Path, **received_and_sent: tuple[int, int]) -> None:
    lines = [f"{name}: {rx} 1 0 0 0 0 0 0 {tx} 1 0 0 0 0 0 0" for name, (rx, tx) in received_and_sent.items()]
    write(folder / "proc" / "net" / "dev", "\n".join(["Inter-|", " face |", *lines]))


def test_waiting_for_a_disk_is_idle_and_stolen_time_busy(tmp_path: Path) -> None:
    """user 5, nice 1, system 2, idle 50, iowait 30, irq 3, softirq 4, steal 6; guests are in user already."""
    write(tmp_path / "proc" / "stat", "cpu  5 1 2 50 30 3 4 6 5 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n")
    found = reading(tmp_path)
    assert (found["cpu_busy_ns"], found["cpu_total_ns"]) == (21 * TICK_NS, 101 * TICK_NS)


def test_memory_that_could_be_had_is_not_used(tmp_path: Path) -> None:
    write(tmp_path / "proc" / "meminfo", "MemTotal: 100 kB\nMemFree: 5 kB\nMemAvailable: 60 kB\nBuffers: 7 kB\n")
    found = reading(tmp_path)
    assert (found["mem_used_bytes"], found["mem_total_bytes"]) == (40 * 1024, 100 * 1024)


def test_traffic_counts_once(tmp_path: Path) -> None:
    interfaces(tmp_path, lo=(1000, 1000), eth0=(3, 30), eth1=(4, 40), bond0=(7, 70))
    for device in ("eth0", "eth1"):
        write(tmp_path / "sys" / "class" / "net" / device / "device" / "vendor", "0x15b3")
    found = reading(tmp_path)
    assert (found["net_rx_bytes"], found["net_tx_bytes"]) == (7, 70)


def test_interfaces_of_a_namespace_count(tmp_path: Path) -> None:
    interfaces(tmp_path, lo=(1000, 1000), veth0=(3, 30), veth1=(4, 40))
    found = reading(tmp_path)
    assert (found["net_rx_bytes"], found["net_tx_bytes"]) == (7, 70)


def test_infiniband_counts_words(tmp_path: Path) -> None:
    for port, words in (("mlx5_0/ports/1", 10), ("mlx5_1/ports/1", 100)):
        counters = tmp_path / "sys" / "class" / "infiniband" / port / "counters"
        write(counters / "port_rcv_data", f"{words}\n")
        write(counters / "port_xmit_data", f"{2 * words}\n")
    found = reading(tmp_path)
    assert (found["ib_rx_bytes"], found["ib_tx_bytes"]) == (110 * IB_WORD_BYTES, 220 * IB_WORD_BYTES)


def test_what_cannot_be_read_is_empty(tmp_path: Path) -> None:
    write(tmp_path / "proc" / "stat", "nothing known\n")
    found = reading(tmp_path)
    assert found.pop("unix_ns")
    assert set(found.values()) == {None}


def process(proc: Path, pid: int, parent: int, *ticks: int) -> None:
    write(proc / str(pid) / "stat", f"{pid} (a) name) S {parent} 0 0 0 0 0 0 0 0 0 {' '.join(map(str, ticks))} 20 0 1 0\n")


def test_slurms_cgroup_is_the_jobs(tmp_path: Path) -> None:
    proc, cgroups = tmp_path / "proc", tmp_path / "cgroup"
    write(proc / "9" / "cgroup", "0::/system.slice/slurmstepd.scope/job_81/step_0/user/task_3\n")
    write(cgroups / "system.slice" / "slurmstepd.scope" / "job_81" / "cpu.stat", "usage_usec 1234\nuser_usec 1000\n")
    assert job_cpu_ns(9, 4, proc=proc, cgroups=cgroups)() == 1_234_000


def test_slurms_cgroup_of_version_1(tmp_path: Path) -> None:
    proc, cgroups = tmp_path / "proc", tmp_path / "cgroup"
    write(proc / "9" / "cgroup", "5:memory:/slurm/uid_7/job_80/step_0\n4:cpu,cpuacct:/slurm/uid_7/job_81/step_0/task_3\n")
    write(cgroups / "cpu,cpuacct" / "slurm" / "uid_7" / "job_81" / "cpuacct.usage", "1234\n")
    assert job_cpu_ns(9, 4, proc=proc, cgroups=cgroups)() == 1234


def test_without_a_cgroup_processes_are_summed(tmp_path: Path) -> None:
    """One rank: itself, its loaders, and of both what they have waited for; not its parent, not its siblings."""
    process(tmp_path, 1, 0, 1000, 1000, 1000, 1000)
    process(tmp_path, 8, 1, 100, 100, 100, 100)
    process(tmp_path, 9, 8, 1, 2, 3, 4)
    process(tmp_path, 10, 9, 10, 0, 0, 0)
    process(tmp_path, 11, 8, 500, 0, 0, 0)
    assert job_cpu_ns(9, 1, proc=tmp_path)() == 20 * TICK_NS


def test_ranks_with_wrappers_have_a_common_launcher(tmp_path: Path) -> None:
    process(tmp_path, 1, 0, 1000, 0, 0, 0)
    process(tmp_path, 5, 1, 1, 0, 0, 0)  # the launcher
    for shell, rank in ((6, 8), (7, 9)):
        process(tmp_path, shell, 5, 2, 0, 0, 0)
        process(tmp_path, rank, shell, 10, 0, 0, 0)
    assert job_cpu_ns(9, 2, proc=tmp_path)() == 25 * TICK_NS


def test_ranks_without_a_launcher_are_unknown(tmp_path: Path) -> None:
    """Below the first process of all, anything might be the job's."""
    process(tmp_path, 1, 0, 1000, 0, 0, 0)
    process(tmp_path, 8, 1, 10, 0, 0, 0)
    process(tmp_path, 9, 1, 10, 0, 0, 0)
    assert job_cpu_ns(9, 2, proc=tmp_path)() is None


def test_new_processes_are_found(tmp_path: Path) -> None:
    process(tmp_path, 9, 8, 1, 0, 0, 0)
    tree = ProcessTree(9, 1, tmp_path)
    assert tree.cpu_ns() == TICK_NS
    process(tmp_path, 10, 9, 5, 0, 0, 0)
    assert tree.cpu_ns() == TICK_NS
    tree._scan_at_s = 0.0
    assert tree.cpu_ns() == 6 * TICK_NS


class Nvml:
    """Tells what pynvml's functions tell; a handle is the GPU's number."""

    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0

    class NVMLError(Exception):
        pass

    def __init__(self, *names: str) -> None:
        self.names = names

    def nvmlInit(self) -> None: ...

    def nvmlDeviceGetCount(self) -> int:
        return len(self.names)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetName(self, gpu: int) -> str:
        return self.names[gpu]

    def nvmlDeviceGetUUID(self, gpu: int) -> str:
        return f"GPU-{'abcd'[gpu]}0000000-1111"

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        return uuid

    def nvmlDeviceGetUtilizationRates(self, gpu: int) -> Any:
        return type("Rates", (), {"gpu": 90 + gpu})

    def nvmlDeviceGetMemoryInfo(self, gpu: int) -> Any:
        return type("Memory", (), {"used": 2**30})

    def nvmlDeviceGetPowerUsage(self, gpu: int) -> int:
        return 300_500

    def nvmlDeviceGetTotalEnergyConsumption(self, gpu: int) -> int:
        raise self.NVMLError("Not Supported")

    def nvmlDeviceGetClockInfo(self, gpu: int, clock: int) -> int:
        return {self.NVML_CLOCK_SM: 1380, self.NVML_CLOCK_MEM: 877}[clock]

    def nvmlDeviceGetTemperature(self, gpu: int, sensor: int) -> int:
        return 61

    def nvmlDeviceGetCurrentClocksEventReasons(self, gpu: int) -> int:
        raise self.NVMLError("Function Not Found")

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, gpu: int) -> int:
        return 0x4


def read_gpus(nvml: Any, count: int = 4, **env: str) -> list[dict[str, Any]]:
    return [dict(zip(GPU_COLUMNS, row, strict=True)) for row in GpuReader(nvml, count, env).rows()]


def names(nvml: Any, count: int = 4, **env: str) -> list[str]:
    return [gpu["uuid"][4] for gpu in GpuReader(nvml, count, env).describe()]


def test_a_gpu_is_a_row() -> None:
    (row,) = read_gpus(Nvml("V100"))
    assert row.pop("unix_ns")
    assert row == {
        "gpu": 0,
        "util_percent": 90,
        "mem_used_bytes": 2**30,
        "power_mw": 300_500,
        "energy_mj": None,
        "sm_mhz": 1380,
        "mem_mhz": 877,
        "temperature_c": 61,
        "throttle_reasons": 4,
    }


def test_gpus_of_others_are_not_read() -> None:
    nvml = Nvml("V100", "V100", "V100", "V100")
    assert names(nvml) == ["a", "b", "c", "d"]
    assert names(nvml, 2) == ["a", "b"]
    assert names(nvml, CUDA_VISIBLE_DEVICES="3,1") == ["d", "b"]
    assert names(nvml, CUDA_VISIBLE_DEVICES="GPU-c0000000-1111,GPU-a0") == ["c", "a"]
    assert GpuReader(nvml, 1, {"CUDA_VISIBLE_DEVICES": "MIG-1-2"})._gpus == ["MIG-1-2"]


def test_a_part_of_the_nodes_gpus_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where each rank sees its own GPU only, power and energy of one would pass for those of four."""
    monkeypatch.setitem(sys.modules, "pynvml", cast(ModuleType, Nvml("V100", "V100", "V100", "V100")))
    assert open_gpus(4)[1] is None
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2")
    assert open_gpus(4) == (None, "the node's first rank sees 1 of its 4 GPUs")
    assert open_gpus(1)[1] is None


@pytest.mark.parametrize("visible", ["4", "GPU-", "GPU-x", "", "none"])
def test_a_gpu_that_is_not_there_is_told(visible: str) -> None:
    with pytest.raises(NoGpus, match="NVML lists no GPU"):
        GpuReader(Nvml("V100", "V100", "V100", "V100"), 1, {"CUDA_VISIBLE_DEVICES": visible})


def test_numbers_of_different_gpus_are_ambiguous() -> None:
    """CUDA puts the fastest first, NVML goes by the bus: with GPUs of two types they agree only when told to."""
    with pytest.raises(NoGpus, match="CUDA_DEVICE_ORDER"):
        GpuReader(Nvml("T4", "V100"), 1, {})
    assert names(Nvml("T4", "V100"), CUDA_DEVICE_ORDER="PCI_BUS_ID") == ["a", "b"]


def test_no_driver_is_told() -> None:
    pynvml: Any = pytest.importorskip("pynvml")
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        with pytest.raises(NoGpus, match=f"no NVML: {error}"):
            GpuReader(pynvml, 1, {})
    else:
        assert read_gpus(pynvml, 1)[0]["mem_used_bytes"]


def cray(sys: Path, joules: str = "43210 J 1632233459 us", watts: str = "812 W 1632233459 us") -> None:
    """Counters of a node with an accelerator, whose energy is in that of the node."""
    files = {"energy": joules, "power": watts, "accel0_energy": "40000 J 1 us", "freshness": "9", "version": "2"}
    for name, text in files.items():
        write(sys / "cray" / "pm_counters" / name, f"{text}\n")


def meter(sys: Path, number: int, name: str, microwatts: int) -> None:
    device = sys / "class" / "hwmon" / f"hwmon{number}" / "device"
    write(device / "power1_oem_info", f"{name}\n")
    write(device / "power1_average", f"{microwatts}\n")


def test_crays_counters_are_the_nodes(tmp_path: Path) -> None:
    cray(tmp_path)
    found = node_energy(tmp_path)
    assert found
    assert (found.source, found.read()) == ("pm_counters", (43_210_000, 812_000))


def test_modules_are_summed(tmp_path: Path) -> None:
    """Of each socket the module; its Grace, CPU and SysIO meters are in it, and a meter of something else is none."""
    for number, (name, watts) in enumerate(
        [
            ("Module Power Socket 0", 600),
            ("Grace Power Socket 0", 200),
            ("Module Power Socket 1", 500),
            ("CPU Power Socket 1", 90),
        ]
    ):
        meter(tmp_path, number, name, watts * 10**6)
    write(tmp_path / "class" / "hwmon" / "hwmon9" / "name", "nvme\n")
    found = node_energy(tmp_path)
    assert found
    assert (found.source, found.read()) == ("module power", (None, 1_100_000))


def test_counters_come_before_meters(tmp_path: Path) -> None:
    """Nodes of Alps have both: the counters are of the whole node."""
    meter(tmp_path, 1, "Module Power Socket 0", 6 * 10**8)
    cray(tmp_path)
    assert getattr(node_energy(tmp_path), "source", None) == "pm_counters"


@pytest.mark.parametrize("joules", ["", "43210", "43210 kJ 1 us", "many J 1 us"])
def test_what_is_no_joules_is_no_source(tmp_path: Path, joules: str) -> None:
    cray(tmp_path, joules)
    assert node_energy(tmp_path) is None


def test_a_node_without_a_source_has_empty_cells(tmp_path: Path) -> None:
    assert node_energy(tmp_path) is None
    cray(tmp_path)
    reader = NodeReader(lambda: None, node_energy(tmp_path), proc=tmp_path / "proc", sys=tmp_path)
    assert dict(zip(NODE_COLUMNS, reader.row(), strict=True))["energy_mj"] == 43_210_000
    (tmp_path / "cray" / "pm_counters" / "power").unlink()
    row = dict(zip(NODE_COLUMNS, reader.row(), strict=True))
    assert (row["energy_mj"], row["power_mw"]) == (None, None)


@pytest.mark.dear
def test_a_run_on_such_a_node_records_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cray(tmp_path / "sys")
    path, rest = reader_process.PROGRAM.split("; from ", 1)
    elsewhere = f"node.node_energy.__defaults__ = (pathlib.Path({str(tmp_path / 'sys')!r}),)"
    finds = f"import pathlib; from hpcddp.worker.telemetry import node; {elsewhere}"
    monkeypatch.setattr(reader_process, "PROGRAM", f"{path}; {finds}; from {rest}")
    ran = forked.ran(tmp_path, given.point(1, steps=300, measure={"telemetry_hz": 10.0}))
    (node,) = ran.end["telemetry"]["nodes"]
    assert (node["energy_from"], node["power_w_mean"], node["power_w_peak"], node["energy_j"]) == ("pm_counters", 812, 812, 0)
    assert ran.read(f"nodes/{node['host']}.json")["telemetry"]["node_energy"] == "pm_counters"
