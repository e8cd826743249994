"""What a key does at one size, in a sentence: where it stops paying, or that it has no measurable effect; which effects are more
than chance is judged over all comparisons of a study together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations, permutations

from hpcddp.analysis.study.axes import Axis, AxisPanel, AxisValue, axis_text
from hpcddp.analysis.study.effects import CHANCE, INTERVAL, Ratio, adjusted, interaction_p_value, p_value
from hpcddp.analysis.study.series import short_name
from hpcddp.analysis.util.wording import percent
from hpcddp.core.study_files import FEWEST
from hpcddp.core.text import count

HARDLY = 0.01
"""Less than this share is hardly anything, however surely it is there."""

Grid = list[tuple[AxisPanel, list[AxisValue]]]
"""Panels of a key that differ in another key alone, each with the values that all of them have."""


def judged_axes(found: Sequence[Axis]) -> list[Axis]:
    """A study's keys, with what may be claimed of them."""
    panels = [panel for axis in found for panel in axis.panels]
    grids = [(inner, outer, grid) for inner, outer in combinations(found, 2) for grid in _grids(inner, outer)]
    raw = [p_value([value.floats for value in panel.values]) for panel in panels]
    p = adjusted([*raw, *(interaction_p_value([[value.floats for value in row] for _, row in grid]) for *_, grid in grids)])
    of_panels = iter(p)
    with_p = [replace(axis, panels=tuple(replace(panel, p=next(of_panels)) for panel in axis.panels)) for axis in found]
    sure = [each for each, of_grid in zip(grids, of_panels, strict=True) if of_grid is not None and of_grid <= CHANCE]
    depends: dict[tuple[str, str], list[tuple[float, str]]] = {}
    for inner, outer, grid in sure:
        if not any(panel.in_blocks for panel, _ in grid):
            depends.setdefault((inner.key, outer.key), []).append(_interaction(inner, outer, grid))
    said = [(key, sentence) for (key, _), cases in depends.items() for times, sentence in [max(cases)] if times > 1 + HARDLY]
    return [replace(axis, interactions=tuple(text for key, text in said if key == axis.key)) for axis in with_p]


def _grids(inner: Axis, outer: Axis) -> Iterator[Grid]:
    """Two values of each key at least."""
    alike: dict[str, list[AxisPanel]] = {}
    for panel in inner.panels:
        if outer.name in panel.others:
            rest = {name: value for name, value in panel.others.items() if name not in _names(outer)}
            alike.setdefault(replace(panel, others=rest).where, []).append(panel)
    for group in alike.values():
        common = set.intersection(*({value.text for value in panel.values} for panel in group))
        if len(group) > 1 and len(common) > 1:
            yield [(panel, sorted((v for v in panel.values if v.text in common), key=lambda v: v.text)) for panel in group]


def _names(axis: Axis) -> set[str]:
    return {axis.name, *map(short_name, axis.joint)}


def _interaction(inner: Axis, outer: Axis, grid: Grid) -> tuple[float, str]:
    cases = [(*rows, *pair) for rows in permutations(grid, 2) for pair in permutations(range(len(grid[0][1])), 2)]
    gains = [(most[1][i].rate / most[1][j].rate, least[1][i].rate / least[1][j].rate) for most, least, i, j in cases]
    gain, less = max(gains, key=lambda pair: (round(pair[0] / pair[1], 9), pair[0]))
    most, least, i, j = cases[gains.index((gain, less))]
    at, other = (f"{outer.name} {axis_text(panel.others[outer.name])}" for panel, _ in (most, least))
    rest = {name: value for name, value in most[0].others.items() if name not in _names(outer)}
    return gain / less, (
        f"At {replace(most[0], others=rest).where}, {inner.name} {most[1][i].text} is {gain:.2f} times as fast as "
        f"{most[1][j].text} with {at}, and {less:.2f} times with {other}. These two keys depend on each other."
    )


PAYS = 0.05
"""A value pays where it is faster than a smaller one by more than this share; below that, and below what runs differ by, it does
not. As for a larger size in the sentence."""

