"""`hpcddp status`: what became of every run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from hpcddp.commands.options import RunsPath, format_option, named_sweep, print_json

if TYPE_CHECKING:
    from hpcddp.study.study_status import StudyStatus

WATCH_S = 30
"""All users query the same controller: Slurm's own advice is not to do so in a tight loop (squeue(1), PERFORMANCE)."""


@click.command()
@click.argument("runs", type=RunsPath(file_okay=False))
@click.option(
    "--watch",
    type=click.FloatRange(min=5),
    is_flag=False,
    flag_value=WATCH_S,
    metavar="[SECONDS]",
    help=f"Repeat every {WATCH_S} s until all runs have finished.",
)
@format_option
@click.pass_context
def status(ctx: click.Context, runs: Path, watch: float | None, format_: str) -> None:
    """Show what is queued, running, done or failed, and why.

    RUNS is a study, a folder of studies, or a sweep file. The last line is the next command, if any. Runs in one state for one
    reason are one entry; `--format json` lists every run. The command exits with code 3 while runs are missing, unfinished or
    failed.

    Runs that are no longer in the sweep (their point was removed, or `repeat` lowered) are marked. They do not affect the exit
    code. A sweep file as RUNS is read as it is now; for a folder the sweep of the last submit applies.

    \b
    hpcddp status jobs/
    hpcddp status jobs/rcc-bigmnist.yaml --watch
    hpcddp status jobs/rcc-bigmnist --format json
    """
    from hpcddp.core.errors import INCOMPLETE
    from hpcddp.study.study_status import status_text, study_statuses

    if watch is not None and format_ == "json":
        raise click.UsageError("--watch goes with a terminal; run --format json once for each answer")
    sweep = named_sweep(ctx)
    statuses = study_statuses(runs, sweep)
    if format_ == "json":
        print_json({"schema": 1, "studies": [status.plain for status in statuses]})
    elif watch is None:
        click.echo(status_text(statuses))
    else:
        statuses = _watch(runs, sweep, statuses, watch)
    if not all(status.is_done for status in statuses):
        ctx.exit(INCOMPLETE)


def _watch(runs: Path, sweep: Path | None, statuses: list[StudyStatus], every_s: float) -> list[StudyStatus]:
    """Shows the studies again and again until no run of the sweep waits or runs any more, or until Ctrl-C; the last status."""
    import time

    from hpcddp.study.study_status import study_statuses

    _show(statuses, every_s)
    while any(status.is_live for status in statuses):
        try:
            time.sleep(every_s)
            statuses = study_statuses(runs, sweep)
        except KeyboardInterrupt:
            break
        click.clear()  # does nothing where there is no terminal
        _show(statuses, every_s)
    return statuses


def _show(statuses: list[StudyStatus], every_s: float) -> None:
    """On one screen, whose last line is that of the cursor."""
    import shutil
    import time

    from hpcddp.study.study_status import status_text

    if any(status.is_live for status in statuses):
        click.echo(f"{time.strftime('%H:%M:%S')}, again in {every_s:.0f} s; Ctrl-C ends this display, the jobs continue")
    click.echo(status_text(statuses, shutil.get_terminal_size().lines - 2))
