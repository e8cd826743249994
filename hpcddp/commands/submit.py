"""`hpcddp submit`: everything still missing, nothing twice."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hpcddp.commands.not_in_sweep import name_of, not_in_sweep_words
from hpcddp.commands.options import (
    choosing,
    measuring,
    read_settings,
    read_study,
    remark,
    requests_for,
    study_folder,
    submitting,
    user_of,
)
from hpcddp.commands.sending import retry_until_accepted, send
from hpcddp.commands.submitted import submitted_words
from hpcddp.commands.unknown import nothing_words, unknown_words
from hpcddp.commands.until_ci import is_open, with_repeats
from hpcddp.commands.until_over import until_over

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcddp.backends.base import Backend
    from hpcddp.cluster.profile import ClusterProfile
    from hpcddp.core.point import Point
    from hpcddp.core.run_key import RunKey
    from hpcddp.core.run_root import Study
    from hpcddp.study.status import RunState
    from hpcddp.submit.budget import Account
    from hpcddp.submit.submission_plan import SubmissionPlan
    from hpcddp.submit.submit import SubmittedRun
    from hpcddp.sweep.expand import PlannedPoint
    from hpcddp.sweep.file import SweepFile


@click.command()
@click.argument("sweep", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@choosing
@measuring
@click.option(
    "--until-ci", type=click.FloatRange(min=0, min_open=True), metavar="PERCENT", help="Add runs until medians are known to this."
)
@click.option(
    "--max-repeat", type=click.IntRange(min=6), default=20, show_default=True, help="With --until-ci: runs of a point at most."
)
@submitting
@click.pass_context
def submit(
    ctx: click.Context,
    /,
    sweep: Path,
    cluster: str | None,
    settings: tuple[str, ...],
    groups: tuple[str, ...],
    conditions: tuple[str, ...],
    also: dict[str, Any],
    job_options: tuple[str, ...],
    **how: Any,
) -> None:
    """Submit what is missing or failed of a sweep.

    Returns at once; with --wait, when all runs are over. Runs land beside the sweep, in a folder of its name. Ends with 5
    where Slurm refuses.

    With --until-ci 2, points get six runs, then one more each time it is run, while half the 95 % interval of their median
    is wider than 2 % of it; with --wait until none is, or it ends with 3: --max-repeat, or a run that was rejected.

    With --one-allocation all runs are steps of one job with the nodes of the largest point, largest points first, for the
    sum of their times; what its time limit leaves is requeued, and what is done is not run again.

    \b
    hpcddp submit jobs/rcc-bigmnist.yaml --where 'layout.nodes <= 2' --smoke
    hpcddp submit jobs/rcc-bigmnist.yaml --group nodes --input synthetic --input io --profile-steps 5
    hpcddp submit jobs/local-mnist.yaml --set repeat=1 --wait -y
    hpcddp submit jobs/rcc-bigmnist.yaml --group nodes --until-ci 2 --wait
    hpcddp submit jobs/rcc-bigmnist.yaml --group nodes --one-allocation
    """
    carry_out(ctx, make_plan(*read_study(sweep, cluster, settings, groups, conditions, job_options, also)), **how)


def carry_out(
    ctx: click.Context,
    plan: SubmissionPlan,
    *,
    runs: Path | None,
    dry_run: bool,
    smoke: bool,
    wait: bool,
    yes: bool,
    max_running: int | None,
    max_jobs: int | None,
    after: tuple[str, ...],
    one_allocation: bool,
    until_ci: float | None = None,
    max_repeat: int = 0,
) -> None:
    """Shows what is missing, submits it and waits for it, as far as the options of `submitting` say.

    Again and again where not all are submitted at once, and with `until_ci`, as what is missing is known only when the runs so
    far are over.
    """
    from dataclasses import replace

    from hpcddp.core.errors import FAILED, INCOMPLETE
    from hpcddp.core.run_key import RunKey
    from hpcddp.study.status import study_states
    from hpcddp.submit.budget import limited
    from hpcddp.submit.manifest import describe_again
    from hpcddp.submit.one_allocation import for_one_job
    from hpcddp.submit.scope import study_scope
    from hpcddp.submit.submit import unknown_runs

    if smoke and after:
        raise click.UsageError("--smoke tests now what --after waits for: give one of them")
    plan = replace(plan, max_running=max_running, max_jobs=max_jobs, after=after)
    if one_allocation:
        plan = for_one_job(plan)
    study, backend = _study(plan, runs)
    scope = study_scope(study, plan.source.file)
    while True:
        states = study_states(study, backend, scope)
        if until_ci is not None:
            plan = with_repeats(plan, study, states, until_ci, max_repeat)
        budget = limited(study, plan, states)
        missing = _show(plan, study, states, budget)
        if dry_run:
            _end_dry_run(plan, budget, missing)
            return
        if not missing:
            describe_again(study, plan)
            click.echo(nothing_words(unknown_runs(plan, states)))
        taken = _take(plan, study, backend, budget, missing, ask=not yes, smoke=smoke, wait=wait)
        if not wait:
            left = len(taken) < len(missing) and _is_any_left(plan, study, backend, taken)
            ctx.exit(INCOMPLETE if left or unknown_runs(plan, states) else 0)
        more = taken and (until_ci is not None or len(taken) < len(missing))
        unsent = {RunKey(point.label, run) for point, run in missing} - {run.key for run in taken} if more else set()
        phases = _wait_for_all(plan, study, backend, unsent)
        if phases - {"done", "missing"} or not more:
            few = "missing" in phases or is_open(plan, study, until_ci)
            ctx.exit(FAILED if phases - {"done", "missing"} else INCOMPLETE if few else 0)
        smoke, yes = False, True  # tested, and said, the first time


def _wait_for_all(plan: SubmissionPlan, study: Study, backend: Backend, unsent: set[RunKey]) -> set[str]:
    """The phases of the order's runs when all are over, but for those that are not sent yet; Ctrl-C ends the waiting alone."""
    try:
        return until_over(study, backend, {planned.point.label for planned in plan.points}, unsent)
    except KeyboardInterrupt:
        remark(f"the jobs go on: hpcddp status {shlex.quote(str(study.folder))}")
        raise


