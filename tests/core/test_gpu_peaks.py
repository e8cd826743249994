"""Peaks of GPUs by the names torch reports."""

from __future__ import annotations

import pytest

from hpcddp.core.gpu_peaks import PEAKS, PRECISIONS, gpu_peak, peak_flops_per_s

NAMES = {
    "Tesla V100-SXM2-16GB": ("fp16", 125e12),
    "Tesla V100-PCIE-32GB": ("fp32", 14e12),
    "Tesla T4": ("fp16", 65e12),
    "Tesla P100-PCIE-16GB": ("fp64", 4.7e12),
    "A100-SXM4-40GB": ("tf32", 156e12),
    "NVIDIA A100-SXM4-80GB": ("bf16", 312e12),
    "NVIDIA A100 80GB PCIe": ("fp32", 19.5e12),
    "NVIDIA A40": ("tf32", 74.8e12),
    "NVIDIA L40S": ("bf16", 362e12),
    "NVIDIA GeForce RTX 3090": ("fp16", 71e12),
    "NVIDIA GeForce RTX 4090": ("fp32", 82.6e12),
    "NVIDIA H100 80GB HBM3": ("bf16", 989.5e12),
    "NVIDIA H100 PCIe": ("bf16", 756e12),
    "NVIDIA H200": ("tf32", 494.5e12),
    "NVIDIA GH200 480GB": ("fp64", 67e12),
    "NVIDIA B200": ("bf16", 2250e12),
    "NVIDIA A10G": ("bf16", 70e12),
    "NVIDIA GB200": ("bf16", 2500e12),
    "NVIDIA L4": ("bf16", 121e12),
    "NVIDIA A100-SXM-64GB": ("fp64", 22.4e12),
    "AMD Instinct MI250X": ("fp64", 47.9e12),
    "AMD Instinct MI300A": ("bf16", 980.6e12),
    "AMD Instinct MI300X": ("tf32", 653.7e12),
}


@pytest.mark.parametrize(("gpu", "known"), NAMES.items())
def test_names_torch_reports_are_known(gpu: str, known: tuple[str, float]) -> None:
    """With and without the vendor's words, as drivers of different years have them."""
    precision, flops = known
    assert peak_flops_per_s(gpu, precision) == pytest.approx(flops)


@pytest.mark.parametrize(
    "gpu",
    [
        "NVIDIA A100-SXM4-40GB MIG 1g.5gb",  # a seventh of it
        "AMD Instinct MI300X VF",  # a part of one for a virtual machine
        "AMD Instinct MI250",  # fewer units than MI250X
        "NVIDIA GeForce RTX 3090 Ti",
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA H100",
        "Tesla V100-SXM2-16GB + NVIDIA A40",
        "",
    ],
)
def test_other_gpus_are_unknown(gpu: str) -> None:
    """A name that merely begins alike is another GPU: unknown is better than wrong."""
    assert gpu_peak(gpu) is None
    assert peak_flops_per_s(gpu, "fp32") is None


def test_arithmetic_a_gpu_lacks_is_unknown() -> None:
    """Neither TF32 nor bf16 on a V100; no such precision anywhere."""
    assert peak_flops_per_s("Tesla V100-SXM2-16GB", "tf32") is None
    assert peak_flops_per_s("Tesla V100-SXM2-16GB", "bf16") is None
    assert peak_flops_per_s("NVIDIA A40", "name") is None


def test_every_figure_has_a_source() -> None:
    """No entry without its document, and narrower formats are never slower."""
    for peak in PEAKS:
        assert peak.source
        known = [value for name in PRECISIONS if (value := getattr(peak, name)) is not None]
        assert known == sorted(known), peak.name


def test_v100_by_hand() -> None:
    """5,120 units x 2 operations x 1.53 GHz, and 640 tensor cores x 64 x 2: the data sheet's figures within its rounding."""
    assert peak_flops_per_s("Tesla V100-SXM2-32GB", "fp32") == pytest.approx(5120 * 2 * 1.53e9, rel=0.01)
    assert peak_flops_per_s("Tesla V100-SXM2-32GB", "fp16") == pytest.approx(640 * 64 * 2 * 1.53e9, rel=0.01)


def test_mi250x_by_hand() -> None:
    """A die: 110 units x 1,024 operations a cycle x 1.7 GHz in bf16, a quarter of it in fp32 and fp64."""
    bf16, fp32, fp64 = (peak_flops_per_s("AMD Instinct MI250X", name) for name in ("bf16", "fp32", "fp64"))
    assert bf16 == pytest.approx(110 * 1024 * 1.7e9, rel=0.001)
    assert fp32 == fp64 == pytest.approx(110 * 256 * 1.7e9, rel=0.001)


@pytest.mark.parametrize(("gpu", "units"), [("AMD Instinct MI300A", 228), ("AMD Instinct MI300X", 304)])
def test_mi300_by_hand(gpu: str, units: int) -> None:
    """Units x 2.1 GHz x 256 operations a cycle in fp32 and fp64, 1,024 in TF32, 2,048 in bf16."""
    for precision, operations in (("fp64", 256), ("fp32", 256), ("tf32", 1024), ("bf16", 2048)):
        assert peak_flops_per_s(gpu, precision) == pytest.approx(units * operations * 2.1e9, rel=0.001)


def test_leonardos_a100_has_more_of_the_same_units() -> None:
    """Every format is faster than an A100's by the same factor, fp32's."""
    for precision in ("fp64", "tf32", "bf16"):
        own, known = (peak_flops_per_s(f"NVIDIA A100-SXM{kind}", precision) for kind in ("-64GB", "4-80GB"))
        assert own is not None
        assert known is not None
        assert own / known == pytest.approx(22.4 / 19.5, rel=0.001)
