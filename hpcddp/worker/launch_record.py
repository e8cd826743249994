"""launch.json and nodes/HOST.json: what ran where, on what, with which settings."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import platform
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from hpcddp import __version__
from hpcddp.core.catalog import dataset_facts, is_on_disk
from hpcddp.core.errors import HpcddpError
from hpcddp.core.jobspec import JobSpec, data_root, data_root_as_given
from hpcddp.core.launch_record import GpuFacts, LaunchRecord, NodeFacts, RankBinding, TrainingData
from hpcddp.core.malloc import freed_memory
from hpcddp.core.own_script import digest_with_modules, facts_of
from hpcddp.core.point import FROM_LIBRARY, LIBRARY, Point, to_json
from hpcddp.core.records import SCHEMA, STEP_ROWS
from hpcddp.core.start_up import launched_unix_ns
from hpcddp.data.in_memory import resident_bytes
from hpcddp.data.pictures.decoders import decoder_version
from hpcddp.data.small_sets import unofficial_files
from hpcddp.worker import gates
from hpcddp.worker.binding import own_binding, pci_address
from hpcddp.worker.gpus import gfx_of
from hpcddp.worker.rendezvous import ProcessGroup

ALLOWED = (
    *("SLURM_JOB_", "SLURM_STEP_", "SLURM_CPU", "SLURM_GPUS", "SLURM_NTASKS", "SLURM_NNODES", "SLURM_RESTART_COUNT"),
    *("NCCL_", "TORCH_NCCL_", "GLOO_", "UCX_", "FI_", "MASTER_ADDR", "MASTER_PORT"),
    *("OMP_", "KMP_", "GOMP_", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"),
    *("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_LAUNCH_BLOCKING", "CUDA_DEVICE_MAX_CONNECTIONS"),
    *("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HSA_"),
    *("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "NVIDIA_TF32_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE"),
    *("HPCDDP_HANG_S", "LOADEDMODULES", "CONDA_DEFAULT_ENV", "VIRTUAL_ENV", "APPTAINER_NAME", "SINGULARITY_NAME", "CH_RUNNING"),
)
"""Names, or beginnings of names, of variables that are recorded."""

ARM_CORES = {
    ("0x41", "0xd0c"): "Neoverse-N1",
    ("0x41", "0xd40"): "Neoverse-V1",
    ("0x41", "0xd49"): "Neoverse-N2",
    ("0x41", "0xd4f"): "Neoverse-V2",
    ("0x46", "0x001"): "A64FX",
}
"""Implementer and part of servers' cores (MIDR_EL1), as lscpu names them: NVIDIA's Grace has Neoverse-V2."""

_SECRET = ("TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL")


def allowed_environment(env: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variables that may explain a number; none that may hold a secret."""
    secret = {name for name in env if any(word in name.upper() for word in _SECRET)}
    return {name: value for name, value in env.items() if name.startswith(ALLOWED) and name not in secret}


def versions() -> dict[str, str | None]:
    """Versions of the software that computes; None for what is not installed. torch calls RCCL nccl, and MIOpen cudnn."""
    cuda = {"cuda": torch.version.cuda, "nccl": nccl_version(), "cudnn": cudnn_version()}
    rocm = {"rocm": torch.version.hip, "rccl": nccl_version(), "miopen": miopen_version()}
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "torchvision": _torchvision_version(),
        **(cuda if torch.version.hip is None else rocm),
        "hpcddp": __version__,
    }


def software(point: Point) -> dict[str, str | None]:
    """The versions, and those of the libraries that the point's optimizer and decoder come from; and whether data are copied to
    the node, where they are read at another rate."""
    if point.script:
        return {**versions(), point.script.name: script_digest()}
    if point.workload.script:
        return {**versions(), script_file().name: digest_with_modules(script_file())}
    decoder = decoder_of(point)
    # Pillow is what decoded before there was a choice: those attempts have the same id as before.
    found = {**versions(), **({"decoder": decoder} if decoder and not decoder.startswith("pillow") else {})}
    if point.workload.data.stage != "none":
        found["stage"] = point.workload.data.stage
    if point.workload.optimizer.name not in FROM_LIBRARY:
        return found
    try:
        return {**found, LIBRARY: importlib.metadata.version(LIBRARY)}
    except importlib.metadata.PackageNotFoundError:  # which ends the run when the optimizer is made
        return found


