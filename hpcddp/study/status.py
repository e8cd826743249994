"""What became of every run of a study: its records first, then what the backend says of its job."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from hpcddp.backends.base import Backend, JobState
from hpcddp.backends.slurm_allocation import task_state, was_started
from hpcddp.backends.slurm_words import time_s
from hpcddp.core.attempt_records import AttemptEnd, replaced_words
from hpcddp.core.causes import AGAIN
from hpcddp.core.launcher import first_failure
from hpcddp.core.run_root import RunKey, Study, job_of, newest_of, run_order
from hpcddp.core.study_files import JobRun, StudyRecord, note_outcomes
from hpcddp.study.diagnosis import Reason, never_started, reason_of, without_node
from hpcddp.study.logs import last_words
from hpcddp.study.progress import read_progress, time_limit_words
from hpcddp.study.study_records import read_end, read_point, read_study_file, recorded_end
from hpcddp.study.submission_log import SubmissionEvent, latest_events, user_name

Phase = Literal["missing", "queued", "running", "done", "failed", "unknown"]


@dataclass(frozen=True, kw_only=True)
class RunState:
    """One run."""

    label: str
    run: int
    phase: Phase
    detail: str | None = None
    """Why it waits, or failed, or is not known, in words."""
    next_step: str | None = None
    """Of a run that failed, or will not finish in its time: what to do."""
    line: str | None = None
    """Of a run that failed: the line of a log that says why, where `detail` is not that line already."""
    job: str | None = None
    nodes: str | None = None
    steps_done: int | None = None
    """While it runs: of rank 0, warm-up included."""
    steps_total: int | None = None
    samples_per_s: float | None = None
    left_s: float | None = None
    """Until its last step, at the pace of the last ones."""
    start_up_s: float | None = None
    """What it took from srun to its first step."""
    staging_s: float | None = None
    """How long it waited for its data to be copied to the nodes; not in `start_up_s`."""
    start: str | None = None
    """While it waits: when Slurm expects to start it, as ISO 8601."""
    limit_left_s: float | None = None
    """While it waits or runs: of its job's time limit, all of it while the job waits."""
    in_sweep: bool = True
    """False: its point was taken out of the sweep, or `repeat` was lowered, since it was submitted."""

    @property
    def key(self) -> RunKey:
        """Which run it is."""
        return RunKey(self.label, self.run)


Scope = Mapping[str, int]
"""By label, how many runs of the point its sweep has; 0: it was taken out of it. Without an entry that is not known."""


def study_states(study: Study, backend: Backend | None = None, scope: Scope | None = None) -> list[RunState]:
    """run_states with every backend the study's runs went to, and `backend`."""
    given = [] if backend is None else [backend]
    others = (other for other in study_backends(study) if other.name not in {one.name for one in given})
    return run_states(study, *given, *others, scope=scope)


def run_states(study: Study, *backends: Backend, scope: Scope | None = None) -> list[RunState]:
    """Every run planned or begun, by label and number. Jobs of a backend that is not given are judged by their records. `scope`:
    of the sweep as it is now; over what study.json says of it, which is as of the last submission.
    """
    view = _view(study, scope)
    polled: dict[_Job, JobState] = {}
    for backend in backends:
        polled |= _poll(backend, view.unfinished(backend.name))
    return view.states(polled)


def all_states(studies: Sequence[Study], scope: Scope | None = None) -> dict[str, list[RunState]]:
    """Of each study, by its name: Slurm is queried once for the jobs of all of them. `scope` as in run_states."""
    from hpcddp.backends.choose import make_backend

    views = [_view(study, scope) for study in studies]
    on_slurm = [event for view in views for event in view.unfinished("slurm")]
    polled = _poll(make_backend("slurm", *studies), on_slurm) if on_slurm else {}
    found = {}
    for view in views:  # other backends' ids are the study's
        others = {event.backend for event in view.events.values()} - {"slurm"}
        own = [_poll(make_backend(name, view.study), view.unfinished(name)) for name in sorted(others)]
        found[view.study.name] = view.states({job: state for jobs in (polled, *own) for job, state in jobs.items()})
    return found


_Job = tuple[str, str, str]
"""Backend, id and name: an id may be given out again."""


