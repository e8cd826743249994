"""What cells and headers of someone else's table mean: numbers as intervals of all that rounds to them, sizes, units."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from hpcddp.analysis.util.wording import clock
from hpcddp.core.errors import UsageError

BLANK = re.compile(
    r"[-\u2013\u2014?.]*|[-\u2013\u2014]+\s.*|"
    r"(?:n\.?/?a\.?|nan|none|null|tbd|todo|oom|out of memory|fail(?:ed|s)?|crash(?:ed)?|timeout)(?:\W.*)?"
)
SPREAD = re.compile(r"\s*(?:±|\+/?-).*?(?=\s*[a-zµ%x×]|$)", re.IGNORECASE)
SPACES = "\u00a0\u2009\u202f'\u2019_ "
DIGITS = re.compile(rf"([+-]?(?:\d[\d,.{SPACES}]*\d|\d|\.\d+)\.?(?:e[+-]?\d+)?)\s*(.*)", re.IGNORECASE)
PLAIN = re.compile(r"[+-]?\d+(?:\.\d*)?(?:e[+-]?\d+)?|[+-]?\.\d+", re.IGNORECASE)
MANY = {"k": 1e3, "K": 1e3, "thousand": 1e3, "m": 1e6, "M": 1e6, "million": 1e6, "g": 1e9, "G": 1e9, "B": 1e9}

SECONDS = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3}
SECONDS |= dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1.0)
SECONDS |= dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60.0)
SECONDS |= dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), 3600.0) | dict.fromkeys(("d", "day", "days"), 86400.0)
CLOCK = re.compile(r"(?:(\d+)\s*(?:-|d|days?,?)\s*)?(\d+):(\d\d)(?::(\d\d(?:\.\d+)?))?")
WORDS = re.compile(rf"(\d[\d.,{SPACES}]*)([a-zµ]+)\s*(?:,|and\b|&)?\s*")

ABOUT = 0.05
"""A number printed with `~` may be off by this share."""

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
BY = re.compile(r"(\d+)\s*[x×*]\s*(\d+)")
EACH = re.compile(r"node\w*\s*[x×*]\s*\d|\d\s*[x×*]\s*\d+[ -]?node|node\w*\s+(?:with|of)", re.IGNORECASE)
REFERENCE = re.compile(r"\(\s*(?:baseline|reference|ref|base|serial)[^)]*\)|\bbaseline\b", re.IGNORECASE)


@dataclass(frozen=True)
class Interval:
    """What a number can be: from `low` to `high`, both included; `best` is what the printed digits give."""

    low: float
    high: float
    best: float

    def overlaps(self, other: Interval) -> bool:
        """Whether some value lies in both; one part in 10^9 is allowed for the arithmetic."""
        slack = 1e-9 * max(abs(self.high), abs(other.high))
        return self.low <= other.high + slack and other.low <= self.high + slack

    def over(self, other: Interval) -> Interval:
        """The ratio of two positive numbers."""
        return Interval(self.low / other.high, self.high / other.low, self.best / other.best)

    def product(self, other: Interval) -> Interval:
        return Interval(self.low * other.low, self.high * other.high, self.best * other.best)

    def scaled(self, factor: float) -> Interval:
        return Interval(self.low * factor, self.high * factor, self.best * factor)


@dataclass(frozen=True)
class Number:
    """A cell: what it can stand for in the column's unit (times: s; percent: shares), and how it was printed."""

    interval: Interval
    text: str
    decimals: int = 0
    unit: str = ""
    """As printed: `h`, `%`, `K samples/s`."""
    scale: float = 1.0
    """Value of one of the printed unit, of the column's unit where none is printed."""
    clock: bool = False
    """Printed with colons, or in several units."""
    inverse: bool = False
    """Printed as a rate: `2.5` it/s is a time of 0.4 s."""

    def __str__(self) -> str:
        return self.text

    @property
    def value(self) -> float:
        return self.interval.best

    def times(self, factor: float) -> Number:
        """As printed, of `factor` times the value: a rate of one GPU as that of all."""
        return replace(self, interval=self.interval.scaled(factor), scale=self.scale * factor)


