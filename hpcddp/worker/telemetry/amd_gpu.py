"""The job's GPUs by AMD SMI, through ROCm's own Python module (amdsmi). Otherwise standard library only, Python 3.10.

Names, units and what is said here of them are of ROCm/amdsmi@0ceca28: the Python interface with its readme, the header and its
implementation in C++.
"""

from __future__ import annotations

import functools
import operator
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from hpcddp.worker.telemetry.gpu import NoGpus

Read = Callable[[Any, Any], Any]

READINGS: dict[str, tuple[Read, ...]] = {
    "util_percent": (lambda smi, gpu: smi.amdsmi_get_gpu_activity(gpu)["gfx_activity"],),
    "mem_used_bytes": (lambda smi, gpu: smi.amdsmi_get_gpu_memory_usage(gpu, smi.AmdSmiMemoryType.VRAM),),
    "power_mw": (
        lambda smi, gpu: smi.amdsmi_get_power_info(gpu)["current_socket_power"] * 1000,
        lambda smi, gpu: smi.amdsmi_get_power_info(gpu)["average_socket_power"] * 1000,
    ),
    "energy_mj": (lambda smi, gpu: _energy_mj(smi.amdsmi_get_energy_count(gpu)),),
    "sm_mhz": (lambda smi, gpu: _mhz(smi.amdsmi_get_clock_info(gpu, smi.AmdSmiClkType.GFX)),),
    "mem_mhz": (lambda smi, gpu: _mhz(smi.amdsmi_get_clock_info(gpu, smi.AmdSmiClkType.MEM)),),
    "temperature_c": (
        lambda smi, gpu: smi.amdsmi_get_temp_metric(gpu, smi.AmdSmiTemperatureType.HOTSPOT, smi.AmdSmiTemperatureMetric.CURRENT),
    ),
}
"""GPU_COLUMNS from the third to the last but one. Power comes in W, an MI300's as it is now, an MI200's as a mean (pull request
1457 of ROCm/pytorch); the temperature is the hottest place's, in degrees whatever the header says (the implementation divides).
What a GPU does not have is `N/A`: no number, and so left to the second way, or out."""

THROTTLERS = {
    "ppt_residency_acc": 0x004,
    "socket_thm_residency_acc": 0x020,
    "hbm_thm_residency_acc": 0x020,
    "vr_thm_residency_acc": 0x040,
    "prochot_residency_acc": 0x040,
}
"""Counter of amdsmi_get_gpu_metrics_info -> bit of reader_process.THROTTLE: power limit of the package, heat that the firmware
answers (socket, memory), heat that the hardware does (voltage regulator, PROCHOT). A counter that grew since the reading before
held the GPU back between them. amdsmi_get_violation_status says that of two samples, and waits 100 ms between them."""

THROTTLED = 1 << 32
"""What an MI200 says: that something holds it back, not what."""

DIES = "MI250"
"""In the name of a module whose two dies are GPUs of their own: its first die has power and energy of both, the second 0 (Zeus,
ml-energy/zeus pull request 203)."""


