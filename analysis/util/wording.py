"""Numbers and units as a reader sees them, the same in the sentence, the tables and the figures."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from itertools import takewhile

from hpcddp.core.text import count, thousands

WIDE = 100
"""Characters of a line where no terminal says how many it has room for."""


def unit(device: str) -> str:
    """What is counted: `GPU`, on CPUs `rank`."""
    return "rank" if device == "cpu" else "GPU"


def units(count: int, device: str) -> str:
    """`one GPU`, `4 ranks`"""
    return f"one {unit(device)}" if count == 1 else f"{count} {unit(device)}s"


def quantity(value: float) -> str:
    """Three or four digits that count, thousands apart: 0.0123, 4.56, 78.9, 1,180."""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else "-"
    decimals = max(0, 2 - math.floor(math.log10(abs(value))))
    return thousands(value, decimals)


def times(speedup: float) -> str:
    """24.9, 3.74"""
    return f"{speedup:.1f}" if speedup >= 9.995 else f"{speedup:.2f}"


def percent(share: float) -> str:
    """`39 %`"""
    return f"{100 * share:.0f} %"


def percents(low: float, high: float, dash: str = "-") -> str:
    """The ends of a share without the sign: `38-41`; `38.6-39.2` where whole ones would be too close to tell."""
    decimals = _decimals(low, high)
    return f"{100 * low:.{decimals}f}{dash}{100 * high:.{decimals}f}"


def percent_within(share: float, low: float | None, high: float | None) -> str:
    """`39 %`, and `38.9 %` beside ends like these: a share that is rounded more than its interval may lie outside of it."""
    return percent(share) if low is None or high is None else f"{100 * share:.{_decimals(low, high)}f} %"


def _decimals(low: float, high: float) -> int:
    return 0 if 100 * (high - low) >= 2 else 1


def accuracy_words(share: float, correct: float, samples: int) -> str:
    """`97.22 % (9,722 of 10,000)`; the median of two runs may be half a sample: `(9,722.5 of 10,000)`."""
    return f"{100 * share:.2f} % ({thousands(correct, int(correct % 1 > 0))} of {thousands(samples)})"


def points(share: float, sign: str = "") -> str:
    """A difference of two accuracies in percentage points: `0.32`, with `sign` `+` always signed."""
    return f"{100 * share:{sign}.2f}".replace("-0.00", "0.00")


def time_words(seconds: float) -> str:
    """`57:46`, `1:02:03`; below a minute `12.3 s`."""
    return f"{quantity(seconds)} s" if seconds < 59.95 else clock(seconds)


def capital(text: str) -> str:
    """With a capital, unless a name with digits, dots or the like begins it: `r2 of ...`, `a/point.json`."""
    return text[:1].upper() + text[1:] if re.match(r"[a-z]+([-/][a-z]+)*(?=[ ,:]|$)", text) else text


def as_sentences(text: str) -> str:
    """Clauses between semicolons, each as a sentence."""
    return f"{'. '.join(map(capital, text.split('; ')))}."


def more_runs(runs: int, words: str) -> str:
    """Than the one that is named, in these words: ` The same holds for {}.`; empty where it is the only one."""
    return words.format(count(runs - 1, "more run")) if runs > 1 else ""


def effort(seconds: float, epochs: float) -> str:
    """`57:46 (12 epochs)`; medians, so that epochs may be half ones."""
    return f"{time_words(seconds)} ({epochs:g} epoch{'' if epochs == 1 else 's'})"


def clock(seconds: float) -> str:
    """`1:02:03`, below an hour `2:03`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def shortened(texts: Sequence[str], letters: int) -> list[str]:
    """Cut to so many letters, but different where they were: how they begin, or go on from where they differ; or as is."""
    alike = takewhile(lambda pair: pair[0] == pair[1], zip(min(texts), max(texts), strict=False))
    begun = len(re.sub(r"\w*$", "", "".join(letter for letter, _ in alike)))
    cuts = ([text[start:][:letters] for text in texts] for start in (0, begun))
    return next((cut for cut in cuts if len(set(cut)) == len(set(texts))), list(texts))
