"""What became of every run of a study: its records first, then what the backend says of its job."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from hpcddp.backends.base import Backend, JobState
from hpcddp.backends.slurm_allocation import had_its_turn, turn
from hpcddp.core.job_outcomes import JobRun, note_outcomes
from hpcddp.core.launcher import first_failure
from hpcddp.core.point import Point, point_from_dict
from hpcddp.core.run_key import RunKey
from hpcddp.core.run_root import Study, job_of, newest_of
from hpcddp.study.diagnosis import AGAIN, Reason, reason_of, without_node
from hpcddp.study.logs import last_words
from hpcddp.study.outcome import read_end, read_object, recorded_end
from hpcddp.study.progress import read_progress
from hpcddp.study.submission_log import SubmissionEvent, latest_events, user_name
from hpcddp.study.time_limit import time_limit_words

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
    start: str | None = None
    """While it waits: when Slurm expects to start it, as ISO 8601."""
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
    """Every run asked for or begun, by label and number. Jobs of a backend that is not given are judged by their records.

    `scope`: of the sweep as it is now; over what study.json says of it, which is as of the last submission.
    """
    seen = _see(study, scope)
    polled: dict[_Job, JobState] = {}
    for backend in backends:
        polled |= _poll(backend, seen.left(backend.name))
    return seen.states(polled)


def all_states(studies: Sequence[Study], scope: Scope | None = None) -> dict[str, list[RunState]]:
    """Of each study, by its name. What all of them have on one cluster is asked for together. `scope` as in run_states."""
    from hpcddp.backends.choose import make_backend

    seen = [_see(study, scope) for study in studies]
    on_slurm = [line for one in seen for line in one.left("slurm")]
    polled = _poll(make_backend("slurm", *studies), on_slurm) if on_slurm else {}
    local = [_poll(make_backend("local", one.study), one.left("local")) for one in seen]  # where ids are the study's own
    return {one.study.name: one.states(polled | here) for one, here in zip(seen, local, strict=True)}


_Job = tuple[str, str, str]
"""Backend, id and name: an id may be given out again."""


@dataclass(frozen=True)
class StudyView:
    """What a study's own files say of its runs."""

    study: Study
    runs: list[RunKey]
    told: Mapping[RunKey, SubmissionEvent]
    done: Mapping[RunKey, RunState]
    scope: Scope

    def left(self, backend: str) -> list[SubmissionEvent]:
        """The jobs of that backend whose runs have not come to their end."""
        open_runs = (line for key, line in self.told.items() if key not in self.done)
        return [line for line in open_runs if line.backend == backend and line.job is not None]

    def states(self, polled: Mapping[_Job, JobState]) -> list[RunState]:
        """What is learned of jobs that left no end is noted for those who cannot ask."""
        found = [self.done.get(key) or _unfinished(self.study, key, self.told.get(key), polled) for key in self.runs]
        note_outcomes(self.study, [outcome for state in found if (outcome := _outcome(state))])
        return [placed for state in found if (placed := _placed(state, self.scope)) is not None]


def _outcome(state: RunState) -> tuple[JobRun, str | None] | None:
    """Why the run's job failed, None where it is at work; nothing of a run that is done, or of which nobody knows."""
    if state.job is None or state.phase not in ("failed", "queued", "running"):
        return None
    reason = state.detail or "reason unknown"
    return JobRun(state.label, state.run, state.job), _by_name(reason) if state.phase == "failed" else None


def _see(study: Study, scope: Scope | None) -> StudyView:
    told, asked = latest_events(study), read_study_file(study)
    runs = _runs(study, asked, told)
    recorded = {entry["label"]: entry["in_sweep"] for entry in asked["points"] if "in_sweep" in entry}
    done = {key: state for key in runs if (state := _done(study, *key)) is not None}
    return StudyView(study, runs, told, done, {**recorded, **(scope or {})})


def _placed(state: RunState, scope: Scope) -> RunState | None:
    """With whether the sweep still has it: where not, nothing is to be done for it, and it is not missing."""
    if state.run <= scope.get(state.label, state.run):
        return state
    return None if state.phase == "missing" else replace(state, in_sweep=False, next_step=None)


def study_backends(study: Study) -> list[Backend]:
    """The backends that the study's runs were submitted to."""
    from hpcddp.backends.choose import make_backend

    return [make_backend(name, study) for name in sorted({told.backend for told in latest_events(study).values()})]


def states_to_plain(states: list[RunState]) -> list[dict[str, Any]]:
    """For JSON: a mapping per run, None where something is not known."""
    return [asdict(state) for state in states]


def _runs(study: Study, asked: Mapping[str, Any], told: Mapping[RunKey, SubmissionEvent]) -> list[RunKey]:
    """Asked for by study.json, submitted, or with a folder of records; none of a point that was dropped."""
    wanted = {
        RunKey(entry["label"], run) for entry in asked["points"] for run in range(1, entry.get("repeat", asked["repeat"]) + 1)
    }
    return sorted(key for key in {*wanted, *told, *study.begun()} if study.has_point(key.label))


def read_study_file(study: Study) -> dict[str, Any]:
    """study.json; one without points where nothing was submitted from here."""
    return read_object(study.study_file) or {"points": [], "repeat": 0}


