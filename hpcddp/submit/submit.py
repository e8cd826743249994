"""From points to jobs: everything still missing, nothing twice."""

from __future__ import annotations

import dataclasses
import re
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from hpcddp.backends.base import Backend, Batch
from hpcddp.cluster.ownership import check_ownership, trusted_gids
from hpcddp.core.errors import FullError, RefusedError
from hpcddp.core.job_ids import base_id, slurm_id
from hpcddp.core.lock import HeldLock
from hpcddp.core.run_root import RunKey, Study
from hpcddp.core.text import count
from hpcddp.predict.expected import Predictions, write_prediction
from hpcddp.study.status import RunState, study_states
from hpcddp.study.study_folder import study_lock
from hpcddp.study.submission_log import Intents, SubmissionEvent, append, follow, latest_events, reconcile
from hpcddp.submit.manifest import write_manifest
from hpcddp.submit.one_allocation import allocation_batch, allocation_request
from hpcddp.submit.pending import find_pending
from hpcddp.submit.submission_plan import SubmissionPlan, check_plan, make_submissions


@dataclass(frozen=True, kw_only=True)
class SubmittedRun:
    """A run that has a job."""

    label: str
    run: int
    job: str

    @property
    def key(self) -> RunKey:
        """Which run it is."""
        return RunKey(self.label, self.run)


def submit_runs(
    study: Study, plan: SubmissionPlan, backend: Backend, on_submitted: Callable[[SubmittedRun], None] = lambda run: None
) -> list[SubmittedRun]:
    """Submits what is pending and returns at once; `on_submitted` is called with each run as soon as it has a job, also those of
    an interrupted submission. UsageError before any job, RefusedError at the first run refused: those before it are recorded.
    """
    study = Study(study.folder.absolute())
    check_plan(plan)
    check_ownership(study, trusted_gids(plan.settings))
    with study_lock(study, denied="no run can be recorded there ({}). Choose another folder with --runs") as held:
        for line in reconcile(study, backend):
            on_submitted(SubmittedRun(label=line.label, run=line.run, job=str(line.job)))
        states = study_states(study, backend)
        runs = find_pending(study, plan, states).affordable()
        if not runs:
            return []
        if plan.options.one_allocation:
            allocation_request(plan, runs)
        submissions = make_submissions(study, plan, backend.name, runs)
        for submission in submissions:
            backend.check(submission)
        write_manifest(study, plan)
        begun = {state.label for state in states if state.phase != "missing"}
        write_prediction(Predictions(study, plan.source, plan.profile, plan.points), begun)
        throttle = Throttle(plan.options.max_running, _live_jobs(study, states, backend))
        found = [allocation_batch(plan, submissions)] if plan.options.one_allocation else backend.batches(submissions)
        batches = [dataclasses.replace(batch, after_ok=plan.options.after) for batch in found]
        return _submit_all(batches, throttle, backend, held, on_submitted)


def _live_jobs(study: Study, states: Sequence[RunState], backend: Backend) -> list[str]:
    """The study's jobs on this backend that wait or run; a job that runs share counts once."""
    events = latest_events(study)
    live = (state for state in states if state.phase in ("queued", "running"))
    mine = (state.job for state in live if state.job and events[state.key].backend == backend.name)
    return list(dict.fromkeys(map(slurm_id, mine)))


def _submit_all(
    batches: Sequence[Batch], throttle: Throttle, backend: Backend, held: HeldLock, on_submitted: Callable[[SubmittedRun], None]
) -> list[SubmittedRun]:
    """Submits the batches in order, as many as the cluster takes: where a whole array is too much, half of it may not be."""
    submitted: list[SubmittedRun] = []
    left = deque(batches)
    with Intents(batches[0].study, backend.name, held) as intents:
        while left:
            batch = throttle.place(left.popleft())
            try:
                runs = _submit_batch(batch, backend, intents.take(batch, left))
            except FullError as error:
                left.extendleft(_halves(batch, left, error))
                continue
            throttle.took(batch, [run.job for run in runs])
            for run in runs:
                on_submitted(run)
            submitted += runs
    return submitted


def _halves(batch: Batch, left: Sequence[Batch], error: FullError) -> list[Batch]:
    """The halves of an array that is too much, the second one first; for a single job FullError with how many runs are left."""
    if not batch.is_array:
        waiting = sum(len(other.submissions) for other in (batch, *left))
        step = "Run `hpcddp submit` again when some of your jobs have finished."
        raise FullError(f"{error}\n{count(waiting, 'run')} not submitted yet. {step}") from error
    middle = len(batch.submissions) // 2
    halves = (batch.submissions[middle:], batch.submissions[:middle])
    return [dataclasses.replace(batch, submissions=half) for half in halves]


def _submit_batch(batch: Batch, backend: Backend, intents: Sequence[SubmissionEvent]) -> list[SubmittedRun]:
    """Submits one batch, whose intents are on disk, and notes what became of them."""
    try:
        jobs = backend.submit_batch(batch)
    except FullError:
        append(batch.study, [follow(intent, "lost") for intent in intents])
        raise
    except RefusedError as error:
        append(batch.study, [follow(intent, "refused", reason=str(error)) for intent in intents])
        raise
    append(batch.study, [follow(intent, "submitted", job=job) for intent, job in zip(intents, jobs, strict=True)])
    return [SubmittedRun(label=intent.label, run=intent.run, job=job) for intent, job in zip(intents, jobs, strict=True)]


class Throttle:
    """A slot for each run that may run at a time, whose jobs run in turn; an array takes one for each task at a time."""

    def __init__(self, slots: int | None, live: Iterable[str]) -> None:
        """`slots` None: no limit. `live`: jobs that wait or run already, each task of an array too. Any of them may run
        now: each slot starts with at most one of them, and where they are more than the slots, every slot waits for the rest too.
        """
        ids = [base_id(job) for job in sorted(live, key=lambda job: [int(number) for number in re.findall(r"\d+", job)])]
        more, free = max(0, len(ids) - (slots or 0)), max(0, (slots or 0) - len(ids))
        self._ends = [*([] for _ in range(free)), *([*ids[:more], job] for job in ids[more:])] if slots else []

    def place(self, batch: Batch) -> Batch:
        """The batch, to start after the jobs of the slots that were filled longest ago."""
        if not self._ends:
            return batch
        taken = self._ends[: _width(batch)]
        return replace(batch, at_once=len(taken), after=tuple(dict.fromkeys(job for end in taken for job in end)))

    def took(self, batch: Batch, jobs: list[str]) -> None:
        """Notes that the batch was submitted as these jobs: they are now the last in its slots."""
        taken, rest = self._ends[: _width(batch)], self._ends[_width(batch) :]
        self._ends = [*rest, *([base_id(jobs[0])] for _ in taken)]


def _width(batch: Batch) -> int:
    """How many of its runs may run at a time."""
    return 1 if batch.one_allocation else len(batch.submissions)
