"""What a run made of its GPUs and nodes: operations per second against their peak, memory and energy; and what telemetry read,
what was not read and why, and the figures that tables have of it.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hpcddp.analysis.util.files import record_or_none
from hpcddp.analysis.util.wording import quantity
from hpcddp.core.attempt_records import GpuTelemetry, NodeTelemetry, Telemetry, TrainingEnd
from hpcddp.core.gpu_peaks import gpu_peak, peak_flops_per_s
from hpcddp.core.launch_record import LaunchRecord, NodeRecord
from hpcddp.core.point import Point
from hpcddp.core.text import count

MIXED = "fp32/tf32"
"""TF32 in convolutions only, as torch has it unless told otherwise."""


@dataclass(frozen=True, kw_only=True)
class Used:
    """What a run used, by its records; None is unknown."""

    flops_per_sample: int | None = None
    """Products and convolutions of forward and backward, a multiplication and an addition counting two."""
    tokens_per_sample: float | None = None
    """Where the user's own script says how many it trains on."""
    arithmetic: str | None = None
    """A name of gpu_peaks.PRECISIONS, or MIXED."""
    peak_memory_bytes: int | None = None
    """The most any rank took: of its GPU by tensors, on a CPU of the node's memory."""
    energy_j_per_1000_samples: float | None = None
    """Of all GPUs, in the timed steps."""


def used(known: Used, point: Point | None, end: TrainingEnd) -> Used:
    """`known`, completed by what end.json says. Without training (`input: io`) there are no operations."""
    if point is None:
        return known
    peaks = [entry.peak_memory_bytes or {} for entry in end.ranks]
    memory = [peak.get("allocated", peak.get("resident", 0)) for peak in peaks]
    return replace(
        known,
        flops_per_sample=end.flops_per_sample if point.measure.input != "io" else None,
        tokens_per_sample=None if end.tokens_per_step is None else end.tokens_per_step / point.workload.batch_per_gpu,
        peak_memory_bytes=max(memory) if memory and all(memory) else None,
        energy_j_per_1000_samples=end.telemetry.energy_j_per_1000_samples if end.telemetry else None,
    )


def gpu_arithmetic(precision: str, gpu: str | None, launch: LaunchRecord) -> str | None:
    """What most operations ran in: the point's precision, but fp32 may be TF32 on GPUs that have it; None: nobody says."""
    if precision != "fp32" or gpu is None:
        return precision
    peak, allowed = gpu_peak(gpu), launch.tf32 or {}
    if peak is None:
        return None
    if peak.tf32 is None or launch.environment.get("NVIDIA_TF32_OVERRIDE") == "0":
        return "fp32"
    products, convolutions = allowed.get("products"), allowed.get("convolutions")
    if products is None or convolutions is None or (products and not convolutions):
        return None
    if products:
        return "tf32"
    return MIXED if convolutions else "fp32"


def flops_per_s_per_gpu(flops_per_sample: int, samples_per_s: float, gpus: int) -> float:
    """flops_per_sample x samples_per_s / gpus: what the model needs, whatever the GPU did for it (the numerator of MFU,
    Chowdhery et al. 2022, "PaLM", appendix B)."""
    return flops_per_sample * samples_per_s / gpus


def share_of_peak(flops_per_s: float, gpu: str, ran_in: str) -> float | None:
    """Of the GPU's peak in that arithmetic; None where the peak is unknown.

    MIXED counts against TF32's: nearly all operations of the networks that are trained here are convolutions. The share may be
    too small, never too large.
    """
    peak = peak_flops_per_s(gpu, "tf32" if ran_in == MIXED else ran_in)
    return None if peak is None else flops_per_s / peak


NO_TROUBLE = ("gpu_idle", "applications_clocks")
"""Reasons of reader_process.THROTTLE that slow nothing down: without work, or at the clock that was set."""

ENOUGH = 2
"""Readings from which on rates and shares are known."""


@dataclass(frozen=True, kw_only=True)
class Readings:
    """Of one run."""

    nodes: tuple[NodeTelemetry, ...] = ()
    gpu_memory_bytes: int | None = None
    """Of the GPU of the first node that has most."""
    no_node: str | None = None
    """Why nodes were not read, or not often enough; None where they were."""
    no_gpus: str | None = None
    """Why not all GPUs were read; None where they were, and on CPUs."""

    @property
    def gpus(self) -> list[GpuTelemetry]:
        return [gpu for node in self.nodes for gpu in node.gpus]


