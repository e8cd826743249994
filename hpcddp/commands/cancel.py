"""`hpcddp cancel`: end what waits or runs of a study."""

from __future__ import annotations

from pathlib import Path

import click

from hpcddp.commands.options import yes_option
from hpcddp.commands.runs_path import RunsPath


@click.command()
@click.argument("study", type=RunsPath(file_okay=False), default=".")
@click.argument("points", nargs=-1, metavar="[POINT]...")
@yes_option
def cancel(study: Path, points: tuple[str, ...], yes: bool) -> None:
    """Cancel what waits or runs of a study.

    Of STUDY, by default this folder; with POINTs, which may be the beginnings of labels, of those only. What is done stays,
    and the next submit has what was cancelled again.

    \b
    hpcddp cancel jobs/rcc-bigmnist
    hpcddp cancel jobs/rcc-bigmnist n04-g4 -y
    """
    from hpcddp.cancel import cancel_runs, live_runs, look_up
    from hpcddp.runroot import single_study
    from hpcddp.status import study_backends, study_states
    from hpcddp.status_text import status_table
    from hpcddp.textout import count, inert

    of = single_study(study.absolute())
    backends = study_backends(of)
    look_up(of, backends)
    runs = live_runs(of, study_states(of), points)
    if not runs:
        click.echo("nothing to cancel: no run waits or runs")
        return
    click.echo(inert(status_table(runs)))
    if not yes:
        click.confirm("Cancel?", abort=True, err=True)
    cancel_runs(of, runs, backends)
    click.echo(f"cancelled    {count(len(runs), 'run')}")
