"""Node hours that a study has used so far, by its records."""

from __future__ import annotations

import json
import time
from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import Any

from hpcddp.core.records import steps_file
from hpcddp.core.run_root import Study, job_of, newest_of


def used_node_hours(study: Study, running: Container[str] = (), now_ns: int | None = None) -> float:
    """From the meeting of an attempt's ranks to its end, on its nodes; of the last one of a job in `running`, until now; of an
    attempt that left no end, until its last rows. Runs on this machine count none.
    """
    now_ns = time.time_ns() if now_ns is None else now_ns
    runs = (study.attempts(*run) for run in study.begun())
    return sum(_node_hours(attempt, now_ns if _is_at_work(attempt, of, running) else None) for of in runs for attempt in of)


def lasted_h(attempt: Path, now_ns: int | None = None) -> float:
    """Hours of one attempt by its records; `now_ns`: of one that runs, until now. 0 where its ranks never met."""
    return _lasted_h(attempt, _read(attempt / "launch.json"), now_ns)


def _lasted_h(attempt: Path, launch: Mapping[str, Any], now_ns: int | None) -> float:
    begun_ns = launch.get("started_unix_ns")
    if not isinstance(begun_ns, int):
        return 0.0
    ended_ns = _read(attempt / "end.json").get("ended_unix_ns")
    if not isinstance(ended_ns, int):
        ended_ns = _last_row_ns(attempt, begun_ns) if now_ns is None else now_ns
    return max(0, ended_ns - begun_ns) / 3.6e12


def _is_at_work(attempt: Path, of_run: Sequence[Path], running: Container[str]) -> bool:
    return job_of(attempt) in running and attempt == newest_of(of_run, job_of(attempt))


def _node_hours(attempt: Path, now_ns: int | None) -> float:
    launch = _read(attempt / "launch.json")
    if launch.get("backend") == "local":
        return 0.0
    nodes = _shared_nodes(attempt, launch) or len(launch.get("hosts", ()))
    return nodes * _lasted_h(attempt, launch, now_ns)


def nodes_held(attempt: Path) -> int | None:
    """By an attempt in one allocation with others: all of its job's; None of any other."""
    return _shared_nodes(attempt, _read(attempt / "launch.json"))


def _shared_nodes(attempt: Path, launch: Mapping[str, Any]) -> int | None:
    environment = launch.get("environment")
    held = environment.get("SLURM_JOB_NUM_NODES") if "+" in attempt.name and isinstance(environment, dict) else None
    return int(held) if isinstance(held, str) and held.isdecimal() else None


def _last_row_ns(attempt: Path, begun_ns: int) -> int:
    try:
        return steps_file(attempt, 0).stat().st_mtime_ns
    except OSError:
        return begun_ns


def _read(file: Path) -> dict[str, Any]:
    """Empty where there is no such file, or a damaged one."""
    try:
        plain = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return {}
    return plain if isinstance(plain, dict) else {}
