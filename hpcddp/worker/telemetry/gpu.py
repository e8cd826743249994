"""The job's GPUs by NVML, through NVIDIA's own Python module (nvidia-ml-py). Otherwise standard library only, Python 3.10."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

READINGS: dict[str, tuple[Callable[[Any, Any], int], ...]] = {
    "util_percent": (lambda nvml, gpu: nvml.nvmlDeviceGetUtilizationRates(gpu).gpu,),
    "mem_used_bytes": (lambda nvml, gpu: nvml.nvmlDeviceGetMemoryInfo(gpu).used,),
    "power_mw": (lambda nvml, gpu: nvml.nvmlDeviceGetPowerUsage(gpu),),
    "energy_mj": (lambda nvml, gpu: nvml.nvmlDeviceGetTotalEnergyConsumption(gpu),),
    "sm_mhz": (lambda nvml, gpu: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM),),
    "mem_mhz": (lambda nvml, gpu: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_MEM),),
    "temperature_c": (
        lambda nvml, gpu: nvml.nvmlDeviceGetTemperatureV(gpu, nvml.NVML_TEMPERATURE_GPU),
        lambda nvml, gpu: nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU),
    ),
    "throttle_reasons": (
        lambda nvml, gpu: nvml.nvmlDeviceGetCurrentClocksEventReasons(gpu),
        lambda nvml, gpu: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(gpu),
    ),
}
"""GPU_COLUMNS from the third on. The second of two is what older drivers know; it goes away with CUDA 14 (pynvml.py)."""


class NoGpus(Exception):
    """No GPU can be read; the message is the reason."""


class GpuReader:
    """By `nvml`, the module pynvml, rows of GPU_COLUMNS for the first `count` GPUs of this process; NoGpus where none shows."""

    def __init__(self, nvml: Any, count: int, env: Mapping[str, str] = os.environ) -> None:
        self._nvml = nvml
        try:
            nvml.nvmlInit()
            self._gpus = _visible(nvml, env)[:count]
        except nvml.NVMLError as error:
            raise NoGpus(f"no NVML: {error}") from error
        if not self._gpus:
            raise NoGpus("NVML lists no GPU that this job may use")

    def describe(self) -> list[dict[str, Any]]:
        nvml = self._nvml
        return [
            {"gpu": number, "name": nvml.nvmlDeviceGetName(gpu), "uuid": nvml.nvmlDeviceGetUUID(gpu)}
            for number, gpu in enumerate(self._gpus)
        ]

    def rows(self) -> Iterator[tuple[int | None, ...]]:
        for number, gpu in enumerate(self._gpus):
            yield time.time_ns(), number, *(self._first(ways, gpu) for ways in READINGS.values())

    def _first(self, ways: tuple[Callable[[Any, Any], int], ...], gpu: Any) -> int | None:
        for read in ways:
            try:
                return read(self._nvml, gpu)
            except (self._nvml.NVMLError, AttributeError):  # AttributeError: a module older than the function
                continue
        return None


def _visible(nvml: Any, env: Mapping[str, str]) -> list[Any]:
    """NVML's handles in the order in which CUDA numbers the GPUs."""
    gpus = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
    every = ",".join(map(str, range(len(gpus))))
    entries = [part.strip() for part in env.get("CUDA_VISIBLE_DEVICES", every).split(",") if part]
    # NVML numbers GPUs by their place on the bus; CUDA puts the fastest first unless told otherwise.
    numbered = any(entry.isdigit() for entry in entries) and env.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID"
    if numbered and len({nvml.nvmlDeviceGetName(gpu) for gpu in gpus}) > 1:
        raise NoGpus("GPUs of several types: NVML and CUDA number them alike only with CUDA_DEVICE_ORDER=PCI_BUS_ID")
    return [_named(nvml, gpus, entry) for entry in entries]


def _named(nvml: Any, gpus: list[Any], entry: str) -> Any:
    """The GPU of an entry of CUDA_VISIBLE_DEVICES: a number, or a UUID or its beginning (CUDA Programming Guide, there)."""
    if entry.isdigit() and int(entry) < len(gpus):
        return gpus[int(entry)]
    found = [gpu for gpu in gpus if entry.startswith("GPU-") and nvml.nvmlDeviceGetUUID(gpu).startswith(entry)]
    if len(found) == 1:
        return found[0]
    if entry.startswith("MIG-"):
        return nvml.nvmlDeviceGetHandleByUUID(entry)
    raise NoGpus(f"NVML lists no GPU `{entry}` of CUDA_VISIBLE_DEVICES")