class AmdGpuReader:
    """Reads rows of GPU_COLUMNS for the GPUs at these addresses on the bus; NoGpus where AMD SMI does not show them.

    `smi` is the module amdsmi. Addresses, such as `0000:c1:00.0`, are what torch gives for the GPUs that this process may use, in
    its order: numbers in HIP_VISIBLE_DEVICES, ROCR_VISIBLE_DEVICES and AMD SMI count different things.
    """

    def __init__(self, smi: Any, addresses: Sequence[str]) -> None:
        self._smi = smi
        try:
            smi.amdsmi_init()
            self._gpus = _at(smi, addresses)
            self._powered = self._shows_power()
        except smi.AmdSmiException as error:
            raise NoGpus(f"no AMD SMI: {' '.join(str(error).split())}") from error
        self._counted: list[dict[str, int]] = [{} for _ in self._gpus]

    def describe(self) -> list[dict[str, Any]]:
        return [
            {
                "gpu": number,
                "name": self._answer(_name, gpu),
                "uuid": self._answer(lambda smi, gpu: str(smi.amdsmi_get_gpu_device_uuid(gpu)), gpu),
            }
            for number, gpu in enumerate(self._gpus)
        ]

    def rows(self) -> Iterator[tuple[int | None, ...]]:
        """One reading of every GPU; None for what a GPU does not report."""
        for number, gpu in enumerate(self._gpus):
            values = {column: self._first(ways, gpu) for column, ways in READINGS.items()}
            if not self._powered:
                values |= {"power_mw": None, "energy_mj": None}
            yield time.time_ns(), number, *values.values(), self._throttle_reasons(number)

    def _first(self, ways: tuple[Read, ...], gpu: Any) -> int | None:
        """None where no way gives a number: `N/A` times 1000 is a long text."""
        answers = (self._answer(read, gpu) for read in ways)
        return next((found for found in answers if isinstance(found, int)), None)

    def _answer(self, read: Read, gpu: Any) -> Any:
        try:
            return read(self._smi, gpu)
        except (self._smi.AmdSmiException, AttributeError, KeyError, TypeError):  # a module older than the function or its field
            return None

    def _throttle_reasons(self, number: int) -> int | None:
        """Bits of what held the GPU back since its reading before; None at the first, and where it does not say."""
        metrics = self._answer(lambda smi, gpu: smi.amdsmi_get_gpu_metrics_info(gpu), self._gpus[number]) or {}
        counted = {name: value for name in THROTTLERS if isinstance(value := metrics.get(name), int)}
        before, self._counted[number] = self._counted[number], counted
        if counted:
            grown = [bit for name, bit in THROTTLERS.items() if name in before and counted.get(name, 0) > before[name]]
            return functools.reduce(operator.or_, grown, 0) if before else None
        at_all = metrics.get("indep_throttle_status")
        return None if not isinstance(at_all, bool) else THROTTLED if at_all else 0

    def _shows_power(self) -> bool:
        """Whether power and energy of these GPUs are theirs: of modules with two dies only where each has both of them here."""
        if not any(DIES in _name(self._smi, gpu) for gpu in self._gpus):
            return True
        every = [_place_of(self._smi, gpu) for gpu in self._smi.amdsmi_get_processor_handles()]
        places = [every.index(_place_of(self._smi, gpu)) for gpu in self._gpus]
        silent = [place for place, gpu in zip(places, self._gpus, strict=True) if not self._first(READINGS["power_mw"], gpu)]
        return set(silent) == {place for place in places if place % 2} and {place ^ 1 for place in places} == set(places)


def _at(smi: Any, addresses: Sequence[str]) -> list[Any]:
    found: dict[str, list[Any]] = {}
    for gpu in smi.amdsmi_get_processor_handles():
        found.setdefault(_place_of(smi, gpu), []).append(gpu)
    here = [found.get(_place(address), []) for address in addresses]
    for address, gpus in zip(addresses, here, strict=True):
        if len(gpus) != 1 or here.count(gpus) != 1:
            trouble = "lists several GPUs (partitioned?)" if gpus else "knows no GPU"
            raise NoGpus(f"AMD SMI {trouble} at {address} on the bus")
    return [gpu for gpus in here for gpu in gpus]


def _place_of(smi: Any, gpu: Any) -> str:
    return _place(str(smi.amdsmi_get_gpu_device_bdf(gpu)))


def _place(address: str) -> str:
    """Domain, bus and device: `0000:c1:00` of `0000:C1:00.0`, whose last digit torch does not know of."""
    return address.partition(".")[0].lower()


def _name(smi: Any, gpu: Any) -> str:
    return str(smi.amdsmi_get_gpu_asic_info(gpu)["market_name"])


def _energy_mj(counted: dict[str, Any]) -> int:
    """The counter times its resolution is in uJ. Before ROCm 6.4 its name was `power`."""
    return int(counted.get("energy_accumulator", counted.get("power")) * counted["counter_resolution"] / 1000)


def _mhz(clock: dict[str, Any]) -> Any:
    """Before ROCm 6.2 its name was `cur_clk`."""
    return clock["clk"] if "clk" in clock else clock["cur_clk"]