def _take(
    plan: SubmissionPlan,
    study: Study,
    backend: Backend,
    budget: Account | None,
    missing: Sequence[tuple[Point, int]],
    *,
    ask: bool,
    smoke: bool,
    wait: bool,
) -> list[SubmittedRun]:
    """Submits what of the missing runs the budget and --max-jobs let."""
    from hpcddp.core.text import count
    from hpcddp.submit.budget import affordable

    if not missing:
        return []
    if not affordable(budget, plan, missing[: plan.max_jobs]):
        remark("nothing submitted: the budget does not hold one more run")
        return []
    taken = _submit(plan, study, backend, ask=ask, smoke=smoke, wait=wait)
    if plan.max_jobs is not None and plan.max_jobs <= len(taken) < len(missing):
        remark(f"{count(len(missing) - len(taken), 'run')} left, as --max-jobs is {plan.max_jobs}: submit again for more")
    return taken


def _end_dry_run(plan: SubmissionPlan, budget: Account | None, missing: Sequence[tuple[Point, int]]) -> None:
    """Says what would keep the runs from being submitted, and that nothing was."""
    from hpcddp.core.errors import UsageError
    from hpcddp.submit.budget import affordable
    from hpcddp.submit.submission_plan import obstacles

    for text in obstacles(plan):
        remark(text)
    try:
        affordable(budget, plan, missing[: plan.max_jobs])
    except UsageError as error:
        remark(str(error))
    click.echo("nothing submitted: this was a dry run")


def make_plan(source: SweepFile, profile: ClusterProfile, points: Sequence[PlannedPoint]) -> SubmissionPlan:
    """With the user's settings, and what Slurm would be asked for; UsageError for what the cluster would refuse."""
    from hpcddp.submit.submission_plan import SubmissionPlan

    settings = read_settings()
    requests = requests_for(source, profile, points, user_of(source, settings)) if profile.backend == "slurm" else {}
    return SubmissionPlan(source=source, profile=profile, points=points, requests=requests, settings=settings)


def _study(plan: SubmissionPlan, runs: Path | None) -> tuple[Study, Backend]:
    from hpcddp.backends.choose import make_backend
    from hpcddp.core.run_root import Study

    study = Study(study_folder(plan.source.file, runs, plan.settings).absolute())
    return study, make_backend(plan.profile.backend, study, rules=plan.profile.slurm)