def is_blank(text: str) -> bool:
    """Whether a cell says that there is no value: a dash, n/a, OOM."""
    return bool(BLANK.fullmatch(text.strip().lower()))


def number(text: str, scale: float = 1.0) -> Number:
    """`1,200`, `95 %`, `1.9x`, `~12.5K samples/s`, `12.3 ± 0.4` (the spread is left out); ValueError says what is wrong."""
    bare, about = _bare(text)
    matched = DIGITS.fullmatch(bare)
    plain, unit = (_plain_digits(matched.group(1).strip()), matched.group(2).strip()) if matched else ("", "")
    if not PLAIN.fullmatch(plain) or re.match(r"[^\w%x×/µ]|\d", unit):
        raise ValueError(f"`{text}` is not a number; write one value in each cell, such as 12.5")
    many = re.match(r"([kKMGB])(?=\s|$|[a-z]*/)(?!Hz|B/)", unit)
    scale *= MANY[many.group(1)] if many else 1.0
    digits, _, power = plain.lower().partition("e")
    decimals = len(digits.partition(".")[2]) - int(power or 0)
    if digits.isdigit():  # 172,000 was rounded to three digits
        decimals -= max(0, min(len(digits) - len(digits.rstrip("0")), len(digits) - 3))
    value = float(plain) * scale
    if not 0 < value < math.inf or -decimals > 300:
        raise ValueError(f"`{text}` is not a number above zero; leave the cell empty where there is none")
    return Number(around(value, scale * 10.0**-decimals, about), text.strip(), max(0, decimals), unit, scale)


def _bare(text: str) -> tuple[str, bool]:
    """Without a spread and a remark in brackets, and whether it is about that."""
    bare = re.sub(r"(?<=\S)\s*[(\[].*[)\]]$", "", text.strip())
    bare = re.sub(r"^[x×]\s*(?=\d)", "", SPREAD.sub("", bare))
    about = re.match(r"(?:[~\u2248\u223c\u2243]|about\s|approx\.?\s|ca\.?\s)\s*", bare, re.IGNORECASE)
    return (bare[about.end() :] if about else bare).strip(), bool(about)


def _plain_digits(text: str) -> str:
    """Without separators of thousands (1,200, 1 200, 1'200, 1.281.167), and with a point for a decimal comma (0,95)."""
    if re.fullmatch(rf"[1-9]\d{{0,2}}([,{SPACES}]\d{{3}})+(\.\d+)?", text):
        return re.sub(rf"[,{SPACES}]", "", text)
    if re.fullmatch(rf"[1-9]\d{{0,2}}([{SPACES}]\d{{3}})+,\d+", text):
        text = re.sub(rf"[{SPACES}]", "", text)
    if re.fullmatch(r"[1-9]\d{0,2}(\.\d{3})+,\d+|[1-9]\d{0,2}(\.\d{3}){2,}", text):
        text = text.replace(".", "")
    return text.replace(",", ".") if re.fullmatch(r"\d+,\d+", text) else text


def seconds(text: str, unit: str | None = None) -> Number:
    """A time: `8521`, `8521 s`, `75 min`, `1h23m`, `m:ss`, `h:mm:ss`, `1-02:03:04`; `unit` is the column's."""
    bare, about = _bare(re.sub(r"\s*(?:/|\bper\b)\s*(?:epoch|it|iter|iteration|step|batch)s?$", "", text.lower()))
    if matched := CLOCK.fullmatch(bare.removesuffix(" s")):
        return _clock(matched, text)
    words = [(_plain_digits(amount.strip()), name) for amount, name in WORDS.findall(bare)] if not WORDS.sub("", bare) else []
    try:
        if not words or not all(name in SECONDS for _, name in words):
            own = re.split("[^a-zµ]", number(text).unit.lower())[0]  # `3 hours total`
            return number(text, SECONDS.get(own, SECONDS.get(unit or "s", 1.0)))
        value = sum(float(amount) * SECONDS[name] for amount, name in words)
    except ValueError:
        value = 0.0
    if not 0 < value < math.inf:
        raise ValueError(f"`{text}` is not a time; write seconds (8521), m:ss or h:mm:ss, above zero")
    amount, name = words[-1]
    decimals, several = len(amount.partition(".")[2]), len(words) > 1
    interval = around(value, SECONDS[name] * 10.0**-decimals, about)
    return Number(interval, text.strip(), decimals, "" if several else name, SECONDS[name], clock=several)


