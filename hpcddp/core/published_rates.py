"""How many samples a second a GPU was published to train, for what a loader will have to give. Standard library only."""

from __future__ import annotations

import re
from dataclasses import dataclass

_EXAMPLES = "NVIDIA DeepLearningExamples"
_LAMBDA = "lambdal/deeplearning-benchmark"


@dataclass(frozen=True, kw_only=True)
class PublishedRate:
    """ResNet-50 v1.5 on pictures of 224 x 224 pixels, on one GPU."""

    name: str
    """Pattern of the GPU's name."""
    gpu: str
    """In words."""
    fp32: int
    """Images a second; where the GPU has TF32, with it."""
    amp: int
    source: str


RESNET50 = (
    PublishedRate(name=r"V100.*32 ?GB", gpu="V100 32 GB", fp32=356, amp=1156, source=_EXAMPLES),
    PublishedRate(name=r"V100", gpu="V100 16 GB", fp32=367, amp=1200, source=_EXAMPLES),
    PublishedRate(name=r"A40\b", gpu="A40", fp32=391, amp=654, source=_LAMBDA),
    PublishedRate(name=r"A10\b", gpu="A10", fp32=349, amp=638, source=_LAMBDA),
    PublishedRate(name=r"A100.*80 ?GB", gpu="A100 80 GB", fp32=938, amp=2470, source=_EXAMPLES),
    PublishedRate(name=r"(?<!G)H100", gpu="H100", fp32=1894, amp=2790, source=_LAMBDA),
    PublishedRate(name=r"(?<!G)H200", gpu="H200", fp32=2259, amp=3079, source=_LAMBDA),
)
"""The first that fits a name is its rate; of a V100 whose memory is not named that with 16 GB, the faster one."""


def published_rate(model: str, precision: str, gpu: str | None) -> tuple[int, str] | None:
    """Samples a second and GPU, and in words whose they are; None where none was published for these."""
    if model != "resnet50" or gpu is None or precision == "fp64":
        return None
    found = next((each for each in RESNET50 if re.search(rf"\b{each.name}", gpu)), None)
    if found is None:
        return None
    rate = found.fp32 if precision == "fp32" else found.amp
    return rate, f"{found.gpu}, resnet50, {'fp32' if precision == 'fp32' else 'mixed precision'}: {found.source}"
