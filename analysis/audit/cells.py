"""Reads cells: numbers as intervals, of every value that rounds, or is cut off, to the digits shown; sizes out of words."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace

from hpcddp.analysis.util.wording import clock

BLANK = re.compile(
    r"[-\u2013\u2014?.]*|[-\u2013\u2014]+\s.*|"
    r"(?:n\.?/?a\.?|nan|none|null|tbd|todo|oom|out of memory|fail(?:ed|s)?|crash(?:ed)?|timeout)(?:\W.*)?"
)
SPREAD = re.compile(r"\s*(?:±|\+/?-).*?(?=\s*[a-zµ%x×]|$)", re.IGNORECASE)
SPACES = "\u00a0\u2009\u202f'\u2019_ "
DIGITS = re.compile(rf"([+-]?(?:\d[\d,.{SPACES}]*\d|\d|\.\d+)\.?(?:e[+-]?\d+)?)\s*(.*)", re.IGNORECASE)
PLAIN = re.compile(r"[+-]?\d+(?:\.\d*)?(?:e[+-]?\d+)?|[+-]?\.\d+", re.IGNORECASE)
MANY = {"k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "B": 1e9}

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
