"""The headline of a study of keys: which values are best, against the base, and whether that is more than chance."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from hpcddp.analysis.study.axes import DEFAULTS, AxisPanel, AxisValue
from hpcddp.analysis.study.axis_words import fastest, is_surely_faster, times_words, too_few
from hpcddp.analysis.util.wording import quantity
from hpcddp.analysis.verdicts.context import Case, PointRow, listed
from hpcddp.analysis.verdicts.sentence import open_words

ORDER = "; not certain: values were measured one after the other, and drift of the machine looks the same"


def best_sentence(case: Case, doubts: Callable[[Sequence[PointRow]], list[str]]) -> str:
    """`Best: workers 8 trains 604 samples/s, 2.57 times (95 % 2.50-2.63) as fast as workers 0 (the default).`

    Empty where no two of the points that are shown are compared.
    """
    panels = [panel for axis in case.effects for panel in axis.panels]
    values = {_series(v): v for panel in panels for v in panel.values if _series(v) in case.names}
    if len(values) < 2:
        return ""
    known = [panel.p for panel in panels if panel.p is not None]
    points = replace(panels[0], values=tuple(values.values()), p=min(known, default=None))
    best, base = fastest(points.values), _base(panels, values)
    rows = [row for _, row in case.points.iterrows() if row["series"] in map(_series, filter(None, (best, base)))]
    end = open_words(rows, doubts) if known else too_few(points.values)
    return f"{_claim(case, points, best, base)}{end}{ORDER if points.in_blocks else ''}."


def _series(value: AxisValue) -> str:
    return str(value.point["series"])


def _base(panels: Sequence[AxisPanel], values: Mapping[str, AxisValue]) -> AxisValue | None:
    """The point that has the base of every key; None where there is no such point, or there are several."""
    others = {_series(value) for panel in panels for value in panel.values if panel.against_base(value)}
    found = [value for series, value in values.items() if series not in others]
    return found[0] if len(found) == 1 else None


def _claim(case: Case, points: AxisPanel, best: AxisValue, base: AxisValue | None) -> str:
    name, found = case.names[_series(best)], points.compared(best, base or best)
    named = f"{case.names[_series(base)]} ({_base_word(case, base)})" if base else ""
    if points.p is not None and not points.differs:
        fast = "no other value is faster" if best is base else f"the fastest, {name}, is {times_words(found)} as fast"
        said = f"{named} {_rate(base)}; {fast}" if base else f"the fastest, {name}, {_rate(best)}"
        return f"No measurable effect of {listed([axis.name for axis in case.effects])}: {said}"
    head = "Best" if points.is_sure else "Fastest in these runs"
    if best is base:
        return f"{head}: {named} {_rate(best)}; no other value is faster"
    against = f" as fast as {named}" if base else ""
    if base and points.is_sure and not is_surely_faster(found):
        return f"{head}: {name} {_rate(best)}, not measurably faster than {named}: {times_words(found)}"
    return f"{head}: {name} {_rate(best)}{f', {times_words(found)}{against}' if base else ''}"


def _rate(value: AxisValue) -> str:
    return f"{'loads' if value.point['input'] == 'io' else 'trains'} {quantity(value.rate)} samples/s"


def _base_word(case: Case, base: AxisValue) -> str:
    keys = json.loads(_series(base))
    varied = [key for axis in case.effects for key in (axis.key, *axis.joint)]
    return "the default" if all(keys.get(key) == DEFAULTS.get(key) for key in varied) else "the base"