def read_readings(attempt: Path, point: Point, launch: LaunchRecord, telemetry: Telemetry | None) -> Readings:
    """`telemetry` of the run's end.json, with what nodes/HOST.json say of GPUs."""
    nodes = telemetry.nodes if telemetry else ()
    on_gpus = point.device == "cuda"
    if not point.measure.telemetry_hz or not nodes:
        why = "no telemetry was recorded" if point.measure.telemetry_hz else "measure.telemetry_hz is 0"
        return Readings(no_node=why, no_gpus=why if on_gpus else None)
    about = {host: record_or_none(NodeRecord, attempt / "nodes" / f"{host}.json") for host in launch.hosts}
    memory = [gpu.memory_bytes for node in about.values() if node for gpu in node.gpus]
    return Readings(
        nodes=nodes,
        gpu_memory_bytes=max(memory, default=None),
        no_node=next(filter(None, (_too_few(node, point.measure.telemetry_hz) for node in nodes)), None),
        no_gpus=_no_gpus(nodes, about) if on_gpus else None,
    )


def _too_few(node: NodeTelemetry, hz: float) -> str | None:
    """None also where records do not say how many there were."""
    if node.readings is None or node.readings >= ENOUGH:
        return None
    span = "" if node.window_s is None else f" in {quantity(node.window_s)} s of timed steps"
    return f"{count(node.readings, 'reading')}{span} at {hz:g} per second, rates need {ENOUGH}"


def _no_gpus(nodes: Sequence[NodeTelemetry], about: dict[str, NodeRecord | None]) -> str | None:
    without = next((node for node in nodes if not node.gpus), None)
    if without is None:
        return None
    known = about.get(str(without.host))
    reason = (known.telemetry or {}).get("no_gpus") if known else None
    where = "" if all(not node.gpus for node in nodes) else f" on {without.host}"
    return f"{reason or 'no reading lies in the timed steps'}{where}"


_NUMBERS = (
    *("gpu_util_percent", "gpu_util_percent_least", "gpu_power_w_mean", "gpu_power_w_peak", "gpu_mem_used_mean_bytes"),
    *("gpu_mem_used_peak_bytes", "gpu_mem_total_bytes", "gpu_sm_mhz_median", "gpu_sm_mhz_least", "gpu_mem_mhz_median"),
    "gpu_temperature_c_peak",
)
_MORE_NUMBERS = (
    *("gpu_energy_j", "cpu_busy_share", "cpu_job_share", "cpu_foreign_share", "host_mem_used_mean_bytes"),
    *("host_mem_used_peak_bytes", "host_mem_total_bytes", "net_rx_bytes_per_s", "net_tx_bytes_per_s", "fabric_share"),
    *("node_power_w_mean", "node_power_w_peak", "node_energy_j_per_1000_samples"),
)

FIGURES = {
    **{**dict.fromkeys(_NUMBERS, "Float64"), "gpu_throttled": "string"},
    **{**dict.fromkeys(_MORE_NUMBERS, "Float64"), "node_energy_from": "string"},
    **dict.fromkeys(("readings", "readings_span_s", "readings_window_s"), "Float64"),
    "nodes_not_read": "string",
    "gpus_not_read": "string",
}
"""What `figures` knows of a run, with the type of its column. Means over GPUs or nodes, but: `_least` and `_peak` are of the GPU
or node that had it, the foreign share is the largest of any node, medians are of the GPUs' medians, `gpu_energy_j` and the energy
of nodes are of all of them, and of readings, their span and the window the node with the fewest counts. `fabric_share`: of the
rate of a node's adapters, one way, of the busiest node's busier direction. `gpu_throttled` has the reasons that slow a GPU down,
with the share of readings of the GPU that had it most often; `no` where none had. `gpus_not_read` and `nodes_not_read` say why
not."""


def figures(found: Readings, fabric_gbps: float | None) -> dict[str, float | str | None]:
    """FIGURES of a run; unknown is None. A share or rate of one reading is none."""
    gpus = found.gpus if found.no_gpus is None else []
    why = {"nodes_not_read": found.no_node, "gpus_not_read": found.no_gpus}
    return {**_of_gpus(gpus, found.gpu_memory_bytes), **_of_nodes(found.nodes, fabric_gbps), **why}


