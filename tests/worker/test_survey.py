"""What a survey reads of a node, from texts and files as machines have them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hpcddp.core.comm_record import fit_link
from hpcddp.core.job_records import Adapter
from hpcddp.core.launch_record import GpuFacts, NodeFacts
from hpcddp.worker import disk, launch_record
from hpcddp.worker.disk import filesystem, read_disk
from hpcddp.worker.survey import _link, parse_amd_topology, parse_lscpu, parse_topology, read_adapters, survey_node

TOPOLOGY = """\
\t\x1b[4mGPU0\tGPU1\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m
GPU0\t X \tNV12\tPXB\tSYS\t48-63,176-191\t3\t\tN/A
GPU1\tNV12\t X \tSYS\tPXB\t16-31,144-159\t1\t\tN/A
NIC0\tPXB\tSYS\t X \tNODE\t\t\t\t
NIC1\tSYS\tPXB\tNODE\t X \t\t\t\t

Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)

NIC Legend:

  NIC0: mlx5_0
  NIC1: mlx5_3
"""
"""In the layout of drivers from 535 on, whose header is underlined."""


def test_topology_has_names_and_words() -> None:
    assert parse_topology(TOPOLOGY) == {
        "GPU0": ("X", "NV12", "PXB", "SYS"),
        "GPU1": ("NV12", "X", "SYS", "PXB"),
        "mlx5_0": ("PXB", "SYS", "X", "NODE"),
        "mlx5_3": ("SYS", "PXB", "NODE", "X"),
    }


@pytest.mark.parametrize("text", ["", "No devices were found\n", TOPOLOGY.replace("GPU1\tNV12\t X", "GPU1\tERR\t X")])
def test_what_is_no_matrix_is_none(text: str) -> None:
    assert parse_topology(text) == {}


AMD_TOPOLOGY = """
============================ ROCm System Management Interface ============================
================================= Hops between two GPUs ==================================
       GPU0         GPU1         GPU2         GPU3
GPU0   0            1            3            3
GPU1   1            0            3            3
GPU2   3            3            0            1
GPU3   3            3            1            0

=============================== Link Type between two GPUs ===============================
       GPU0         GPU1         GPU2         GPU3
GPU0   0            XGMI         PCIE         PCIE
GPU1   XGMI         0            PCIE         PCIE
GPU2   PCIE         PCIE         0            XGMI
GPU3   PCIE         PCIE         XGMI         0

======================================= Numa Nodes =======================================
GPU[0]\t\t: (Topology) Numa Node: 0
GPU[0]\t\t: (Topology) Numa Affinity: 0
================================== End of ROCm SMI Log ===================================
"""
"""As a node with two islands of GPUs has it (recorded of eight; here are two of each island)."""


def test_link_types_of_amds_gpus() -> None:
    assert parse_amd_topology(AMD_TOPOLOGY) == {
        "GPU0": ("X", "XGMI", "PCIE", "PCIE"),
        "GPU1": ("XGMI", "X", "PCIE", "PCIE"),
        "GPU2": ("PCIE", "PCIE", "X", "XGMI"),
        "GPU3": ("PCIE", "PCIE", "XGMI", "X"),
    }


@pytest.mark.parametrize("old", ["Link Type", "GPU3   PCIE", "XGMI         0\n"])
def test_what_is_no_matrix_of_amds_is_none(old: str) -> None:
    assert parse_amd_topology(AMD_TOPOLOGY.replace(old, "?")) == {}


@pytest.mark.dear
@pytest.mark.parametrize(
    ("capability", "command"), [("gfx90a", ["rocm-smi", "--showtopo"]), ("8.0", ["nvidia-smi", "topo", "-m"])]
)
def test_each_vendors_own_program_runs(monkeypatch: pytest.MonkeyPatch, capability: str, command: list[str]) -> None:
    """By what the GPUs say of themselves, as AMD's have a driver, too."""
    gpu = GpuFacts(name="a GPU", memory_bytes=2**36, capability=capability)
    monkeypatch.setattr(launch_record, "node_facts", lambda host: NodeFacts(host=host, gpu_driver="6.8.5", gpus=(gpu,)))
    programs: list[list[str]] = []

    def run(words: list[str], **_: object) -> object:
        programs.append(words[2:])
        raise FileNotFoundError

    monkeypatch.setattr("hpcddp.worker.survey.subprocess.run", run)
    found = survey_node("here")
    assert command in programs
    assert any(command[0] in problem for problem in found.problems)


