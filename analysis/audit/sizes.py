"""Reads how many GPUs a row used out of words: `1 GPU (baseline)`, `8x A100`, `2 nodes x 4 GPUs`, `one`."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

ONES = ("one", "two", "three", "four", "five", "six", "seven", "eight")
NUMBERS = {word: i for i, word in enumerate(ONES, 1)} | {"single": 1, "dual": 2, "sixteen": 16}
_N = rf"(\d+|{'|'.join(NUMBERS)})"
_GPU = r"(?:gpu|gcd|device|accelerator|chip|process|processe|rank|card|worker)s?"
_TYPE = (
    r"((?:nvidia |amd |tesla )?(?:[avhbplt]\d{1,3}[a-z]*|rtx ?\w+|gtx ?\w+|mi\d+\w*|titan\w*|tpu\w*|gh200|gb200)"
    r"(?:[- ](?:sxm\d?|pcie|\d+ ?gi?b))*)"
)
_BY = r"\s*(?:[x×*,·/+(]|with|of|each with)?\s*"

NODES = re.compile(rf"{_N}(?:[ -]?(?:node|host|server|machine|instance)s?\b|\s*[x×]\s*[a-z]+\d\w*\.\d*\w+)", re.IGNORECASE)
GPUS = re.compile(
    rf"{_N}\s*[x×-]?\s*(?:{_TYPE}\s*)?{_GPU}\b(\s*(?:/|per|on each)\s*(?:node|host|machine)|\s*each)?", re.IGNORECASE
)
TYPED = re.compile(rf"{_N}\s*[x×*]?\s*{_TYPE}s?(?![\w])|{_TYPE}s?\s*[x×*]\s*(\d+)", re.IGNORECASE)
BARE = re.compile(r"(\d+)\s*[x×*]\s*(\d+)")
EACH = re.compile(r"node\w*\s*[x×*]\s*\d|\d\s*[x×*]\s*\d+[ -]?node|node\w*\s+(?:with|of)", re.IGNORECASE)
BASELINE = re.compile(r"\(\s*(?:baseline|reference|ref|base|serial)[^)]*\)|\bbaseline\b", re.IGNORECASE)


@dataclass(frozen=True)
class Size:
    """What a cell tells; None where it does not."""

    nodes: int | None = None
    per_node: int | None = None
    gpus: int | None = None
    gpu_type: str = ""
    rest: str = ""
    """Words that are not of the size: they tell rows apart."""


def size_of(text: str, column: str = "gpus") -> Size | None:
    """The size that a cell of a column tells: gpus, nodes, or gpus_per_node. None where it tells none."""
    found = _size(text, column)
    if found and column == "gpus_per_node" and found.gpus and not found.nodes:
        return replace(found, per_node=found.gpus, gpus=None)
    return found


def _size(text: str, column: str) -> Size | None:
    text = BASELINE.sub(" ", text.strip()).strip(" *†:~")
    if re.fullmatch(_N, text.replace(",", ""), re.IGNORECASE):
        one = _number(text.replace(",", ""))
        return Size(nodes=one) if column == "nodes" else Size(gpus=one)
    if found := BARE.fullmatch(text):
        return Size(int(found.group(1)), int(found.group(2)))
    nodes, gpus = NODES.search(text), GPUS.search(text)
    typed = None if gpus else TYPED.search(text)
    if not nodes and not gpus and not typed:
        return None
    rest = text
    for found in (nodes, gpus, typed):
        rest = rest.replace(found.group(), " ") if found else rest
    rest = " ".join(re.sub(rf"(?:^|(?<=\s)){_BY}(?=\s|$)|[()=,]", " ", rest).split())
    number = _number(gpus.group(1)) if gpus else _number(typed.group(1) or typed.group(4)) if typed else None
    kind = (gpus.group(2) if gpus else (typed.group(2) or typed.group(3)) if typed else "") or ""
    of_each = number and ((gpus and gpus.group(3)) or (nodes and EACH.search(text)))
    total = re.search(r"(\d+) (?:gpus )?(?:in )?total", text, re.IGNORECASE) if of_each else None
    all_gpus = (int(total.group(1)) if total else None) if of_each else number
    return Size(_number(nodes.group(1)) if nodes else None, number if of_each else None, all_gpus, kind, rest)


def _number(text: str) -> int:
    return NUMBERS[text.lower()] if text.lower() in NUMBERS else int(text)
