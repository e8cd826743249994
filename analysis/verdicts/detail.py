"""The tables behind the figures of single runs: how long all steps were, which rank is late, what one step is made of.

All steps are shown of every point. Of ranks and of one step a figure shows what it takes to see a cause: the runs in which a
straggler was found, and the largest point's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from hpcddp.analysis.runs.run import Run
from hpcddp.analysis.runs.step_times import Bins, pooled_bins
from hpcddp.analysis.study.comm_bench import fabric_limit, layout_of_bench
from hpcddp.analysis.util.wording import unit
from hpcddp.analysis.verdicts.context import Case, Verdict

MOST_RUNS = 2
LEAST_PERCENT = 1.0
"""Share of the step: a rank map is left out where no rank ever differs by this much."""

LEAST_STEPS = 20
"""Steps of a point below which there is no distribution."""

TIMES_COLUMNS = {"row": "Int64", "kind": "string", "bin": "Int64", "count": "Int64"}
"""Steps of the runs that a point's throughput comes from. `row` is the point's in the scaling table, `kind` is timed or
warm-up, `bin` is that of distribution.py."""

RANKS_COLUMNS = {
    **{"panel": "string", "row": "Int64", "host": "string", "rank": "Int64", "first_step": "Int64", "steps": "Int64"},
    "over_percent": "Float64",
}
"""A cell per rank (or host: then `rank` is NA) and a few timed steps; see runs/slow_ranks.py."""

PARTS_COLUMNS = {
    **{"panel": "string", "step": "Int64", "step_s": "Float64", "aligned": "boolean", "rank": "Int64", "host": "string"},
    **{"part": "string", "begin_s": "Float64", "end_s": "Float64"},
}
"""A part of a rank's step, in seconds after the first rank's start; `step_s` is how long the step lasts."""

TRAVELS_COLUMNS = {
    **{"panel": "string", "bucket": "Int64", "bytes": "Int64"},
    **dict.fromkeys(("first_ready_s", "last_ready_s", "done_s"), "Float64"),
}
"""An all-reduce of that step, over all ranks."""


@dataclass(frozen=True)
class DetailTables:
    """Tables of the columns above."""

    times: pd.DataFrame
    ranks: pd.DataFrame
    parts: pd.DataFrame
    travels: pd.DataFrame
    trained: pd.DataFrame
    """TRAINED_COLUMNS: what gradients reached of the network while training."""


def detail_tables(case: Case, verdicts: Sequence[Verdict]) -> DetailTables:
    """All of it; tables without rows where there is nothing to show."""
    runs = detail_runs(case, verdicts)
    return DetailTables(
        times_frame(case),
        _frame((cell for panel, run in runs for cell in _cells(panel, run)), RANKS_COLUMNS),
        _frame((part for panel, run in runs for part in _parts(panel, run)), PARTS_COLUMNS),
        _frame((travel for panel, run in runs for travel in _travels(panel, run)), TRAVELS_COLUMNS),
        trained_frame(case),
    )


def no_detail_tables() -> DetailTables:
    """Tables without rows."""
    every = (TIMES_COLUMNS, RANKS_COLUMNS, PARTS_COLUMNS, TRAVELS_COLUMNS, TRAINED_COLUMNS)
    return DetailTables(*(_frame((), columns) for columns in every))


def times_frame(case: Case) -> pd.DataFrame:
    """TIMES_COLUMNS of the points with enough steps."""
    found = []
    for row, point in case.points.iterrows():
        runs = _timed(case, point)
        timed = pooled_bins(run.distribution.timed for run in runs if run.distribution)
        warmup = pooled_bins(run.distribution.warmup for run in runs if run.distribution)
        if sum(count for _, count in timed) >= LEAST_STEPS:
            found += [(row, kind, *each) for kind, bins in (("timed", timed), ("warm-up", warmup)) for each in bins]
    return _frame(found, TIMES_COLUMNS)


def _frame(rows: Iterable[tuple[Any, ...]], columns: dict[str, str]) -> pd.DataFrame:
    return pd.DataFrame(list(rows), columns=list(columns)).astype(columns)


def bins_of(times: pd.DataFrame, row: Any, kind: str) -> Bins:
    """The bins of a point's steps, from times_frame."""
    found = times[(times["row"] == row) & (times["kind"] == kind)]
    return tuple(zip(found["bin"], found["count"], strict=True))


def detail_runs(case: Case, verdicts: Sequence[Verdict]) -> list[tuple[str, Run]]:
    """(title, run): the worst run of the straggler that costs most, and the middle one of the largest point; each with several
    ranks, and once.
    """
    accused = [verdict.runs[0] for verdict in verdicts if verdict.name == "straggler"][: MOST_RUNS - 1]
    runs = [run for run in case.counting if run.name in accused]
    if len(case.points):
        largest = case.points.iloc[int(case.points["ranks"].astype(int).argmax())]
        if largest["ranks"] > 1 and not any(run in case.runs_of(largest) for run in runs):
            runs.append(_middle(case, largest))
    return [(_title(case, run), run) for run in runs if run.timeline is not None]


