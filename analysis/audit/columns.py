"""What the columns of someone else's table mean: words and units as they are used in reports, and what their cells hold."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from hpcddp.analysis.audit.cells import SECONDS, is_blank, size_of
from hpcddp.core.errors import UsageError

MEANINGS = (
    ("nodes", "size", "node_count num_nodes n_nodes number_of_nodes node_num hosts_used instances machines servers"),
    ("gpus_per_node", "size", "gpu_per_node gpus_node gpus_per_host gpus_per_instance ranks_per_node tasks_per_node"),
    (
        "gpus",
        "size",
        "n_gpus num_gpus num_of_gpus gpu_count total_gpus number_of_gpus gpu_num gpus_used n_gpu gcds chips devices",
    ),
    ("gpus", "size", "ranks world_size processes procs np nproc accelerators num_devices number_of_devices"),
    ("node_list", "word", "nodelist node_names hosts hostnames host node nodes_used"),
    ("gpu_type", "word", "gpu gpu_model accelerator gpu_name card hardware gpu_arch device"),
    ("run", "word", "repeat repetition rep trial attempt seed row"),
    ("batch_per_gpu", "count", "local_batch batch_per_device batch_per_rank"),
    ("global_batch", "count", "total_batch effective_batch gbs"),
    ("samples", "count", "dataset_size samples_per_epoch images images_per_epoch"),
    ("steps", "count", "iterations steps_per_epoch iterations_per_epoch it_per_epoch"),
    ("accumulation", "count", "grad_accum gradaccum grad_accum_steps gradient_accumulation gradient_accumulation_steps"),
    ("time", "measured", "wall walltime wallclock runtime elapsed duration time_to_train job_wall epoch wct"),
    ("throughput", "measured", "rate speed performance bandwidth_of_samples"),
    ("speedup", "claim", ""),
    ("efficiency", "claim", "eff"),
)
"""(meaning, kind, other names for it in small letters with `_` for everything else)"""

NAMES = {name: meaning for meaning, _, names in MEANINGS for name in (meaning, *names.split())}
KINDS = {meaning: kind for meaning, kind, _ in MEANINGS}

OTHER_TIME = (
    "checkpoint|sav|restor|start|compil|launch|queue|eval|infer|valid|first|date|stamp|to_acc|ttft|init|ideal|expect|linear|reduc"
)
WORDS_OF = (
    ("speedup", "(?:weak|strong)_scaling|^scaling$", "^$"),
    ("global_batch", r"(?:global|total|effective|overall)_?(?:\w+_)?batch", "micro|time|per_s|latency"),
    ("batch_per_gpu", r"local_batch|batch\w*_per_(?:gpu|device|rank|worker)|batch\w*_gpu$|per_gpu_batch", "micro|time|latency"),
    ("throughput", "(?:^|_)(?:throughput|img_s|images_s|samples_s)(?:_|$)", "^$"),
    ("time", "(?:^|_)(?:time|wall_?clock|walltime|runtime|duration)(?:_|$)", OTHER_TIME),
    ("gpus", "(?:^|_)(?:gpus|chips|accelerators)(?:_|$)", "_per_|memory"),
)
"""(meaning, words in a name that say so, words that say otherwise); the first that fits."""

SETTINGS = re.compile(r"\w*strategy|parallelism|precision|dtype|optimi\w+|compile|\w*workers|framework|mode|zero_stage")
"""Columns that say how a row was trained: a baseline that differs in them is another configuration."""

NOTES = re.compile("(?:^|_)(?:avg|average|mean|median|notes?|comments?|remarks?|source|status|job|date|id)(?:_|$)")
"""Columns that tell no rows apart."""

OTHER_SIZES = ("workers", "threads", "cores", "processors", "cpus")
"""What is counted in a table without GPUs and nodes."""

SPEEDUP = re.compile("speed_?up|^relative_to|^(?:x_)?vs_|scale_?up|scaling_factor")
NOT_OF_SIZES = re.compile(
    r"ideal|linear_speed|theor|expected|target|(?:[ft]p?f?16|[fb]p?f?16|fp8|fp32|tf32|amp|mixed|precision|xla|compile)(?:_|$)|cpu"
)
"""A speedup of another precision, or one that was not measured."""
EFFICIENCY = re.compile("(?:^|_)(?:efficiency|eff)(?:_|$)|scaling_(?:factor_)?(?:pct|percent)")
OTHER_EFFICIENCY = re.compile("energy|cost|memory|power|parameter|flop|mem_|bandwidth|compute|network|gpu_eff|utili[sz]ation")
BASELINE = re.compile(r"\b(1|one|single|[2-9]|[1-9]\d+)[ -]?(gpu|node)s?\b")

STEPS = r"steps?|iterations?|iters?|its?|batch(?:es)?"
PER_GPU = re.compile(r"_per_(?:gpus?|device|rank|accelerator|chip|card|worker)(?=_|$)|_(?:gpu|device)$|^_per_gpu_")
_TIME = "|".join(SECONDS)
RATE = re.compile(rf"(?:([kmg]|thousand|million)_?)?([a-z]\w*?)_(?:per|p)_({_TIME})(?:ond)?")
MANY = {"k": 1e3, "thousand": 1e3, "m": 1e6, "million": 1e6, "g": 1e9}
DURATION = re.compile(rf"({_TIME})_per_(?:[a-z]+|(?:epoch|{STEPS})_\w+)|({_TIME})_step|step_({_TIME})")
NO_RATE = re.compile(
    "[tgmpe]?flops?$|[tgmk]?i?bs?$|bytes?$|bits?$|steps_per|tokens_per_\\w+$|cost|dollars?|gpu_h|m$|g$|t$|e$|[tgmpe]flop|joules?|j$|w$"
)
BEFORE = "avg|average|mean|total|measured|training|train|the|n|num|aggregate|global|overall|wall|median|peak"


@dataclass(frozen=True)
class Column:
    """One header: its meaning (None: not known) and what unit, baseline and kind of rate it names."""

    header: str
    meaning: str | None
    name: str
    """The header in small letters with `_`, the unit taken off."""
    unit: str | None = None
    """`percent`, or a unit of time."""
    baseline: str | None = None
    """`1 GPU`, `1 node`, `32 GPUs`."""
    scale: float = 1.0
    """What 1 of it is: of a rate per second, of percent as a share."""
    inverse: bool = False
    """Steps per second: a time."""
    each: bool = False
    """A rate of one GPU."""
    decimals: int = 0
    """Of the claim that is printed with most: a bare `1` beside it is as exact."""
    key: str = ""
    """Its name among the numbers of a row, which is its meaning where it is the first with that."""

    @property
    def kind(self) -> str:
        """size, word, count, measured or claim; nothing where it is not known."""
        return KINDS.get(self.meaning or "", "")

    def says(self, words: str) -> bool:
        """Whether the header has one of these words: a time of a step or an epoch; a time that says no more may be of either."""
        return bool(re.search(rf"(?:^|_)(?:{words})(?:_|$)", name_of(self.header)))


def typed(named: Sequence[tuple[str, Sequence[str]]], where: str) -> list[Column]:
    """A column for each header and its cells: one for each size, count and word, and a key for each column of numbers."""
    columns = [column(header, cells) for header, cells in named]
    meanings = {each.meaning for each in columns}
    in_words = [i for i, (_, cells) in enumerate(named) if _all_sizes(cells)]
    in_words += [i for i, each in enumerate(columns) if each.name in OTHER_SIZES]
    if in_words and not meanings & {"gpus", "nodes"}:
        columns[in_words[0]] = replace(columns[in_words[0]], meaning="gpus")
    known = set[str]()
    for i, each in enumerate(columns):
        if each.meaning in known and each.kind in ("size", "count", "word"):
            columns[i] = replace(each, meaning=None)
        elif each.meaning and each.kind not in ("size", "word"):
            columns[i] = replace(each, key=f"{each.meaning} {i}" if each.meaning in known else each.meaning)
        known.add(each.meaning or "")
    results = {"steps", *(name for name, kind in KINDS.items() if kind in ("measured", "claim"))}
    if not known & {"gpus", "nodes"} or not known & results:
        lacks = "holds a result; name one " + ", ".join(sorted(results))
        lacks = lacks if known & {"gpus", "nodes"} else "says how many GPUs a row used; name one gpus, or nodes and gpus_per_node"
        raise UsageError(f"{where}: no column {lacks}; a table has one line of headers, and a row for each size")
    return columns


def _all_sizes(cells: Sequence[str]) -> bool:
    """Whether most cells tell a size in words, not as bare numbers."""
    found = [size_of(cell) for cell in cells if not is_blank(cell) and not cell.isdigit()]
    return len(found) > 0 and sum(each is not None for each in found) * 2 > len(found)


def column(header: str, cells: Sequence[str] = ()) -> Column:
    """By its words; and `node`, `gpu` are sizes where all their cells are, claims percent by a mark."""
    found, cells = _by_words(header.strip()), [cell for cell in cells if not is_blank(cell)]
    named = {"node_list": "nodes", "gpu_type": "gpus"}.get(found.meaning or "")
    if named and cells and all(re.match(r"\d+(\s*[x×]|$)", cell) for cell in cells):
        return replace(found, meaning=named)
    if found.kind != "claim":
        return found
    shown = [each for cell in cells if (each := re.search(r"\d+(?:[.,](\d+))?", cell))]
    values = [float(each.group().replace(",", ".")) for each in shown]
    decimals = max((len(each.group(1) or "") for each in shown), default=0)
    most, marked = max(values, default=0), found.unit == "percent" or any("%" in cell for cell in cells)
    percent = marked or (found.meaning == "efficiency" and most > 4)
    if percent and most < 150 and not SPEEDUP.search(found.name):  # weak scaling of 97 %, not of 391 %
        found = replace(found, meaning="efficiency")
    if found.meaning == "speedup" and (not shown if found.name == "scaling" else percent and 100 not in values):
        return replace(found, meaning=None)  # a column that says weak or strong, or by how much faster
    return replace(found, decimals=decimals, unit="percent" if percent else None, scale=0.01 if percent else 1.0)


def _by_words(header: str) -> Column:
    """`Epoch time (min)`, `efficiency vs 1 node`, `img/s/GPU`, `speedup_1gpu`, `#GPUs`."""
    text = re.sub(r"(?<=[a-z])(?=[A-Z][a-z])", " ", header).lower().replace("_", " ").replace("#", " n ").replace("\u2191", " ")
    name = name_of(text)
    claim = "speedup" if SPEEDUP.search(name) and not NOT_OF_SIZES.search(name) else None
    if EFFICIENCY.search(name) and not SPEEDUP.search(name) and not OTHER_EFFICIENCY.search(name):
        claim = "efficiency"
    named = BASELINE.search(text) if claim else None
    inside = [found for part in re.findall(r"[(\[]([^)\]]*)[)\]]", text) if (found := part.strip(" .,"))]
    name = name_of(re.sub(r"[(\[][^)\]]*[)\]]|%", " ", text))
    unit = next((each for each in inside if each in SECONDS), None)
    if "%" in text or name.endswith(("_pct", "_percent")):
        unit = "percent"
    if claim:
        many = named.group(1) if named and named.group(1) not in ("1", "one", "single") else ""
        baseline = f"{many or 1} {named.group(2).replace('gpu', 'GPU')}{'s' if many else ''}" if named else None
        return Column(header, claim, name, unit, baseline)
    for part in (*inside, name):
        if found := _rate(header, name, name_of(part)):
            return found
    stem, _, last = name.rpartition("_")
    if name not in NAMES and last in SECONDS and stem:
        name, unit = stem, unit or last
    return Column(header, _meaning(name), name, unit)


def _meaning(name: str) -> str | None:
    """By its exact name, else by the words in it."""
    bare = re.sub(rf"^(?:{BEFORE})_(?=[a-z])(?!batch)", "", name)
    of_words = (meaning for meaning, words, others in WORDS_OF if re.search(words, name) and not re.search(others, name))
    return NAMES.get(name) or NAMES.get(bare) or next(of_words, None)


def _rate(header: str, name: str, unit: str) -> Column | None:
    """A header or a unit such as `img/s`, `tok/s/GPU`, `it/s`, `s/epoch`; what a whole node does is not read."""
    unit = re.sub(r"((?:img|image|sample|token|tok|seq|example)s?)_(?:s|sec)$", r"\1_per_s", unit)
    unit = re.sub(r"^([km]?)(?:tps|tgs|ips|fps|sps|qps)(?=_|$)", r"\1_items_per_s", unit).removeprefix("_")
    bare = PER_GPU.sub("", f"_{unit}", count=1).strip("_")
    each = bare != unit or bool(PER_GPU.search(f"_{name}"))
    bare = re.sub(rf"^(?:{BEFORE}|throughput)_", "", bare)
    if found := DURATION.fullmatch(bare):
        return Column(header, "time", name, next(filter(None, found.groups()))) if not each or name in NAMES else None
    found = RATE.fullmatch(bare)
    if not found or NO_RATE.fullmatch(found.group(2)) or "per_node" in unit:
        of_one = bare == "throughput" or (not bare and _meaning(name) == "throughput")
        return Column(header, "throughput", name, each=True) if of_one and each and "node" not in unit else None
    many, work, time = found.groups()
    steps = bool(re.fullmatch(STEPS, work))
    per_s = MANY.get(many or "", 1.0) / SECONDS[time]
    return Column(header, "time" if steps else "throughput", name, scale=per_s, inverse=steps, each=each and not steps)


def name_of(text: str) -> str:
    """In small letters, `_` for everything else and `_per_` for `/`."""
    words = re.sub(r"[^a-zµ0-9]+", "_", text.lower().replace("/", " per ")).strip("_")
    return re.sub(r"^(the|n)_(?=gpus|nodes)", "", words) or words
