"""What `hpcddp submit` says before it submits and after."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby

from hpcddp.cluster.ownership import group_above, trusted_gids
from hpcddp.core.hours import Budget, Hours
from hpcddp.core.job_ids import base_id, slurm_id
from hpcddp.core.run_root import run_ranges
from hpcddp.core.text import count, thousands
from hpcddp.study.scope import not_in_sweep_words
from hpcddp.study.status import RunState
from hpcddp.study.study_folder import sweep_or_folder
from hpcddp.submit.budget import budget_words, hours_of_runs
from hpcddp.submit.one_allocation import allocation_words
from hpcddp.submit.options import SubmitOptions
from hpcddp.submit.pending import PendingRuns, none_failed_words, reasons_text
from hpcddp.submit.plan import plan_row, points_table, queue_columns, queue_words, total_hours
from hpcddp.submit.plan_groups import Sums, groups_text
from hpcddp.submit.remarks import remarks
from hpcddp.submit.submission_plan import SubmissionPlan


def pending_remarks(pending: PendingRuns) -> Iterator[str]:
    """What the user should know before more is submitted; of points that were submitted earlier it was said then."""
    plan, begun = pending.plan, {state.label for state in pending.states if state.job is not None}
    yield from remarks(plan.profile, [planned for planned in plan.points if planned.point.label not in begun])
    if not begun and (above := group_above(pending.study, trusted_gids(plan.settings))) is not None:
        yield above
    if pending.unknown:
        yield unknown_words(pending.unknown)
    gone = [state for state in pending.states if not state.in_sweep]
    if gone and (words := not_in_sweep_words(gone, sweep_or_folder(pending.study, plan.source.file))):
        yield words


def pending_text(pending: PendingRuns) -> str:
    """Each point with the runs it has and those to submit, and what these cost at most."""
    plan, repeats = pending.plan, pending.plan.repeats
    if plan.options.failed and not pending.runs:
        return none_failed_words(pending)
    left = Counter(point.label for point, _ in pending.runs)
    missing = Counter(point.label for point, _ in pending.missing)
    walltime_min = plan.source.sweep.slurm.walltime_min
    rows = [
        plan_row(planned, plan.requests.get(planned.point.label), left[planned.point.label], walltime_min)
        for planned in plan.points
        if left[planned.point.label] or not plan.options.failed
    ]
    hours = None if plan.options.one_allocation else total_hours(rows)
    if plan.options.each_point:
        columns: dict[str, Sequence[object]] = {
            "nodes": [row.nodes for row in rows],
            "ranks": [row.ranks for row in rows],
            "batch/rank": [row.batch_per_gpu for row in rows],
            "have": [repeats[row.label] - row.runs - missing[row.label] for row in rows],
            "submit": [row.runs for row in rows],
            **queue_columns(rows),
        }
        lines = [points_table(rows, columns), *([words] if (words := queue_words(rows)) else [])]
    else:
        sums: Sums = {
            "points": lambda _: 1,
            "have": lambda row: repeats[row.label] - row.runs - missing[row.label],
            "submit": lambda row: row.runs,
            "node h": lambda row: None if hours is None else row.node_hours,
        }
        lines = [groups_text(plan.source.groups, rows, sums), ""]
    if plan.options.one_allocation and pending.runs:
        lines.append(allocation_words(plan, pending.next_runs))
        hours = sum(hours_of_runs(plan, pending.runs), Hours())
    cost = f", at most {hours}" if hours is not None and pending.runs else ""
    runs = f"{count(len(pending.runs), 'run')} to submit of {count(sum(repeats.values()), 'run')}"
    others = f" ({thousands(len(pending.missing))} more missing)" if pending.missing else ""
    lines.append(f"{runs}{others}{cost}\nunder {pending.study.folder}")
    if words := budget_words(pending.account, plan, pending.next_runs):
        lines.append(words)
    if plan.options.failed:
        lines += ["", reasons_text(pending)]
    return "\n".join(lines)


def unasked_words(pending: PendingRuns, *, waits: bool, adds_runs: bool) -> str | None:
    """Why no question is needed; None where the command may submit more than `ask_above`, now or later (`waits`, `adds_runs`)."""
    limit = pending.plan.settings.ask_above
    if not limit or (waits and adds_runs):
        return None
    runs = pending.runs if waits else pending.affordable()
    return small_words(limit, sum(hours_of_runs(pending.plan, runs), Hours()))


def small_words(limit: Budget, hours: Hours) -> str | None:
    """Why so much needs no question; None where it does, or where there is no limit below which none is needed."""
    return (
        f"No confirmation needed: the runs take at most {hours}, and ask_above is {limit}."
        if limit and limit.holds(hours)
        else None
    )


def unknown_words(unknown: Sequence[RunState]) -> str:
    """Which runs nobody knows of, why, and the next step."""
    runs = run_ranges(state.key for state in unknown)
    what = f"The state of {count(len(unknown), 'run')} is unknown: {runs} ({unknown[0].detail})"
    return f"{what}. No unknown run is submitted. Run `hpcddp submit` again when their state is known."


def submitted_words(jobs: Sequence[str], options: SubmitOptions) -> str:
    """How many jobs, from the first to the last of them, and what keeps them from starting all at once. Tasks of an array are
    as scancel takes them: `12_[0-249]-16`; runs in one allocation are one job.
    """
    groups = [list(same) for _, same in groupby(map(slurm_id, dict.fromkeys(jobs)), key=base_id)]
    ends = (same[0] if len(set(same)) == 1 else f"{base_id(same[0])}_[0-{len(same) - 1}]" for same in (groups[0], groups[-1]))
    in_allocation = sum("+" in job for job in jobs)
    one_by_one = f", {count(in_allocation, 'run')} one after the other" if in_allocation else ""
    at_once = None if in_allocation == len(jobs) else options.max_running
    at_most = "" if at_once is None else f", at most {at_once} at a time"
    later = f", to start after {' and '.join(options.after)} completed successfully" if options.after else ""
    number = len(set(map(slurm_id, jobs)))
    return f"submitted    {count(number, 'job')}    {'-'.join(dict.fromkeys(ends))}{one_by_one}{at_most}{later}"


def dry_run_words(plan: SubmissionPlan, more: str = "") -> str:
    """That nothing was submitted, `more` at its end, and what jobs would wait for."""
    later = (
        f"\nThe jobs would start after {' and '.join(plan.options.after)} completed successfully." if plan.options.after else ""
    )
    return f"Nothing was submitted: this was a dry run{more}.{later}"
