"""A stand-in for nvidia-ml-py: GPUs that draw 300 W and count it. nvidia-smi beside it says the same."""

from __future__ import annotations

import os
import time
from types import SimpleNamespace

GPUS = int(os.environ.get("HPCDDP_TEST_GPUS", "2"))
POWER_W, UTILISATION_PERCENT, USED_MIB = 300, 97, 32

NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0


class NVMLError(Exception): ...


def nvmlInit() -> None: ...


def nvmlDeviceGetCount() -> int:
    return GPUS


def nvmlDeviceGetHandleByIndex(index: int) -> int:
    return index


def nvmlDeviceGetName(gpu: int) -> str:
    return "stand-in"


def nvmlDeviceGetUUID(gpu: int) -> str:
    return f"GPU-{gpu}"


def nvmlDeviceGetUtilizationRates(gpu: int) -> SimpleNamespace:
    return SimpleNamespace(gpu=UTILISATION_PERCENT)


def nvmlDeviceGetMemoryInfo(gpu: int) -> SimpleNamespace:
    return SimpleNamespace(used=USED_MIB * 2**20)


def nvmlDeviceGetPowerUsage(gpu: int) -> int:
    return POWER_W * 1000


def nvmlDeviceGetTotalEnergyConsumption(gpu: int) -> int:
    return int(time.time() * POWER_W * 1000)


def nvmlDeviceGetClockInfo(gpu: int, kind: int) -> int:
    return 1980


def nvmlDeviceGetTemperatureV(gpu: int, sensor: int) -> int:
    return 60


def nvmlDeviceGetCurrentClocksEventReasons(gpu: int) -> int:
    return int(os.environ.get("HPCDDP_TEST_THROTTLE", "0"), base=0)
