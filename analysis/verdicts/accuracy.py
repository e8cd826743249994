"""Sentences on how accurate runs became, ranked where they trained equally much only, and on how long an accuracy takes."""

from __future__ import annotations

from typing import Any

import pandas as pd

from hpcddp.analysis.study.accuracy import GIVEN, Gap, gap, same_training
from hpcddp.analysis.util.wording import accuracy_words, effort, points, quantity, times
from hpcddp.analysis.verdicts.context import Case
from hpcddp.analysis.verdicts.sentence import AT_MOST, HARDLY, size_words
from hpcddp.core.text import count

NO_GAP = "no difference found"


def accuracy_sentences(case: Case) -> list[str]:
    """Of each series that has its own sentence the smallest and the largest point; of keys the least and most accurate value."""
    series = case.series if case.is_of_keys else case.several
    found = [(name, rows) for name, each in series if len(rows := each[each["accuracy"].notna()])]
    if case.is_of_keys and len(found) > 1:
        found.sort(key=lambda pair: float(pair[1]["accuracy"].iloc[0]))
        found = [(f"{found[i][0]}, the {end} of {len(found)}", found[i][1]) for i, end in ((0, "lowest"), (-1, "highest"))]
    return [_sentence(case, name, rows) for name, rows in found][:AT_MOST]


def _sentence(case: Case, name: str, rows: pd.DataFrame) -> str:
    first, last = rows.iloc[0], rows.iloc[-1]
    which = f" ({name})" if name else ""
    if len(rows) == 1:
        of = _spread(last)
        return f"Accuracy{which} is {_accuracy(last)}{of}{_after(last)} with {size_words(last)}{_loss(last)}."
    both = [case.evaluated(row) for row in (first, last)]
    if None in both or not same_training(*filter(None, both)):
        texts = [f"{_accuracy(row)}{_after(row)} with {size_words(row)}" for row in (first, last)]
        return f"Accuracy{which} is {texts[0]} and {texts[1]}: not ranked, as they trained unlike amounts{_loss(last)}."
    texts = [f"{_accuracy(row)} with {size_words(row)}" for row in (first, last)]
    small, large = filter(None, both)
    apart = f": {words}" if (words := gap_words(gap(large.shares, small.shares))) else ", one run each"
    return f"Accuracy{which}{_after(last)} is {texts[0]} and {texts[1]}{apart}{_loss(last)}."


def gap_words(found: Gap) -> str:
    """`0.32 points lower (95 % -0.50 to -0.14)`; nothing of two single runs, whose chance nobody knows."""
    if found.low is None or found.high is None:
        return ""
    way = "higher" if found.gap > 0 else "lower"
    apart = NO_GAP if found.differs is False or not found.gap else f"{points(abs(found.gap))} points {way}"
    unit = " points" if apart == NO_GAP else ""
    return f"{apart} ({found.kind} {points(found.low, '+')} to {points(found.high, '+')}{unit})"


def _accuracy(row: pd.Series[Any]) -> str:
    return accuracy_words(row["accuracy"], row["eval_correct"], int(row["eval_samples"]))


def _spread(row: pd.Series[Any]) -> str:
    if pd.isna(row["accuracy_low"]):
        return ", of one run,"
    ends = f"{points(row['accuracy_low'])} to {points(row['accuracy_high'])}"
    return f", median of {count(int(row['eval_n']), 'run')} ({row['accuracy_interval']} {ends}),"


def _after(row: pd.Series[Any]) -> str:
    """` after 640,000 samples`; nothing where that is not known."""
    if pd.isna(row["samples_trained"]):
        return ""
    most = "" if pd.isna(row["samples_trained_most"]) else f" to {int(row['samples_trained_most']):,}"
    return f" after {int(row['samples_trained']):,}{most} samples"


