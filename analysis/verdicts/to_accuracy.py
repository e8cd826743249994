"""The sentence on how long it takes to an accuracy, and where more GPUs stop helping to reach it."""

from __future__ import annotations

from typing import Any

import pandas as pd

from hpcddp.analysis.study.epochs import GIVEN
from hpcddp.analysis.util.wording import effort, times
from hpcddp.analysis.verdicts.sentence import AT_MOST, HARDLY, size_words
from hpcddp.core.text import count

Row = Any


def target_sentences(targets: pd.DataFrame, points: pd.DataFrame, names: dict[str, str]) -> list[str]:
    """One for each series that trained epochs; `points`: the scaling table's rows, `names`: what tells series apart."""
    found = []
    for series, rows in targets.groupby("series", sort=False):
        of_series = points[points["series"] == series]
        sizes = {(row["nodes"], row["gpus_per_node"]): size_words(row) for _, row in of_series.iterrows()}
        name = f" ({names[str(series)]})" if targets["series"].nunique() > 1 else ""
        found.append(_sentence([row for _, row in rows.iterrows()], name, sizes))
    return found[:AT_MOST]


def _sentence(rows: list[Row], name: str, sizes: dict[tuple[int, int], str]) -> str:
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