def _middle(case: Case, point: pd.Series[Any]) -> Run:
    """The run that is nearest to the median, of those that the breakdown comes from."""
    labels = str(point["breakdown_label"]).split(" + ")
    runs = [run for run in case.runs_of(point) if run.label in labels]
    middle = pd.Series([run.step_ns for run in runs]).median()
    return min(runs, key=lambda run: (abs((run.step_ns or 0) - middle), run.run))


def _title(case: Case, run: Run) -> str:
    """`16 nodes x 4 GPUs, run 2`, with its series where there are several."""
    assert run.point is not None
    layout = run.point.layout
    size = f"{layout.nodes} x {layout.gpus_per_node} {unit(run.point.device)}s, run {run.run}"
    series = next((str(row["series"]) for _, row in case.points.iterrows() if run in case.runs_of(row)), "")
    return ", ".join(filter(None, [size, case.names.get(series, "")]))


def _timed(case: Case, point: pd.Series[Any]) -> list[Run]:
    labels = str(point["label"]).split(" + ")
    return [run for run in case.runs_of(point) if run.label in labels]


def _cells(panel: str, run: Run) -> Iterator[tuple[Any, ...]]:
    """Cells of the rank map; none where all ranks are as fast as the median one."""
    found = run.rank_map
    if found is None or max(abs(value) for row in found.over_percent for value in row) < LEAST_PERCENT:
        return
    for row, (host, values) in enumerate(zip(found.hosts, found.over_percent, strict=True)):
        rank = None if found.ranks is None else found.ranks[row]
        for column, value in enumerate(values):
            first, end = found.steps[column : column + 2]
            yield panel, row, host, rank, first, end - first, value


def _parts(panel: str, run: Run) -> Iterator[tuple[Any, ...]]:
    assert run.timeline is not None
    step = (run.timeline.step, run.timeline.step_ns / 1e9, run.timeline.aligned)
    for rank in run.timeline.ranks:
        at = rank.start_ns
        for part, ns in rank.parts_ns:
            yield panel, *step, rank.rank, rank.host, part, at / 1e9, (at + ns) / 1e9
            at += ns


def _travels(panel: str, run: Run) -> Iterator[tuple[Any, ...]]:
    assert run.timeline is not None
    for bucket in run.timeline.buckets:
        times = (bucket.first_ready_ns, bucket.last_ready_ns, bucket.done_ns)
        yield panel, bucket.index, bucket.size_bytes, *(ns / 1e9 for ns in times)


TRAINED_COLUMNS = {
    **{"layout": "string", "nodes": "Int64", "gpus_per_node": "Int64", "gpu": "string", "kind": "string", "bytes": "Int64"},
    **{"busbw_bytes_per_s": "Float64", "limit_bytes_per_s": "Float64"},
}
"""`kind`: bucket, each by itself (NCCL); or together, a step's at their mean size (gloo, which has two under way at once)."""


def trained_frame(case: Case) -> pd.DataFrame:
    """Rows of points with the communication hook and several ranks; TRAINED_COLUMNS."""
    rows = [row for _, point in case.points.iterrows() for row in _of_point(case, point)]
    return pd.DataFrame(rows, columns=list(TRAINED_COLUMNS)).astype(TRAINED_COLUMNS)


def _of_point(case: Case, point: pd.Series[Any]) -> Iterator[dict[str, Any]]:
    if pd.isna(point["busbw_bytes_per_s"]) or point["ranks"] < 2:
        return
    runs = case.runs_of(point)
    hooked = {run.key for run in runs if run.exchange is not None}
    mine = case.buckets[[pair in hooked for pair in zip(case.buckets["label"], case.buckets["run"], strict=True)]]
    who = {name: point[name] for name in ("nodes", "gpus_per_node", "gpu")}
    who["layout"] = layout_of_bench(int(point["nodes"]), int(point["gpus_per_node"]), str(point["device"]))
    who["limit_bytes_per_s"] = fabric_limit(next((run.fabric_gbps for run in runs), None), int(point["nodes"]))
    by_size = mine.dropna(subset=["busbw_bytes_per_s"]).groupby("bytes")["busbw_bytes_per_s"].median()
    yield from ({**who, "kind": "bucket", "bytes": size, "busbw_bytes_per_s": rate} for size, rate in by_size.items())
    if by_size.empty and len(mine):
        number = len(mine) / len(hooked)
        yield {
            **who,
            "kind": "together",
            "bytes": round(float(point["step_bytes"]) / number),
            "busbw_bytes_per_s": point["busbw_bytes_per_s"],
        }
