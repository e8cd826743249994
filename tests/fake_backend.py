"""A cluster that answers what it is told: what callers make of its answers is tested exactly."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from hpcddp.backends.base import Batch, JobState, Submission
from hpcddp.core.run_root import Study


class FakeBackend:
    """Queues everything; `states` says what became of a job, `on_submit` may refuse or break off, once it is queued."""

    name = "slurm"

    def __init__(self, states: Mapping[str, JobState] | None = None) -> None:
        self.states = dict(states or {})
        self.queued: dict[str, Submission] = {}
        self.batches_taken: dict[str, Batch] = {}
        self.polled: list[dict[str, str]] = []
        self.on_submit: Callable[[Submission], None] = lambda submission: None

    @contextmanager
    def breaking_off(self, *, arrived: bool) -> Iterator[None]:
        """Whoever submits is gone before there is an answer; whether the job had `arrived`."""

        def break_off(submission: Submission) -> None:
            if not arrived:
                self.queued.clear()
            raise KeyboardInterrupt

        before, self.on_submit = self.on_submit, break_off
        yield
        self.on_submit = before

    def check(self, submission: Submission) -> None:
        """Takes everything."""

    def submit(self, submission: Submission) -> str:
        job = str(100 + len(self.queued))
        self.queued[job] = submission
        self.on_submit(submission)
        return job

    def batches(self, submissions: Sequence[Submission]) -> list[Batch]:
        return [Batch(submissions=(submission,)) for submission in submissions]

    def submit_batch(self, batch: Batch) -> list[str]:
        if batch.one_allocation is None:
            return [self.submit(submission) for submission in batch.submissions]
        self.batches_taken[str(100 + len(self.queued))] = batch
        job = self.submit(batch.submissions[0])
        return [f"{job}+{task}" for task in range(len(batch.submissions))]

    def poll(self, jobs: Mapping[str, str]) -> dict[str, JobState]:
        self.polled.append(dict(jobs))
        return {job: self.states.get(job, JobState(phase="queued", detail="just submitted")) for job in jobs}

    def cancel(self, jobs: Mapping[str, str]) -> None:
        """Nothing runs."""

    def find(self, study: Study, name: str, token: str) -> str | None:
        names = {job: self.batches_taken[job].name if job in self.batches_taken else one.name for job, one in self.queued.items()}
        return next((job for job, one in self.queued.items() if (names[job], one.token) == (name, token)), None)