WAITS_APART = 0.10
"""Shares of the step that differ by less say nothing about why."""

KEYS_AT_MOST = 4
"""Of which a sentence leads; the page has all sentences."""


def effect_sentences(axis: Axis) -> list[str]:
    """One per panel, then one per key on which the effect depends."""
    return [*(effect_sentence(axis, panel) for panel in axis.panels), *axis.interactions]


def leading_sentences(found: Sequence[Axis]) -> list[str]:
    """Of each key the largest size, and on what its effect depends; then how many sentences more there are."""
    shown = [effect_sentence(axis, axis.panels[-1]) for axis in found[:KEYS_AT_MOST]]
    more = sum(len(axis.panels) for axis in found) - len(shown)
    shown += [sentence for axis in found for sentence in axis.interactions]
    return [*shown, f"The page has {count(more, 'more comparison')}."] if more else shown


def effect_sentence(axis: Axis, panel: AxisPanel) -> str:
    """`At 1x4, workers 8 is 3.90 times (95 % 3.85-3.95) as fast as 1. Values above 8 gain too little: 16 is 1.01 times ...`"""
    head = f"At {panel.where}, {axis.name}"
    if panel.p is None:
        slow, fast = _slowest(panel.values), fastest(panel.values)
        ratio = f"{fast.rate / slow.rate:.2f}"
        return f"{head} {fast.text} is {ratio} times as fast as {slow.text}.{too_few(panel.values)}"
    end = f".{_few(panel.values)}{_order_warning(axis, panel)}"
    if not panel.differs:
        return f"{head} has no measurable effect: {_extent(panel)}{end}"
    if panel.in_blocks:
        return f"{head} {_compared(panel, fastest(panel.values), _slowest(panel.values))} in these runs{end}"
    if fastest(panel.values).rate < (1 + HARDLY) * _slowest(panel.values).rate:
        return f"{head} changes throughput by less than {percent(HARDLY)}: {_extent(panel)}{end}"
    found = ". ".join(_of_numbers(panel) if axis.ordered else _of_words(panel))
    return f"{head} {found}{_waiting(panel.values)}{end}"


def _order_warning(axis: Axis, panel: AxisPanel) -> str:
    if panel.in_blocks is None:
        return ""
    later, earlier = (f"{axis.name} {value.text}" for value in panel.in_blocks)
    return (
        f" This is not certain. All runs of {later} started after all runs of {earlier}, and drift of the machine "
        f"looks the same. Submit all values together into a new folder (`--runs`): each value then has its first run before "
        f"any has its second."
    )


def too_few(values: Sequence[AxisValue]) -> str:
    """` Each value has one run. Set `repeat: 6` ...`"""
    runs = {len(value.rates) for value in values}
    few = "one run" if min(runs) == 1 else count(min(runs), "run")
    each = f"Each value has {few}" if len(runs) == 1 else f"A value has {few} only"
    return f" {each}. Set `repeat: {FEWEST}` to see whether this is more than chance."


def _extent(panel: AxisPanel) -> str:
    """What was found, and what is not excluded: `throughput is 0.990-1.010 times that with 16 (95 % 0.970-1.030)`"""
    against = [found for value in panel.values if (found := panel.against_base(value))]
    low, high = (f"{pick(each.ratio for each in against):.3f}" for pick in (min, max))
    ends = f"{min(each.low or 0 for each in against):.3f}-{max(each.high or 0 for each in against):.3f}"
    middle = low if low == high else f"{low}-{high}"
    return f"throughput is {middle} times that with {panel.values[panel.base].text} ({INTERVAL} {ends})"


def stops_paying(panel: AxisPanel) -> int:
    """The first value that no other beats by PAYS and for sure."""
    values = panel.values
    return next(i for i, value in enumerate(values) if not any(pays(panel, other, value) for other in values))


