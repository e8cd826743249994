"""`hpcddp cancel`: end what waits or runs of a study."""

from __future__ import annotations

from pathlib import Path

import click

from hpcddp.commands.options import yes_option
from hpcddp.commands.runs_path import RunsPath, named_sweep


@click.command()
@click.argument("study", type=RunsPath(file_okay=False), default=".")
@click.argument("points", nargs=-1, metavar="[POINT]...")
@click.option("--not-in-sweep", is_flag=True, help="Only what was taken out of the sweep since it was submitted.")
@yes_option
@click.pass_context
def cancel(ctx: click.Context, study: Path, points: tuple[str, ...], not_in_sweep: bool, yes: bool) -> None:
    """Cancel what waits or runs of a study.

    Of STUDY, by default this folder; with POINTs, which may be the beginnings of labels, of those only. What is done stays,
    and the next submit has what was cancelled again.

    --not-in-sweep goes by the sweep file as it is now where STUDY is one, else as the last submit found it. Runs that
    --until-ci added are in the sweep, and so are points that were submitted with --set or --comm while the file gives them so.

    \b
    hpcddp cancel jobs/rcc-bigmnist
    hpcddp cancel jobs/rcc-bigmnist n04-g4 -y
    hpcddp cancel jobs/rcc-bigmnist.yaml --not-in-sweep
    """
    from hpcddp.core.run_root import single_study
    from hpcddp.core.text import count, escape_controls
    from hpcddp.study.scope import study_scope
    from hpcddp.study.status import study_backends, study_states
    from hpcddp.study.status_text import status_table
    from hpcddp.submit.cancel import cancel_runs, find_interrupted, live_runs

    of = single_study(study.absolute())
    backends = study_backends(of)
    find_interrupted(of, backends)
    sweep = named_sweep(ctx)
    states = study_states(of, scope=study_scope(of, sweep) if sweep else None)
    runs = live_runs(of, [state for state in states if not (not_in_sweep and state.in_sweep)], points)
    if not runs:
        click.echo(f"nothing to cancel: no run {_kind(not_in_sweep, sweep)}")
        return
    click.echo(escape_controls(status_table(runs)))
    if not yes:
        click.confirm("Cancel?", abort=True, err=True)
    cancel_runs(of, runs, backends)
    click.echo(f"cancelled    {count(len(runs), 'run')}")


def _kind(not_in_sweep: bool, sweep: Path | None) -> str:
    if not not_in_sweep:
        return "waits or runs"
    by = "" if sweep else " by the last submit; name the sweep file to go by that"
    return f"that is not in the sweep waits or runs{by}"
