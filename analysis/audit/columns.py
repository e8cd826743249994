"""What the headers of someone else's table mean: words and units as they are used in reports."""

from __future__ import annotations

import re
from dataclasses import dataclass

from hpcddp.analysis.audit.cells import SECONDS

SYNONYMS = {
    "nodes": "node_count num_nodes n_nodes number_of_nodes node_num hosts_used instances machines servers",
    "gpus_per_node": "gpu_per_node gpus_node gpus_per_host gpus_per_instance ranks_per_node tasks_per_node ntasks_per_node",
    "gpus": (
        "n_gpus num_gpus num_of_gpus gpu_count total_gpus number_of_gpus gpu_num ranks world_size processes procs chips "
        "accelerators devices np num_devices number_of_devices gpus_used nproc gcds n_gpu"
    ),
    "node_list": "nodelist node_names hosts hostnames host node nodes_used",
    "gpu_type": "gpu gpu_model accelerator gpu_name card hardware gpu_arch device",
    "batch_per_gpu": "local_batch batch_per_device batch_per_rank",
    "global_batch": "total_batch effective_batch gbs",
    "batch": "batch_size bs minibatch mini_batch",
    "run": "repeat repetition rep trial attempt seed row",
    "time": "wall walltime wallclock runtime elapsed duration time_to_train job_wall epoch",
    "throughput": "rate speed performance bandwidth_of_samples",
    "average": "avg mean average_time avg_time mean_time average_throughput avg_throughput mean_throughput",
    "run_value": "",
    "median": "median_time median_throughput",
    "speedup": "",
    "efficiency": "eff",
    "samples": "dataset_size samples_per_epoch images images_per_epoch",
    "accumulation": "grad_accum gradaccum grad_accum_steps gradient_accumulation gradient_accumulation_steps accumulation_steps",
    "epochs": "n_epochs num_epochs",
    "steps": "iterations steps_per_epoch iterations_per_epoch it_per_epoch",
    "compute": "compute_time computation computation_time",
    "comm": "communication communication_time comm_time",
    "bandwidth": "busbw bus_bandwidth communication_bandwidth",
    "data_wait": "data_time data_wait_time data_loading data_loading_time loading_time loader_wait input_wait input_time",
    "utilization": "gpu_utilization gpu_util utilisation gpu_utilisation gpu_usage util",
    "scaling": "scaling_type scaling_kind",
}
"""Meaning -> other names for it, in small letters with `_` for everything else."""

MEANINGS = {name: meaning for meaning, names in SYNONYMS.items() for name in (meaning, *names.split())}

SUBJECT = re.compile("model|network|dataset|architecture")
"""Columns that say what was trained tell rows apart, whatever their cells are."""

CONFIGURATION = {
    *(
        "parallelism",
        "strategy",
        "parallel_strategy",
        "precision",
        "dtype",
        "techniques",
        "optimizations",
        "activation_checkpointing",
    ),
    *(
        "compile",
        "workers",
        "num_workers",
        "loader_workers",
        "framework",
        "optimizer",
        "mode",
        "wrapper",
        "zero_stage",
    ),
}
"""Columns that say how a row was trained: a baseline that differs in them is another configuration."""

NOTES = {"note", "notes", "comment", "comments", "remark", "remarks", "source", "status", "job_id", "date", "id"}
"""Columns that tell no rows apart."""

TIMES = {"time", "run_value", "average", "median", "compute", "comm", "data_wait"}
CLAIMS = ("speedup", "efficiency")
STEPS = r"steps?|iterations?|iters?|its?|batch(?:es)?"
STEP = re.compile(rf"(?:^|_)(?:{STEPS})(?:_|$)")
PER_GPU = re.compile(r"_per_(?:gpus?|device|rank|accelerator|chip|card|worker)(?=_|$)|_(?:gpu|device)$")
OTHER_EFFICIENCY = re.compile("energy|cost|memory|power|parameter|flop|mem_|bandwidth|compute|network|gpu_eff|utili[sz]ation")
OTHER_TIME = (
    "checkpoint|save|restore|startup|start_up|compile|compilation|launch|queue|eval|inference|valid|first|date|stamp|to_acc|"
    "ttft|init|ideal|expected|linear|reduction"
)

