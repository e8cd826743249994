"""What GPUs can do at most, by the name torch reports. Standard library only.

Figures are the vendors' own, in 10^12 operations per second, a multiplication and an addition counting two, at the boost clock,
for dense matrices (where a data sheet prints figures with sparsity, half of them). fp16, bf16, tf32 and fp64 are with tensor or
matrix cores where the GPU has them for that precision (AMD's fp32 too), fp16 and bf16 adding up in fp32 as training does. What a
source does not give is left out. Those of V100, T4, A10, A40, A100, H100 and H200 were compared with Lightning's throughput.py,
which names the same data sheets (fp64 with tensor cores is not in it); the others with units x 2 x boost clock at most.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

PRECISIONS = ("fp64", "fp32", "tf32", "fp16", "bf16")


@dataclass(frozen=True, kw_only=True)
class Peak:
    """TFLOP/s of a type of GPU; None where its source says nothing, or the GPU has no such arithmetic."""

    name: str
    """Pattern of the whole name, without the vendor's words."""
    source: str
    fp64: float | None = None
    fp32: float | None = None
    tf32: float | None = None
    fp16: float | None = None
    bf16: float | None = None


_P100 = "NVIDIA Tesla P100 GPU Accelerator, data sheet"
_V100 = "NVIDIA V100 Tensor Core GPU, data sheet"
_T4 = "NVIDIA T4 Tensor Core GPU, data sheet"
_A100 = "NVIDIA A100 Tensor Core GPU, data sheet"
_A40 = "NVIDIA A40, data sheet"
_A10 = "NVIDIA A10 Tensor Core GPU, data sheet"
_GA102 = "NVIDIA Ampere GA102 GPU Architecture, white paper"
_ADA = "NVIDIA Ada GPU Architecture, white paper"
_L40S = "NVIDIA L40S GPU, data sheet"
_H100 = "NVIDIA H100 Tensor Core GPU, data sheet"
_H200 = "NVIDIA H200 Tensor Core GPU, data sheet"
_GH200 = "NVIDIA GH200 Grace Hopper Superchip, data sheet"
_B200 = "NVIDIA HGX Platform, data sheet (eighth of HGX B200)"
_GB200 = "NVIDIA, Blackwell architecture technical brief (GB200 at 1,200 W), as glennklockwood.com/garden/processors/B200 has it"
_L4 = "Lightning's throughput.py, which names NVIDIA's Ada white paper"
_A100_64GB = (
    "CINECA, introduction to Leonardo (22.4 in fp32), by notes of a course of June 2026; other formats in an A100's ratios"
)
_A10G = "NVIDIA A10G for AWS, data sheet of 2022-02-17, fp32 by TechPowerUp, as public tables quote both; tf32 half of bf16"
_MI250X = (
    "OLCF, Frontier User Guide (110 units at 1.7 GHz a die, fp64 256 operations a cycle and unit). "
    "Other formats: AMD lab notes, AMD matrix cores (fp32 256, fp16 and bf16 1,024)"
)
_MI300X = "AMD, MI300 series microarchitecture (github.com/ROCm/legacy-rocm-build@089d751, docs/conceptual/gpu-arch/mi300.md)"
_MI300A = (
    "AMD's page of the MI300A, copied by vengineer.hatenablog.com (2023-12-11): 228 units at 2.1 GHz. "
    "Operations a cycle and unit for tf32 are the MI300X's"
)