def _clock(matched: re.Match[str], text: str) -> Number:
    days, first, second, third = matched.groups()
    hours, minutes, rest = (0, int(first), second) if third is None else (int(first), int(second), third)
    value = 86400 * int(days or 0) + 3600 * hours + 60 * minutes + float(rest)
    if value <= 0 or float(rest) >= 60 or (hours and minutes >= 60) or (days and hours >= 24):
        raise ValueError(f"`{text}` is not a time of the clock above zero: minutes and seconds go up to 59")
    decimals = len(rest.partition(".")[2])
    return Number(around(value, 10.0**-decimals), text.strip(), decimals, clock=True)


def around(value: float, step: float, about: bool = False) -> Interval:
    """From half a step of the last digit below (it was rounded up) to one step above (it was cut off)."""
    found = Interval(max(value - step / 2, value * 1e-3), value + step, value)
    return Interval(found.low * (1 - ABOUT), found.high * (1 + ABOUT), value) if about else found


def print_like(value: float, shown: Number, more: int = 0) -> str:
    """`value` as `shown` is printed, with `more` decimals."""
    if shown.clock:
        return clock(value)
    value = (1 / value if shown.inverse else value) / shown.scale
    return " ".join(filter(None, (f"{value:.{shown.decimals + more}f}", shown.unit)))


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
    found = _words(text, column)
    if found and column == "gpus_per_node" and found.gpus and not found.nodes:
        return replace(found, per_node=found.gpus, gpus=None)
    return found


def _words(text: str, column: str) -> Size | None:
    text = REFERENCE.sub(" ", text.strip()).strip(" *†:~")
    if re.fullmatch(_N, text.replace(",", ""), re.IGNORECASE):
        one = _integer(text.replace(",", ""))
        return Size(nodes=one) if column == "nodes" else Size(gpus=one)
    if found := BY.fullmatch(text):
        return Size(int(found.group(1)), int(found.group(2)))
    nodes, gpus = NODES.search(text), GPUS.search(text)
    typed = None if gpus else TYPED.search(text)
    if not nodes and not gpus and not typed:
        return None
    rest = text
    for found in (nodes, gpus, typed):
        rest = rest.replace(found.group(), " ") if found else rest
    rest = " ".join(re.sub(rf"(?:^|(?<=\s)){_BY}(?=\s|$)|[()=,]", " ", rest).split())
    number = _integer(gpus.group(1)) if gpus else _integer(typed.group(1) or typed.group(4)) if typed else None
    kind = (gpus.group(2) if gpus else (typed.group(2) or typed.group(3)) if typed else "") or ""
    of_each = number and ((gpus and gpus.group(3)) or (nodes and EACH.search(text)))
    per_node, of_all = (number, None) if of_each else (None, number)
    return Size(_integer(nodes.group(1)) if nodes else None, per_node, of_all, kind, rest)


def _integer(text: str) -> int:
    return NUMBERS[text.lower()] if text.lower() in NUMBERS else int(text)


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
DURATION = re.compile(rf"({_TIME})_per_(?:[a-z]+|(?:epoch|{STEPS})_\w+)|({_TIME})_step|step_({_TIME})")
NO_RATE = re.compile(
    "[tgmpe]?flops?$|[tgmk]?i?bs?$|bytes?$|bits?$|steps_per|tokens_per_\\w+$|cost|dollars?|gpu_h|m$|g$|t$|e$|[tgmpe]flop|joules?|j$|w$"
)
BEFORE = "avg|average|mean|total|measured|training|train|the|n|num|aggregate|global|overall|wall|median|peak"


@dataclass(frozen=True)
class AuditColumn:
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
        return bool(re.search(rf"(?:^|_)(?:{words})(?:_|$)", header_name(self.header)))