NOT_OF_SIZES = re.compile(
    r"ideal|linear_speed|theor|expected|target|(?:[ft]p?f?16|[fb]p?f?16|fp8|fp32|tf32|amp|mixed|precision|xla|compile)(?:_|$)|cpu"
)
"""A speedup of another precision, or one that was not measured."""

BASELINE = re.compile(
    r"\b(?:(?:vs|versus|against|over|relative to|rel to|to|from)\b[. ]*)?(?:the )?"
    r"(1|one|single|[2-9]|[1-9]\d+)[ -]?(gpu|node)s?\b"
)
_TIME = "|".join(SECONDS)
RATE = re.compile(rf"(?:([kmg]|thousand|million)_?)?([a-z]\w*?)_(?:per|p)_({_TIME})(?:ond)?")
MANY = {"k": 1e3, "thousand": 1e3, "m": 1e6, "million": 1e6, "g": 1e9}
SHORT_RATE = re.compile(r"(?:(k|m)?(tps|tgs|ips|fps|sps|qps))|(?:(k)?(t|s))_per_s")
DURATION = re.compile(rf"({_TIME})_per_([a-z]+)|({_TIME})_step|step_({_TIME})")
NO_RATE = re.compile(
    "[tgmpe]?flops?$|[tgmk]?i?bs?$|bytes?$|bits?$|steps_per|tokens_per_\\w+$|cost|dollars?|gpu_h|m$|g$|t$|e$|[tgmpe]flop|joules?|j$|w$"
)


WORDS_OF = (
    ("run_value", r"^(?:run|trial|rep|repeat|repetition)_\d+$", "^$"),
    ("scaling", "(?:weak|strong)_scaling", "^$"),
    ("global_batch", r"(?:global|total|effective|overall)_?(?:\w+_)?batch", "micro|time|per_s|latency"),
    (
        "batch_per_gpu",
        r"(?:local_batch|batch\w*_per_(?:gpu|device|rank|worker)|batch\w*_gpu$|per_gpu_batch)",
        "micro|time|latency",
    ),
    ("batch", "(?:^|_)(?:batch|bs)(?:_|$)", "micro|time|per_s|latency"),
    ("throughput", "(?:^|_)(?:throughput|img_s|images_s|samples_s)(?:_|$)", "^$"),
    ("time", "(?:^|_)(?:time|wallclock|wall_clock|walltime|runtime|duration)(?:_|$)", OTHER_TIME),
    ("gpus", "(?:^|_)(?:gpus|chips|accelerators)(?:_|$)", "_per_|memory"),
)
"""(meaning, words in a name that say so, words that say otherwise); the first that fits."""


@dataclass(frozen=True)
class Column:
    """One header: its meaning (None: not known) and what unit, baseline and kind of rate it names."""

    header: str
    meaning: str | None
    name: str
    """The header in small letters with `_`, unit and baseline taken off."""
    unit: str | None = None
    """`percent`, or a unit of time."""
    baseline: str | None = None
    """`1 GPU`, `1 node`, `32 GPUs`."""
    scale: float = 1.0
    """Of a rate: what 1 of it is per second."""
    inverse: bool = False
    """Steps per second: a time."""
    each: bool = False
    """A rate of one GPU."""
    key: str = ""
    """Its name among the values of a row, which is its meaning where it is the first with that."""

    @property
    def of_step(self) -> bool:
        """Whether a time is that of a step: `step time`, `s/it`; a time that says no more may be."""
        return bool(STEP.search(name_of(self.header)))

    @property
    def of_epoch(self) -> bool:
        return "epoch" in self.header.lower()