@dataclass(frozen=True)
class StudyView:
    """What a study's own files say of its runs."""

    study: Study
    runs: list[RunKey]
    events: Mapping[RunKey, SubmissionEvent]
    """The latest on each run."""
    done: Mapping[RunKey, RunState]
    scope: Scope

    def unfinished(self, backend: str) -> list[SubmissionEvent]:
        """The jobs of that backend whose runs have not come to their end."""
        unfinished = (event for key, event in self.events.items() if key not in self.done)
        return [event for event in unfinished if event.backend == backend and event.job is not None]

    def states(self, polled: Mapping[_Job, JobState]) -> list[RunState]:
        """Why jobs failed is written to outcomes.jsonl, for the analysis, which queries no backend."""
        found = [self.done.get(key) or _unfinished(self.study, key, self.events.get(key), polled) for key in self.runs]
        note_outcomes(self.study, [outcome for state in found if (outcome := _outcome(state))])
        return [placed for state in found if (placed := _placed(state, self.scope)) is not None]


def _outcome(state: RunState) -> tuple[JobRun, str | None] | None:
    """The run's job and why it failed (None while it waits or runs); nothing of a run that is done or unknown."""
    if state.job is None or state.phase not in ("failed", "queued", "running"):
        return None
    reason = re.sub(r"\bby you\b", f"by {user_name()}", state.detail or "reason unknown")  # for other readers
    return JobRun(state.label, state.run, state.job), reason if state.phase == "failed" else None


def _view(study: Study, scope: Scope | None) -> StudyView:
    events, study_file = latest_events(study), read_study_file(study)
    runs = _runs(study, study_file, events)
    recorded = {point.label: point.in_sweep for point in study_file.points if point.in_sweep is not None}
    done = {key: state for key in runs if (state := _done(study, key)) is not None}
    return StudyView(study, runs, events, done, {**recorded, **(scope or {})})


def _placed(state: RunState, scope: Scope) -> RunState | None:
    """With whether the sweep still has the run; one that it does not have needs no next step, and is not missing."""
    if state.run <= scope.get(state.label, state.run):
        return state
    return None if state.phase == "missing" else replace(state, in_sweep=False, next_step=None)


def study_backends(study: Study) -> list[Backend]:
    """The backends that the study's runs were submitted to."""
    from hpcddp.backends.choose import make_backend

    return [make_backend(name, study) for name in sorted({event.backend for event in latest_events(study).values()})]


def states_to_plain(states: list[RunState]) -> list[dict[str, Any]]:
    """For JSON: a mapping per run, None where something is not known."""
    return [asdict(state) for state in states]


def _runs(study: Study, study_file: StudyRecord, events: Iterable[RunKey]) -> list[RunKey]:
    """Those in study.json, submitted, or with a folder of records; none of a point that was dropped."""
    repeats = {point.label: study_file.repeat if point.repeat is None else point.repeat for point in study_file.points}
    planned = {RunKey(label, run) for label, repeat in repeats.items() for run in range(1, repeat + 1)}
    return sorted((key for key in {*planned, *events, *study.begun()} if study.has_point(key.label)), key=run_order)


def _done(study: Study, key: RunKey) -> RunState | None:
    """The run by the newest attempt that came to its end; None while there is none."""
    for attempt in reversed(study.attempts(*key)):
        os.listdir(attempt)  # makes NFS forget that end.json was not there (nfs(5), close-to-open): it may for a minute
        end = read_end(attempt)
        if end is not None and end.state == "done":
            failed = [gate.name for gate in end.gates if not gate.passed]
            gates = f"check failed: {', '.join(failed)}; `hpcddp analyze` shows the reason" if failed else None
            detail = "; ".join(text for text in (gates, replaced_words(end.damaged)) if text) or None
            return RunState(label=key.label, run=key.run, phase="done", detail=detail, job=job_of(attempt))
    return None


def _poll(backend: Backend, events: Sequence[SubmissionEvent]) -> dict[_Job, JobState]:
    """What became of the jobs: in one query, and one more where two of them have the same id."""
    found: dict[_Job, JobState] = {}
    left = {(str(event.job), event.name) for event in events}
    while left:
        by_id = dict(left)
        found |= {(backend.name, job, by_id[job]): state for job, state in backend.poll(by_id).items()}
        left -= set(by_id.items())
    return found


