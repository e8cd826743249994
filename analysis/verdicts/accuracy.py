"""The sentence on how accurate a study's runs became: with exact counts, and ranked where they trained equally much only."""

from __future__ import annotations

from typing import Any

import pandas as pd

from hpcddp.analysis.study.accuracy import Gap, gap, same_training
from hpcddp.analysis.util.wording import accuracy_words, points, quantity
from hpcddp.analysis.verdicts.context import Case
from hpcddp.analysis.verdicts.sentence import AT_MOST, size_words
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
