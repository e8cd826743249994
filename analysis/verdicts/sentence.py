"""What a study found, in a sentence per series that a newcomer understands and a reader can quote; of keys, the best values."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from hpcddp.analysis.runs.run import Run
from hpcddp.analysis.study.accuracy import GIVEN, Gap, gap, same_training
from hpcddp.analysis.study.axes import DEFAULTS, Axis, AxisPanel, AxisValue
from hpcddp.analysis.study.axis_words import fastest, is_surely_faster, times_words, too_few
from hpcddp.analysis.study.series import Apart, differing, full_names, value_text, with_values, words
from hpcddp.analysis.util.wording import accuracy_words, capital, effort, percent, points, quantity, times, unit, units
from hpcddp.analysis.verdicts.context import Case, PointRow, data_wait, listed
from hpcddp.analysis.verdicts.gates import done_for_nothing
from hpcddp.core.study_files import FEWEST
from hpcddp.core.text import count, thousands

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
    several = ends(scaling)["series"]
    which = {key: _which(apart[key]) if len(several) > 1 else "" for key in several[:AT_MOST]}
    shown = [sentence(scaling[scaling["series"] == key], cause, doubts, words) for key, words in which.items()]
    left = len(several) - len(shown)
    return [*shown, f"The table has {left} more series."] if left else shown


def none_counts_sentence(runs: Sequence[Run]) -> list[str]:
    """The sentence where every run that is done was rejected; otherwise none."""
    done = len(done_for_nothing(runs))
    are = "are done, and all are" if done > 1 else "is done, and it is"
    return [f"No run passed all checks: {count(done, 'run')} {are} rejected."] if done else []


HEADING_WORDS, HEADING_LETTERS = 12, 90
"""What a heading has at most."""


def heading(case: Case, doubts: Doubts) -> str:
    """The finding in a few words: of its forms the first that is short enough. The sentences have what it leaves out."""
    rejected = len(done_for_nothing(case.records.runs))
    forms = [f"Every run was rejected: {rejected} of {rejected}"] if rejected else _headings(case, doubts)
    short = (form for form in forms if len(form.split()) <= HEADING_WORDS and len(form) <= HEADING_LETTERS)
    return next(short, "Nothing was measured")


def _headings(case: Case, doubts: Doubts) -> Iterator[str]:
    rows = [row for _, row in ends(case.points).iterrows()]
    found = [(row, *against[0]) for row in rows if (against := _comparisons(row))]
    verb = "load" if rows and rows[0]["input"] == "io" else "train"
    if case.is_of_keys and (values := _compared_values(case, case.points, case.names)):
        yield from _best_headings(case.names, *values)
    elif len(found) > 1:
        yield from _several_headings(case.names, [(row, share) for row, _, _, share, _ in found])
    elif found:
        largest, base, speedup, share, size = found[0]
        series = case.points[case.points["series"] == largest["series"]]
        one, efficiency = base.removeprefix("one "), f"{percent(share)} efficiency"
        open_ = open_words([largest, *_bases(series)], doubts)
        if smaller := _no_faster(series):
            yield f"{size_words(largest)} {verb} {smaller}{efficiency}"
        fast = _as_fast(speedup, bool(open_))
        yield f"{size:.3g} {one}s {verb} {fast} one: {efficiency}"
        yield f"{size:.3g} {one}s reach {fast.removesuffix(' as fast as')} one {one}'s rate: {efficiency}"
    elif rows:
        rates = sorted(row["samples_per_s"] for row in rows)
        verb += "s" if max(row["gpus"] for row in rows) == 1 else ""
        yield f"{sizes_words(rows)} {verb} {' to '.join(dict.fromkeys(map(quantity, (rates[0], rates[-1]))))} samples/s"
    elif len(fits := case.fits[case.fits["op"] == "all_reduce"]):
        largest = fits.sort_values("ranks", kind="stable").iloc[-1]
        rate = quantity(largest["largest_busbw_bytes_per_s"] / 1e9)
        yield f"{largest['layout']}: {rate} GB/s of bus bandwidth in all-reduces"


def ends(scaling: pd.DataFrame) -> pd.DataFrame:
    """The largest point of each series with more than one layout; where there is none, of the first series."""
    last = scaling.groupby("series", sort=False).tail(1)
    several = scaling["series"].duplicated(keep=False)
    return last[several[last.index]] if several.any() else last[:1]


def sizes_words(rows: Sequence[pd.Series[Any]]) -> str:
    """Each size once."""
    return listed([*dict.fromkeys(size_words(row) for row in rows)])


def _several_headings(names: Mapping[str, str], found: Sequence[tuple[pd.Series[Any], float]]) -> Iterator[str]:
    (least, low), *_, (best, high) = sorted(found, key=lambda pair: pair[1])
    shares = [*dict.fromkeys((percent(low), percent(high)))]
    if len(shares) > 1:
        yield f"{shares[1]} efficiency with {names[best['series']]}; {shares[0]} with {names[least['series']]}"
    span = f"{len(found)} series: {' to '.join(shares)} efficiency"
    yield f"{span} on {sizes_words([row for row, _ in found])}"
    yield span


def _best_headings(
    names: Mapping[str, str], axes: Sequence[Axis], points: AxisPanel, best: AxisValue, base: AxisValue | None
) -> Iterator[str]:
    if points.p is not None and not points.differs:
        yield f"No measurable effect of {listed([axis.name for axis in axes]) if len(axes) < 4 else f'{len(axes)} keys'}"
    sure, unsure, _ = HEADS[bool(best.point["input"] == "io")]
    head = f"{sure if points.is_sure else unsure}: {names[_series(best)]}"
    if base:
        found, word = points.compared(best, base), _base_word(axes, base)
        is_faster = is_surely_faster(found) or not points.is_sure
        ratio = f"{times(found.ratio)} times {word}'s rate" if is_faster else f"not measurably faster than {word}"
        yield f"{head}, {word if base is best else ratio}"
    yield head
    yield f"Fastest of {len(points.values)} combinations: {quantity(best.rate)} samples/s"


def sentence(series: pd.DataFrame, cause: Cause = lambda _: None, doubts: Doubts = lambda _: [], which: str = "") -> str:
    """`16 nodes train 24.9 times as fast as one GPU (39 % efficiency). Perfect scaling would be 64 times. The main limit is ...`,
    of the series `which`; with a smaller point that is as fast, and what is not certain yet: such numbers have two digits."""
    largest, bases = series.iloc[-1], _bases(series)
    open_ = open_words([largest, *bases], doubts)
    verb = "load" if largest["input"] == "io" else "train"
    subject = capital(f"{size_words(largest)}{which} {verb}{'s' if largest['gpus'] == 1 else ''}")
    against = _comparisons(largest)
    if not against:
        return f"{subject} {'about ' if open_ else ''}{quantity(largest['samples_per_s'])} samples/s.{open_}"
    found = [f"{_as_fast(speedup, bool(open_))} {base} ({percent(share)} efficiency)." for base, speedup, share, _ in against]
    _, _, share, perfect = against[0]
    ideal = "" if GOOD <= share <= 2 - GOOD else f" Perfect scaling would be {perfect:.3g} times."
    why = cause(largest) if min(share for _, _, share, _ in against) < GOOD else None
    limit = f" The main limit is {why}." if why else ""
    more = "".join(f" They {verb} {each}" for each in found[1:])
    smaller = _no_faster(series).replace(": ", f". They {verb} ")
    return f"{subject} {smaller}{found[0]}{ideal}{more}{_waits(largest, bases)}{limit}{open_}"


def _bases(series: pd.DataFrame) -> list[pd.Series[Any]]:
    """What the largest point is compared with."""
    sizes = {1, int(series["full_node_gpus"].iloc[-1])}
    return [row for _, row in series.iloc[:-1].iterrows() if row["nodes"] == 1 and row["gpus_per_node"] in sizes]


def _which(values: Mapping[str, Any]) -> str:
    """` (64 samples per GPU and precision fp16)`: what distinguishes a series from the others."""

    def phrase(name: str, value: Any) -> str:
        if name not in COUNTED:
            return words({name: value})
        what, each = COUNTED[name]
        return f"{value_text(value)} {what}{'' if value == 1 else 's'} {each}"

    found = [phrase(name, value) for name, value in with_values(values).items()]
    return f" ({listed(found)})" if found else ""


def open_words(rows: Sequence[pd.Series[Any]], doubts: Doubts) -> str:
    """` This is not certain yet: 3 runs each and too few timed steps.`, of a point and its baselines; or nothing."""
    numbers = {int(row["n"]) for row in rows}
    few = f"{'only' if len(numbers) == 1 else 'as few as'} {count(min(numbers), 'run')}"
    each = " each" if len(numbers) == 1 < len(rows) else ""
    found = [*([f"{few}{each}"] if min(numbers) < FEWEST else []), *doubts(rows)]
    if len(found) > 3:
        found = [*found[:2], f"{len(found) - 2} more reasons among the verdicts"]
    return f" This is not certain yet: {listed(found)}." if found else ""


def _as_fast(speedup: float, vague: bool) -> str:
    if not vague:
        return f"{times(speedup)} times as fast as"
    rounded = f"{speedup:.{int(speedup < 9.95)}f}"
    return "about as fast as" if rounded == "1.0" else f"about {rounded} times as fast as"


def _waits(point: pd.Series[Any], bases: Sequence[pd.Series[Any]]) -> str:
    """` Ranks wait for data during 33 % of the step, those of one GPU during 40 %.`: efficiency may be that of a starved loop."""
    own = data_wait(point)
    others = [f"{size_words(base)} during {percent(share)}" for base in bases if (share := data_wait(base)) is not None]
    if own is None:
        return f" The baseline waits for data: {listed(others)} of the step." if others else ""
    return f" Ranks wait for data during {percent(own)} of the step{f', with {listed(others)}' if others else ''}."


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
    """Baseline in words, speedup, efficiency, perfect speedup; without the point itself, or the other baseline again."""
    found = []
    if pd.notna(point["speedup_1gpu"]) and point["gpus"] > 1:
        found.append((f"one {unit(point['device'])}", point["speedup_1gpu"], point["efficiency_1gpu"], point["gpus"]))
    if pd.notna(point["speedup_1node"]) and point["nodes"] > 1 and point["full_node_gpus"] > 1:
        nodes = point["gpus"] / point["full_node_gpus"]
        found.append(("one node", point["speedup_1node"], point["efficiency_1node"], nodes))
    return found


HEADS = {
    False: ("Best", "Fastest in these runs", "training"),
    True: ("Fastest loader", "Fastest loader in these runs", "loading"),
}
"""Of training and of loading alone: what is for sure, what is not, and on what values have an effect."""

ORDER = " This is not certain: each value had its runs in a row, and drift of the machine looks the same."


def loader_sentence(case: Case, doubts: Doubts) -> str:
    """The same of points that only load, at the largest layout that has several; empty where there is none."""
    several = [rows for _, rows in case.loading.groupby(["nodes", "gpus_per_node"]) if len(rows) > 1]
    return best_sentence(case, several[-1], full_names(differing(several[-1]["series"])), doubts) if several else ""


def best_sentence(case: Case, rows: pd.DataFrame, names: Mapping[str, str], doubts: Doubts) -> str:
    """`Best: workers 8 with 604 samples/s, 2.57 times (95 % 2.50-2.63) that of workers 0 (the default).`, of rows of one size,
    with the names of their series; empty where no two of them are compared."""
    if (found := _compared_values(case, rows, names)) is None:
        return ""
    axes, points, best, base = found
    compared = [row for _, row in rows.iterrows() if row["series"] in map(_series, filter(None, (best, base)))]
    end = too_few(points.values) if points.p is None else open_words(compared, doubts)
    return f"{_claim(names, axes, points, best, base)}.{end}{ORDER if points.in_blocks else ''}"


Compared = tuple[Sequence[Axis], AxisPanel, AxisValue, AxisValue | None]
"""Keys, all values of them at one size beside each other, the fastest of these, and the base."""


def _compared_values(case: Case, rows: pd.DataFrame, names: Mapping[str, str]) -> Compared | None:
    size = rows.iloc[0]
    axes = [replace(axis, panels=tuple(panel for panel in axis.panels if _is_among(panel, size, names))) for axis in case.effects]
    axes = [axis for axis in axes if axis.panels]
    panels = [panel for axis in axes for panel in axis.panels]
    values = {_series(value): value for panel in panels for value in panel.values}
    if len(values) < 2:
        return None
    known = [panel.p for panel in panels if panel.p is not None]
    points = replace(panels[0], values=tuple(values.values()), p=min(known, default=None))
    return axes, points, fastest(points.values), _base(panels, values)


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
    sure, unsure, work = HEADS[bool(best.point["input"] == "io")]
    rate = f"{quantity(best.rate)} samples/s"
    if points.p is not None and not points.differs:
        fast = "No other value is faster" if best is base else f"The fastest value, {name}, is {times_words(found)} as fast"
        reach = f"The rate is {quantity(base.rate)} samples/s with {named}. {fast}" if base else f"{name} is fastest with {rate}"
        return f"No effect of {listed([axis.name for axis in axes])} on {work} is measurable. {reach}"
    head = sure if points.is_sure else unsure
    if best is base:
        return f"{head}: {named} with {rate}. No other value is faster"
    if base and points.is_sure and not is_surely_faster(found):
        return f"{head}: {name} with {rate}. It is not measurably faster than {named}: {times_words(found)}"
    return f"{head}: {name} with {rate}{f', {times_words(found)} that of {named}' if base else ''}"


def _base_word(axes: Sequence[Axis], base: AxisValue) -> str:
    keys = json.loads(_series(base))
    varied = [key for axis in axes for key in (axis.key, *axis.joint)]
    return "the default" if all(keys.get(key) == DEFAULTS.get(key) for key in varied) else "the base"


NO_GAP = "not measurably different"


def accuracy_sentences(case: Case) -> list[str]:
    """Of each series that has its own sentence the smallest and the largest point; of keys the least and most accurate value."""
    series = case.series if case.is_of_keys else case.several
    found = [(name, rows) for name, each in series if len(rows := each[each["accuracy"].notna()])]
    if case.is_of_keys and len(found) > 1:
        found.sort(key=lambda pair: float(pair[1]["accuracy"].iloc[0]))
        found = [(f"{found[i][0]}, the {end} of {len(found)}", found[i][1]) for i, end in ((0, "lowest"), (-1, "highest"))]
    return [_sentence(case, name, rows) for name, rows in found][:AT_MOST]


def _sentence(case: Case, name: str, rows: pd.DataFrame) -> str:
    def accuracy(row: PointRow) -> str:
        return accuracy_words(row["accuracy"], row["eval_correct"], int(row["eval_samples"]))

    first, last = rows.iloc[0], rows.iloc[-1]
    which = f" ({name})" if name else ""
    if len(rows) == 1:
        return f"Accuracy{which} is {accuracy(last)} with {size_words(last)}{_after(last)}. {_spread(last)}{_loss(last)}"
    both = [case.evaluated(row) for row in (first, last)]
    if None in both or not same_training(*filter(None, both)):
        texts = [f"{accuracy(row)} with {size_words(row)}{_after(row)}." for row in (first, last)]
        unlike = "These are not ranked, because they follow different numbers of training samples."
        return f"Accuracy{which} is {texts[0]} It is {texts[1]} {unlike}{_loss(last)}"
    texts = [f"{accuracy(row)} with {size_words(row)}" for row in (first, last)]
    small, large = filter(None, both)
    words = gap_words(gap(large.shares, small.shares))
    apart = f"The second is {words}." if words else "Each comes from one run."
    return f"Accuracy{which} is {texts[0]} and {texts[1]},{_after(last)}. {apart}{_loss(last)}"


def gap_words(found: Gap) -> str:
    """`0.32 points lower (95 % -0.50 to -0.14)`; nothing of two single runs, whose chance nobody knows."""
    if found.low is None or found.high is None:
        return ""
    way = "higher" if found.gap > 0 else "lower"
    apart = NO_GAP if found.differs is False or not found.gap else f"{points(abs(found.gap))} points {way}"
    unit = " points" if apart == NO_GAP else ""
    return f"{apart} ({found.kind} {points(found.low, '+')} to {points(found.high, '+')}{unit})"


def _spread(row: pd.Series[Any]) -> str:
    if pd.isna(row["accuracy_low"]):
        return "It comes from one run."
    ends = f"{points(row['accuracy_low'])} to {points(row['accuracy_high'])}"
    return f"It is the median of {count(int(row['eval_n']), 'run')} ({row['accuracy_interval']} {ends})."


def _after(row: pd.Series[Any]) -> str:
    """` after 640,000 samples`; nothing where that is not known."""
    if pd.isna(row["samples_trained"]):
        return ""
    most = "" if pd.isna(row["samples_trained_most"]) else f" to {thousands(int(row['samples_trained_most']))}"
    return f" after {thousands(int(row['samples_trained']))}{most} samples"


def _loss(row: pd.Series[Any]) -> str:
    if pd.isna(row["loss_start"]) or pd.isna(row["loss_end"]):
        return ""
    steps = int(row["loss_steps"])
    over = "in the first and last step" if steps == 1 else f"means of the first and last {steps} steps"
    ends = f"{quantity(row['loss_start'])} to {quantity(row['loss_end'])} ({over})"
    return f" The training loss with {size_words(row)} went from {ends}."


def target_sentences(targets: pd.DataFrame, points: pd.DataFrame, names: dict[str, str]) -> list[str]:
    """One for each series that trained epochs; `points`: the scaling table's rows, `names`: what tells series apart."""
    found = []
    for series, rows in targets.groupby("series", sort=False):
        of_series = points[points["series"] == series]
        sizes = {(row["nodes"], row["gpus_per_node"]): size_words(row) for _, row in of_series.iterrows()}
        name = f" ({names[str(series)]})" if targets["series"].nunique() > 1 else ""
        found.append(_target_sentence([row for _, row in rows.iterrows()], name, sizes))
    return found[:AT_MOST]