def _show(plan: SubmissionPlan, study: Study, states: Sequence[RunState], budget: Account | None) -> list[tuple[Point, int]]:
    """Prints each point with what is pending of it, and the cost; the runs that are pending."""
    from collections import Counter

    from hpcddp.cluster.ownership import group_above, trusted_gids
    from hpcddp.core.hours import Hours
    from hpcddp.core.text import count, table
    from hpcddp.submit.budget import budget_words, each_at_most
    from hpcddp.submit.one_allocation import allocation_words
    from hpcddp.submit.plan import hours_of, plan_row, remarks, telling_apart
    from hpcddp.submit.submit import pending_runs, unknown_runs

    begun = {state.label for state in states if state.job is not None}
    for text in remarks(plan.profile, [planned for planned in plan.points if planned.point.label not in begun]):
        remark(text)  # of points that were submitted before it was said then
    above = None if begun else group_above(study, trusted_gids(plan.settings))
    if above is not None:
        remark(above)
    repeats, walltime_min = plan.repeats, plan.source.sweep.slurm.walltime_min
    if unknown := unknown_runs(plan, states):
        remark(unknown_words(unknown))
    gone = [state for state in states if not state.in_sweep]
    if gone and (words := not_in_sweep_words(gone, name_of(study, plan.source.file))):
        remark(words)
    pending = pending_runs(plan, states)
    left = Counter(point.label for point, _ in pending)
    rows = [
        plan_row(planned, plan.requests.get(planned.point.label), left[planned.point.label], walltime_min)
        for planned in plan.points
    ]
    keys = telling_apart(rows)
    lines = [
        (
            row.label,
            *(row.point.get(key) for key in keys.values()),
            *(row.nodes, row.ranks, row.batch_per_gpu, repeats[row.label] - row.runs, row.runs),
        )
        for row in rows
    ]
    header = ("point", *keys, "nodes", "ranks", "batch/rank", "have", "submit")
    click.echo(table(header, lines, left=("point", *keys)))
    hours = hours_of(rows)
    if plan.one_allocation and len(pending) > 1:
        click.echo(allocation_words(plan, pending[: plan.max_jobs]))
        hours = sum(each_at_most(plan, pending), Hours())
    cost = f", at most {hours}" if hours is not None and pending else ""
    click.echo(f"{count(len(pending), 'run')} to submit of {count(sum(repeats.values()), 'run')}{cost}, under {study.folder}")
    if words := budget_words(budget, plan, pending[: plan.max_jobs]):
        click.echo(words)
    return pending


def _submit(plan: SubmissionPlan, study: Study, backend: Backend, *, ask: bool, smoke: bool, wait: bool) -> list[SubmittedRun]:
    """The runs that were submitted; fewer than there are where the cluster takes no more for now, which is said."""
    from dataclasses import replace

    from hpcddp.submit.smoke import run_smoke
    from hpcddp.submit.submission_plan import check_plan

    check_plan(plan)
    if ask:
        click.confirm("Submit?", abort=True, err=True)
    if smoke:
        click.echo(run_smoke(study, plan, backend))
    submitted: list[SubmittedRun] = []
    try:
        if not send(plan, study, backend, submitted) and wait and not submitted:
            remark("waiting until one more is taken")
            retry_until_accepted(plan if plan.one_allocation else replace(plan, max_jobs=1), study, backend, submitted)
            send(replace(plan, max_jobs=plan.max_jobs and plan.max_jobs - 1), study, backend, submitted)
    finally:
        if submitted:
            click.echo(submitted_words([run.job for run in submitted], plan.max_running, plan.after))
            click.echo(f"hpcddp status {shlex.quote(str(study.folder))}", err=True)
    return submitted


def _is_any_left(plan: SubmissionPlan, study: Study, backend: Backend, taken: Sequence[SubmittedRun]) -> bool:
    """Whether anything is still to be submitted: another submission may have been faster, which is said where it took all."""
    from hpcddp.study.status import study_states
    from hpcddp.submit.submit import pending_runs

    left = bool(pending_runs(plan, study_states(study, backend)))
    if not left and not taken:
        click.echo("nothing to submit any more: another submission was faster")
    return left
