"""Node hours and GPU hours of a study: used so far, by its records, and still to come, by the time limits of its jobs."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hpcddp.core.errors import HpcddpError
from hpcddp.core.hours import Hours
from hpcddp.core.job_ids import slurm_id
from hpcddp.core.point import Point
from hpcddp.core.records import steps_file
from hpcddp.core.run_root import RunKey, Study, job_of, newest_of
from hpcddp.study.status import RunState
from hpcddp.study.study_records import read_end, read_point, read_record
from hpcddp.study.submission_log import SubmissionEvent, latest_events


@dataclass(frozen=True, kw_only=True)
class _Launch:
    """What launch.json says of an attempt's nodes and time. Of a study's thousands of attempts nothing else is decoded."""

    backend: str | None = None
    started_unix_ns: int | None = None
    hosts: tuple[str, ...] = ()
    environment: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class StudyHours:
    """What a study's jobs take of a cluster; runs on this machine take nothing."""

    used: Hours
    to_come: Hours | None
    """At most, by what waits or runs; None where a time limit is not known, or what became of a job."""


def study_hours(study: Study, states: Sequence[RunState], now_ns: int | None = None, limit_s: float | None = None) -> StudyHours:
    """Of a study whose runs are in these states. Each attempt counts from when its ranks met to its end, on its nodes: the last
    one of a job that runs until now, one that left no end until its last rows. `limit_s`: what a run that waits or runs may take
    where nobody says how much of that is left; what it has taken is in it.
    """
    requested = _Requested(study, latest_events(study))
    live = [state for state in states if state.job and state.phase in ("running", "unknown")]
    running = {str(state.job) for state in live if state.phase == "running"}
    unmeasured = {str(state.job) for state in live if state.limit_left_s is None} if limit_s is not None else set()
    used, now_ns = Hours(), time.time_ns() if now_ns is None else now_ns
    for key in study.begun():
        attempts = study.attempts(*key)
        for attempt in attempts:
            newest = job_of(attempt) if attempt == newest_of(attempts, job_of(attempt)) else ""
            if newest not in unmeasured:
                nodes, hours = _taken(attempt, now_ns if newest in running else None)
                node_h = (nodes or requested.nodes(key) or 0) * hours
                used += Hours(node=node_h, gpu=node_h * requested.gpus_per_node(key) if node_h else 0.0)
    return StudyHours(used=used, to_come=_to_come(requested, states, limit_s))


class _Requested:
    """What Slurm was asked for: by the submission log, and by points where that does not say."""

    def __init__(self, study: Study, events: Mapping[RunKey, SubmissionEvent]) -> None:
        self.events = events
        self._study = study
        self._points: dict[str, Point | None] = {}

    def point(self, label: str) -> Point | None:
        """None where point.json is not there, or damaged: `submit` writes it again."""
        if label not in self._points:
            try:
                self._points[label] = read_point(self._study, label)
            except HpcddpError:
                self._points[label] = None
        return self._points[label]

    def gpus_per_node(self, key: RunKey) -> int:
        event = self.events.get(key)
        if event is not None and event.gpus_per_node is not None:
            return event.gpus_per_node
        point = self.point(key.label)
        return point.layout.gpus_per_node if point is not None and point.device == "cuda" else 0

    def nodes(self, key: RunKey) -> int | None:
        """Of its job; None where its point is not known, and 0 of a cluster on this machine."""
        event = self.events.get(key)
        if event is not None and event.backend == "local":
            return 0
        if event is not None and event.nodes is not None:
            return event.nodes
        point = self.point(key.label)
        return None if point is None else point.layout.nodes


def _to_come(requested: _Requested, states: Sequence[RunState], limit_s: float | None) -> Hours | None:
    """A job that several runs share counts once, or for the limits of all where its own is not known."""
    by_job: dict[str, Hours] = {}
    for state in states:
        event = requested.events.get(state.key)
        if event is None or event.job is None or event.backend == "local" or state.phase not in ("queued", "running", "unknown"):
            continue
        nodes, left_s = requested.nodes(state.key), limit_s if state.limit_left_s is None else state.limit_left_s
        if left_s is None or nodes is None:
            if limit_s is None:
                return None
            continue
        node_h, job = nodes * left_s / 3600, slurm_id(event.job)
        before = by_job.get(job, Hours()) if state.limit_left_s is None else Hours()
        by_job[job] = before + Hours(node=node_h, gpu=node_h * requested.gpus_per_node(state.key))
    return sum(by_job.values(), Hours())


def _taken(attempt: Path, now_ns: int | None) -> tuple[int, float]:
    """Nodes and hours of one attempt by its records; `now_ns`: of one that runs, until now. No hours where its ranks never met,
    and on this machine, which no job of a cluster has.
    """
    launch = _read_launch(attempt)
    nodes, started_ns = _shared_nodes(attempt, launch) or len(launch.hosts), launch.started_unix_ns
    if started_ns is None or launch.backend == "local":
        return nodes, 0.0
    end = read_end(attempt)
    ended_ns = end.ended_unix_ns if end else None
    if ended_ns is None:
        ended_ns = _last_row_ns(attempt, started_ns) if now_ns is None else now_ns
    return nodes, max(0, ended_ns - started_ns) / 3.6e12


def _shared_nodes(attempt: Path, launch: _Launch) -> int | None:
    nodes = launch.environment.get("SLURM_JOB_NUM_NODES") if "+" in attempt.name else None
    return int(nodes) if isinstance(nodes, str) and nodes.isdecimal() else None


def _last_row_ns(attempt: Path, begun_ns: int) -> int:
    try:
        return steps_file(attempt, 0).stat().st_mtime_ns
    except OSError:
        return begun_ns


def _read_launch(attempt: Path) -> _Launch:
    """One of which nothing is known where there is no launch.json, or a damaged one."""
    try:
        return read_record(_Launch, attempt / "launch.json") or _Launch()
    except (HpcddpError, OSError):
        return _Launch()
