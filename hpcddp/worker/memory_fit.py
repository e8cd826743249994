"""Memory that ran out: how much there was, and which batch would fit. Imports without torch."""

from __future__ import annotations

import re
import resource
import sys
from pathlib import Path
from typing import NamedTuple

from hpcddp.core.catalog import parameters
from hpcddp.core.point import Point
from hpcddp.worker.telemetry.node import node_memory

_SAYS_SO = re.compile(r"out of memory|Cannot allocate memory|DefaultCPUAllocator|_STATUS_ALLOC_FAILED", re.IGNORECASE)

NO_CONVOLUTION = re.compile(r"unable to find an engine to execute|unable to find a valid cuDNN algorithm", re.IGNORECASE)
"""cuDNN's words where no way to compute a convolution works: none is for this GPU and precision, or each found the memory full
(pytorch issue 108645), which is no error then, but counted by torch's allocator."""

_ON_GPU = re.compile(r"CUDA|Cuda failure|CUBLAS|CUDNN|HIP|MIOPEN")
"""torch for ROCm has the same sentences with HIP in place of CUDA."""

_WANTED = (
    re.compile(r"Tried to allocate ([\d.]+) ([KMG]iB)"),  # CUDACachingAllocator
    re.compile(r"tried to allocate (\d+) (byte)s"),  # DefaultCPUAllocator
)

_BYTES = {"byte": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


PLAUSIBLE = 0.5
"""Of the memory that there is: fragments, and others' memory that comes and goes, never leave so much that cannot be had."""


class Memory(NamedTuple):
    """Bytes. `need`: the most that was held, and what was wanted then; the batch needs that or more."""

    what: str
    limit: int
    need: int


def out_of_memory(error: BaseException, point: Point | None, gpu: int) -> str | None:
    """The words for an error that says that memory ran out, on a GPU or in the node; None for any other error."""
    text = str(error)
    unsaid = _found_memory_full(text, gpu)
    if not isinstance(error, MemoryError) and not _SAYS_SO.search(text) and not unsaid:
        return None
    wanted = wanted_bytes(text)
    on_gpu = unsaid or _ON_GPU.search(text) is not None
    limited = None if on_gpu else _of_process(wanted)
    if limited:
        return f"{limited}{_advice(point, None)}"
    memory = (_of_gpu if on_gpu else _of_node)(wanted, gpu)
    if memory is None:
        return f"{'GPU' if on_gpu else 'the node'} memory ran out{_advice(point, None)}"
    more = f" and {_gib(wanted)} more requested" if wanted else ""
    taken = f"{_gib(memory.need - wanted)} of {_gib(memory.limit)} were taken{more}"
    if memory.need < PLAUSIBLE * memory.limit:
        return f"memory could not be allocated, though only {taken}"
    return f"{memory.what} ran out: {taken}{_advice(point, memory)}"


def _found_memory_full(text: str, gpu: int) -> bool:
    torch = sys.modules.get("torch")
    if not NO_CONVOLUTION.search(text) or torch is None or not torch.cuda.is_available():
        return False
    return bool(torch.cuda.memory_stats(gpu).get("num_ooms", 0))


def wanted_bytes(text: str) -> int:
    """What the allocator could not give; 0 where it does not say."""
    for pattern in _WANTED:
        if found := pattern.search(text):
            return int(float(found[1]) * _BYTES[found[2]])
    return 0


def fitting_batch(point: Point, limit: int, need: int) -> int | None:
    """The largest power of two that may fit: memory is parameters, gradients and moments, and the rest grows with the batch.

    More is needed than had been asked for when it failed, so no larger batch fits; this one does if little was missing.
    None where the batch is not what fills the memory.
    """
    held = _held_bytes(point)
    if need <= max(limit, held) or limit <= held:
        return None
    most = int(point.workload.batch_per_gpu * (limit - held) / (need - held))
    fits = 1 << (most.bit_length() - 1) if most else 0
    return fits if 0 < fits < point.workload.batch_per_gpu else None


def _held_bytes(point: Point) -> int:
    """Whatever the batch: each parameter, its gradient and the optimizer's state, or a rank's shard of them; 0 for a model that
    only its code knows."""
    count = parameters(point.workload) or 0
    copies = 2 + point.workload.optimizer.numbers_per_parameter
    return count * copies * (8 if point.workload.precision == "fp64" else 4) // point.shards


def _advice(point: Point | None, memory: Memory | None) -> str:
    if point is None:
        return ""
    if point.workload.script:
        return ": make the script's batch smaller"
    batch = point.workload.batch_per_gpu
    fits = fitting_batch(point, memory.limit, memory.need) if memory else None
    if batch == 1:
        return ", with one sample per GPU: use a smaller model, or a node type with more memory"
    if fits is None:
        return f", with batch_per_gpu {batch}: take a smaller one, such as {batch // 2}, or split it by workload.accumulate"
    parts = next((parts for parts in (2, 4, 8, 16, 32) if batch % parts == 0 and batch // parts <= fits), None)
    split = f", or keep the batch with workload.accumulate={parts}" if parts else ""
    return f", with batch_per_gpu {batch}: {fits} is the largest power of two that may fit{split}"


def _of_gpu(wanted: int, gpu: int) -> Memory | None:
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return None
    free, _ = torch.cuda.mem_get_info(gpu)
    limit = free + torch.cuda.memory_reserved(gpu)
    what = f"memory of GPU {gpu} ({torch.cuda.get_device_name(gpu)})"
    return Memory(what, limit, torch.cuda.max_memory_allocated(gpu) + wanted)


def _of_process(wanted: int) -> str | None:
    """The words for a limit of this process that leaves less than the node has; None where none does."""
    try:
        status, free = _own_status(), node_memory().available
    except (OSError, KeyError, ValueError):
        return None
    for kind, option, field in ((resource.RLIMIT_AS, "v", "VmPeak"), (resource.RLIMIT_DATA, "d", "VmData")):
        limit, taken = resource.getrlimit(kind)[0], status[field]
        if limit != resource.RLIM_INFINITY and limit - taken < (min(free, wanted) if wanted else free):
            more = f" and {_gib(wanted)} more requested" if wanted else ""
            return f"a limit of the process (`ulimit -{option}`) was reached: {_gib(taken)} of {_gib(limit)} were taken{more}"
    return None


def _own_status(proc: Path = Path("/proc")) -> dict[str, int]:
    """Of this process, in bytes; proc(5)."""
    lines = (line.split() for line in (proc / "self/status").read_text(encoding="utf-8").splitlines())
    return {words[0].rstrip(":"): int(words[1]) * 1024 for words in lines if words[-1:] == ["kB"]}


def _of_node(wanted: int, _: int) -> Memory | None:
    """What this process took and what is left: the rest of the node's memory is others'."""
    try:
        free = node_memory().available
    except (OSError, KeyError):
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # KiB on Linux: getrusage(2)
    return Memory("memory of the node", peak + free, peak + wanted)


def _gib(count: int) -> str:
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.0f} MiB"