def _target_sentence(rows: list[PointRow], name: str, sizes: dict[tuple[int, int], str]) -> str:
    def size(row: PointRow) -> str:
        return sizes[row["nodes"], row["gpus_per_node"]]

    target = f"{100 * rows[0]['target']:.2f} % accuracy{name}"
    which = "" if rows[0]["target_of"] == GIVEN else f" This accuracy is {rows[0]['target_of']}."
    there = [row for row in rows if pd.notna(row["train_s"])]
    missed = [row for row in rows if pd.isna(row["train_s"])]
    lacking = "".join(f" {int(row['reached'])} of {count(int(row['n']), 'run')} with {size(row)} reached it." for row in missed)
    if not there:
        return f"Fewer than half of the runs reached {target}.{which}{lacking}"
    first, last = there[0], there[-1]
    begin = f"Training to {target} takes {effort(first['train_s'], first['epochs'])} with {size(first)}"
    if len(there) == 1:
        return f"{begin}.{which}{lacking}"
    end = enough(there)
    stop = "" if end is last else f" More than {size(end)} do not reach it sooner."
    return f"{begin} and {effort(last['train_s'], last['epochs'])} with {size(last)}.{which}{_faster(first, last)}{stop}{lacking}"


def _faster(first: PointRow, last: PointRow) -> str:
    """` The speedup is 4.60 (95 % 4.41 to 4.80), and that of throughput 8.10.`; where the smallest size is a baseline."""
    kinds = ["1gpu", "1node"] if first["gpus_per_node"] == 1 else ["1node"]
    known = [base for base in kinds if pd.notna(first[f"speedup_{base}"]) and pd.notna(last[f"speedup_{base}"])]
    base = next(iter(known), None)
    if base is None or first["nodes"] != 1:
        return ""
    speedup, low, high, kind = (last[f"speedup_{base}{end}"] for end in ("", "_low", "_high", "_interval"))
    ends = "" if pd.isna(low) else f" ({kind} {times(low)} to {times(high)})"
    rate = last[f"throughput_{base}"]
    return f" The speedup is {times(speedup)}{ends}{'' if pd.isna(rate) else f', and that of throughput {times(rate)}'}."


def enough(rows: list[PointRow]) -> PointRow:
    """The smallest size that no larger one beats: by HARDLY in the median, and beyond its own interval where it has one."""
    for i, row in enumerate(rows):
        if not any(_sooner(other, row) for other in rows[i + 1 :]):
            return row
    return rows[-1]


def _sooner(row: PointRow, other: PointRow) -> bool:
    """Whether the first takes less time, for sure."""
    both = all(pd.notna(each["interval"]) and each["interval"] == "95 %" for each in (row, other))
    surely = not both or row["train_s_high"] < other["train_s_low"]
    return bool(row["train_s"] * (1 + HARDLY) < other["train_s"] and surely)
