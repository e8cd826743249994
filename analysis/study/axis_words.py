"""What a key does at one size, in a sentence: where it stops paying, or that it does nothing."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

from hpcddp.analysis.study.axes import Axis, AxisPanel, AxisValue
from hpcddp.analysis.study.axis_significance import CHANCE, p_value
from hpcddp.analysis.study.effects import Ratio, ratio
from hpcddp.analysis.util.wording import percent
from hpcddp.core.repetitions import FEWEST
from hpcddp.core.text import count

PAYS = 0.05
"""A value pays where it is faster than a smaller one by more than this share; below that, and below what runs differ by, it does
not. As for a larger size in the sentence."""

HARDLY = 0.01
"""Less than this share is hardly anything, however surely it is there."""

WAITS_APART = 0.10
"""Shares of the step that differ by less say nothing about why."""


def effect_sentences(axis: Axis) -> list[str]:
    """One per panel."""
    return [effect_sentence(axis, panel) for panel in axis.panels]


def effect_sentence(axis: Axis, panel: AxisPanel) -> str:
    """`At 1x4 workers 8 is 3.90 times (95 % 3.85-3.95) as fast as 1; more does not pay: 16 is 1.01 times ... as fast as 8.`"""
    head = f"At {panel.where}, {axis.name}"
    p = _p_value(panel)
    if p is None:
        return f"{head} {_of_too_few(panel)}."
    if p > chance(axis):
        return f"{head} {_nothing(panel)}{_few(panel.values)}."
    medians = [_median(value) for value in panel.values]
    if max(medians) < (1 + HARDLY) * min(medians):
        return f"{head} hardly changes anything: {_extent(panel)}{_few(panel.values)}."
    found = "; ".join(_of_numbers(panel.values) if axis.ordered else _of_words(panel))
    return f"{head} {found}{_waiting(panel.values)}{_few(panel.values)}."


def chance(axis: Axis) -> float:
    """What a panel's p value may be: over all panels of a key, CHANCE says that it does something where it does nothing."""
    return CHANCE / len(axis.panels)


def does_something(axis: Axis, panel: AxisPanel) -> bool:
    """Whether its values differ by more than chance makes runs differ."""
    p = _p_value(panel)
    return p is not None and p <= chance(axis)


def is_known(panel: AxisPanel) -> bool:
    """Whether there are runs enough to tell an effect from chance."""
    return _p_value(panel) is not None


def _p_value(panel: AxisPanel) -> float | None:
    return p_value([[float(rate) for rate in value.rates] for value in panel.values])


def is_surely_faster(found: Ratio) -> bool:
    """By the 95 % interval, or, of fewer runs, every run than every other."""
    return found.low is not None and found.low > 1


def _of_too_few(panel: AxisPanel) -> str:
    slow, fast = min(panel.values, key=_median), max(panel.values, key=_median)
    how = f"{fast.text} is {_median(fast) / _median(slow):.2f} times as fast as {slow.text}"
    runs = min(len(value.rates) for value in panel.values)
    many = "one run" if runs == 1 else count(runs, "run")
    return f"{how}, by {many} each: `repeat: {FEWEST}` says whether that is more than chance"


def _nothing(panel: AxisPanel) -> str:
    """What was found, and what is not excluded."""
    return f"does nothing that shows: {_extent(panel)}"


def _extent(panel: AxisPanel) -> str:
    """`0.99-1.01 times as fast as 16 (95 % within 0.97-1.03)`"""
    against = [value.against_base for value in panel.values if value.against_base]
    ratios = sorted(each.ratio for each in against)
    low, high = f"{ratios[0]:.3f}", f"{ratios[-1]:.3f}"
    ends = [each for each in against if each.low is not None and each.high is not None]
    kind = next((each.kind for each in ends), None)
    least, most = min((each.low or 0 for each in ends), default=0), max((each.high or 0 for each in ends), default=0)
    spread = f" ({kind} {least:.3f}-{most:.3f})" if kind else ""
    return f"{low if low == high else f'{low}-{high}'} times as fast as {panel.values[panel.base].text}{spread}"


def stops_paying(values: Sequence[AxisValue]) -> int:
    """The first value that no other beats by PAYS and for sure."""
    return next(i for i, value in enumerate(values) if not any(pays(other, value) for other in values))


def pays(more: AxisValue, less: AxisValue) -> bool:
    """Whether it is faster by more than PAYS, and surely faster."""
    found = ratio(more.rates, less.rates)
    return found.ratio > 1 + PAYS and is_surely_faster(found)


def _of_numbers(values: Sequence[AxisValue]) -> Iterator[str]:
    """From the least value to where it stops paying, and from there to the largest."""
    at = stops_paying(values)
    first, best, last = values[0], values[at], values[-1]
    if at:
        yield _compared(best, first)
    if at == len(values) - 1:
        yield f"it still pays there: {_compared(last, values[-2])}" if len(values) > 2 else "larger values were not measured"
        return
    if pays(best, last):
        yield f"more costs: {_compared(last, best)}"
        return
    fastest = max(values[at + 1 :], key=_median)
    yield f"more than {best.text} does not pay: {_compared(fastest, best)}"
    if not at:
        yield f"no value is faster than {best.text} by {percent(PAYS)}"


def _of_words(panel: AxisPanel) -> Iterator[str]:
    """Each value against the base; those that are not surely different after those that are."""
    base = panel.values[panel.base]
    others = [(value, value.against_base) for value in panel.values if value.against_base]
    sure = [(value, found) for value, found in others if _differs(found)]
    unsure = [value.text for value, found in others if not _differs(found)]
    for value, found in sorted(sure, key=lambda pair: -pair[1].ratio):
        yield f"{value.text} is {times_words(found)} as fast as {base.text}"
    if unsure and sure:
        yield f"{', '.join(unsure)}: no difference from {base.text} that shows"
    if not sure:
        yield _compared(max(panel.values, key=_median), min(panel.values, key=_median))


def _differs(found: Ratio) -> bool:
    return is_surely_faster(found) or (found.high is not None and found.high < 1)


def _compared(value: AxisValue, base: AxisValue) -> str:
    return f"{value.text} is {times_words(ratio(value.rates, base.rates))} as fast as {base.text}"


def times_words(found: Ratio) -> str:
    """`3.90 times (95 % 3.85-3.95)`"""
    if found.low is None or found.high is None:
        return f"{found.ratio:.2f} times"
    digits = 2 if found.high - found.low >= 0.02 else 3
    return f"{found.ratio:.{digits}f} times ({found.kind} {found.low:.{digits}f}-{found.high:.{digits}f})"


def _waiting(values: Sequence[AxisValue]) -> str:
    known = [(value.data_wait_share, value.text) for value in values if value.data_wait_share is not None]
    if not known or max(known)[0] - min(known)[0] < WAITS_APART:
        return ""
    (least, at_least), (most, at_most) = min(known), max(known)
    return f"; the step waits for data for {percent(most)} at {at_most}, {percent(least)} at {at_least}"


def _few(values: Sequence[AxisValue]) -> str:
    """What is not certain for want of runs."""
    runs = {len(value.rates) for value in values}
    if min(runs) >= FEWEST:
        return ""
    return f"; not certain yet: {'only' if len(runs) == 1 else 'as few as'} {count(min(runs), 'run')} each"


def _median(value: AxisValue) -> float:
    return float(statistics.median(value.rates))