def _loss(row: pd.Series[Any]) -> str:
    if pd.isna(row["loss_start"]) or pd.isna(row["loss_end"]):
        return ""
    steps = int(row["loss_steps"])
    over = "of its first and last step" if steps == 1 else f"means of its first and last {steps} steps"
    return f"; there the training loss went from {quantity(row['loss_start'])} to {quantity(row['loss_end'])} ({over})"


Row = Any


def target_sentences(targets: pd.DataFrame, points: pd.DataFrame, names: dict[str, str]) -> list[str]:
    """One for each series that trained epochs; `points`: the scaling table's rows, `names`: what tells series apart."""
    found = []
    for series, rows in targets.groupby("series", sort=False):
        of_series = points[points["series"] == series]
        sizes = {(row["nodes"], row["gpus_per_node"]): size_words(row) for _, row in of_series.iterrows()}
        name = f" ({names[str(series)]})" if targets["series"].nunique() > 1 else ""
        found.append(_target_sentence([row for _, row in rows.iterrows()], name, sizes))
    return found[:AT_MOST]


def _target_sentence(rows: list[Row], name: str, sizes: dict[tuple[int, int], str]) -> str:
    def size(row: Row) -> str:
        return sizes[row["nodes"], row["gpus_per_node"]]

    target = f"{100 * rows[0]['target']:.2f} % accuracy{name}"
    which = "" if rows[0]["target_of"] == GIVEN else f", {rows[0]['target_of']},"
    there = [row for row in rows if pd.notna(row["train_s"])]
    missed = [row for row in rows if pd.isna(row["train_s"])]
    lacking = "".join(f"; with {size(row)} {int(row['reached'])} of {count(int(row['n']), 'run')} reached it" for row in missed)
    if not there:
        return f"{target}{which} was reached by less than half of the runs{lacking}."
    first, last = there[0], there[-1]
    begin = f"{target}{which} takes {effort(first['train_s'], first['epochs'])} with {size(first)}"
    if len(there) == 1:
        return f"{begin}{lacking}."
    end = enough(there)
    stop = "" if end is last else f"; more than {size(end)} do not reach it sooner"
    return f"{begin} and {effort(last['train_s'], last['epochs'])} with {size(last)}{_faster(first, last)}{stop}{lacking}."


def _faster(first: Row, last: Row) -> str:
    """`: 4.60 times as fast (95 % 4.41 to 4.80), where throughput is 8.10 times`; against the smallest size, if that is a
    baseline."""
    base = next((base for base in ("1gpu", "1node") if _is_base(first, base) and pd.notna(last[f"speedup_{base}"])), None)
    if base is None:
        return ""
    speedup, low, high, kind = (last[f"speedup_{base}{end}"] for end in ("", "_low", "_high", "_interval"))
    ends = "" if pd.isna(low) else f" ({kind} {times(low)} to {times(high)})"
    rate = last[f"throughput_{base}"]
    return f": {times(speedup)} times as fast{ends}" + ("" if pd.isna(rate) else f", where throughput is {times(rate)} times")


def _is_base(row: Row, base: str) -> bool:
    gpus = 1 if base == "1gpu" else row["gpus_per_node"]
    return (row["nodes"], row["gpus_per_node"]) == (1, gpus) and pd.notna(row[f"speedup_{base}"])


def enough(rows: list[Row]) -> Row:
    """The smallest size that no larger one beats: by HARDLY in the median, and beyond its own interval where it has one."""
    for i, row in enumerate(rows):
        if not any(_sooner(other, row) for other in rows[i + 1 :]):
            return row
    return rows[-1]


def _sooner(row: Row, other: Row) -> bool:
    """Whether the first takes less time, for sure."""
    both = all(pd.notna(each["interval"]) and each["interval"] == "95 %" for each in (row, other))
    surely = not both or _apart(row, other)
    return bool(row["train_s"] * (1 + HARDLY) < other["train_s"] and surely)


def _apart(row: Row, other: Row) -> bool:
    return bool(row["train_s_high"] < other["train_s_low"])