def decoder_of(point: Point) -> str | None:
    """Name and version of what decodes the point's pictures in this environment; None where it trains on none."""
    reads = point.work != "comm" and point.measure.input != "synthetic" and not point.own_loop
    return decoder_version(point.workload.data) if reads else None


def script_digest() -> str | None:
    """12 hexadecimal digits of the SHA-256 of what Python runs; None where that is no file."""
    try:
        return hashlib.sha256(script_file().read_bytes()).hexdigest()[:12]
    except OSError:
        return None


def script_file() -> Path:
    """What Python runs; of an interactive one a file that is not there."""
    return Path(getattr(sys.modules["__main__"], "__file__", None) or "interactive.py")


def env_id(found: Mapping[str, str | None], device_kind: str, freed: str | None = None) -> str:
    """12 hexadecimal digits over versions, kind of device and `freed` memory: attempts with different ones are never pooled.
    Freed memory goes into the hash only where it is kept, so that ids from before `freed_memory` stay."""
    memory = {"freed_memory": freed} if freed == "kept" else {}
    return hashlib.sha256(to_json({"versions": dict(found), "device": device_kind, **memory}).encode()).hexdigest()[:12]


def nccl_version() -> str | None:
    """NCCL's version where this process can use it; with ROCm it is RCCL's."""
    if not torch.cuda.is_available():
        return None
    return ".".join(map(str, torch.cuda.nccl.version()))  # type: ignore[no-untyped-call]


def cudnn_version() -> str | None:
    """cuDNN's version where this process can use it, as its header writes it: 90100 is 9.1.0, 8902 is 8.9.2."""
    if not torch.cuda.is_available():
        return None
    version = torch.backends.cudnn.version()  # type: ignore[no-untyped-call]
    return None if version is None else str(version)


def miopen_version() -> str | None:
    """MIOpen's version where this process can use it: torch has 3.5.1 as 3005001 (torch/csrc/cuda/shared/cudnn.cpp)."""
    number = cudnn_version()
    if number is None:
        return None
    major, rest = divmod(int(number), 1_000_000)
    return f"{major}.{rest // 1000}.{rest % 1000}"


def tf32() -> dict[str, bool] | None:
    """Whether fp32 may run in TF32 where the GPU has it (compute capability 8.0 on); None where torch does not say.

    torch's defaults stay: they allow it in convolutions, so that `fp32` is not the same arithmetic on a V100 and on an A40.
    With ROCm convolutions are MIOpen's, which torch does not let have TF32 (pytorch pull request 190711 will).
    """
    try:
        convolutions = torch.backends.cudnn.allow_tf32 and torch.version.hip is None
        return {"convolutions": convolutions, "products": torch.backends.cuda.matmul.allow_tf32}
    except RuntimeError:  # a user's module chose by the interface of torch 2.9 what these two cannot express
        return None


@dataclass(frozen=True, kw_only=True)
class _Peer:
    host: str
    gpu: str | None
    cpus: int
    binding: RankBinding
    env_id: str
    launched_unix_ns: int | None


def launch_record(spec: JobSpec, group: ProcessGroup, samples: int) -> LaunchRecord | None:
    """All ranks call it; what launch.json holds on rank 0, None elsewhere. HpcddpError if ranks run different software."""
    rank, found = group.rank, software(spec.point)
    freed = freed_memory(spec.point)
    environment = env_id(found, group.device.type, freed)
    here = _Peer(
        host=rank.host,
        gpu=torch.cuda.get_device_name(group.device) if group.device.type == "cuda" else None,
        cpus=usable_cpus(),
        binding=own_binding(pci_address(rank.gpu) if group.device.type == "cuda" else None),
        env_id=environment,
        launched_unix_ns=launched_unix_ns(),
    )
    peers = group.gather_records("launch", here)
    if not peers:
        return None
    _refuse_mixed(peers)
    return LaunchRecord(
        schema=SCHEMA,
        step_rows=STEP_ROWS,
        point=spec.point.id,
        run=spec.run,
        job=rank.job,
        restart=rank.restart,
        backend=spec.backend,
        launcher=rank.launcher,
        communication=group.backend,
        started_unix_ns=time.time_ns(),
        launched_unix_ns=min((peer.launched_unix_ns for peer in peers if peer.launched_unix_ns is not None), default=None),
        hosts=tuple(dict.fromkeys(peer.host for peer in peers)),
        ranks=rank.world,
        ranks_per_node=rank.ranks_per_node,
        cpus_of_ranks=tuple(peer.cpus for peer in peers),
        bindings=tuple(peer.binding for peer in peers),
        gpus=tuple(sorted({peer.gpu for peer in peers if peer.gpu})),
        device=group.device.type,
        freed_memory=freed,
        versions=found,
        env_id=environment,
        environment=allowed_environment(),
        profile=spec.profile,
        git_commit=spec.git_commit,
        data=_training_data(spec, samples, decoder_of(spec.point)),
        script=facts_of(spec.point.workload) if spec.point.workload.script else None,
        clock="compute stream events" if group.device.type == "cuda" else "host",
        tf32=tf32() if group.device.type == "cuda" else None,
        gates=tuple(gates.expected(spec.point)),
    )


