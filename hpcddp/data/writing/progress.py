"""How far something is, how fast it goes and how long it will take, as one line that is written anew, or as lines of a log."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TextIO

from hpcddp.core.text import duration

TERMINAL_EVERY_S = 0.2
LOG_EVERY_S = 30.0
"""In a job's log: a day of it is 2,880 lines."""

OnProgress = Callable[[int, int], None]
"""Called with how much is done, and how much there is: first with what was there already."""


def counted(done: int, total: int, on_progress: OnProgress) -> Callable[[int], None]:
    """What to call with each further amount that is done."""

    def advance(amount: int) -> None:
        nonlocal done
        done += amount
        on_progress(done, total)

    advance(0)
    return advance


class ProgressLine:
    """Called with (done, total), as often as one likes; writes to `out` now and then, and once all is done."""

    def __init__(self, unit: str, out: TextIO, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._rate = Rate(unit)
        self._out = out
        self._clock_s = clock_s
        self._on_terminal = out.isatty()
        self._every_s = TERMINAL_EVERY_S if self._on_terminal else LOG_EVERY_S
        self._next_s = self._clock_s()
        self._ended = False

    def __call__(self, done: int, total: int) -> None:
        now_s = self._clock_s()
        if self._ended or (now_s < self._next_s and done < total):
            return
        self._next_s, self._ended = now_s + self._every_s, done >= total
        line = self._rate.line(done, total, now_s)
        if self._on_terminal:
            self._out.write(f"\r\x1b[K{line}" + ("\n" if done >= total else ""))
        else:
            self._out.write(f"{line}\n")
        self._out.flush()


class Rate:
    """Of work that is done in amounts; what was there at the first call counts in no rate."""

    def __init__(self, unit: str) -> None:
        self._unit = unit
        self._begin: tuple[int, float] | None = None

    def line(self, done: int, total: int, now_s: float) -> str:
        """`1,200,000 of 7,200,000 samples (16 %), 280,000/s, 21 s left`; without a rate until there is one."""
        if self._begin is None:
            self._begin = (done, now_s)
        at_begin, begin_s = self._begin
        text = f"{done:,} of {total:,} {self._unit} ({100 * done // max(1, total)} %)"
        if done <= at_begin or now_s <= begin_s:
            return text
        per_s = (done - at_begin) / (now_s - begin_s)
        left = f", {duration((total - done) / per_s)} left" if done < total else ""
        return f"{text}, {_two_digits(per_s):,}/s{left}"


def _two_digits(rate: float) -> int | float:
    """Rounded to what a rate of a few seconds is good for."""
    if rate < 10:
        return round(rate, 1)
    power: int = 10 ** (len(str(int(rate))) - 2)
    return round(rate / power) * power
