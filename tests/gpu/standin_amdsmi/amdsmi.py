"""A stand-in for ROCm's amdsmi: GPUs that draw 300 W and count it. Names, fields and errors as of ROCm/amdsmi@0ceca28."""

from __future__ import annotations

import os
import time
from enum import IntEnum
from typing import Any

NAME = "AMD Instinct MI300X"
GPUS = [f"0000:{bus:02x}:00.0" for bus in range(int(os.environ.get("HPCDDP_TEST_GPUS", "2")))]
"""Their addresses on the bus, which are the handles, too."""

POWER_W = 300
NOT_THERE = "N/A"


class AmdSmiException(Exception): ...


class AmdSmiClkType(IntEnum):
    GFX = 1
    MEM = 5


class AmdSmiMemoryType(IntEnum):
    VRAM = 0


class AmdSmiTemperatureType(IntEnum):
    HOTSPOT = 1


class AmdSmiTemperatureMetric(IntEnum):
    CURRENT = 0


def _is(value: Any, kind: type) -> None:
    """As the real one refuses what is no value of its own types."""
    if not isinstance(value, kind):
        raise AmdSmiException(f"Invalid parameter: {value!r} is no {kind.__name__}")


def amdsmi_init() -> None: ...


def amdsmi_get_processor_handles() -> list[str]:
    return GPUS


def amdsmi_get_gpu_device_bdf(gpu: str) -> str:
    return gpu


def amdsmi_get_gpu_device_uuid(gpu: str) -> str:
    return f"0000000{GPUS.index(gpu)}-0000-1000-80ae-2a0000000000"


def amdsmi_get_gpu_asic_info(gpu: str) -> dict[str, Any]:
    return {"market_name": NAME}


def amdsmi_get_gpu_activity(gpu: str) -> dict[str, Any]:
    return {"gfx_activity": 97, "umc_activity": 40, "mm_activity": NOT_THERE}


def amdsmi_get_gpu_memory_usage(gpu: str, kind: AmdSmiMemoryType) -> int:
    _is(kind, AmdSmiMemoryType)
    return 32 * 2**20


def amdsmi_get_power_info(gpu: str) -> dict[str, Any]:
    return {"current_socket_power": POWER_W, "average_socket_power": NOT_THERE, "power_limit": 750}


def amdsmi_get_energy_count(gpu: str) -> dict[str, Any]:
    resolution_uj = 15.259
    return {"energy_accumulator": int(time.time() * POWER_W * 1e6 / resolution_uj), "counter_resolution": resolution_uj}


def amdsmi_get_clock_info(gpu: str, kind: AmdSmiClkType) -> dict[str, Any]:
    _is(kind, AmdSmiClkType)
    return {"clk": {AmdSmiClkType.GFX: 2100, AmdSmiClkType.MEM: 1300}[kind], "min_clk": 500, "max_clk": 2100}


def amdsmi_get_temp_metric(gpu: str, sensor: AmdSmiTemperatureType, metric: AmdSmiTemperatureMetric) -> int:
    _is(sensor, AmdSmiTemperatureType)
    _is(metric, AmdSmiTemperatureMetric)
    return 60


def amdsmi_get_gpu_metrics_info(gpu: str) -> dict[str, Any]:
    counters = ("prochot", "ppt", "socket_thm", "vr_thm", "hbm_thm")
    return {"indep_throttle_status": NOT_THERE, **{f"{name}_residency_acc": 7 for name in counters}}