def column(header: str) -> Column:
    """`Epoch time (min)`, `efficiency vs 1 node`, `img/s/GPU`, `speedup_1gpu`, `#GPUs`."""
    header = header.strip()
    text = re.sub(r"(?<=[a-z])(?=[A-Z][a-z])", " ", header).lower().replace("_", " ").replace("#", " n ").replace("\u2191", " ")
    claim = _claim(text)
    named = BASELINE.search(text) if claim else None
    if named:
        text = text[: named.start()] + text[named.end() :]
    inside = [found for part in re.findall(r"[(\[]([^)\]]*)[)\]]", text) if (found := part.strip(" .,"))]
    name = name_of(re.sub(r"[(\[][^)\]]*[)\]]|%", " ", text))
    unit = (
        "percent"
        if "%" in text or name.endswith(("_pct", "_percent"))
        else next((each for each in inside if each in SECONDS or each in ("h:mm", "m:ss")), None)
    )
    if claim:
        return Column(
            header, claim, name, "percent" if unit == "percent" else None, _baseline(*named.groups()) if named else None
        )
    for part in (*inside, name):
        if found := _rate(header, name, name_of(part)):
            return found
    stem, _, last = name.rpartition("_")
    if name not in MEANINGS and last in SECONDS and stem:
        name, unit = stem, unit or last
    return Column(header, _meaning(name), name, unit)


def _claim(text: str) -> str | None:
    """Whether a header names a speedup or an efficiency, of scaling."""
    name = name_of(text)
    if re.search("speed_?up|^relative_to|^(?:x_)?vs_|scale_?up|scaling_factor", name):
        return None if NOT_OF_SIZES.search(name) else "speedup"
    of_scaling = re.search(r"(?:^|_)(?:efficiency|eff)(?:_|$)", name) and not OTHER_EFFICIENCY.search(name)
    return "efficiency" if of_scaling or re.search("scaling_(?:factor_)?(?:pct|percent)", name) else None


def _baseline(number: str, unit: str) -> str:
    number = "1" if number in ("one", "single") else number
    return f"{number} {unit.replace('gpu', 'GPU')}{'' if number == '1' else 's'}"


def _meaning(name: str) -> str | None:
    """By its exact name, else by the words in it."""
    bare = re.sub(
        r"^(?:avg|average|mean|total|measured|training|train|the|n|num|aggregate|global|overall|wall|median)_(?=[a-z])(?!batch)",
        "",
        name,
    )
    if name in MEANINGS or bare in MEANINGS:
        return MEANINGS.get(name) or MEANINGS[bare]
    return next((meaning for meaning, words, others in WORDS_OF if re.search(words, name) and not re.search(others, name)), None)


def _rate(header: str, name: str, unit: str) -> Column | None:
    """A header or a unit such as `img/s`, `tok/s/GPU`, `it/s`, `s/epoch`; what a whole node does is not read."""
    unit = re.sub(r"((?:img|image|sample|token|tok|seq|example)s?)_(?:s|sec)$", r"\1_per_s", unit)
    bare = PER_GPU.sub("", f"_{unit}", count=1).strip("_")
    each = bare != unit or bool(PER_GPU.search(f"_{name}")) or (name.startswith("per_gpu"))
    bare = re.sub(r"^per_gpu_", "", bare)
    bare = re.sub(r"^(?:training|train|avg|average|mean|total|median|peak|global|aggregate|throughput)_", "", bare)
    if found := DURATION.fullmatch(bare):
        return (
            None
            if each and name not in MEANINGS
            else Column(header, "time", name, found.group(1) or found.group(3) or found.group(4))
        )
    found = RATE.fullmatch(bare)
    short = None if found else SHORT_RATE.fullmatch(bare)
    if short:
        return Column(header, "throughput", name, scale=MANY.get(short.group(1) or short.group(3) or "", 1.0), each=each)
    if not found or NO_RATE.fullmatch(found.group(2)) or "per_node" in unit:
        of_one = bare == "throughput" or (not bare and _meaning(name) == "throughput")
        return Column(header, "throughput", name, each=True) if of_one and each and "node" not in unit else None
    many, work, time = found.groups()
    per_s = MANY.get(many or "", 1.0) / SECONDS[time]
    if re.fullmatch(STEPS, work):
        return Column(header, "time", name, scale=per_s, inverse=True)
    return Column(header, "throughput", name, scale=per_s, each=each)


def name_of(text: str) -> str:
    """In small letters, `_` for everything else and `_per_` for `/`."""
    words = re.sub(r"[^a-zµ0-9]+", "_", re.sub(r"\s*/\s*", "_per_", text.lower())).strip("_")
    words = re.sub(r"_+", "_", words)
    return re.sub(r"^(the|n)_(?=gpus|nodes)", "", words) or words