def _unfinished(study: Study, key: RunKey, event: SubmissionEvent | None, polled: Mapping[_Job, JobState]) -> RunState:
    if event is None or event.job is None:
        return _without_job(study, key, event)
    attempt = newest_of(study.attempts(*key), event.job)
    state = polled.get((event.backend, event.job, event.name), JobState(phase="unknown"))
    state = state if event.nodes is None else task_state(study.job_dir(event.job), state)
    blank = RunState(label=key.label, run=key.run, phase="failed", job=event.job, nodes=state.nodes)
    live = replace(blank, limit_left_s=time_s(state.time_limit) if state.time_left_s is None else max(0.0, state.time_left_s))
    if state.phase == "unknown":
        return _by_records(study, blank, attempt, state.detail, event.backend)
    if state.phase == "queued":
        return replace(live, phase="queued", detail=state.detail, start=state.start)
    if state.phase == "running":
        return _running(study, event, live, attempt, state)
    ended_meanwhile = _done(study, key)  # after its records were read, before its job was polled
    return ended_meanwhile or _failed(blank, why_failed(study, event, attempt, state))


def _running(study: Study, event: SubmissionEvent, blank: RunState, attempt: Path | None, state: JobState) -> RunState:
    """How far it is, and whether its time is enough: not of a job that several runs share, which is requeued for what is left."""
    point = read_point(study, event.label)
    progress = read_progress(attempt, point)
    limit = time_limit_words(state, progress, point, requeues=event.backend == "slurm") if event.nodes is None else None
    words, next_step = limit or (None, None)
    detail = "; ".join(text for text in (state.detail, words) if text) or None
    return replace(blank, phase="running", detail=detail, next_step=next_step, **vars(progress))


def _without_job(study: Study, key: RunKey, event: SubmissionEvent | None) -> RunState:
    blank = RunState(label=key.label, run=key.run, phase="missing")
    if event is None:
        newest = next(reversed(study.attempts(*key)), None)
        return _by_records(study, replace(blank, job=job_of(newest)), newest, None) if newest else blank
    if event.event == "refused":
        step = f"fix what {'Slurm' if event.backend == 'slurm' else 'the reason'} names; then {AGAIN}"
        return replace(blank, phase="failed", detail=f"refused: {event.reason}", next_step=step)
    if event.event == "intent":
        reason = "it is being submitted, or its submission was interrupted; the next `hpcddp submit` finds its job"
        return replace(blank, phase="unknown", detail=reason)
    return blank


def _by_records(study: Study, blank: RunState, attempt: Path | None, reason: str | None, backend: str = "slurm") -> RunState:
    """Without a backend: failed where the records say so, else not known, with how far it got."""
    end = recorded_end(attempt)
    if end and end.reason:
        return _failed(blank, reason_of(*_as_placed(JobState(phase="failed"), end, backend), ()))
    progress = read_progress(attempt, read_point(study, blank.label))
    detail = reason or "no end.json: it is running, or died without an error message"
    return replace(blank, phase="unknown", detail=detail, **vars(progress))


def _failed(blank: RunState, reason: Reason) -> RunState:
    return replace(blank, phase="failed", detail=reason.sentence, next_step=reason.next_step, line=reason.line)


def why_failed(study: Study, event: SubmissionEvent, attempt: Path | None, state: JobState) -> Reason:
    """By what the backend says, what the ranks recorded, and what they and the batch script wrote last."""
    folder = study.job_dir(str(event.job))
    job = replace(state, by=you_or(state.by), detail=first_failure(folder) or state.detail)
    cancelled_by = you_or(event.reason) if event.event == "cancelled" else None
    if event.after and attempt is None and job.word == "CANCELLED" and cancelled_by is None and job.by is None:
        return never_started(event.after)
    log = [*last_words(folder), *(() if event.nodes is None else last_words(folder.parent))]
    steps_done = None if event.nodes is not None else read_progress(attempt, read_point(study, event.label)).steps_done
    reason = reason_of(*_as_placed(job, recorded_end(attempt), event.backend), log, cancelled_by, steps_done)
    if event.nodes is None or cancelled_by or was_started(folder):
        return reason
    next_step = AGAIN if job.word in ("TIMEOUT", "DEADLINE") else reason.next_step
    return replace(reason, sentence=f"the run did not start: {reason.sentence}", next_step=next_step)


def _as_placed(job: JobState, end: AttemptEnd | None, backend: str) -> tuple[JobState, AttemptEnd | None]:
    return (job, end) if backend == "slurm" else without_node(job, end)


def you_or(user: str | None) -> str | None:
    """`you` for the user who runs this."""
    return "you" if user is not None and user == user_name() else user
