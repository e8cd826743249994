"""What is said before a plan's only job is submitted: what it asks for, what would be refused, whether the user wants it."""

from __future__ import annotations

from hpcddp.core.text import count
from hpcddp.script.resources import hours_at_most
from hpcddp.submit.console import Console
from hpcddp.submit.options import SubmitOptions
from hpcddp.submit.overview import dry_run_words, small_words
from hpcddp.submit.request_check import check_requests
from hpcddp.submit.submission_plan import SubmissionPlan, lacks_account, obstacles


def one_job_words(plan: SubmissionPlan) -> str:
    """`1 job on rcc: 2 nodes x 2 ranks, partition gpu, at most 1.0 node hours, 2.0 GPU hours`"""
    if not plan.requests:
        return f"1 job on {plan.profile.name}"
    (request,) = plan.requests.values()
    size = f"{count(request.nodes, 'node')} x {count(request.ranks_per_node, 'rank')}"
    where = f"partition {request.partition}" if request.partition else "no partition asked for"
    return f"1 job on {plan.profile.name}: {size}, {where}, at most {hours_at_most(request)}"


def end_dry_run(plan: SubmissionPlan, console: Console, more: str = "") -> None:
    """Says what would be refused, and that nothing was submitted; `more` is the end of that sentence."""
    for text in obstacles(plan):
        console.remark(text)
    if plan.requests and not lacks_account(plan):
        found = check_requests(plan, [(planned.point, 1) for planned in plan.points])
        for text in (*([found.remark] if found.remark else []), *found.certain, *found.uncertain):
            console.remark(text)
    console.echo(dry_run_words(plan, more))


def confirm_one_job(plan: SubmissionPlan, options: SubmitOptions, console: Console) -> None:
    """Asks, unless the user has said yes or the settings let so much be submitted without a question, which is said."""
    hours = [hours_at_most(request) for request in plan.requests.values()]
    words = small_words(plan.settings.ask_above, hours[0]) if hours else None
    if words is not None:
        console.remark(words)
    elif not options.yes:
        console.confirm("Submit?")
