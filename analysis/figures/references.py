"""Published results that come with hpcddp, to draw beside one's own: each with its source and how far it may be trusted.

reference_points.csv holds them: a row per published number, `kind` published or derived, `quality` ok, caveat (the reason in
`caveat`) or reject (in `note`). Throughput is a row's own where its name has any; else `samples`, those that the time is of,
over the time.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from hpcddp.core.errors import UsageError
from hpcddp.core.schema import did_you_mean
from hpcddp.core.text import count, first_few

FILE = Path(__file__).parent / "reference_points.csv"

NAMED = 8
"""Names that an error lists."""

COLUMNS = ["name", "label", "cite", "gpus", "samples_per_s", "quality"]


@dataclass(frozen=True)
class Published:
    """What is drawn beside a study: points; and of each name its source, why its points are hollow, and how many are hidden."""

    points: pd.DataFrame
    notes: list[str]


def published(names: Sequence[str], rejected: bool = False) -> Published:
    """What `--overlay` asks for; UsageError for a name that is not known."""
    points, shown, notes = _points(), overlay(names, rejected), []
    for name in dict.fromkeys(names):
        of_name, drawn = points[points["name"] == name], shown[shown["name"] == name]
        hollow = f"; hollow: {of_name['caveat'].iloc[0]}" if (drawn["quality"] == "caveat").any() else ""
        hidden = len(of_name) - len(drawn)
        left = f"; {count(hidden, 'rejected point')} hidden, --overlay-rejected shows them" if hidden else ""
        notes.append(f"overlay {name}: {count(len(drawn), 'point')} of {of_name['source'].iloc[0]}{hollow}{left}")
    return Published(shown, notes)


def reference_names() -> list[str]:
    """What `--overlay` knows."""
    return sorted(_points()["name"].unique())


def overlay(names: Sequence[str], rejected: bool = False) -> pd.DataFrame:
    """Samples/s of all GPUs together against GPUs, by name; rejected points where asked for. UsageError for an unknown name."""
    points, known = _points(), reference_names()
    for name in names:
        if name not in known:
            near = did_you_mean(name, known)
            listed = "" if near.startswith("; known") else f" (known: {first_few(known, NAMED)})"
            raise UsageError(f"no published points `{name}`{near}{listed}")
    chosen = points[points["name"].isin(names)]
    shown = chosen if rejected else chosen[chosen["quality"] != "reject"]
    order = {name: i for i, name in enumerate(dict.fromkeys(names))}
    shown = shown.assign(order=shown["name"].map(order)).sort_values(["order", "gpus", "samples_per_s"])
    return shown[COLUMNS].reset_index(drop=True)


@functools.cache
def _points() -> pd.DataFrame:
    """All points that are, or make, a throughput; nobody changes them."""
    table = pd.read_csv(FILE)
    table["samples_per_s"] = table["value"].where(table["metric"] == "throughput")
    timed = table["samples"].notna() & (table["unit"] == "s")
    table.loc[timed, "samples_per_s"] = table["samples"] / table["value"]
    ranks = table["metric"] == "throughput_this_rank"
    table.loc[ranks, "samples_per_s"] = table["value"] * table["gpus"]
    direct = table.loc[table["metric"] == "throughput", "name"].unique()
    return table[(table["metric"] == "throughput") | ~table["name"].isin(direct)].dropna(subset=["samples_per_s"])