def pays(panel: AxisPanel, more: AxisValue, less: AxisValue) -> bool:
    """Whether it is faster by more than PAYS, and surely faster."""
    return more.rate > (1 + PAYS) * less.rate and is_surely_faster(panel.compared(more, less))


def is_surely_faster(found: Ratio) -> bool:
    """By the 95 % interval, or, of fewer runs, every run than every other."""
    return found.low is not None and found.low > 1


def is_surely_slower(found: Ratio) -> bool:
    """The same."""
    return found.high is not None and found.high < 1


def _of_numbers(panel: AxisPanel) -> Iterator[str]:
    """From the least value to where it stops paying, from there to the largest, and what dips."""
    yield from _by_size(panel, stops_paying(panel))
    for before, value, after in _dips(panel):
        yield f"There is a dip: {_compared(panel, value, before)} and {_times(panel, value, after)}"


def _by_size(panel: AxisPanel, at: int) -> Iterator[str]:
    values = panel.values
    first, best, last = values[0], values[at], values[-1]
    standing = "the fastest" if best is fastest(values) else f"as fast as any, within {percent(PAYS)} or chance"
    yield _compared(panel, best, first) if at else f"{best.text} is {standing}"
    if at == len(values) - 1:
        still = f"The largest value is still faster: {_compared(panel, last, values[-2])}"
        yield still if pays(panel, last, values[-2]) and len(values) > 2 else "No larger value was measured"
    elif pays(panel, best, last):
        yield f"Larger values are slower: {_compared(panel, last, best)}"
    else:
        yield f"Values above {best.text} gain too little: {_compared(panel, fastest(values[at + 1 :]), best)}"


def _dips(panel: AxisPanel) -> Iterator[tuple[AxisValue, AxisValue, AxisValue]]:
    """Values that are surely slower than a smaller and a larger one, between the fastest of these: the lowest of each dip."""
    values = panel.values
    for i in range(1, len(values) - 1):
        before, value, after = fastest(values[:i]), values[i], fastest(values[i + 1 :])
        lowest = value.rate <= min(values[i - 1].rate, values[i + 1].rate)
        if lowest and all(is_surely_slower(panel.compared(value, each)) for each in (before, after)):
            yield before, value, after


def _of_words(panel: AxisPanel) -> Iterator[str]:
    """Each value against the base; those that are not surely different after those that are."""
    base = panel.values[panel.base]
    others = [(value, found) for value in panel.values if (found := panel.against_base(value))]
    sure = [(value, found) for value, found in others if is_surely_faster(found) or is_surely_slower(found)]
    unsure = [value.text for value, found in others if (value, found) not in sure]
    for i, (value, found) in enumerate(sorted(sure, key=lambda pair: -pair[1].ratio)):
        yield f"{'The value ' if i else ''}{value.text} is {times_words(found)} as fast as {base.text}"
    if unsure and sure:
        values, do = ("value", "does") if len(unsure) == 1 else ("values", "do")
        yield f"The {values} {', '.join(unsure)} {do} not differ measurably from {base.text}"
    if not sure:
        yield _compared(panel, fastest(panel.values), _slowest(panel.values))


def _compared(panel: AxisPanel, value: AxisValue, base: AxisValue) -> str:
    return f"{value.text} is {_times(panel, value, base)}"


def _times(panel: AxisPanel, value: AxisValue, base: AxisValue) -> str:
    return f"{times_words(panel.compared(value, base))} as fast as {base.text}"


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
    return f". Ranks wait for data during {percent(most)} of the step at {at_most}, and {percent(least)} at {at_least}"


def _few(values: Sequence[AxisValue]) -> str:
    runs = {len(value.rates) for value in values}
    if min(runs) >= FEWEST:
        return ""
    return f" This is not certain yet: {'only' if len(runs) == 1 else 'as few as'} {count(min(runs), 'run')} each."


def fastest(values: Sequence[AxisValue]) -> AxisValue:
    """By the median of its runs."""
    return max(values, key=lambda value: value.rate)


def _slowest(values: Sequence[AxisValue]) -> AxisValue:
    return min(values, key=lambda value: value.rate)
