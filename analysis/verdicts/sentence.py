"""What a study found, in one sentence per series that a newcomer understands and a reader can quote; of a study of keys, which
values are best."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from hpcddp.analysis.runs.run import Run
from hpcddp.analysis.study.axes import DEFAULTS, Axis, AxisPanel, AxisValue
from hpcddp.analysis.study.axis_words import fastest, is_surely_faster, times_words, too_few
from hpcddp.analysis.study.series import Apart, differing, full_names, value_text, with_values, words
from hpcddp.analysis.util.wording import percent, quantity, times, unit, units
from hpcddp.analysis.verdicts.context import Case, PointRow, data_wait, listed
from hpcddp.core.study_files import FEWEST
from hpcddp.core.text import count

AT_MOST = 4
"""Sentences before the table; the table has the series beyond that."""

GOOD = 0.9
"""Efficiency from which on the sentence names no cause."""

HARDLY = 0.05
"""Share by which a larger point must be faster than a smaller one; otherwise the sentence names the smaller one, too."""

COUNTED = {
    "batch/GPU": ("sample", "per GPU"),
    "global batch": ("sample", "per step"),
    "workers": ("loader worker", "per rank"),
    "cores/rank": ("core", "per rank"),
}
"""Name of what distinguishes series -> noun and unit: `64 samples per GPU`."""

Cause = Callable[["pd.Series[Any]"], str | None]
"""What holds a point back most, in words."""

Doubts = Callable[[Sequence["pd.Series[Any]"]], list[str]]
"""Why the numbers of these points are not certain, in words."""


def sentences(scaling: pd.DataFrame, apart: Apart, cause: Cause, doubts: Doubts) -> list[str]:
    """One per series with more than one layout (a single series gets its sentence anyway); `apart` says which is which."""
    series = [group for _, group in scaling.groupby("series", sort=False)]
    several = [group for group in series if len(group) > 1] or series[:1]
    shown = [
        sentence(group, cause, doubts, _which(apart[group["series"].iloc[0]]) if len(several) > 1 else "")
        for group in several[:AT_MOST]
    ]
    left = len(several) - len(shown)
    return [*shown, f"{left} more series: see the table."] if left else shown


def nothing_counts(runs: Sequence[Run]) -> list[str]:
    """The sentence where every run that is done was rejected; otherwise none."""
    done = [run for run in runs if run.state != "missing"]
    if not done or any(run.state == "counts" for run in done):
        return []
    rejected = "all are" if len(done) > 1 else "it is"
    return [f"No run counts: {count(len(done), 'run')} {'are' if len(done) > 1 else 'is'} done, and {rejected} rejected."]


def sentence(series: pd.DataFrame, cause: Cause = lambda _: None, doubts: Doubts = lambda _: [], which: str = "") -> str:
    """`16 nodes train 24.9 times as fast as one GPU, where 64 times would be perfect (39 % efficiency), held back most by ...`

    `which` begins it. The sentence also names a smaller point that is as fast, the cause where efficiency is low and the cause
    known, and what is not certain yet; numbers that are not certain have two digits.
    """
    largest = series.iloc[-1]
    bases = _bases(series, largest)
    open_ = open_words([largest, *bases], doubts)
    verb = "load" if largest["input"] == "io" else "train"
    subject = f"{which}{size_words(largest)} {verb}{'s' if largest['gpus'] == 1 else ''}"
    against = _comparisons(largest)
    if not against:
        return f"{_capital(subject)} {'about ' if open_ else ''}{quantity(largest['samples_per_s'])} samples/s{open_}."
    comparisons = ", and ".join(
        f"{_as_fast(speedup, bool(open_))} {base}{_perfect(share, perfect, i, _waits(largest, bases))}"
        for i, (base, speedup, share, perfect) in enumerate(against)
    )
    why = cause(largest) if min(share for _, _, share, _ in against) < GOOD else None
    return f"{_capital(subject)} {_no_faster(series)}{comparisons}{f', held back most by {why}' if why else ''}{open_}."


def _which(values: Mapping[str, Any]) -> str:
    """`With 64 samples per GPU and precision fp16, `: what distinguishes a series from the others."""
    words = [_phrase(name, value) for name, value in with_values(values).items()]
    return f"With {listed(words)}, " if words else ""


def _phrase(name: str, value: Any) -> str:
    if name in COUNTED:
        what, each = COUNTED[name]
        return f"{value_text(value)} {what}{'' if value == 1 else 's'} {each}"
    return words({name: value})


def open_words(rows: Sequence[pd.Series[Any]], doubts: Doubts) -> str:
    """`; not certain yet: 3 runs each and too few timed steps`, of a point and its baselines; nothing where all is well known."""
    numbers = {int(row["n"]) for row in rows}
    few = f"{'only' if len(numbers) == 1 else 'as few as'} {count(min(numbers), 'run')}"
    each = " each" if len(numbers) == 1 < len(rows) else ""
    found = [*([f"{few}{each}"] if min(numbers) < FEWEST else []), *doubts(rows)]
    if len(found) > 3:
        found = [*found[:2], f"{len(found) - 2} more reasons among the verdicts"]
    return f"; not certain yet: {listed(found)}" if found else ""


def _bases(series: pd.DataFrame, point: pd.Series[Any]) -> list[pd.Series[Any]]:
    sizes = {1, int(point["full_node_gpus"])}
    return [row for _, row in series.iloc[:-1].iterrows() if row["nodes"] == 1 and row["gpus_per_node"] in sizes]


def _as_fast(speedup: float, vague: bool) -> str:
    if not vague:
        return f"{times(speedup)} times as fast as"
    rounded = f"{speedup:.{int(speedup < 9.95)}f}"
    return "about as fast as" if rounded == "1.0" else f"about {rounded} times as fast as"


def _waits(point: pd.Series[Any], bases: Sequence[pd.Series[Any]]) -> str:
    """`, while ranks wait for data for 33 % of the step, one GPU for 40 %`: an efficiency may be relative to a starved loop."""
    own = data_wait(point)
    others = [f"{size_words(base)} for {percent(share)}" for base in bases if (share := data_wait(base)) is not None]
    if own is None:
        return f", relative to a baseline that waits for data: {listed(others)} of the step" if others else ""
    return f", while ranks wait for data for {percent(own)} of the step{f', {listed(others)}' if others else ''}"


def _perfect(share: float, perfect: float, index: int, waits: str) -> str:
    """What the speedup would be with perfect scaling, unless it is close to that; only beside the first comparison."""
    if index:
        return f" ({percent(share)})"
    ideal = "" if GOOD <= share <= 2 - GOOD else f", where {perfect:.3g} times would be perfect"
    return f"{ideal} ({percent(share)} efficiency{waits})"


def _no_faster(series: pd.DataFrame) -> str:
    """`no faster than 2 ranks: `, of the smallest point that is about as fast as the largest, but for one GPU."""
    largest = series.iloc[-1]
    for _, row in series.iloc[:-1].iterrows():
        gain = largest["samples_per_s"] / row["samples_per_s"] - 1
        if 1 < row["gpus"] < largest["gpus"] and gain <= HARDLY:
            return f"{'no' if gain <= 0 else 'hardly'} faster than {size_words(row)}: "
    return ""


def size_words(point: pd.Series[Any]) -> str:
    """`one GPU`, `4 GPUs`, `16 nodes`, `2 nodes with one GPU each`"""
    each, device = int(point["gpus_per_node"]), point["device"]
    if point["nodes"] == 1:
        return units(each, device)
    alike = each == point["full_node_gpus"] and each > 1
    return f"{point['nodes']} nodes" if alike else f"{point['nodes']} nodes with {units(each, device)} each"


def _comparisons(point: pd.Series[Any]) -> list[tuple[str, float, float, float]]:
    """Baseline in words, speedup, efficiency, perfect speedup; a baseline that is the point itself or the other one again is
    left out.
    """
    found = []
    if pd.notna(point["speedup_1gpu"]) and point["gpus"] > 1:
        found.append((f"one {unit(point['device'])}", point["speedup_1gpu"], point["efficiency_1gpu"], point["gpus"]))
    if pd.notna(point["speedup_1node"]) and point["nodes"] > 1 and point["full_node_gpus"] > 1:
        nodes = point["gpus"] / point["full_node_gpus"]
        found.append(("one node", point["speedup_1node"], point["efficiency_1node"], nodes))
    return found


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


HEADS = {
    False: ("Best", "Fastest in these runs", "No"),
    True: ("Fastest loader", "Fastest loader in these runs", "Fastest loader: no"),
}
"""Of training and of loading alone: what is for sure, what is not, and where no value has an effect."""

ORDER = "; not certain: values were measured one after the other, and drift of the machine looks the same"


def best_sentence(case: Case, doubts: Doubts) -> str:
    """`Best: workers 8 trains 604 samples/s, 2.57 times (95 % 2.50-2.63) as fast as workers 0 (the default).`

    Empty where no two of the points that are shown are compared.
    """
    return _best_of(case, case.points, case.names, doubts)


def loader_sentence(case: Case, doubts: Doubts) -> str:
    """`Fastest loader: workers 0 loads 7 330 samples/s, ...`, of points that only load, at the largest layout that has several;
    empty where there is none."""
    several = [rows for _, rows in case.loading.groupby(["nodes", "gpus_per_node"]) if len(rows) > 1]
    return _best_of(case, several[-1], full_names(differing(several[-1]["series"])), doubts) if several else ""


def _best_of(case: Case, rows: pd.DataFrame, names: Mapping[str, str], doubts: Doubts) -> str:
    """Of rows of one size, with the names of their series."""
    size = rows.iloc[0]
    axes = [replace(axis, panels=tuple(panel for panel in axis.panels if _is_among(panel, size, names))) for axis in case.effects]
    axes = [axis for axis in axes if axis.panels]
    panels = [panel for axis in axes for panel in axis.panels]
    values = {_series(value): value for panel in panels for value in panel.values}
    if len(values) < 2:
        return ""
    known = [panel.p for panel in panels if panel.p is not None]
    points = replace(panels[0], values=tuple(values.values()), p=min(known, default=None))
    best, base = fastest(points.values), _base(panels, values)
    compared = [row for _, row in rows.iterrows() if row["series"] in map(_series, filter(None, (best, base)))]
    end = open_words(compared, doubts) if known else too_few(points.values)
    return f"{_claim(names, axes, points, best, base)}{end}{ORDER if points.in_blocks else ''}."


def _is_among(panel: AxisPanel, size: PointRow, names: Mapping[str, str]) -> bool:
    is_alike = (panel.nodes, panel.gpus_per_node) == (size["nodes"], size["gpus_per_node"])
    return is_alike and all(_series(value) in names for value in panel.values)


def _series(value: AxisValue) -> str:
    return str(value.point["series"])


def _base(panels: Sequence[AxisPanel], values: Mapping[str, AxisValue]) -> AxisValue | None:
    """The point that has the base of every key; None where there is no such point, or there are several."""
    others = {_series(value) for panel in panels for value in panel.values if panel.against_base(value)}
    found = [value for series, value in values.items() if series not in others]
    return found[0] if len(found) == 1 else None


def _claim(names: Mapping[str, str], axes: Sequence[Axis], points: AxisPanel, best: AxisValue, base: AxisValue | None) -> str:
    name, found = names[_series(best)], points.compared(best, base or best)
    named = f"{names[_series(base)]} ({_base_word(axes, base)})" if base else ""
    sure, unsure, without = HEADS[_loads(best)]
    if points.p is not None and not points.differs:
        fast = "no other value is faster" if best is base else f"the fastest, {name}, is {times_words(found)} as fast"
        said = f"{named} {_rate(base)}; {fast}" if base else f"the fastest, {name}, {_rate(best)}"
        return f"{without} measurable effect of {listed([axis.name for axis in axes])}: {said}"
    head = sure if points.is_sure else unsure
    if best is base:
        return f"{head}: {named} {_rate(best)}; no other value is faster"
    against = f" as fast as {named}" if base else ""
    if base and points.is_sure and not is_surely_faster(found):
        return f"{head}: {name} {_rate(best)}, not measurably faster than {named}: {times_words(found)}"
    return f"{head}: {name} {_rate(best)}{f', {times_words(found)}{against}' if base else ''}"


def _loads(value: AxisValue) -> bool:
    return bool(value.point["input"] == "io")


def _rate(value: AxisValue) -> str:
    return f"{'loads' if _loads(value) else 'trains'} {quantity(value.rate)} samples/s"


def _base_word(axes: Sequence[Axis], base: AxisValue) -> str:
    keys = json.loads(_series(base))
    varied = [key for axis in axes for key in (axis.key, *axis.joint)]
    return "the default" if all(keys.get(key) == DEFAULTS.get(key) for key in varied) else "the base"