def _done(study: Study, label: str, run: int) -> RunState | None:
    """The run by the newest attempt that came to its end; None while there is none."""
    for attempt in reversed(study.attempts(label, run)):
        os.listdir(attempt)  # makes NFS forget that end.json was not there (nfs(5), close-to-open): it may for a minute
        end = read_end(attempt)
        if end is not None and end.get("state") == "done":
            failed = [gate["name"] for gate in end.get("gates", []) if not gate["passed"]]
            detail = f"gate failed: {', '.join(failed)}; analyze says why" if failed else None
            return RunState(label=label, run=run, phase="done", detail=detail, job=job_of(attempt))
    return None


def _poll(backend: Backend, lines: Sequence[SubmissionEvent]) -> dict[_Job, JobState]:
    """What became of the jobs: in one question, and one more for those whose id another of them bears too."""
    found: dict[_Job, JobState] = {}
    left = {(str(line.job), line.name) for line in lines}
    while left:
        once = dict(left)
        found |= {(backend.name, job, once[job]): state for job, state in backend.poll(once).items()}
        left -= set(once.items())
    return found


def _unfinished(study: Study, key: RunKey, told: SubmissionEvent | None, polled: Mapping[_Job, JobState]) -> RunState:
    if told is None or told.job is None:
        return _without_job(study, key, told)
    attempt = newest_of(study.attempts(*key), told.job)
    state = polled.get((told.backend, told.job, told.name), JobState(phase="unknown"))
    state = state if told.nodes is None else turn(study.job_dir(told.job), state)
    blank = RunState(label=told.label, run=told.run, phase="failed", job=told.job, nodes=state.nodes)
    if state.phase == "unknown":
        return _by_records(study, blank, attempt, state.detail, told.backend)
    if state.phase == "queued":
        return replace(blank, phase="queued", detail=state.detail, start=state.start)
    if state.phase == "running":
        return _running(study, told, blank, attempt, state)
    ended_meanwhile = _done(study, *key)  # after its records were looked at, before its job was
    return ended_meanwhile or _failed(blank, why_failed(study, told, attempt, state))


def _running(study: Study, told: SubmissionEvent, blank: RunState, attempt: Path | None, state: JobState) -> RunState:
    """How far it is, and whether its time is enough: not of a job that several runs share, which is requeued for what is left."""
    point = read_point(study, told.label)
    progress = read_progress(attempt, point)
    limit = time_limit_words(state, progress, point, requeues=told.backend == "slurm") if told.nodes is None else None
    words, next_step = limit or (None, None)
    detail = "; ".join(text for text in (state.detail, words) if text) or None
    return replace(blank, phase="running", detail=detail, next_step=next_step, **vars(progress))


def _without_job(study: Study, key: RunKey, told: SubmissionEvent | None) -> RunState:
    blank = RunState(label=key.label, run=key.run, phase="missing")
    if told is None:
        newest = next(reversed(study.attempts(*key)), None)
        return _by_records(study, replace(blank, job=job_of(newest)), newest, None) if newest else blank
    if told.event == "refused":
        return replace(
            blank, phase="failed", detail=f"refused: {told.reason}", next_step="mend what Slurm names; then submit it again"
        )
    if told.event == "intent":
        reason = "it is being submitted, or that was interrupted: then the next `hpcddp submit` looks up what became of it"
        return replace(blank, phase="unknown", detail=reason)
    return blank


def _by_records(study: Study, blank: RunState, attempt: Path | None, doubt: str | None, backend: str = "slurm") -> RunState:
    """Without a backend: failed where the records say so, else not known, with how far it got."""
    end = recorded_end(attempt)
    if end and end.get("reason"):
        return _failed(blank, reason_of(*_as_placed(JobState(phase="failed"), end, backend), ()))
    progress = read_progress(attempt, read_point(study, blank.label))
    detail = doubt or "no end.json: it runs, or ended without a word"
    return replace(blank, phase="unknown", detail=detail, **vars(progress))


def _failed(blank: RunState, reason: Reason) -> RunState:
    return replace(blank, phase="failed", detail=reason.sentence, next_step=reason.next_step, line=reason.line)


def why_failed(study: Study, told: SubmissionEvent, attempt: Path | None, state: JobState) -> Reason:
    """What the backend saw, what the ranks recorded, and what they and the batch script wrote last."""
    folder = study.job_dir(str(told.job))
    seen = replace(state, by=you_or(state.by), detail=first_failure(folder) or state.detail)
    cancelled_by = you_or(told.reason) if told.event == "cancelled" else None
    log = [*last_words(folder), *(() if told.nodes is None else last_words(folder.parent))]
    steps_made = None if told.nodes is not None else read_progress(attempt, read_point(study, told.label)).steps_done
    reason = reason_of(*_as_placed(seen, recorded_end(attempt), told.backend), log, cancelled_by, steps_made)
    if told.nodes is None or cancelled_by or had_its_turn(folder):
        return reason
    next_step = AGAIN if seen.word in ("TIMEOUT", "DEADLINE") else reason.next_step
    return replace(reason, sentence=f"its turn did not come: {reason.sentence}", next_step=next_step)


def _as_placed(seen: JobState, end: Mapping[str, Any] | None, backend: str) -> tuple[JobState, Mapping[str, Any] | None]:
    return (seen, end) if backend == "slurm" else without_node(seen, end)


def you_or(user: str | None) -> str | None:
    """`you` for the one who asks."""
    return "you" if user is not None and user == user_name() else user


def _by_name(reason: str) -> str:
    """For other readers: whoever is `you` to the one who asks."""
    return re.sub(r"\bby you\b", f"by {user_name()}", reason)


def read_point(study: Study, label: str) -> Point | None:
    plain = read_object(study.point_file(label))
    return None if plain is None else point_from_dict(plain["point"])
