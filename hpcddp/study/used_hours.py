"""Node hours and GPU hours of a study: used so far, by its records, and still to come, by the time limits of its jobs."""

from __future__ import annotations

import time
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hpcddp.core.errors import HpcddpError
from hpcddp.core.hours import Hours
from hpcddp.core.job_ids import slurm_id
from hpcddp.core.point import Point
from hpcddp.core.records import steps_file
from hpcddp.core.run_key import RunKey
from hpcddp.core.run_root import Study, job_of, newest_of
from hpcddp.study.outcome import read_end
from hpcddp.study.status import RunState
from hpcddp.study.study_records import read_point, read_record
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


def study_hours(study: Study, states: Sequence[RunState], now_ns: int | None = None) -> StudyHours:
    """Of a study whose runs are in these states. Each attempt counts from when its ranks met to its end, on its nodes: the last
    one of a job that runs until now, one that left no end until its last rows.
    """
    requested = _Requested(study, latest_events(study))
    running = {state.job for state in states if state.job and state.phase == "running"}
    return StudyHours(
        used=_used(study, requested, running, time.time_ns() if now_ns is None else now_ns),
        to_come=_to_come(requested, states),
    )


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
        """Of its job; None where its point is not known."""
        event = self.events.get(key)
        if event is not None and event.nodes is not None:
            return event.nodes
        point = self.point(key.label)
        return None if point is None else point.layout.nodes


def _used(study: Study, requested: _Requested, running: Container[str], now_ns: int) -> Hours:
    used = Hours()
    for key in study.begun():
        attempts = study.attempts(*key)
        for attempt in attempts:
            node_h = _node_hours(attempt, now_ns if _is_running(attempt, attempts, running) else None)
            used += Hours(node=node_h, gpu=node_h * requested.gpus_per_node(key) if node_h else 0.0)
    return used


def _to_come(requested: _Requested, states: Sequence[RunState]) -> Hours | None:
    """A job that several runs share counts once."""
    by_job: dict[str, Hours] = {}
    for state in states:
        event = requested.events.get(state.key)
        if event is None or event.job is None or event.backend != "slurm" or state.phase not in ("queued", "running", "unknown"):
            continue
        nodes = requested.nodes(state.key)
        if state.limit_left_s is None or nodes is None:
            return None
        node_h = nodes * state.limit_left_s / 3600
        by_job[slurm_id(event.job)] = Hours(node=node_h, gpu=node_h * requested.gpus_per_node(state.key))
    return sum(by_job.values(), Hours())


def lasted_h(attempt: Path, now_ns: int | None = None) -> float:
    """Hours of one attempt by its records; `now_ns`: of one that runs, until now. 0 where its ranks never met, and on this
    machine, which no job of a cluster has."""
    launch = _read_launch(attempt)
    return 0.0 if launch.backend == "local" else _lasted_h(attempt, launch, now_ns)


def _lasted_h(attempt: Path, launch: _Launch, now_ns: int | None) -> float:
    started_ns = launch.started_unix_ns
    if started_ns is None:
        return 0.0
    end = read_end(attempt)
    ended_ns = end.ended_unix_ns if end else None
    if ended_ns is None:
        ended_ns = _last_row_ns(attempt, started_ns) if now_ns is None else now_ns
    return max(0, ended_ns - started_ns) / 3.6e12


def _is_running(attempt: Path, of_run: Sequence[Path], running: Container[str]) -> bool:
    return job_of(attempt) in running and attempt == newest_of(of_run, job_of(attempt))


def _node_hours(attempt: Path, now_ns: int | None) -> float:
    launch = _read_launch(attempt)
    if launch.backend == "local":
        return 0.0
    nodes = _shared_nodes(attempt, launch) or len(launch.hosts)
    return nodes * _lasted_h(attempt, launch, now_ns)


def nodes_held(attempt: Path) -> int | None:
    """By an attempt in one allocation with others: all of its job's; None of any other."""
    return _shared_nodes(attempt, _read_launch(attempt))


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
