"""What a run made of its GPUs: operations per second against their peak, memory and energy."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hpcddp.core.attempt_records import TrainingEnd
from hpcddp.core.gpu_peaks import gpu_peak, peak_flops_per_s
from hpcddp.core.launch_record import LaunchRecord
from hpcddp.core.point import Point

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
    """What most operations ran in: the point's precision, but fp32 may be TF32 on GPUs that have it.

    None where the records do not say.
    """
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
    Chowdhery et al. 2022, "PaLM", appendix B).
    """
    return flops_per_sample * samples_per_s / gpus


def share_of_peak(flops_per_s: float, gpu: str, ran_in: str) -> float | None:
    """Of the GPU's peak in that arithmetic; None where the peak is unknown.

    MIXED counts against TF32's: nearly all operations of the networks that are trained here are convolutions. The share may be
    too small, never too large.
    """
    peak = peak_flops_per_s(gpu, "tf32" if ran_in == MIXED else ran_in)
    return None if peak is None else flops_per_s / peak
