"""What each rank of an attempt recorded of its steps, and what end.json says of the rank."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from hpcddp.analysis.records.impossible import check_steps
from hpcddp.analysis.records.rows import MAYBE_INT, Columns, Rejected, RowFile, read_rows
from hpcddp.analysis.records.steps import RECORDED, RunSteps, StepSpan, over_ranks
from hpcddp.core.attempt_records import RankEnd, TrainingEnd
from hpcddp.core.records import steps_file

COLUMNS = {
    **{"step": "int64", "flags": "int64", "start_ns": MAYBE_INT, "total_ns": "float64"},
    **{f"{part}_ns": "float64" for part in RECORDED},
}
"""What is read of step rows, as pandas types; other columns are left aside."""

WITH_STARTS = {**COLUMNS, "start_ns": "int64"}
"""Where a step's all-reduces are to be found in it: every start must be there."""


SINCE = {"loss_e9": 2, "samples": 3}
"""Columns -> the `step_rows` of launch.json from which on rows have them."""


def read_steps(  # noqa: PLR0913 - where rows are, which of them count, and who else reads them
    attempt: Path,
    ranks: Sequence[RankEnd],
    span: StepSpan,
    step_rows: int,
    warnings: list[str],
    *,
    watch: Callable[[Columns], None] | None = None,
) -> RunSteps:
    """The attempt's steps, reduced over its ranks; Rejected where rows are missing or differ from what was recorded.

    `step_rows`: the version of the rows, as launch.json has it. `watch` is called with each rank's table, which then has the
    steps' starts. Steps outside of `span` are not steady.
    """
    columns = WITH_STARTS if watch else COLUMNS
    columns = {**columns, **{name: "float64" for name, since in SINCE.items() if step_rows >= since}}
    tables = step_tables(attempt, ranks, columns, warnings)
    try:
        return over_ranks(_shown(tables, watch) if watch else tables, len(ranks), span)
    except ValueError as error:
        raise Rejected(str(error)) from error


def _shown(tables: Iterator[Columns], watch: Callable[[Columns], None]) -> Iterator[Columns]:
    for table in tables:
        watch(table)
        yield table


def rank_results(end: TrainingEnd, ranks: int) -> tuple[RankEnd, ...]:
    """What end.json says of each rank, in order; Rejected where it says nothing of one."""
    found = {entry.rank: entry for entry in end.ranks}
    for rank in range(ranks):
        if rank not in found:
            raise Rejected(f"end.json tells nothing of rank {rank}")
    return tuple(found[rank] for rank in range(ranks))


def step_tables(attempt: Path, ranks: Sequence[RankEnd], columns: dict[str, str], warnings: list[str]) -> Iterator[Columns]:
    """The step rows of one rank after another; Rejected where rows cannot be true."""
    for rank, entry in enumerate(ranks):
        rows = read_rows(RowFile(steps_file(attempt, rank), rank, entry.rows, entry.crc32), columns, warnings)
        check_steps(rows, rank)
        yield rows
