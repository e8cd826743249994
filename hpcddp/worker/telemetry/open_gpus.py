"""Which library reads the job's GPUs, and why none does. Standard library and that library only; Python 3.10."""

from __future__ import annotations

import importlib
from collections.abc import Sequence

from hpcddp.worker.telemetry.amd_gpu import AmdGpuReader
from hpcddp.worker.telemetry.gpu import GpuReader, NoGpus

NO_AMDSMI = "no AMD SMI: {}; the Python package amdsmi that lies in ROCm's share/amd_smi brings it"


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
        raise NoGpus(f"no NVML: {error}; nvidia-ml-py, where the job is submitted or where it runs, brings it") from error


def _by_amd_smi(addresses: Sequence[str]) -> AmdGpuReader:
    if not addresses:
        raise NoGpus("this torch does not say where its GPUs are on the bus; torch 2.10 does")
    try:
        smi = importlib.import_module("amdsmi")
    except ImportError as error:
        raise NoGpus(NO_AMDSMI.format(error)) from error
    except (OSError, KeyError, AttributeError) as error:  # its library is missing, or another version's
        raise NoGpus(NO_AMDSMI.format(f"{type(error).__name__}: {error}")) from error
    return AmdGpuReader(smi, addresses)
