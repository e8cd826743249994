"""What `tok/s`, `s/epoch`, `it/s`, `TFLOP/s/GPU` and their like mean: a throughput, a time or work in floating point."""

from __future__ import annotations

import re
from dataclasses import dataclass

from hpcddp.analysis.audit.cells import SECONDS

WORK = (
    "samples? images? imgs? pictures? tokens? toks? sequences? seqs? examples? ex frames? records? sentences? words? pairs? "
    "items? events? graphs? molecules? points? videos? clips? documents? docs?"
)
STEPS = "epochs? steps? iterations? iters? its? batch(?:es)?"
MANY = {"k": 1e3, "thousand": 1e3, "m": 1e6, "million": 1e6, "g": 1e9, "b": 1e9, "billion": 1e9, None: 1.0}
TFLOPS = {"m": 1e-6, "g": 1e-3, "t": 1.0, "p": 1e3, "e": 1e6}

_WORK, _STEPS, _TIME = ("|".join(words.split()) for words in (WORK, STEPS, " ".join(SECONDS)))
RATE = re.compile(rf"(?:({'|'.join(filter(None, MANY))})_?)?({_WORK}|{_STEPS})_per_({_TIME})")
TPS = re.compile(r"(k|m)?(?:tps|tgs)")
DURATION = re.compile(rf"({_TIME})_per_(?:{_WORK}|{_STEPS})|step_({_TIME})")
FLOPS = re.compile(
    rf"(?:(?:model|achieved|measured|throughput|sustained)_)*(?:([tpe])flops?|([{''.join(TFLOPS)}])flops?_per_({_TIME}))"
)
"""In M or G and without a time, FLOPs are what a model asks for."""
PER_GPU = re.compile(r"_per_(?:gpus?|device|rank|accelerator|chip|card|worker)(?=_|$)")
PER_NODE = re.compile(r"_per_node$")
EPOCH = re.compile("epochs?")

KINDS_OF_WORK = {"tok": "tokens", "t/s": "tokens", "img": "samples", "image": "samples", "sample": "samples", "seq": "samples"}
KINDS_OF_WORK |= {"s/s": "samples", "epoch": "epochs"}
"""What a header has of it -> what is counted."""


@dataclass(frozen=True)
class Rate:
    """What a unit says: `ktok/min` is a throughput, 1 of it 16.7 per s; `it/s` the inverse of a time; `PFLOP/s` 1,000 TFLOP/s."""

    meaning: str
    scale: float
    inverse: bool = False


def rate(unit: str) -> Rate | None:
    """Of a unit with `_per_` for `/`. Steps may be of a batch that grows with the GPUs: their rate says how long one takes."""
    if found := RATE.fullmatch(unit):
        many, work, time = found.groups()
        per_s = MANY[many] / SECONDS[time]
        steps = re.fullmatch(_STEPS, work) and not EPOCH.fullmatch(work)
        return Rate("time", per_s, inverse=True) if steps else Rate("throughput", per_s)
    if found := TPS.fullmatch(unit):
        return Rate("throughput", MANY[found.group(1)])
    if found := DURATION.fullmatch(unit):
        return Rate("time", SECONDS[found.group(1) or found.group(2)])
    if found := FLOPS.fullmatch(unit):
        bare, many, time = found.groups()
        return Rate("tflops", TFLOPS[bare or many] / SECONDS[time or "s"])
    return None


def of_one_gpu(unit: str) -> tuple[str, bool]:
    """The unit without the GPU that it is of, and whether it was there."""
    bare = PER_GPU.sub("", f"_{unit}" if unit.startswith("per_") else unit, count=1).strip("_")
    return bare, bare != unit


def work_of(header: str) -> str:
    """`tokens` of `Throughput (tok/s/GPU)` and of `(T/s)`; empty where the header does not tell."""
    found = re.search(rf"(?<![a-z])(?:{'|'.join(KINDS_OF_WORK)})", header.lower())
    return KINDS_OF_WORK[found.group()] if found else ""
