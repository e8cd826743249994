"""`hpcddp cancel`: end what waits or runs of a study."""

from __future__ import annotations

from pathlib import Path

import click

from hpcddp.commands.options import RunsPath, named_sweep, yes_option


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

    A job that prepares data for STUDY is cancelled with all of its runs, and resumed by the next submit --prepare; STUDY may be
    the folder of the jobs of `hpcddp data`, too.

    --not-in-sweep goes by the sweep file as it is now where STUDY is one, else as the last submit found it. Runs that
    --until-ci added are in the sweep, and so are points that were submitted with --set or --comm while the file gives them so.

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
    from hpcddp.submit.cancel import cancel_runs, find_interrupted, live_runs

    of = study_with_jobs(study.absolute())
    backends = study_backends(of)
    find_interrupted(of, backends)
    sweep = named_sweep(ctx)
    states = study_states(of, scope=study_scope(of, sweep) if sweep else None)
    runs = live_runs(of, [state for state in states if not (not_in_sweep and state.in_sweep)], points)
    jobs = [] if points or not_in_sweep else [job for job in data_job_states(of) if job.is_live]
    if not runs and not jobs:
        click.echo(f"nothing to cancel: no run {_kind(not_in_sweep, sweep)}")
        return
    click.echo(escape_controls("\n".join([*data_job_lines(jobs), *([status_table(runs)] if runs else [])])))
    if not yes:
        click.confirm("Cancel?", abort=True, err=True)
    if runs:
        cancel_runs(of, runs, backends)
    cancel_data_jobs(of, jobs)
    what = [count(len(runs), "run")] * bool(runs) + [count(len(jobs), "job") + " on data"] * bool(jobs)
    click.echo(f"cancelled    {' and '.join(what)}")


def _kind(not_in_sweep: bool, sweep: Path | None) -> str:
    if not not_in_sweep:
        return "waits or runs"
    by = "" if sweep else " by the last submit; name the sweep file to go by that"
    return f"that is not in the sweep waits or runs{by}"