def typed(named: Sequence[tuple[str, Sequence[str]]], where: str) -> list[AuditColumn]:
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


def column(header: str, cells: Sequence[str] = ()) -> AuditColumn:
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


def _by_words(header: str) -> AuditColumn:
    """`Epoch time (min)`, `efficiency vs 1 node`, `img/s/GPU`, `speedup_1gpu`, `#GPUs`."""
    text = re.sub(r"(?<=[a-z])(?=[A-Z][a-z])", " ", header).lower().replace("_", " ").replace("#", " n ").replace("\u2191", " ")
    name = header_name(text)
    claim = "speedup" if SPEEDUP.search(name) and not NOT_OF_SIZES.search(name) else None
    if EFFICIENCY.search(name) and not SPEEDUP.search(name) and not OTHER_EFFICIENCY.search(name):
        claim = "efficiency"
    named = BASELINE.search(text) if claim else None
    inside = [found for part in re.findall(r"[(\[]([^)\]]*)[)\]]", text) if (found := part.strip(" .,"))]
    name = header_name(re.sub(r"[(\[][^)\]]*[)\]]|%", " ", text))
    unit = next((each for each in inside if each in SECONDS), None)
    if "%" in text or name.endswith(("_pct", "_percent")):
        unit = "percent"
    if claim:
        many = named.group(1) if named and named.group(1) not in ("1", "one", "single") else ""
        baseline = f"{many or 1} {named.group(2).replace('gpu', 'GPU')}{'s' if many else ''}" if named else None
        return AuditColumn(header, claim, name, unit, baseline)
    for part in (*inside, name):
        if found := _rate(header, name, header_name(part)):
            return found
    stem, _, last = name.rpartition("_")
    if name not in NAMES and last in SECONDS and stem:
        name, unit = stem, unit or last
    return AuditColumn(header, _meaning(name), name, unit)


def _meaning(name: str) -> str | None:
    """By its exact name, else by the words in it."""
    bare = re.sub(rf"^(?:{BEFORE})_(?=[a-z])(?!batch)", "", name)
    of_words = (meaning for meaning, words, others in WORDS_OF if re.search(words, name) and not re.search(others, name))
    return NAMES.get(name) or NAMES.get(bare) or next(of_words, None)


def _rate(header: str, name: str, unit: str) -> AuditColumn | None:
    """A header or a unit such as `img/s`, `tok/s/GPU`, `it/s`, `s/epoch`; what a whole node does is not read."""
    unit = re.sub(r"((?:img|image|sample|token|tok|seq|example)s?)_(?:s|sec)$", r"\1_per_s", unit)
    unit = re.sub(r"^([km]?)(?:tps|tgs|ips|fps|sps|qps)(?=_|$)", r"\1_items_per_s", unit).removeprefix("_")
    bare = PER_GPU.sub("", f"_{unit}", count=1).strip("_")
    each = bare != unit or bool(PER_GPU.search(f"_{name}"))
    bare = re.sub(rf"^(?:{BEFORE}|throughput)_", "", bare)
    if found := DURATION.fullmatch(bare):
        return AuditColumn(header, "time", name, next(filter(None, found.groups()))) if not each or name in NAMES else None
    found = RATE.fullmatch(bare)
    if not found or NO_RATE.fullmatch(found.group(2)) or "per_node" in unit:
        of_one = bare == "throughput" or (not bare and _meaning(name) == "throughput")
        return AuditColumn(header, "throughput", name, each=True) if of_one and each and "node" not in unit else None
    many, work, time = found.groups()
    steps = bool(re.fullmatch(STEPS, work))
    per_s = MANY.get(many or "", 1.0) / SECONDS[time]
    return AuditColumn(header, "time" if steps else "throughput", name, scale=per_s, inverse=steps, each=each and not steps)


def header_name(text: str) -> str:
    """In small letters, `_` for everything else and `_per_` for `/`."""
    words = re.sub(r"[^a-zµ0-9]+", "_", text.lower().replace("/", " per ")).strip("_")
    return re.sub(r"^(the|n)_(?=gpus|nodes)", "", words) or words
