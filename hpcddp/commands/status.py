"""`hpcddp status`: what became of every run."""

from __future__ import annotations

from pathlib import Path

import click

from hpcddp.commands.options import format_option, print_json


@click.command()
@click.argument("runs", type=click.Path(exists=True, file_okay=False, path_type=Path))
@format_option
@click.pass_context
def status(ctx: click.Context, runs: Path, format_: str) -> None:
    """Tell what is queued, running, done or failed, and why.

    Of every study under RUNS. Ends with 3 while runs are missing, not over or failed.

    \b
    hpcddp status jobs/
    hpcddp status jobs/rcc-bigmnist --format json
    """
    from hpcddp.errors import INCOMPLETE, UsageError
    from hpcddp.runroot import studies
    from hpcddp.status import states_to_plain, study_states
    from hpcddp.status_text import status_table

    found = {study.name: study_states(study) for study in studies(runs.absolute())}
    if not found:
        raise UsageError(f"{runs}: no study here; `hpcddp submit SWEEP` makes one beside the sweep")
    if format_ == "json":
        print_json({"schema": 1, "studies": [{"name": name, "runs": states_to_plain(states)} for name, states in found.items()]})
    else:
        click.echo("\n\n".join(f"{name}\n{status_table(states)}" for name, states in found.items()))
    if any(state.phase != "done" for states in found.values() for state in states):
        ctx.exit(INCOMPLETE)
