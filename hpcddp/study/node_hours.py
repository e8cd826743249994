"""Node hours that a study has used so far, by its records."""

from __future__ import annotations

import time
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hpcddp.core.errors import HpcddpError
from hpcddp.core.records import steps_file
from hpcddp.core.run_root import Study, job_of, newest_of
from hpcddp.study.outcome import read_end
from hpcddp.study.study_records import read_record


@dataclass(frozen=True, kw_only=True)
class _Launch:
    """What launch.json says of an attempt's nodes and time. Of a study's thousands of attempts nothing else is decoded."""

    backend: str | None = None
    started_unix_ns: int | None = None
    hosts: tuple[str, ...] = ()
    environment: Mapping[str, object] = field(default_factory=dict)


def used_node_hours(study: Study, running: Container[str] = (), now_ns: int | None = None) -> float:
    """Each attempt counts from when its ranks met to its end, on its nodes: the last one of a job in `running` until now, one
    that left no end until its last rows. Runs on this machine count nothing.
    """
    now_ns = time.time_ns() if now_ns is None else now_ns
    runs = (study.attempts(*run) for run in study.begun())
    return sum(_node_hours(attempt, now_ns if _is_running(attempt, of, running) else None) for of in runs for attempt in of)


def lasted_h(attempt: Path, now_ns: int | None = None) -> float:
    """Hours of one attempt by its records; `now_ns`: of one that runs, until now. 0 where its ranks never met."""
    return _lasted_h(attempt, _read_launch(attempt), now_ns)


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
