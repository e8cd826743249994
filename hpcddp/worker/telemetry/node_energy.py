"""Energy and power of a whole node, or of its modules, from what every user may read. Standard library only, Python 3.10.

Cray: `energy` in /sys/cray/pm_counters, joules since the node started, and `power`, watts, GPUs included, at about 10 Hz
(Cray-HPE/docs-csm, operations/power_management, "User Access to Compute Node Power Data"). The files say `VALUE J TIME us` and
`VALUE W TIME us`; ARCHER2's tests expect the former as `\\S+ J \\S+ us`. GH200 nodes of Alps have them as well (CSCS's
documentation of its clusters, "Power measurements").

Grace Hopper: `device/power1_average` in /sys/class/hwmon/hwmonN, microwatts, of each meter whose `power1_oem_info` beside it
begins with `Module Power Socket` (NVIDIA/DCGM, DcgmSystemMonitor.cpp). It is the power of a module with its regulators, DRAM, GPU
and HBM (Alumet's user book, plug-in grace-hopper), without network, disks and fans.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

MODULE = "Module Power Socket"
"""How NVIDIA's firmware calls the meter of a module."""


class NodeEnergy(Protocol):
    """A source of a node's energy."""

    source: str
    """Its name, with what it counts."""

    def read(self) -> tuple[int | None, int | None]:
        """Millijoules so far, where it counts them, and milliwatts; OSError or ValueError where it cannot be read."""


class CrayCounters:
    """Cray's counters of this node."""

    source = "pm_counters"

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self) -> tuple[int, int]:
        """Both from the same counters."""
        return self._value("energy", "J") * 1000, self._value("power", "W") * 1000

    def _value(self, name: str, unit: str) -> int:
        value, found, *_ = (self._folder / name).read_text(encoding="ascii").split()
        if found != unit:
            raise ValueError(f"{name} is in {found}, not in {unit}")
        return int(value)


class HopperModules:
    """The modules of this node, summed."""

    source = "module power"

    def __init__(self, meters: Sequence[Path]) -> None:
        self._meters = meters

    def read(self) -> tuple[None, int]:
        """Power alone: the meters count no energy."""
        return None, sum(int(meter.read_text(encoding="ascii")) for meter in self._meters) // 1000


def node_energy(sys: Path = Path("/sys")) -> NodeEnergy | None:
    """The first source that gives a reading, counters first; None where there is none."""
    meters = [
        info.with_name("power1_average") for info in sorted(sys.glob("class/hwmon/*/device/power1_oem_info")) if _is_module(info)
    ]
    sources: list[NodeEnergy] = [CrayCounters(sys / "cray" / "pm_counters"), *([HopperModules(meters)] if meters else [])]
    return next(filter(_readable, sources), None)


def _is_module(info: Path) -> bool:
    try:
        return info.read_text(encoding="utf-8", errors="replace").startswith(MODULE)
    except OSError:
        return False


def _readable(source: NodeEnergy) -> bool:
    try:
        source.read()
    except (OSError, ValueError):
        return False
    return True
