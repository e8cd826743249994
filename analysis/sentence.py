"""What a study found, in one sentence per series that a newcomer understands and a reader can quote."""

from __future__ import annotations

from typing import Any

import pandas as pd

from hpcddp.analysis.wording import percent, quantity, times, unit, units

AT_MOST = 4
"""Sentences before the table; more series than that are left to it."""


def sentences(scaling: pd.DataFrame, names: dict[str, str]) -> list[str]:
    """One per series with more than one layout (a single series gets its sentence anyway); `names` says which is which."""
    series = [group for _, group in scaling.groupby("series", sort=False)]
    several = [group for group in series if len(group) > 1] or series[:1]
    told = [sentence(group) for group in several[:AT_MOST]]
    if len(several) > 1:
        told = [f"{names[group['series'].iloc[0]]}: {text}" for group, text in zip(several, told, strict=False)]
    left = len(several) - len(told)
    return [*told, f"{left} more series: see the table."] if left else told


def sentence(series: pd.DataFrame) -> str:
    """`16 nodes train 24.9 times as fast as one GPU (39 % efficiency) and 13.9 times as fast as one node (87 %).`"""
    largest = series.iloc[-1]
    subject = f"{_subject(largest)} train{'s' if largest['ranks'] == 1 else ''}"
    against = _comparisons(largest)
    if not against:
        return f"{_capital(subject)} {quantity(largest['samples_per_s'])} samples/s."
    first, *others = [f"{times(speedup)} times as fast as {base} ({percent(share)}" for base, speedup, share in against]
    told = " and ".join([f"{first} efficiency)", *(f"{other})" for other in others)])
    return f"{_capital(subject)} {told}."


def _subject(point: pd.Series[Any]) -> str:
    each, device = int(point["gpus_per_node"]), point["device"]
    if point["nodes"] == 1:
        return units(each, device)
    alike = each == point["full_node_gpus"] and each > 1
    return f"{point['nodes']} nodes" if alike else f"{point['nodes']} nodes with {units(each, device)} each"


def _comparisons(point: pd.Series[Any]) -> list[tuple[str, float, float]]:
    """Baseline in words, speedup, efficiency; a baseline that is the point itself or the other one again is left out."""
    found = []
    if pd.notna(point["speedup_1gpu"]) and point["ranks"] > 1:
        found.append((f"one {unit(point['device'])}", point["speedup_1gpu"], point["efficiency_1gpu"]))
    if pd.notna(point["speedup_1node"]) and point["nodes"] > 1 and point["full_node_gpus"] > 1:
        found.append(("one node", point["speedup_1node"], point["efficiency_1node"]))
    return found


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]
