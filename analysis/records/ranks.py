"""What each rank of an attempt recorded of its steps, and what end.json says of the rank."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from hpcddp.analysis.records.csv_reader import Room
from hpcddp.analysis.records.impossible import check_steps
from hpcddp.analysis.records.rows import MAYBE_INT, Columns, Rejected, RowFile, read_rows
from hpcddp.analysis.records.steps import RECORDED, RunSteps, over_ranks
from hpcddp.core.records import steps_file

COLUMNS = {
    **{"step": "int64", "flags": "int64", "start_ns": MAYBE_INT, "total_ns": "float64"},
    **{f"{part}_ns": "float64" for part in RECORDED},
}
"""What is read of step rows, as pandas types; other columns are left aside."""

WITH_STARTS = {**COLUMNS, "start_ns": "int64"}
"""Where a step's all-reduces are to be found in it: every start must be there."""


def read_steps(  # noqa: PLR0913 - whose rows, what is said of them, and which of them count
    attempt: Path,
    end: dict[str, Any],
    ranks: int,
    warnings: list[str],
    watch: Callable[[Columns], None] | None = None,
    *,
    stop: int | None = None,
) -> RunSteps:
    """The attempt's steps over all its ranks; Rejected where rows are missing or differ from what was recorded.

    `watch` is shown each rank's table in passing, with starts. From step `stop` on none is steady.
    """
    tables = step_tables(attempt, rank_results(end, ranks), WITH_STARTS if watch else COLUMNS, warnings)
    try:
        return over_ranks(_shown(tables, watch) if watch else tables, ranks, steady_from_step(end), stop)
    except ValueError as error:
        raise Rejected(str(error)) from error


def _shown(tables: Iterator[Columns], watch: Callable[[Columns], None]) -> Iterator[Columns]:
    for table in tables:
        watch(table)
        yield table


def rank_results(end: dict[str, Any], ranks: int) -> list[dict[str, Any]]:
    """What end.json says of each rank, in order; Rejected where it says nothing of one."""
    told = {entry["rank"]: entry for entry in end["ranks"]}
    for rank in range(ranks):
        if rank not in told:
            raise Rejected(f"end.json tells nothing of rank {rank}")
    return [told[rank] for rank in range(ranks)]


def step_tables(attempt: Path, told: list[dict[str, Any]], columns: dict[str, str], warnings: list[str]) -> Iterator[Columns]:
    """The step rows of one rank after another; each table holds until the next. Rejected where rows cannot be true."""
    room = Room()
    for rank, entry in enumerate(told):
        rows = read_rows(RowFile(steps_file(attempt, rank), rank, entry["rows"], entry["crc32"]), columns, warnings, room)
        check_steps(rows, rank)
        yield rows


def steady_from_step(end: dict[str, Any]) -> int:
    """The first step that counts, where the run found its own warm-up longer than the one asked for."""
    return int((end.get("protocol") or {}).get("steady_from_step") or 0)
