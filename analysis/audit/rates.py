"""What `tok/s`, `s/epoch`, `it/s` and their like mean: a throughput or a time, in which unit."""

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

_WORK, _STEPS, _TIME = ("|".join(words.split()) for words in (WORK, STEPS, " ".join(SECONDS)))
RATE = re.compile(rf"(?:({'|'.join(filter(None, MANY))})_?)?({_WORK}|{_STEPS})_per_({_TIME})")
DURATION = re.compile(rf"({_TIME})_per_(?:{_WORK}|{_STEPS})")
PER_GPU = re.compile(r"_per_(?:gpu|device|rank|accelerator|chip|card|worker|node)$")
EPOCH = re.compile("epochs?")


@dataclass(frozen=True)
class Rate:
    """What a unit says: `ktok/min` is a throughput, 1 of it 16.7 per s; `it/s` the inverse of a time."""

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
    if found := DURATION.fullmatch(unit):
        return Rate("time", SECONDS[found.group(1)])
    return None


def is_per_gpu(unit: str) -> bool:
    """`img/s/GPU`: what one of several does is no throughput of a row."""
    return bool(PER_GPU.search(unit))
