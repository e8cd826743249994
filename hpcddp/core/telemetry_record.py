"""`telemetry` of end.json: each node's readings over its timed window, and energy over all nodes.

Unknown is None everywhere, and a share is of 1. Readings lie inside the window; energy and samples are of the whole window, whose
ends between readings are taken at the mean. `merge` says what a field is of a run that several attempts made.
Standard library only, Python 3.10.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hpcddp.core.schema import NonNegative, added_later


@dataclass(frozen=True, kw_only=True)
class GpuTelemetry:
    """Of one GPU of the job."""

    gpu: int
    """As CUDA numbers them in this job."""
    readings: int = field(metadata={"merge": "sum"})
    util_percent_mean: float | None = field(default=None, metadata={"merge": "mean"})
    """Share of time in which any kernel ran, %."""
    mem_used_mean_bytes: float | None = added_later(None, merge="mean")
    mem_used_peak_bytes: int | None = field(default=None, metadata={"merge": "max"})
    power_w_mean: float | None = field(default=None, metadata={"merge": "mean"})
    power_w_peak: float | None = field(default=None, metadata={"merge": "max"})
    sm_mhz_median: int | float | None = None
    sm_mhz_min: int | None = field(default=None, metadata={"merge": "min"})
    sm_mhz_begin: int | float | None = None
    sm_mhz_end: int | float | None = None
    """Medians over the first and the last quarter of the readings."""
    mem_mhz_median: int | float | None = added_later(None)
    temperature_c_peak: int | None = field(default=None, metadata={"merge": "max"})
    throttle: Mapping[str, float] | None = None
    """Reason (of reader_process.THROTTLE) -> share of the readings that had it; {} if none, None if unknown."""
    energy_j: float | None = field(default=None, metadata={"merge": "sum"})
    """Over the whole window."""
    energy_from: str | None = None
    """`counter`, or `power` (mean power x window) where the GPU does not count its energy."""


@dataclass(frozen=True, kw_only=True)
class NodeTelemetry:
    """Of one node."""

    host: str | None = None
    window_s: float | None = field(default=None, metadata={"merge": "sum"})
    """From the first to the end of the last timed step of the node's first rank."""
    samples: int | None = field(default=None, metadata={"merge": "sum"})
    """Of the whole job, trained in that window."""
    readings: int | None = field(default=None, metadata={"merge": "sum"})
    """Of the node within the window; rates and shares need two."""
    readings_s: float | None = added_later(None, merge="sum")
    """From the first to the last of them: of this span are rates and shares."""
    cpu_busy_share: NonNegative | None = field(default=None, metadata={"merge": "max"})
    """Busy time of all logical CPUs / all their time (waiting for disks is idle, stolen time busy)."""
    cpu_job_share: NonNegative | None = field(default=None, metadata={"merge": "max"})
    """The same of this job's processes only."""
    cpu_foreign_share: NonNegative | None = field(default=None, metadata={"merge": "max"})
    """Busy less job, at least 0."""
    net_rx_bytes_per_s: float | None = field(default=None, metadata={"merge": "mean"})
    net_tx_bytes_per_s: float | None = field(default=None, metadata={"merge": "mean"})
    ib_rx_bytes_per_s: float | None = field(default=None, metadata={"merge": "mean"})
    ib_tx_bytes_per_s: float | None = field(default=None, metadata={"merge": "mean"})
    mem_used_mean_bytes: float | None = added_later(None, merge="mean")
    mem_used_peak_bytes: int | None = field(default=None, metadata={"merge": "max"})
    mem_total_bytes: int | None = field(default=None, metadata={"merge": "max"})
    power_w_mean: float | None = added_later(None, merge="mean")
    power_w_peak: float | None = added_later(None, merge="max")
    energy_j: float | None = added_later(None, merge="sum")
    """Of the node over the whole window, GPUs included."""
    energy_from: str | None = added_later(None)
    """The source of power and energy: `pm_counters` (Cray, the whole node) or `module power` (Grace Hopper, its modules)."""
    gpus: tuple[GpuTelemetry, ...] = ()
    """One per GPU of the job; none without NVML or AMD SMI."""


@dataclass(frozen=True, kw_only=True)
class Telemetry:
    """Of a run."""

    hz: float | None = None
    """Readings per second asked for."""
    energy_j_per_1000_samples: NonNegative | None = None
    """GPU energy of all nodes / samples trained in the window x 1000; None if any GPU's is unknown."""
    nodes: tuple[NodeTelemetry, ...] = ()
    """In the order of their first ranks."""
