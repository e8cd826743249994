"""A plan's only job: what is said before it is submitted, whether the user wants it, a script's way to Slurm, and the wait."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from hpcddp.backends.base import Backend, JobState, wait_for_ends
from hpcddp.backends.slurm_recovery import find_job
from hpcddp.backends.slurm_send import send
from hpcddp.core.errors import RefusedError
from hpcddp.core.point import Point
from hpcddp.core.text import count
from hpcddp.script.resources import hours_at_most
from hpcddp.submit.options import Console, SubmitOptions
from hpcddp.submit.overview import dry_run_words, small_words
from hpcddp.submit.refused_requests import RequestCheck, check_requests, explained
from hpcddp.submit.submission_plan import SubmissionPlan, check_plan, lacks_account, obstacles


def one_job_words(plan: SubmissionPlan) -> str:
    """`1 job on rcc: 2 nodes x 2 ranks, partition gpu, at most 1.0 node hours, 2.0 GPU hours`"""
    if not plan.requests:
        return f"1 job on {plan.profile.name}"
    (request,) = plan.requests.values()
    size = f"{count(request.nodes, 'node')} x {count(request.ranks_per_node, 'rank')}"
    where = f"partition {request.partition}" if request.partition else "no partition requested"
    return f"1 job on {plan.profile.name}: {size}, {where}, at most {hours_at_most(request)}"


def is_wanted(
    plan: SubmissionPlan, options: SubmitOptions, console: Console, check: Callable[[], None] = lambda: None, more: str = ""
) -> bool:
    """Shows the job; False of a dry run, `more` at its end. Else `check` and what is sure to fail may raise, and the user is
    asked, unless they have said yes or the settings let so much be submitted without a question, which is said.
    """
    console.echo(one_job_words(plan))
    if options.dry_run:
        _end_dry_run(plan, console, more)
        return False
    check_plan(plan)
    check()
    hours = [hours_at_most(request) for request in plan.requests.values()]
    words = small_words(plan.settings.ask_above, hours[0]) if hours else None
    if words is not None:
        console.remark(words)
    elif not options.yes:
        console.confirm("Submit?")
    return True


def _end_dry_run(plan: SubmissionPlan, console: Console, more: str) -> None:
    """Says what would be refused, and that nothing was submitted."""
    for text in obstacles(plan):
        console.remark(text)
    found = judged(plan, [(planned.point, 1) for planned in plan.points], console)
    for text in (*found.certain, *found.uncertain):
        console.remark(text)
    console.echo(dry_run_words(plan, more))


def judged(plan: SubmissionPlan, runs: Sequence[tuple[Point, int]], console: Console) -> RequestCheck:
    """What Slurm would refuse of the runs; why it has not judged all of them is said."""
    if plan.profile.backend != "slurm" or lacks_account(plan):
        return RequestCheck()
    found = check_requests(plan, runs)
    if found.remark is not None:
        console.remark(found.remark)
    return found


def send_script(plan: SubmissionPlan, name: str, script: Path, options: Sequence[str]) -> str:
    """The id of the job. RefusedError says what of the request Slurm refuses, and the next step."""
    here = Path.cwd()
    command = ["sbatch", f"--job-name={name}", *options, f"--chdir={here}", str(script)]
    unsure = f"Check with `squeue --me --name={name}` whether it is queued. If it is not, submit it again."
    try:
        return send(name, command, lambda: find_job(name, here), unsure)
    except RefusedError as error:
        (planned,), (request,) = plan.points, plan.requests.values()
        raise explained(plan.profile, planned.point, request, error) from error


def wait_for_job(job: str, name: str, backend: Backend, console: Console, status_command: str) -> JobState:
    """Its state when it is over. Ctrl-C ends only the waiting, and the command `status_command` says more."""
    try:
        return wait_for_ends({job: name}, backend)[job]
    except KeyboardInterrupt:
        console.remark(f"The job continues. Watch it with {status_command}")
        raise
