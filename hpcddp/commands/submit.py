"""`hpcddp submit`: everything still missing, nothing twice."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hpcddp.commands.options import (
    choosing,
    job_option,
    read_settings,
    read_study,
    remark,
    requests_for,
    runs_option,
    study_folder,
    user_of,
)

if TYPE_CHECKING:
    from hpcddp.backends.base import Backend
    from hpcddp.runroot import Study
    from hpcddp.submit import Order, SubmittedRun


@click.command()
@click.argument("sweep", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@choosing
@runs_option
@job_option
@click.option("--dry-run", is_flag=True, help="Show what would be submitted; submit nothing.")
@click.option("--smoke", is_flag=True, help="One short job first: imports, data on every node, versions, GPUs.")
@click.option("--wait", is_flag=True, help="Stay until all runs are over, showing progress.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.pass_context
def submit(
    ctx: click.Context,
    sweep: Path,
    cluster: str | None,
    settings: tuple[str, ...],
    groups: tuple[str, ...],
    conditions: tuple[str, ...],
    runs: Path | None,
    job_options: tuple[str, ...],
    dry_run: bool,
    smoke: bool,
    wait: bool,
    yes: bool,
) -> None:
    """Submit what is missing or failed of a sweep.

    Returns at once; with --wait, when all runs are over. Runs land beside the sweep, in a folder of its name. Ends with 5
    where Slurm refuses.

    \b
    hpcddp submit jobs/rcc-bigmnist.yaml --where 'layout.nodes <= 2' --smoke
    hpcddp submit jobs/local-mnist.yaml --set repeat=1 --wait -y
    """
    order = _order(sweep, cluster, settings, groups, conditions, job_options)
    study, backend = _study(sweep, runs, order)
    pending = _show(order, study, backend)
    if dry_run:
        from hpcddp.submit import obstacles

        for text in obstacles(order):
            remark(text)
        click.echo("nothing submitted: this was a dry run")
        return
    if pending:
        _submit(order, study, backend, ask=not yes, smoke=smoke)
    else:
        click.echo("nothing to submit")
    if not wait:
        return
    try:
        ctx.exit(_wait(study, backend, {planned.point.label for planned in order.points}))
    except KeyboardInterrupt:
        remark(f"the jobs go on: hpcddp status {study.folder}")
        raise


def _order(sweep: Path, *chosen: Any) -> Order:
    """`chosen`: what read_study takes beside the sweep."""
    from hpcddp.submit import Order

    source, profile, points = read_study(sweep, *chosen)
    settings = read_settings()
    requests = requests_for(source, profile, points, user_of(source, settings)) if profile.backend == "slurm" else {}
    return Order(source=source, profile=profile, points=points, requests=requests, settings=settings)


def _study(sweep: Path, runs: Path | None, order: Order) -> tuple[Study, Backend]:
    from hpcddp.backends.choose import make_backend
    from hpcddp.runroot import Study

    study = Study(study_folder(sweep, runs, order.settings).absolute())
    return study, make_backend(order.profile.backend, study)


def _show(order: Order, study: Study, backend: Backend) -> int:
    """Prints each point with what is pending of it, and the cost; the number of runs to submit."""
    from collections import Counter

    from hpcddp.plan import node_types, plan_row, remarks
    from hpcddp.status import study_states
    from hpcddp.submit import pending_runs
    from hpcddp.textout import count, table

    for text in remarks(order.profile, order.points):
        remark(text)
    repeat = order.source.sweep.repeat
    pending = pending_runs([planned.point for planned in order.points], repeat, study_states(study, backend))
    left = Counter(point.label for point, _ in pending)
    rows = [plan_row(planned, order.requests.get(planned.point.label), left[planned.point.label]) for planned in order.points]
    types = node_types(rows)
    lines = [
        (row.label, *([row.node_type] if types else []), row.nodes, row.ranks, row.batch_per_gpu, repeat - row.runs, row.runs)
        for row in rows
    ]
    header = ("point", *types, "nodes", "ranks", "batch/rank", "have", "submit")
    click.echo(table(header, lines, left=("point", *types)))
    hours = sum(row.node_hours or 0.0 for row in rows)
    cost = f", at most {hours:.1f} node hours" if order.requests and pending else ""
    click.echo(f"{count(len(pending), 'run')} to submit of {count(repeat * len(rows), 'run')}{cost}, under {study.folder}")
    return len(pending)


def _submit(order: Order, study: Study, backend: Backend, *, ask: bool, smoke: bool) -> None:
    from hpcddp.smoke import run_smoke
    from hpcddp.submit import check_order, submit_runs
    from hpcddp.textout import count

    check_order(order)
    if ask:
        click.confirm("Submit?", abort=True, err=True)
    if smoke:
        click.echo(run_smoke(study, order, backend))
    submitted: list[SubmittedRun] = []
    try:
        submit_runs(study, order, backend, submitted.append)
    finally:
        if submitted:
            jobs = [run.job for run in submitted]
            span = jobs[0] if len(jobs) == 1 else f"{jobs[0]}-{jobs[-1]}"
            click.echo(f"submitted    {count(len(jobs), 'job')}    {span}")
            click.echo(f"hpcddp status {study.folder}", err=True)


def _wait(study: Study, backend: Backend, labels: Collection[str]) -> int:
    """A line on stderr whenever something has changed; the exit code once nothing of these points waits or runs."""
    import time

    from hpcddp.backends.base import pause_s
    from hpcddp.errors import FAILED
    from hpcddp.status import study_states
    from hpcddp.status_text import progress_line, status_table
    from hpcddp.submissions import last_told

    mine = {key for key, told in last_told(study).items() if told.backend == backend.name and told.job is not None}
    shown, begun_s = None, time.monotonic()
    while True:
        states = [state for state in study_states(study, backend) if state.label in labels]
        line = progress_line(states)
        if line != shown:
            click.echo(line, err=True)
            shown = line
        doubtful = (state for state in states if state.phase == "unknown" and (state.label, state.run) in mine)
        if not any(state.phase in ("queued", "running") for state in states) and not any(doubtful):
            break  # a controller that does not answer just now has not ended a job
        time.sleep(pause_s(time.monotonic() - begun_s))
    click.echo(status_table(states))
    return FAILED if any(state.phase != "done" for state in states) else 0
