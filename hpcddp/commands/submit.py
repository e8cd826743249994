"""`hpcddp submit`: everything still missing, nothing twice."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hpcddp.commands.options import choose_and_remark, choosing, measuring, read_settings, remark, submitting

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from hpcddp.backends.base import Backend
    from hpcddp.core.run_key import RunKey
    from hpcddp.core.run_root import Study
    from hpcddp.submit.choose import ChosenPoints
    from hpcddp.submit.options import PointOptions, SubmitOptions
    from hpcddp.submit.pending import PendingRuns
    from hpcddp.submit.submission_plan import SubmissionPlan
    from hpcddp.submit.submit import SubmittedRun


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
def submit(ctx: click.Context, /, sweep: Path, points: PointOptions, options: SubmitOptions) -> None:
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
    ctx.exit(submit_chosen(choose_and_remark(sweep, points), options))


def submit_chosen(points: ChosenPoints, options: SubmitOptions) -> int:
    """Shows what is missing, submits it and waits for it, as far as the options say; the exit code.

    With --wait again and again, where not all is submitted at once, and with --until-ci, as what is missing is known only when
    the runs so far are over.
    """
    from dataclasses import replace

    from hpcddp.backends.choose import make_backend
    from hpcddp.core.errors import FAILED, INCOMPLETE
    from hpcddp.core.run_root import Study
    from hpcddp.study.study_folder import study_folder
    from hpcddp.submit.scope import study_scope
    from hpcddp.submit.submission_plan import plan_submission

    if options.smoke and options.after:
        raise click.UsageError("--smoke tests now what --after waits for: give one of them")
    plan = plan_submission(points, read_settings(), options)
    study = Study(study_folder(plan.source.file, options.runs, plan.settings).absolute())
    backend = make_backend(plan.profile.backend, study, rules=plan.profile.slurm)
    scope = study_scope(study, plan.source.file)
    while True:
        pending = _choose(study, plan, backend, scope, options)
        _show(pending)
        if options.dry_run:
            return _end_dry_run(pending)
        submitted = _send(pending, backend, options) if _confirm(pending, backend, options) else []
        if not options.wait:
            return INCOMPLETE if _is_any_left(pending, backend, submitted) or pending.unknown else 0
        is_last = not submitted or (options.until_ci is None and len(submitted) >= len(pending.runs))
        phases = _wait(pending, backend, set() if is_last else _unsent(pending, submitted))
        if phases - {"done", "missing"}:
            return FAILED
        if is_last:
            return INCOMPLETE if "missing" in phases or _is_open(pending, options) else 0
        options = replace(options, smoke=False, yes=True)  # tested, and confirmed, the first time


def _choose(
    study: Study, plan: SubmissionPlan, backend: Backend, scope: Mapping[str, int], options: SubmitOptions
) -> PendingRuns:
    """What of the plan is to be submitted, with the runs that --until-ci adds."""
    from hpcddp.study.status import study_states
    from hpcddp.submit.pending import find_pending
    from hpcddp.submit.until_ci import with_repeats

    states = study_states(study, backend, scope)
    if options.until_ci is not None:
        from hpcddp.analysis.study.precision import precision

        known = precision(study) if states else {}
        plan, lines = with_repeats(plan, states, known, options.until_ci, options.max_repeat)
        for line in lines:
            remark(line)
    return find_pending(study, plan, states)


def _show(pending: PendingRuns) -> None:
    """Prints each point with what is pending of it, and the cost."""
    from hpcddp.submit.overview import pending_remarks, pending_text

    for text in pending_remarks(pending):
        remark(text)
    click.echo(pending_text(pending))


def _end_dry_run(pending: PendingRuns) -> int:
    """Says what would keep the runs from being submitted, and that nothing was."""
    from hpcddp.core.errors import UsageError
    from hpcddp.submit.submission_plan import obstacles

    for text in obstacles(pending.plan):
        remark(text)
    try:
        pending.affordable()
    except UsageError as error:
        remark(str(error))
    click.echo("nothing submitted: this was a dry run")
    return 0


def _confirm(pending: PendingRuns, backend: Backend, options: SubmitOptions) -> bool:
    """Whether there is something to submit, the budget holds it, the user says yes and the smoke test passes."""
    from hpcddp.submit.manifest import describe_again
    from hpcddp.submit.overview import nothing_words
    from hpcddp.submit.smoke import run_smoke
    from hpcddp.submit.submission_plan import check_plan

    if not pending.runs:
        describe_again(pending.study, pending.plan)
        click.echo(nothing_words(pending.unknown))
        return False
    if not pending.affordable():
        remark("nothing submitted: the budget does not hold one more run")
        return False
    check_plan(pending.plan)
    if not options.yes:
        click.confirm("Submit?", abort=True, err=True)
    if options.smoke:
        click.echo(run_smoke(pending.study, pending.plan, backend))
    return True


def _send(pending: PendingRuns, backend: Backend, options: SubmitOptions) -> list[SubmittedRun]:
    """The runs that were submitted; fewer than there are where the cluster takes no more for now, which is said."""
    from hpcddp.core.text import count
    from hpcddp.submit.overview import submitted_words
    from hpcddp.submit.retry import retry_until_accepted, submit_accepted

    submitted: list[SubmittedRun] = []
    to_submit = (pending.study, pending.plan, backend, submitted)
    try:
        if refused := submit_accepted(*to_submit):
            remark(refused)
        if refused and options.wait and not submitted:
            remark("waiting until one more is taken")
            if refused := retry_until_accepted(*to_submit):
                remark(refused)
    finally:
        if submitted:
            click.echo(submitted_words([run.job for run in submitted], options.max_running, options.after))
            click.echo(f"hpcddp status {shlex.quote(str(pending.study.folder))}", err=True)
    if options.max_jobs is not None and options.max_jobs <= len(submitted) < len(pending.runs):
        left = len(pending.runs) - len(submitted)
        remark(f"{count(left, 'run')} left, as --max-jobs is {options.max_jobs}: submit again for more")
    return submitted


def _is_any_left(pending: PendingRuns, backend: Backend, submitted: Sequence[SubmittedRun]) -> bool:
    """Whether anything is still to be submitted: another submission may have been faster, which is said where it took all."""
    from hpcddp.study.status import study_states
    from hpcddp.submit.pending import pending_runs

    if len(submitted) >= len(pending.runs):
        return False
    left = bool(pending_runs(pending.plan, study_states(pending.study, backend)))
    if not left and not submitted:
        click.echo("nothing to submit any more: another submission was faster")
    return left


def _unsent(pending: PendingRuns, submitted: Sequence[SubmittedRun]) -> set[RunKey]:
    from hpcddp.core.run_key import RunKey

    return {RunKey(point.label, run) for point, run in pending.runs} - {run.key for run in submitted}


def _wait(pending: PendingRuns, backend: Backend, unsent: Collection[RunKey]) -> set[str]:
    """The phases of the plan's runs when all are over, `missing` for those still to be sent; Ctrl-C ends only the waiting."""
    from hpcddp.study.status_text import status_table
    from hpcddp.submit.wait import wait_until_over

    labels = {planned.point.label for planned in pending.plan.points}
    try:
        states = wait_until_over(pending.study, backend, labels, lambda line: click.echo(line, err=True))
    except KeyboardInterrupt:
        remark(f"the jobs go on: hpcddp status {shlex.quote(str(pending.study.folder))}")
        raise
    click.echo(status_table(states))
    return {"missing" if state.key in unsent else state.phase for state in states}


def _is_open(pending: PendingRuns, options: SubmitOptions) -> bool:
    """Whether --until-ci ends with medians less well known than it says."""
    if options.until_ci is None:
        return False
    from hpcddp.analysis.study.precision import precision
    from hpcddp.submit.until_ci import open_points

    labels = [planned.point.label for planned in pending.plan.points]
    return bool(open_points(labels, precision(pending.study), options.until_ci))
