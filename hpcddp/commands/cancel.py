"""`hpcddp cancel`: end the queued and running runs of a study."""

from __future__ import annotations

from pathlib import Path

import click

from hpcddp.commands.options import RunsPath, named_sweep, yes_option


@click.command()
@click.argument("study", type=RunsPath(file_okay=False), default=".")
@click.argument("points", nargs=-1, metavar="[POINT]...")
@click.option("--not-in-sweep", is_flag=True, help="Cancel only runs that the sweep no longer contains.")
@yes_option
@click.pass_context
def cancel(ctx: click.Context, study: Path, points: tuple[str, ...], not_in_sweep: bool, yes: bool) -> None:
    """Cancel the queued and running runs of a study.

    STUDY is this folder by default. A POINT is a label, or its beginning; with POINTs only their runs are cancelled. Finished
    runs stay, and the next submit submits the cancelled ones again.

    A job that prepares data for STUDY is cancelled with all of its runs; the next submit --prepare resumes it. STUDY may also be
    the folder of the jobs of `hpcddp data`.

    --not-in-sweep reads the sweep file where STUDY is one, otherwise the record of the last submit. Runs that --until-ci added
    are in the sweep. Points submitted with --set or --comm are in it while the file contains them with these options.

    \b
    hpcddp cancel jobs/rcc-bigmnist
    hpcddp cancel jobs/rcc-bigmnist n04-g4 -y
    hpcddp cancel jobs/rcc-bigmnist.yaml --not-in-sweep
    """
    from hpcddp.core.text import count, escape_controls
    from hpcddp.study.data_jobs import cancel_data_jobs, data_job_lines, data_job_states, study_with_jobs
    from hpcddp.study.scope import study_scope
    from hpcddp.study.status import study_backends, study_states
    from hpcddp.study.status_text import status_table
    from hpcddp.submit.cancel import cancel_runs, check_known, find_interrupted, live_runs

    of = study_with_jobs(study.absolute())
    backends = study_backends(of)
    find_interrupted(of, backends)
    sweep = named_sweep(ctx)
    states = study_states(of, scope=study_scope(of, sweep) if sweep else None)
    runs = live_runs(of, states := [state for state in states if not (not_in_sweep and state.in_sweep)], points)
    jobs = [] if points or not_in_sweep else [job for job in data_job_states(of) if job.is_live]
    if not runs and not jobs:
        check_known(of, states, points)
        click.echo(f"Nothing to cancel: no run {_kind(not_in_sweep, sweep)}.")
        return
    click.echo(escape_controls("\n".join([*data_job_lines(jobs), *([status_table(runs)] if runs else [])])))
    if not yes:
        click.confirm("Cancel?", abort=True, err=True)
    if runs:
        cancel_runs(of, runs, backends)
    cancel_data_jobs(of, jobs)
    what = [count(len(runs), "run")] * bool(runs) + [count(len(jobs), "job") + " on data"] * bool(jobs)
    click.echo(f"cancelled    {' and '.join(what)}")
    check_known(of, states, points)


def _kind(not_in_sweep: bool, sweep: Path | None) -> str:
    if not not_in_sweep:
        return "is queued or running"
    by = "" if sweep else " according to the last submit. To use the sweep file, name it"
    return f"outside the sweep is queued or running{by}"
