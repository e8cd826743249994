"""Reads printed numbers as intervals: of every value that rounds, or is cut off, to the digits shown."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace

from hpcddp.analysis.util.wording import clock

BLANK = {"", "-", "\u2013", "\u2014", "n/a", "na", "nan", "none", "null", "?"}

SECONDS = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3}
SECONDS |= {"s": 1.0, "sec": 1.0, "secs": 1.0, "second": 1.0, "seconds": 1.0, "m": 60.0, "min": 60.0, "mins": 60.0}
SECONDS |= {"minute": 60.0, "minutes": 60.0, "h": 3600.0, "hr": 3600.0, "hrs": 3600.0, "hour": 3600.0, "hours": 3600.0}
SECONDS |= {"d": 86400.0, "day": 86400.0, "days": 86400.0}

CLOCK = re.compile(r"(?:(\d+)\s*(?:-|d|days?,?)\s*)?(\d+):(\d\d)(?::(\d\d(?:\.\d+)?))?")
WORDS = re.compile(r"(\d{1,3}(?:[\s']\d{3})+(?:\.\d+)?|\d[\d.,]*)\s*([a-z]+)\s*,?\s*")
SPREAD = re.compile(r"\s*(?:±|\+/?-).*")
PLAIN = re.compile(r"[+-]?\d+(?:\.\d*)?(?:e[+-]?\d+)?|[+-]?\.\d+", re.IGNORECASE)


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
    """A cell: its value in the column's unit (times: s), what it can stand for, and how it was printed."""

    value: float
    interval: Interval
    text: str
    digits: str
    """As printed, of the value alone: no spread, unit or point."""
    decimals: int = 0
    units: tuple[str, ...] = ()
    """As printed: `h`, `min`; `%`."""
    scale: float = 1.0
    """Value of one of the last unit, of the column's unit where none is printed."""
    clock: bool = False
    """Printed with colons."""
    inverse: bool = False
    """Printed as a rate: `2.5` it/s is a time of 0.4 s."""

    def __str__(self) -> str:
        return self.text


def is_blank(text: str) -> bool:
    """Whether a cell says that there is no value."""
    return text.strip().lower() in BLANK


def number(text: str, scale: float = 1.0) -> Number:
    """`1,200`, `0.95`, `95 %`, `1.9x`, `12.3 ± 0.4` (the spread is left out); ValueError says what is wrong."""
    bare = _without_spread(text, "x\u00d7%")
    unit = re.search(r"[x\u00d7%]$", bare, re.IGNORECASE)
    plain = plain_digits(bare[: unit.start()].rstrip() if unit else bare)
    if not PLAIN.fullmatch(plain):
        raise ValueError(f"`{text}` is not a number; write one value in each cell, such as 12.5")
    return _printed(plain, scale, text, (unit.group(),) if unit else ())


def _without_spread(text: str, units: str) -> str:
    """`12.3 ± 0.4 ms` -> `12.3 ms`: of a bare number, a unit of these letters that stands after its spread is its own."""
    bare = SPREAD.sub("", text.strip())
    unit = re.search(rf"[{units}]+$", text.strip(), re.IGNORECASE)
    return f"{bare} {unit.group()}" if unit and PLAIN.fullmatch(plain_digits(bare)) else bare


def plain_digits(text: str) -> str:
    """Without separators of thousands (1,200 or 1 200), and with a point for a decimal comma (0,95 or 0,950)."""
    if re.fullmatch(r"[1-9]\d{0,2}([,\s']\d{3})+(\.\d+)?", text):
        return re.sub(r"[,\s']", "", text)
    return text.replace(",", ".") if re.fullmatch(r"\d+,\d+", text) else text


def inverse(of: Number) -> Number:
    """The time per item, from items per second."""
    ends = of.interval
    return replace(of, value=1 / of.value, interval=Interval(1 / ends.high, 1 / ends.low, 1 / ends.best), inverse=True)


