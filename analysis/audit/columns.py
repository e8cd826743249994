"""What the headers of someone else's table mean: words and units as they are used in reports."""

from __future__ import annotations

import re
from dataclasses import dataclass

from hpcddp.analysis.audit.rates import Rate, is_per_gpu, rate

SYNONYMS = {
    "nodes": "node_count num_nodes n_nodes number_of_nodes hosts_used instances",
    "gpus_per_node": "gpu_per_node gpus_node gpus_per_host gpus_per_instance ranks_per_node tasks_per_node ntasks_per_node",
    "gpus": "n_gpus num_gpus gpu_count total_gpus number_of_gpus ranks world_size processes",
    "node_list": "nodelist node_names hosts hostnames host node nodes_used",
    "gpu_type": "gpu gpu_model accelerator gpu_name card hardware",
    "batch_per_gpu": "batch batch_size batch_size_per_gpu local_batch local_batch_size per_gpu_batch per_gpu_batch_size",
    "global_batch": "total_batch global_batch_size total_batch_size effective_batch_size",
    "run": "repeat repetition rep trial attempt seed row",
    "time": (
        "wall wall_time walltime wall_clock wallclock wall_clock_time runtime run_time elapsed elapsed_time duration epoch_time "
        "time_per_epoch total_time training_time train_time step_time time_per_step job_wall time_to_train job_time epoch"
    ),
    "throughput": (
        "rate samples_per_s samples_per_sec samples_per_second images_per_s images_per_sec images_per_second img_per_s "
        "img_per_sec imgs_per_s imgs_per_sec tokens_per_s tokens_per_sec tokens_per_second"
    ),
    "average": "avg mean average_time avg_time mean_time average_throughput avg_throughput mean_throughput",
    "median": "median_time median_throughput",
    "speedup": "speed_up speedup_factor",
    "efficiency": "eff parallel_efficiency scaling_efficiency",
    "baseline": "reference relative_to base",
    "samples": "dataset_size samples_per_epoch images images_per_epoch",
    "epochs": "n_epochs num_epochs",
    "steps": "iterations steps_per_epoch iterations_per_epoch it_per_epoch",
    "n": "runs n_runs num_runs repeats repetitions",
    "compute": "compute_time computation computation_time",
    "comm": "communication communication_time comm_time",
    "bandwidth": "busbw bus_bandwidth communication_bandwidth",
    "scaling": "scaling_type scaling_kind",
}
"""Meaning -> other names for it, in small letters with `_` for everything else."""

SETTINGS = {
    *("experiment", "table", "group", "series", "model", "network", "dataset", "data", "precision", "dtype", "workers"),
    *("num_workers", "loader_workers", "framework", "backend", "cluster", "system", "config", "optimizer", "node_type"),
    *("partition", "input", "mode", "version", "question", "image_size", "sequence_length", "loader_workers_per_rank"),
}
"""Columns that keep rows apart: only rows that agree in them are compared."""

REMARKS = {"note", "notes", "comment", "comments", "remark", "remarks", "source"}

MEANINGS = {name: meaning for meaning, names in SYNONYMS.items() for name in (meaning, *names.split())}
UNITS = ("percent", "pct", "ms", "seconds", "second", "secs", "sec", "s", "minutes", "minute", "mins", "min", "hours", "hrs", "h")
TIMES = {"time", "average", "median", "compute", "comm"}
CLAIMS = ("speedup", "efficiency")

BASELINE = re.compile(
    r"\b(?:(?:vs|versus|against|over|relative to|rel to|to|from)\b[. ]*)?(?:the )?(?:1|one|single)[ -]?(gpu|node)\b"
)


@dataclass(frozen=True)
class AuditColumn:
    """One header: its meaning (None: not known), unit, and the baseline it names (`1 GPU`, `1 node`)."""

    header: str
    meaning: str | None
    name: str
    """The header in small letters with `_`, unit and baseline taken off."""
    unit: str | None = None
    baseline: str | None = None
    rate: Rate | None = None
    """What a header or unit such as `tok/s` says."""


def column(header: str) -> AuditColumn:
    """`Epoch time (min)`, `efficiency vs 1 node`, `img/s`, `speedup_1gpu`, `#GPUs`."""
    text = header.strip().lower().replace("_", " ").replace("#", " n ")
    named = BASELINE.search(text)
    claim = any(word in text.replace(" ", "") for word in ("speedup", "speed-up", "eff"))
    baseline = ("1 GPU" if named.group(1) == "gpu" else "1 node") if named and claim else None
    if named and claim:
        text = text[: named.start()] + text[named.end() :]
    unit, text = _unit_in_brackets(text)
    name, bracketed = name_of(text), name_of(unit or "")
    if is_per_gpu(bracketed):
        return AuditColumn(header.strip(), None, f"{name}_per_gpu")
    found = rate(bracketed) or rate(name)
    if found and MEANINGS.get(name) in (None, found.meaning):
        return AuditColumn(header.strip(), found.meaning, name, unit, rate=found)
    stem, suffix = _split_unit(name)
    if name not in MEANINGS and name not in SETTINGS and stem:
        name, unit = stem, unit or suffix
    return AuditColumn(header.strip(), MEANINGS.get(name), name, unit, baseline)


def _unit_in_brackets(text: str) -> tuple[str | None, str]:
    inside = [unit for found in re.findall(r"[(\[]([^)\]]*)[)\]]", text) if (unit := found.strip(" .,"))]
    unit = "percent" if "%" in text else inside[0] if inside else None
    return unit, re.sub(r"[(\[][^)\]]*[)\]]|%", " ", text)


def name_of(text: str) -> str:
    """In small letters, `_` for everything else and `_per_` for `/`."""
    words = re.sub(r"[^a-zµ0-9]+", "_", text.lower().replace("/", "_per_")).strip("_")
    words = re.sub(r"_+", "_", words)
    return re.sub(r"^(the|n)_(?=gpus|nodes)", "", words) or words


def _split_unit(name: str) -> tuple[str, str | None]:
    """`time_min` -> (`time`, `min`)."""
    stem, _, last = name.rpartition("_")
    return (stem, "percent" if last == "pct" else last) if last in UNITS and stem else ("", None)
