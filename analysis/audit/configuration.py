"""How a row was trained, apart from what and on how many GPUs: degrees of parallelism, precision, techniques."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

DEGREES = {
    "tensor_parallel": "TP",
    "pipeline_parallel": "PP",
    "context_parallel": "CP",
    "expert_parallel": "EP",
    "virtual_pipeline": "VP",
}
"""A degree of parallelism -> its usual short name."""

SPLIT = ("TP", "PP", "CP")
"""Those that split one copy of the model; the others are within it, or within the data-parallel ranks."""

CONFIGURATION = {
    *(*DEGREES, "parallelism", "precision", "dtype", "techniques", "micro_batch", "activation_checkpointing", "compile"),
    *("workers", "num_workers", "loader_workers", "loader_workers_per_rank", "framework", "backend", "config", "optimizer"),
    *("mode", "schedule"),
}
"""Settings that say how; the others say what, such as the model."""

NAMES = {
    "tensor_parallel": "tp tp_size tp_degree tensor_parallel_size tensor_parallel_degree tensor_parallelism model_parallel mp",
    "pipeline_parallel": "pp pp_size pp_degree pipeline_parallel_size pipeline_parallel_degree pipeline_parallelism",
    "context_parallel": "cp cp_size cp_degree context_parallel_size context_parallel_degree context_parallelism",
    "expert_parallel": "ep ep_size ep_degree expert_parallel_size expert_parallel_degree expert_parallelism",
    "virtual_pipeline": "vp virtual_pipeline_size interleaving",
    "parallelism": "parallel strategy parallel_strategy parallelism_strategy parallelization best_config",
    "techniques": "technique optimizations",
    "micro_batch": "mbs microbatch micro_batch_size microbatch_size microbatchsize",
    "activation_checkpointing": "ac recompute recomputation gradient_checkpointing",
    "sequence_length": "seq_len seqlen seq_length sequence_len context_length packed_sequence_length",
}
"""Setting -> other names for it."""

SETTING_NAMES = {name: setting for setting, names in NAMES.items() for name in (setting, *names.split())}

_DEGREE = re.compile(r"(?<![a-z])(tp|pp|cp|ep|vp)[\s_=:-]*(\d+)", re.IGNORECASE)
_DATA_PARALLEL = re.compile(r"(?<![a-z])(?:fsdp|hsdp|ddp|dp)[\s_=:-]*\d+", re.IGNORECASE)
_NONE = {"", "-", "\u2013", "\u2014", "none", "off", "no", "false", "n/a", "single gpu", "1"}


def in_short(setting: str, cell: str) -> str:
    """`TP=4+FSDP=8` is `TP 4`: how many ranks share the data follows from the GPUs. Nothing for a degree of one, or none."""
    if setting in DEGREES:
        return "" if cell.lower() in _NONE else f"{DEGREES[setting]} {cell}"
    if setting != "parallelism":
        return cell
    found = {name.upper(): number for name, number in _DEGREE.findall(cell) if number != "1"}
    rest = _DATA_PARALLEL.sub(" ", _DEGREE.sub(" ", cell))
    rest = " ".join(re.findall(r"[^\s_+,/;|&x]+", rest))
    words = [f"{name} {number}" for name, number in sorted(found.items())]
    return " ".join([*words, *([] if rest.lower() in _NONE else [rest])])


def split_degree(configuration: Iterable[str]) -> int:
    """Over how many GPUs one copy of the model is split: the product of its degrees."""
    found = {name: int(number) for text in configuration for name, number in re.findall(r"\b([A-Z]P) (\d+)\b", text)}
    return math.prod(found.get(name, 1) for name in SPLIT)