def _of_gpus(gpus: Sequence[GpuTelemetry], memory_bytes: int | None) -> dict[str, float | str | None]:
    def of(name: str, reduce: Callable[[list[float]], float]) -> float | None:
        return _reduced([getattr(gpu, name) for gpu in gpus], reduce)

    return {
        **{f"gpu_util_percent{end}": of("util_percent_mean", how) for end, how in (("", statistics.fmean), ("_least", min))},
        "gpu_power_w_mean": of("power_w_mean", statistics.fmean),
        "gpu_power_w_peak": of("power_w_peak", max),
        "gpu_mem_used_mean_bytes": of("mem_used_mean_bytes", statistics.fmean),
        "gpu_mem_used_peak_bytes": of("mem_used_peak_bytes", max),
        "gpu_mem_total_bytes": memory_bytes if gpus else None,
        "gpu_sm_mhz_median": of("sm_mhz_median", statistics.median),
        "gpu_sm_mhz_least": of("sm_mhz_min", min),
        "gpu_mem_mhz_median": of("mem_mhz_median", statistics.median),
        "gpu_temperature_c_peak": of("temperature_c_peak", max),
        "gpu_throttled": throttled(gpus),
        "gpu_energy_j": of("energy_j", sum),
    }


def throttled(gpus: Iterable[GpuTelemetry]) -> str | None:
    """`sw power cap 50 %, hw slowdown 2 %`, the most frequent first; `no` where no GPU was; None where that is not known."""
    known = [gpu.throttle for gpu in gpus]
    if not known or any(shares is None for shares in known):
        return None
    most: dict[str, float] = {}
    for reason, share in ((reason, share) for shares in known if shares for reason, share in shares.items()):
        most[reason] = max(share, most.get(reason, 0.0))
    trouble = sorted(((reason, share) for reason, share in most.items() if reason not in NO_TROUBLE), key=lambda each: -each[1])
    # what happened once is not nothing
    shares = ("<1 %" if share < 0.005 else f"{100 * share:.0f} %" for _, share in trouble)
    return ", ".join(f"{reason.replace('_', ' ')} {share}" for (reason, _), share in zip(trouble, shares, strict=True)) or "no"


def _of_nodes(nodes: Sequence[NodeTelemetry], fabric_gbps: float | None) -> dict[str, float | str | None]:
    def of(name: str, reduce: Callable[[list[float]], float]) -> float | None:
        return _reduced([getattr(node, name) for node in nodes], reduce)

    received, sent = ([network_bytes_per_s(node, way) for node in nodes] for way in ("rx", "tx"))
    busiest = _reduced([*received, *sent], max)
    return {
        **{name: of(name, statistics.fmean) for name in ("cpu_busy_share", "cpu_job_share")},
        "cpu_foreign_share": of("cpu_foreign_share", max),
        "host_mem_used_mean_bytes": of("mem_used_mean_bytes", statistics.fmean),
        "host_mem_used_peak_bytes": of("mem_used_peak_bytes", max),
        "host_mem_total_bytes": of("mem_total_bytes", max),
        "net_rx_bytes_per_s": _reduced(received, statistics.fmean),
        "net_tx_bytes_per_s": _reduced(sent, statistics.fmean),
        "fabric_share": busiest * 8 / (fabric_gbps * 1e9) if busiest is not None and fabric_gbps else None,
        "node_power_w_mean": of("power_w_mean", statistics.fmean),
        "node_power_w_peak": of("power_w_peak", max),
        "node_energy_j_per_1000_samples": _per_1000_samples(of("energy_j", sum), nodes),
        "node_energy_from": " + ".join(sorted({node.energy_from for node in nodes if node.energy_from})) or None,
        "readings": of("readings", min),
        "readings_span_s": of("readings_s", min),
        "readings_window_s": of("window_s", min),
    }


def _per_1000_samples(joules: float | None, nodes: Sequence[NodeTelemetry]) -> float | None:
    """Nodes of one job train the same samples: the first node's count."""
    samples = nodes[0].samples if nodes else None
    return None if joules is None or not samples else joules / samples * 1000


def network_bytes_per_s(node: NodeTelemetry, way: str) -> float | None:
    """The larger of InfiniBand's and the interfaces' rates: IP over InfiniBand counts in both."""
    known = [
        rate for rate in (getattr(node, f"net_{way}_bytes_per_s"), getattr(node, f"ib_{way}_bytes_per_s")) if rate is not None
    ]
    return max(known, default=None)


def _reduced(values: Sequence[float | None], reduce: Callable[[list[float]], float]) -> float | None:
    """None where one does not say."""
    known = [value for value in values if value is not None]
    return reduce(known) if known and len(known) == len(values) else None
