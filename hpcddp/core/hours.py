"""Node hours and GPU hours, as centres account for them, and how many of them a study may take."""

from __future__ import annotations

from dataclasses import dataclass

from hpcddp.core.schema import NonNegative
from hpcddp.core.text import thousands


@dataclass(frozen=True, kw_only=True)
class Hours:
    """Node hours and GPU hours of jobs."""

    node: float = 0.0
    gpu: float = 0.0
    """Of the GPUs that were asked for, used or not."""

    def __add__(self, other: Hours) -> Hours:
        return Hours(node=self.node + other.node, gpu=self.gpu + other.gpu)

    def __mul__(self, times: int) -> Hours:
        return Hours(node=self.node * times, gpu=self.gpu * times)

    def __str__(self) -> str:
        return f"{thousands(self.node, 1)} node hours" + (f", {thousands(self.gpu, 1)} GPU hours" if self.gpu else "")


@dataclass(frozen=True, kw_only=True)
class Budget:
    """Limits of a whole study, over all its submissions; runs on this machine take nothing of them. None: no limit."""

    node_hours: NonNegative | None = None
    """Nodes times the hours that jobs have them."""
    gpu_hours: NonNegative | None = None
    """The same of GPUs that are requested, used or not."""

    def holds(self, hours: Hours) -> bool:
        """Whether so much may be taken."""
        limits = ((self.node_hours, hours.node), (self.gpu_hours, hours.gpu))
        return all(limit is None or taken <= limit for limit, taken in limits)

    def __bool__(self) -> bool:
        return self != Budget()

    def __str__(self) -> str:
        limits = ((self.node_hours, "node hours"), (self.gpu_hours, "GPU hours"))
        return " and ".join(f"{thousands(limit, 1)} {what}" for limit, what in limits if limit is not None)