def seconds(text: str, unit: str | None = None) -> Number:
    """A time: `8521`, `8521 s`, `75 min`, `1h23m`, `m:ss`, `h:mm:ss`, `1-02:03:04`; `unit` is the column's."""
    bare = _without_spread(text.lower(), "a-z")
    if matched := CLOCK.fullmatch(bare):
        found = _clock(matched, text, unit)
    elif (words := WORDS.findall(bare)) and WORDS.sub("", bare) == "":
        found = _words(words, text)
    else:
        try:
            found = replace(number(bare, SECONDS.get(unit or "s", 1.0)), text=text.strip())
        except ValueError:
            raise ValueError(f"`{text}` is not a time; write seconds (8521), m:ss or h:mm:ss") from None
    if not math.isfinite(found.value) or found.value <= 0:
        raise ValueError(f"the time `{text}` is not above zero; leave the cell empty where there is none")
    return found


def _clock(matched: re.Match[str], text: str, unit: str | None) -> Number:
    days, first, second, third = matched.groups()
    if third is None and unit != "h:mm":
        hours, minutes, rest = 0, int(first), second
    else:
        hours, minutes, rest = int(first), int(second), third or "0"
    if float(rest) >= 60 or (hours and minutes >= 60) or (days and hours >= 24):
        raise ValueError(f"`{text}` is not a time of the clock: minutes and seconds go up to 59")
    decimals = len(rest.partition(".")[2])
    step = 60.0 if third is None and unit == "h:mm" else 10.0**-decimals
    value = 86400 * int(days or 0) + 3600 * hours + 60 * minutes + float(rest)
    return Number(value, _around(value, step), text.strip(), _digits(matched.group()), decimals, clock=True)


def _words(words: list[tuple[str, str]], text: str) -> Number:
    unknown = [name for _, name in words if name not in SECONDS]
    if unknown:
        raise ValueError(f"`{text}`: the unit `{unknown[0]}` is not known; use ms, s, min, h or d")
    ordered = sorted(words, key=lambda word: -SECONDS[word[1]])
    amounts, units = [plain_digits(amount) for amount, _ in ordered], tuple(name for _, name in ordered)
    if not all(map(PLAIN.fullmatch, amounts)):
        raise ValueError(f"`{text}` is not a time; write seconds (8521), m:ss or h:mm:ss")
    value = sum(float(amount) * SECONDS[name] for amount, name in zip(amounts, units, strict=True))
    decimals, scale = len(amounts[-1].partition(".")[2]), SECONDS[units[-1]]
    interval = _around(value, scale * 10.0**-decimals)
    return Number(value, interval, text.strip(), _digits("".join(amounts)), decimals, units=units, scale=scale)


def _printed(bare: str, scale: float, text: str, units: tuple[str, ...]) -> Number:
    digits, _, power = bare.lower().partition("e")
    decimals = len(digits.partition(".")[2]) - int(power or 0)
    value = float(bare) * scale
    if not math.isfinite(value) or -decimals > 300:
        raise ValueError(f"`{text}` is out of range")
    interval = _around(value, scale * 10.0**-decimals)
    return Number(value, interval, text.strip(), _digits(digits), max(0, decimals), units=units, scale=scale)


def _digits(text: str) -> str:
    return re.sub(r"\D", "", text)


def _around(value: float, step: float) -> Interval:
    """From half a step of the last digit below (it was rounded up) to one step above (it was cut off)."""
    return Interval(max(value - step / 2, value * 1e-3), value + step, value)


def print_like(value: float, shown: Number, more: int = 0) -> str:
    """`value` as `shown` is printed, with `more` decimals."""
    if shown.clock:
        return clock(value)
    value = 1 / value if shown.inverse else value
    decimals = shown.decimals + more
    parts, rest = [], round(value / shown.scale, decimals)
    for unit in shown.units[:-1]:
        quotient, rest = divmod(rest, SECONDS[unit] / shown.scale)
        parts.append(f"{quotient:.0f} {unit}")
    return " ".join([*parts, f"{rest:.{decimals}f}", *shown.units[-1:]])