def _training_data(spec: JobSpec, samples: int, decoder: str | None) -> TrainingData:
    """Called by rank 0, which reads official files once more for their checksums."""
    return TrainingData(
        name=spec.point.workload.data.name,
        root=data_root_as_given(spec),
        samples=samples,
        decoder=decoder,
        resident_bytes=_resident_bytes(spec.point, samples),
        unofficial=_unofficial(spec),
        form=spec.point.workload.data.form if spec.point.workload.data.name == "bigmnist" else None,
    )


def _resident_bytes(point: Point, samples: int) -> int | None:
    data = point.workload.data
    facts = dataset_facts(data) if data.resident and point.measure.input != "synthetic" else None
    return resident_bytes(facts.shape, samples) if facts else None


def _unofficial(spec: JobSpec) -> tuple[str, ...] | None:
    """With a remark in the job's log."""
    point = spec.point
    if point.work == "comm" or point.measure.input == "synthetic" or point.own_loop or not is_on_disk(point.workload.data):
        return None
    if (root := data_root(spec)) is None:
        return None
    found = unofficial_files(point.workload.data.name, Path(root))
    if found:
        print(f"hpcddp: {', '.join(found)} of {root}: not the official file, by size or checksum", file=sys.stderr, flush=True)
    return found


def node_facts(host: str) -> NodeFacts:
    """This node's processors, memory and GPUs as this process sees them."""
    return NodeFacts(
        host=host,
        machine=platform.machine(),
        kernel=platform.release(),
        cpu=cpu_name(Path("/proc/cpuinfo").read_text(encoding="utf-8")),
        cpus=os.cpu_count(),
        cpus_usable=usable_cpus(),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        gpu_driver=_first_line(Path("/proc/driver/nvidia/version")) or _first_line(Path("/sys/module/amdgpu/version")),
        gpus=tuple(_gpu_facts(index) for index in range(torch.cuda.device_count())),
    )


def usable_cpus() -> int:
    """Logical CPUs this process may run on: what Slurm's binding left it."""
    return len(os.sched_getaffinity(0))


def _refuse_mixed(peers: Sequence[_Peer]) -> None:
    odd = next((peer for peer in peers if peer.env_id != peers[0].env_id), None)
    if odd:
        libraries = "CUDA, cuDNN, NCCL" if torch.version.hip is None else "ROCm, MIOpen, RCCL"
        raise HpcddpError(
            f"{odd.host} and {peers[0].host} have different versions of Python, torch, {libraries} or the JPEG decoder. "
            f"Their times cannot be pooled. Use the same environment on all nodes."
        )


def _gpu_facts(index: int) -> GpuFacts:
    facts: Any = torch.cuda.get_device_properties(index)
    capability = f"{facts.major}.{facts.minor}" if torch.version.hip is None else gfx_of(facts.gcnArchName)
    return GpuFacts(name=facts.name, memory_bytes=facts.total_memory, capability=capability)


def _torchvision_version() -> str | None:
    """From the installed package's description: importing it takes most of a second, and not every model needs it."""
    try:
        return importlib.metadata.version("torchvision")
    except importlib.metadata.PackageNotFoundError:
        return None


def cpu_name(cpuinfo: str) -> str | None:
    """From /proc/cpuinfo: `model name` on x86, `cpu` on POWER; Arm has numbers, of the implementer and of the core."""
    facts = {key.strip(): value.strip() for key, _, value in reversed([line.partition(":") for line in cpuinfo.splitlines()])}
    implementer, part = facts.get("CPU implementer"), facts.get("CPU part")
    numbers = f"CPU implementer {implementer}, part {part}" if implementer and part else None
    return facts.get("model name") or facts.get("cpu") or ARM_CORES.get((str(implementer), str(part)), numbers)


def _first_line(file: Path) -> str | None:
    return file.read_text(encoding="utf-8").split("\n", 1)[0] if file.exists() else None
