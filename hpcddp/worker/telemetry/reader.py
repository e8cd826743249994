"""The process that reads a node's counters while its ranks train; reader_process.py starts and ends it.

Cost on a machine of 2 cores, 100 processes and no GPU: 0.08 % of a core at 1 Hz, 0.7 % at 10 Hz; 13 MB; 40 ms to start.
Without Slurm's cgroup 0.02 ms more per reading and process of the job. What NVML's or AMD SMI's own calls take is not in it.
Standard library and, for GPUs, nvidia-ml-py or amdsmi only; Python 3.10.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import math
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from hpcddp.core.bootstrap import die_with_parent
from hpcddp.core.records import GPU_COLUMNS, NODE_COLUMNS, RowWriter, gpus_file, node_file
from hpcddp.worker.telemetry.amd_gpu import AmdGpuReader
from hpcddp.worker.telemetry.gpu import GpuReader, NoGpus
from hpcddp.worker.telemetry.node import NodeReader, job_cpu_ns, node_energy

NO_AMDSMI = "no AMD SMI: {}; install the Python package amdsmi from ROCm's share/amd_smi"


def open_gpus(count: int, amd_addresses: Sequence[str] | None = None) -> tuple[GpuReader | AmdGpuReader | None, str | None]:
    """A reader of `count` GPUs, or why there is none. `amd_addresses`: of a torch for ROCm, where its GPUs are on the bus."""
    if not count:
        return None, "the run uses no GPU"
    try:
        gpus = _by_nvml(count) if amd_addresses is None else _by_amd_smi(amd_addresses[:count])
        if (visible := len(gpus.describe())) < count:  # sums over a part would pass for the node's
            return None, f"the node's first rank sees {visible} of its {count} GPUs"
        return gpus, None
    except NoGpus as error:
        return None, str(error)


def _by_nvml(count: int) -> GpuReader:
    try:
        return GpuReader(importlib.import_module("pynvml"), count)
    except ImportError as error:
        raise NoGpus(f"no NVML: {error}; install nvidia-ml-py where the job is submitted, or where it runs") from error


def _by_amd_smi(addresses: Sequence[str]) -> AmdGpuReader:
    if not addresses:
        raise NoGpus("this torch does not report the bus address of its GPUs; torch 2.10 does")
    try:
        smi = importlib.import_module("amdsmi")
    except ImportError as error:
        raise NoGpus(NO_AMDSMI.format(error)) from error
    except (OSError, KeyError, AttributeError) as error:  # its library is missing, or another version's
        raise NoGpus(NO_AMDSMI.format(f"{type(error).__name__}: {error}")) from error
    return AmdGpuReader(smi, addresses)


LOWEST = 19
"""nice(2): whenever a rank wants this processor, it goes first."""


def main() -> None:
    """Arguments: the attempt's folder, host, readings per second, a rank's process id, ranks of this node, GPUs to read, and with
    a torch for ROCm the addresses of GPUs on the bus, with a comma between them.

    Prints one line of JSON that says which GPUs it reads, then reads until standard input has something or is closed.
    """
    attempt, host, hz, rank_pid, ranks, gpus, *amd = sys.argv[1:]
    die_with_parent(rank_pid, signal.SIGKILL)
    for meant_for_the_job in (signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(meant_for_the_job, signal.SIG_IGN)
    reader, why = open_gpus(int(gpus), [address for address in amd[0].split(",") if address] if amd else None)
    energy = node_energy()
    about = {"hz": float(hz), "gpus": reader.describe() if reader else [], "no_gpus": why}
    print(json.dumps(about | ({"node_energy": energy.source} if energy else {})), flush=True)
    os.nice(LOWEST)  # only now: a rank waits for that line
    node = NodeReader(job_cpu_ns(int(rank_pid), int(ranks)), energy)
    with contextlib.ExitStack() as files:
        of_node = files.enter_context(RowWriter(node_file(Path(attempt), host), NODE_COLUMNS))
        of_gpus = files.enter_context(RowWriter(gpus_file(Path(attempt), host), GPU_COLUMNS)) if reader else None

        def read() -> None:
            of_node.row(node.row())
            of_node.flush()
            if reader and of_gpus:
                for row in reader.rows():
                    of_gpus.row(row)
                of_gpus.flush()

        repeat(read, 1 / float(hz))


def repeat(action: Callable[[], None], period_s: float) -> None:
    """Calls `action` now and every `period_s` until standard input has something or is closed; what is missed is left out."""
    due_s = time.monotonic()
    while True:
        action()
        late_s = time.monotonic() - due_s
        due_s += period_s * (1 + math.floor(late_s / period_s))
        if select.select([sys.stdin], [], [], max(0.0, due_s - time.monotonic()))[0]:
            return


if __name__ == "__main__":
    main()
