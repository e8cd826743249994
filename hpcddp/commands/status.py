"""`hpcddp status`: what became of every run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from hpcddp.commands.options import format_option, print_json
from hpcddp.commands.runs_path import RunsPath

if TYPE_CHECKING:
    from hpcddp.status import RunState

WATCH_S = 30
"""All look at the same controller: Slurm's own advice is not to ask in a tight loop (squeue(1), PERFORMANCE)."""


class Found(NamedTuple):
    """Of a study."""

    states: list[RunState]
    node_hours: float


@click.command()
@click.argument("runs", type=RunsPath(file_okay=False))
@click.option(
    "--watch",
    type=click.FloatRange(min=5),
    is_flag=False,
    flag_value=WATCH_S,
    metavar="[SECONDS]",
    help=f"Again and again, every {WATCH_S} s, until all runs are over.",
)
@format_option
@click.pass_context
def status(ctx: click.Context, runs: Path, watch: float | None, format_: str) -> None:
    """Tell what is queued, running, done or failed, and why.

    Of every study under RUNS. Ends with 3 while runs are missing, not over or failed.

    \b
    hpcddp status jobs/
    hpcddp status jobs/rcc-bigmnist --watch
    hpcddp status jobs/rcc-bigmnist --format json
    """
    from hpcddp.errors import INCOMPLETE
    from hpcddp.status import states_to_plain

    if watch is not None and format_ == "json":
        raise click.UsageError("--watch is for people; --format json answers once")
    found = _look(runs)
    if format_ == "json":
        studies = [
            {"name": name, "runs": states_to_plain(one.states), "node_hours": round(one.node_hours, 3)}
            for name, one in found.items()
        ]
        print_json({"schema": 1, "studies": studies})
    else:
        click.echo(_text(found))
    if watch is not None:
        found = _watch(runs, found, watch)
    if any(state.phase != "done" for one in found.values() for state in one.states):
        ctx.exit(INCOMPLETE)


def _look(runs: Path) -> dict[str, Found]:
    from hpcddp.errors import UsageError
    from hpcddp.runroot import studies
    from hpcddp.status import all_states
    from hpcddp.used import used_node_hours

    there = {study.name: study for study in studies(runs.absolute())}
    if not there:
        raise UsageError(f"{runs}: no study here; `hpcddp submit SWEEP` makes one beside the sweep")
    states = all_states(list(there.values()))
    running = {name: {state.job for state in states[name] if state.job and state.phase == "running"} for name in there}
    return {name: Found(states[name], used_node_hours(study, running[name])) for name, study in there.items()}


def _text(found: dict[str, Found]) -> str:
    from hpcddp.status_text import status_table
    from hpcddp.textout import inert

    return inert("\n\n".join(f"{name}\n{status_table(one.states, one.node_hours)}" for name, one in found.items()))


def _watch(runs: Path, found: dict[str, Found], every_s: float) -> dict[str, Found]:
    """The last look, when no run waits or runs any more, or at Ctrl-C."""
    import time

    while any(state.phase in ("queued", "running") or _in_doubt(state) for one in found.values() for state in one.states):
        try:
            time.sleep(every_s)
            found = _look(runs)
        except KeyboardInterrupt:
            break
        click.clear()  # does nothing where there is no terminal
        click.echo(_text(found))
    return found


def _in_doubt(state: RunState) -> bool:
    """A controller that does not answer just now has not ended a job."""
    return state.phase == "unknown" and state.job is not None
