"""What the headers of someone else's table mean: words and units as they are used in reports."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from hpcddp.analysis.audit.configuration import CONFIGURATION, SETTING_NAMES
from hpcddp.analysis.audit.rates import PER_NODE, Rate, of_one_gpu, rate

SYNONYMS = {
    "nodes": "node_count num_nodes n_nodes number_of_nodes node_num hosts_used instances",
    "gpus_per_node": "gpu_per_node gpus_node gpus_per_host gpus_per_instance ranks_per_node tasks_per_node ntasks_per_node",
    "gpus": "n_gpus num_gpus gpu_count total_gpus number_of_gpus gpu_num ranks world_size processes chips accelerators devices",
    "node_list": "nodelist node_names hosts hostnames host node nodes_used",
    "gpu_type": "gpu gpu_model accelerator gpu_name card hardware",
    "batch_per_gpu": "batch batch_size batch_size_per_gpu local_batch local_batch_size per_gpu_batch per_gpu_batch_size lbs",
    "global_batch": "total_batch global_batch_size total_batch_size effective_batch_size gbs",
    "run": "repeat repetition rep trial attempt seed row",
    "time": (
        "wall wall_time walltime wall_clock wallclock wall_clock_time runtime run_time elapsed elapsed_time duration epoch_time "
        "time_per_epoch total_time training_time train_time step_time time_per_step iteration_time iter_time "
        "time_per_iteration time_per_iter job_wall time_to_train job_time epoch"
    ),
    "throughput": (
        "rate samples_per_s samples_per_sec samples_per_second images_per_s images_per_sec images_per_second img_per_s "
        "img_per_sec imgs_per_s imgs_per_sec tokens_per_s tokens_per_sec tokens_per_second"
    ),
    "average": "avg mean average_time avg_time mean_time average_throughput avg_throughput mean_throughput",
    "median": "median_time median_throughput",
    "speedup": "speed_up speedup_factor",
    "efficiency": "eff parallel_efficiency scaling_efficiency scaling_eff weak_scaling_efficiency strong_scaling_efficiency",
    "baseline": "reference relative_to base",
    "samples": "dataset_size samples_per_epoch images images_per_epoch",
    "samples_per_step": "tokens_per_step tokens_per_iteration samples_per_iteration images_per_step images_per_iteration",
    "data_parallel": "dp dp_size dp_degree data_parallel_size data_parallel_degree",
    "accumulation": "grad_accum gradaccum grad_accum_steps gradient_accumulation gradient_accumulation_steps accumulation_steps",
    "epochs": "n_epochs num_epochs",
    "steps": "iterations steps_per_epoch iterations_per_epoch it_per_epoch",
    "n": "runs n_runs num_runs repeats repetitions",
    "compute": "compute_time computation computation_time",
    "comm": "communication communication_time comm_time",
    "bandwidth": "busbw bus_bandwidth communication_bandwidth",
    "mfu": "model_flops_utilization model_flop_utilization model_flops_utilisation model_flop_utilisation",
    "data_wait": "data_time data_wait_time data_loading data_loading_time loading_time loader_wait input_wait input_time",
    "utilization": "gpu_utilization gpu_util utilisation gpu_utilisation gpu_usage util",
    "scaling": "scaling_type scaling_kind",
}
"""Meaning -> other names for it, in small letters with `_` for everything else."""

SETTINGS = CONFIGURATION | {
    *("experiment", "table", "group", "series", "model", "network", "dataset", "data", "cluster", "system", "node_type"),
    *("partition", "input", "version", "question", "image_size", "sequence_length", "task"),
}
"""Columns that keep rows apart: only rows that agree in them are compared."""

REMARKS = {
    *("note", "notes", "comment", "comments", "remark", "remarks", "source"),
    *("fsdp", "hfu", "grad_accum", "gradaccum", "memory"),
}
"""Columns that are not checked, which needs no remark."""

MEANINGS = {name: meaning for meaning, names in SYNONYMS.items() for name in (meaning, *names.split())}
UNITS = ("percent", "pct", "ms", "seconds", "second", "secs", "sec", "s", "minutes", "minute", "mins", "min", "hours", "hrs", "h")
TIMES = {"time", "average", "median", "compute", "comm", "data_wait"}
CLAIMS = ("speedup", "efficiency")

BASELINE = re.compile(
    r"\b(?:(?:vs|versus|against|over|relative to|rel to|to|from)\b[. ]*)?(?:the )?"
    r"(1|one|single|[2-9]|[1-9]\d+)[ -]?(gpu|node)s?\b"
)


STEP = re.compile(r"(?:^|_)(?:steps?|iterations?|iters?|its?|batch)(?:_|$)")


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

    @property
    def of_step(self) -> bool:
        """Whether a time is that of a step: `step time`, `s/it`."""
        return self.meaning == "time" and bool(STEP.search(f"{self.name}_{name_of(self.unit or '')}"))


def column(header: str) -> AuditColumn:
    """`Epoch time (min)`, `efficiency vs 1 node`, `img/s`, `speedup_1gpu`, `#GPUs`."""
    text = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", header.strip()).lower().replace("_", " ").replace("#", " n ")
    named = BASELINE.search(text)
    claim = any(word in text.replace(" ", "") for word in ("speedup", "speed-up", "eff"))
    baseline = _baseline(*named.groups()) if named and claim else None
    if named and claim:
        text = text[: named.start()] + text[named.end() :]
    unit, text = _unit_in_brackets(text)
    name, bracketed = name_of(text), name_of(unit or "")
    if found := _rate_of(header.strip(), name, bracketed, unit):
        return found
    stem, suffix = _split_unit(name)
    if name not in MEANINGS and name not in SETTINGS and stem:
        name, unit = stem, unit or suffix
    name = name if name in MEANINGS else SETTING_NAMES.get(name, name)
    return AuditColumn(header.strip(), MEANINGS.get(name), name, unit, baseline)


def _baseline(number: str, unit: str) -> str:
    """`1 GPU`, `1 node`, `32 GPUs`."""
    number, unit = "1" if number in ("one", "single") else number, unit.replace("gpu", "GPU")
    return f"{number} {unit}{'' if number == '1' else 's'}"


def _rate_of(header: str, name: str, bracketed: str, unit: str | None) -> AuditColumn | None:
    """`img/s`, `throughput (tok/s/GPU)`, `TFLOP/chip/sec`; what a whole node does is not read."""
    if PER_NODE.search(bracketed) and name not in MEANINGS:
        return AuditColumn(header, None, f"{name}_per_node")
    (of_bracket, one), (bare, in_name) = of_one_gpu(bracketed), of_one_gpu(name)
    found = rate(of_bracket) or rate(bare)
    meaning = found.meaning if found else None
    named = MEANINGS.get(name) or MEANINGS.get(bare)
    if one or (in_name and name not in MEANINGS):
        meaning = meaning or named
        if meaning not in ("throughput", "tflops"):
            return None if meaning and meaning not in TIMES else AuditColumn(header, None, f"{bare}_per_gpu")
        found, named = replace(found or Rate("throughput", 1.0), meaning=f"{meaning}_per_gpu"), None
    return AuditColumn(header, found.meaning, name, unit, rate=found) if found and named in (None, found.meaning) else None


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