def test_lscpu_in_numbers() -> None:
    found = parse_lscpu("Architecture: x86_64\nSocket(s):            2\nCore(s) per socket:  16\nThread(s) per core: 4\n")
    assert (found["Socket(s)"], found["Core(s) per socket"], found["Thread(s) per core"]) == (2, 16, 4)
    assert "Architecture" not in found


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{text}\n")


def rdma_port(sys: Path, name: str, layer: str, rate: str, state: str = "4: ACTIVE") -> Path:
    port = sys / "class" / "infiniband" / name / "ports" / "1"
    for key, text in {"state": state, "rate": rate, "link_layer": layer}.items():
        write(port / key, text)
    return port


def interface(sys: Path, name: str, speed: str, state: str = "up", *, virtual: bool = False) -> None:
    link = sys / "class" / "net" / name
    write(link / "operstate", state)
    write(link / "speed", speed)
    if not virtual:
        write(link / "device" / "vendor", "0x15b3")


def test_adapters_that_are_up(tmp_path: Path) -> None:
    rdma_port(tmp_path, "mlx5_0", "InfiniBand", "200 Gb/sec (4X HDR)")
    rdma_port(tmp_path, "mlx5_1", "InfiniBand", "10 Gb/sec (4X SDR)", state="1: DOWN")
    roce = rdma_port(tmp_path, "mlx5_2", "Ethernet", "100 Gb/sec (4X EDR)")
    for number, gid, kind in (("0", "fe80::1", "IB/RoCE v1"), ("3", "::ffff:0a00:0001", "RoCE v2"), ("4", "0000::0000", "")):
        write(roce / "gids" / number, gid)
        write(roce / "gid_attrs" / "types" / number, kind)
    interface(tmp_path, "hsn0", "200000")
    interface(tmp_path, "eno1", "-1")
    interface(tmp_path, "eno2", "1000", state="down")
    interface(tmp_path, "docker0", "10000", virtual=True)
    assert read_adapters(tmp_path) == (
        Adapter(name="mlx5_0", gbps=200, kind="InfiniBand"),
        Adapter(name="mlx5_2", gbps=100, kind="RoCE", gids={"0": "IB/RoCE v1", "3": "RoCE v2"}),
        Adapter(name="eno1", kind="Ethernet"),
        Adapter(name="hsn0", gbps=200, kind="Slingshot"),
    )


MOUNTS = "/dev/sda1 / ext4 rw 0 0\ntmpfs /tmp tmpfs rw 0 0\n10.0.0.1:/work /work nfs4 rw 0 0\n"


@pytest.mark.parametrize(("path", "kind"), [("/tmp/job", "tmpfs"), ("/work", "nfs4"), ("/workbench", "ext4"), ("/", "ext4")])
def test_file_system_of_a_path(path: str, kind: str) -> None:
    assert filesystem(Path(path), MOUNTS) == kind


def test_disk_is_measured_where_it_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "FILE_BYTES", 2**23)
    mounts, folder = tmp_path / "mounts", tmp_path / "scratch"
    folder.mkdir()
    mounts.write_text("/dev/sda1 / ext4 rw 0 0\n")
    found = read_disk({"SLURM_TMPDIR": str(folder), "TMPDIR": "/nowhere"}, mounts)
    assert found.why_not is None
    assert found.gb
    assert found.read_gbs
    assert list(folder.iterdir()) == []
    mounts.write_text(f"/dev/sda1 / ext4 rw 0 0\nmemory {folder} tmpfs rw 0 0\n")
    found = read_disk({"TMPDIR": str(folder)}, mounts)
    assert (found.read_gbs, found.why_not) == (None, f"{folder} is tmpfs, not a disk of the node")


def test_a_latency_that_was_not_found_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where something else slowed every call of the small sizes, so that they are left out."""
    timed = SimpleNamespace(fit=fit_link({2**10: 0.2, 2**12: 0.2, 2**22: 0.01}))
    monkeypatch.setattr("hpcddp.worker.comm.bench.bench_comm", lambda *_: SimpleNamespace(ops={"send_recv": timed}))
    monkeypatch.setattr("hpcddp.worker.rendezvous.join", lambda *_: SimpleNamespace(leave=lambda: None))
    rank: Any = SimpleNamespace(nodes=2)
    job: Any = SimpleNamespace(point=SimpleNamespace(device="cpu"))
    link, problem = _link(job, rank)
    assert link is not None
    assert link.latency_s is None
    assert link.bytes_per_s == pytest.approx(2**22 / 0.01)
    assert problem.startswith("the latency between the nodes is unknown; survey again (latency: no size up to 4 KiB")
    assert problem.endswith("without 2 that were disturbed)")