PEAKS = (
    Peak(name=r"P100-SXM2-16GB", source=_P100, fp64=5.3, fp32=10.6, fp16=21.2),
    Peak(name=r"P100-PCIE-(12|16)GB", source=_P100, fp64=4.7, fp32=9.3, fp16=18.7),
    Peak(name=r"V100-SXM2-(16|32)GB", source=_V100, fp64=7.8, fp32=15.7, fp16=125),
    Peak(name=r"V100-PCIE-(16|32)GB", source=_V100, fp64=7.0, fp32=14.0, fp16=112),
    Peak(name=r"V100S-PCIE-32GB", source=_V100, fp64=8.2, fp32=16.4, fp16=130),
    Peak(name=r"T4", source=_T4, fp32=8.1, fp16=65),
    Peak(name=r"A100-SXM4-40GB", source=_A100, fp64=19.5, fp32=19.5, tf32=156, fp16=312, bf16=312),
    Peak(name=r"A100-SXM4-80GB", source=_A100, fp64=19.5, fp32=19.5, tf32=156, fp16=312, bf16=312),
    Peak(name=r"A100(-PCIE-40GB| 80GB PCIe)", source=_A100, fp64=19.5, fp32=19.5, tf32=156, fp16=312, bf16=312),
    Peak(name=r"A100-SXM-64GB", source=_A100_64GB, fp64=22.4, fp32=22.4, tf32=179.2, fp16=358.4, bf16=358.4),
    Peak(name=r"A40", source=_A40, fp32=37.4, tf32=74.8, fp16=149.7, bf16=149.7),
    Peak(name=r"A10", source=_A10, fp32=31.2, tf32=62.5, fp16=125, bf16=125),
    Peak(name=r"A10G", source=_A10G, fp32=31.52, tf32=35, fp16=70, bf16=70),
    Peak(name=r"RTX 3090", source=_GA102, fp32=35.6, tf32=35.6, fp16=71, bf16=71),
    Peak(name=r"RTX 4090", source=_ADA, fp32=82.6, tf32=82.6, fp16=165.2, bf16=165.2),
    Peak(name=r"L4", source=_L4, fp32=30.3, tf32=60, fp16=121, bf16=121),
    Peak(name=r"L40S", source=_L40S, fp32=91.6, tf32=183, fp16=362, bf16=362),
    Peak(name=r"H100 80GB HBM3", source=_H100, fp64=67, fp32=67, tf32=494.5, fp16=989.5, bf16=989.5),
    Peak(name=r"H100 PCIe", source=_H100, fp64=51.2, fp32=51.2, tf32=378, fp16=756, bf16=756),
    Peak(name=r"H100 NVL", source=_H100, fp64=60, fp32=60, tf32=417.5, fp16=835.5, bf16=835.5),
    Peak(name=r"H200", source=_H200, fp64=67, fp32=67, tf32=494.5, fp16=989.5, bf16=989.5),
    Peak(name=r"H200 NVL", source=_H200, fp64=60, fp32=60, tf32=417.5, fp16=835.5, bf16=835.5),
    Peak(name=r"GH200 (480|120)GB", source=_GH200, fp64=67, fp32=67, tf32=494.5, fp16=989.5, bf16=989.5),
    Peak(name=r"B200", source=_B200, fp16=2250, bf16=2250),
    Peak(name=r"GB200", source=_GB200, fp64=45, fp32=90, tf32=1250, fp16=2500, bf16=2500),
    Peak(name=r"AMD Instinct MI250X", source=_MI250X, fp64=47.9, fp32=47.9, fp16=191.5, bf16=191.5),
    Peak(name=r"AMD Instinct MI300A", source=_MI300A, fp64=122.6, fp32=122.6, tf32=490.3, fp16=980.6, bf16=980.6),
    Peak(name=r"AMD Instinct MI300X", source=_MI300X, fp64=163.4, fp32=163.4, tf32=653.7, fp16=1307.4, bf16=1307.4),
)

_VENDOR = re.compile(r"(NVIDIA |Tesla |GeForce )*")


def gpu_peak(gpu: str) -> Peak | None:
    """The entry of `NVIDIA A100-SXM4-80GB`, `Tesla V100-SXM2-16GB`, `NVIDIA A40` and the like; None for one that is not known.
    `AMD Instinct MI250X` is one of the module's two dies, which are GPUs of their own to torch and Slurm. A part of a GPU (`...
    MIG 1g.5gb`) and variants with other clocks or units have names of their own, and are not known.
    """
    bare = _VENDOR.sub("", gpu, count=1)
    return next((peak for peak in PEAKS if re.fullmatch(peak.name, bare)), None)


def peak_flops_per_s(gpu: str, precision: str) -> float | None:
    """Operations per second of one GPU in one of PRECISIONS; None where unknown."""
    peak = gpu_peak(gpu)
    tflops: float | None = getattr(peak, precision) if peak and precision in PRECISIONS else None
    return None if tflops is None else tflops * 1e12
