"""`hpcddp status`: what became of every run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from hpcddp.commands.options import format_option, print_json
from hpcddp.commands.runs_path import RunsPath, named_sweep

if TYPE_CHECKING:
    from hpcddp.study.status import RunState

WATCH_S = 30
"""All users query the same controller: Slurm's own advice is not to do so in a tight loop (squeue(1), PERFORMANCE)."""


class StudyStatus(NamedTuple):
    """The runs of one study."""

    named: Path
    """What the user may name it by: its folder, or its sweep."""
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

    Runs that are not in the sweep any more (a point was taken out, or `repeat` lowered) are marked and do not count for
    that: with RUNS a sweep file by that file as it is now, else as the last submit found it.

    \b
    hpcddp status jobs/
    hpcddp status jobs/rcc-bigmnist.yaml --watch
    hpcddp status jobs/rcc-bigmnist --format json
    """
    from hpcddp.core.errors import INCOMPLETE
    from hpcddp.study.status import states_to_plain

    if watch is not None and format_ == "json":
        raise click.UsageError("--watch is for people; --format json answers once")
    sweep = named_sweep(ctx)
    found = _read_studies(runs, sweep)
    if format_ == "json":
        studies = [
            {"name": name, "runs": states_to_plain(one.states), "node_hours": round(one.node_hours, 3)}
            for name, one in found.items()
        ]
        print_json({"schema": 1, "studies": studies})
    else:
        click.echo(_text(found))
    if watch is not None:
        found = _watch(runs, sweep, found, watch)
    if any(state.phase != "done" and state.in_sweep for one in found.values() for state in one.states):
        ctx.exit(INCOMPLETE)


def _read_studies(runs: Path, sweep: Path | None) -> dict[str, StudyStatus]:
    """The studies at or below `runs`, by name. `sweep`: the file that stood for the one study there."""
    from hpcddp.core.errors import UsageError
    from hpcddp.core.run_root import Study, studies
    from hpcddp.study.node_hours import used_node_hours
    from hpcddp.study.status import all_states
    from hpcddp.submit.scope import study_scope

    there = {study.name: study for study in studies(runs.absolute())}
    if not there:
        raise UsageError(f"{runs}: no study here; `hpcddp submit SWEEP` makes one beside the sweep")
    scope = study_scope(Study(runs), sweep) if sweep else None
    states = all_states(list(there.values()), scope)
    running = {name: {state.job for state in states[name] if state.job and state.phase == "running"} for name in there}
    hours = {name: used_node_hours(study, running[name]) for name, study in there.items()}
    return {name: StudyStatus(sweep or study.folder, states[name], hours[name]) for name, study in there.items()}


def _text(found: dict[str, StudyStatus]) -> str:
    from hpcddp.core.text import escape_controls

    return escape_controls("\n\n".join(_study_text(name, one) for name, one in found.items()))


def _study_text(name: str, one: StudyStatus) -> str:
    from hpcddp.study.status_text import status_table, wrapped
    from hpcddp.submit.scope import LIVE, not_in_sweep_words

    gone = not_in_sweep_words([state for state in one.states if state.phase in LIVE], one.named)
    return "\n".join([name, status_table(one.states, one.node_hours), *(wrapped(gone) if gone else [])])


def _watch(runs: Path, sweep: Path | None, found: dict[str, StudyStatus], every_s: float) -> dict[str, StudyStatus]:
    """Shows the studies again and again until no run of the sweep waits or runs any more, or until Ctrl-C; the last status."""
    import time

    while any(_may_go_on(state) for one in found.values() for state in one.states):
        try:
            time.sleep(every_s)
            found = _read_studies(runs, sweep)
        except KeyboardInterrupt:
            break
        click.clear()  # does nothing where there is no terminal
        click.echo(_text(found))
    return found


def _may_go_on(state: RunState) -> bool:
    """Whether the run may still change: a controller that does not answer just now has not ended a job."""
    in_doubt = state.phase == "unknown" and state.job is not None
    return state.in_sweep and (state.phase in ("queued", "running") or in_doubt)
