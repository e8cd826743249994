"""What a reader must know besides the numbers: baselines that are missing, what was not pooled, files that are odd."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pandas as pd

from hpcddp.analysis.series import same_workload
from hpcddp.analysis.wording import unit
from hpcddp.point import Point

APART = {"env_id": "software environments", "gpu": "GPU types", "node_type": "node types"}


def notes(scaling: pd.DataFrame, names: dict[str, str], planned: Sequence[Point], hold: str) -> list[str]:
    """All notes on a scaling table, each a sentence."""
    series = [group for _, group in scaling.groupby("series", sort=False)]
    wide = [group for group in series if len(group) > 1] or series[:1]
    found = [
        f"{names[group['series'].iloc[0]]}: {note}" if len(wide) > 1 else note
        for group in wide
        for note in baseline_notes(group, [point for point in planned if same_workload(group["series"].iloc[0], point, hold)])
    ]
    return [*found, *apart_notes(scaling), *spread_notes(scaling)]


def baseline_notes(series: pd.DataFrame, planned: Sequence[Point]) -> Iterator[str]:
    """For each baseline that is missing: which point to add, or which one still has no run that counts."""
    node = int(series["full_node_gpus"].iloc[0])
    gpu = unit(series["device"].iloc[0])
    wanted = {1: f"one {gpu}", node: f"one full node ({node} {gpu}s)"} if node > 1 else {1: f"one {gpu}"}
    for gpus, name in wanted.items():
        if ((series["nodes"] == 1) & (series["gpus_per_node"] == gpus)).any():
            continue
        waiting = [point.label for point in planned if (point.layout.nodes, point.layout.gpus_per_node) == (1, gpus)]
        if waiting:
            yield f"no comparison with {name} yet: {waiting[0]} has no run that counts"
        else:
            yield f"no comparison with {name}: add the point layout.nodes 1, layout.gpus_per_node {gpus} to the sweep"


def apart_notes(scaling: pd.DataFrame) -> Iterator[str]:
    """What was found in several kinds: shown as separate series, never averaged."""
    for column, what in APART.items():
        kinds = sorted(scaling[column].fillna("unknown").unique())
        if len(kinds) > 1:
            yield f"{len(kinds)} {what} ({', '.join(kinds)}) are separate series: never averaged or compared"
    mixed = sorted({gpu for gpu in scaling["gpu"].dropna() if " + " in gpu})
    yield from (f"runs on several GPU types at once ({gpu}) are as slow as their slowest" for gpu in mixed)


def spread_notes(scaling: pd.DataFrame) -> Iterator[str]:
    """How much the spread can say."""
    if (scaling["n"] == 1).all():
        yield "one run per point: its spread is not known; `repeat: 6` or more gives a 95 % interval"
    elif set(scaling["interval"].dropna()) == {"95 %", "range"}:
        yield "spread: the 95 % interval of the median from n = 6 on, the range of the runs below that"
