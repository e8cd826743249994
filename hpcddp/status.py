"""What became of every run of a study: its records first, then what the backend says of its job."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from hpcddp.backends.base import Backend, JobState, job_name
from hpcddp.errors import HpcddpError
from hpcddp.point import Point, point_from_dict
from hpcddp.progress import read_progress
from hpcddp.runroot import Study
from hpcddp.submissions import Told, last_told

Phase = Literal["missing", "queued", "running", "done", "failed", "unknown"]

TAIL_BYTES = 8192

_NO_REASON = ("frame #", "<omitting", "Exception raised from", "submitit WARNING (")
"""C++ frames, which torch prints below an error of its own; submitit's remarks on signals, which any cancelled job gets."""


@dataclass(frozen=True, kw_only=True)
class RunState:
    """One run."""

    label: str
    run: int
    phase: Phase
    detail: str | None = None
    """Why it waits, or failed, or is not known, in words."""
    job: str | None = None
    nodes: str | None = None
    steps_done: int | None = None
    """While it runs: of rank 0, warm-up included."""
    steps_total: int | None = None
    samples_per_s: float | None = None


def study_states(study: Study, backend: Backend | None = None) -> list[RunState]:
    """run_states with every backend the study's runs went to, and `backend`."""
    given = [] if backend is None else [backend]
    return run_states(study, *given, *(other for other in study_backends(study) if other.name not in {one.name for one in given}))


def run_states(study: Study, *backends: Backend) -> list[RunState]:
    """Every run asked for or begun, by label and number. Jobs of a backend that is not given are judged by their records."""
    told = last_told(study)
    done = {key: state for key in _runs(study, told) if (state := _done(study, *key)) is not None}
    polled = _poll({key: line for key, line in told.items() if key not in done}, backends)
    return [done.get(key) or _unfinished(study, key, told.get(key), polled) for key in _runs(study, told)]


def study_backends(study: Study) -> list[Backend]:
    """The backends that the study's runs were submitted to."""
    from hpcddp.backends.choose import make_backend

    return [make_backend(name, study) for name in sorted({told.backend for told in last_told(study).values()})]


def states_to_plain(states: list[RunState]) -> list[dict[str, Any]]:
    """For JSON: a mapping per run, None where something is not known."""
    return [asdict(state) for state in states]


def _runs(study: Study, told: Mapping[tuple[str, int], Told]) -> list[tuple[str, int]]:
    """Asked for, submitted, or with a folder of records; none of a point that was dropped."""
    asked = read_study_file(study)
    wanted = {(entry["label"], run) for entry in asked["points"] for run in range(1, entry.get("repeat", asked["repeat"]) + 1)}
    begun = {(folder.parent.name, int(folder.name[1:])) for folder in study.folder.glob("*/r*") if folder.name[1:].isdecimal()}
    return sorted(key for key in {*wanted, *told, *begun} if study.has_point(key[0]))


def read_study_file(study: Study) -> dict[str, Any]:
    """study.json; one without points where nothing was submitted from here."""
    return _read_object(study.study_file) or {"points": [], "repeat": 0}


def _done(study: Study, label: str, run: int) -> RunState | None:
    """The run by the newest attempt that came to its end; None while there is none."""
    for attempt in reversed(study.attempts(label, run)):
        os.listdir(attempt)  # makes NFS forget that end.json was not there (nfs(5), close-to-open): it may for a minute
        end = _read_object(attempt / "end.json")
        if end is not None and end.get("state") == "done":
            failed = [gate["name"] for gate in end.get("gates", []) if not gate["passed"]]
            detail = f"gate failed: {', '.join(failed)}; analyze says why" if failed else None
            return RunState(label=label, run=run, phase="done", detail=detail, job=_job_of(attempt))
    return None


def _poll(told: Mapping[tuple[str, int], Told], backends: tuple[Backend, ...]) -> dict[tuple[str, str], JobState]:
    """(backend, job) -> state."""
    found = {}
    for backend in backends:
        lines = [line for line in told.values() if line.backend == backend.name and line.job is not None]
        for job, state in backend.poll({str(line.job): job_name(line.label, line.run) for line in lines}).items():
            found[backend.name, job] = state
    return found


def _unfinished(study: Study, key: tuple[str, int], told: Told | None, polled: Mapping[tuple[str, str], JobState]) -> RunState:
    if told is None or told.job is None:
        return _without_job(study, key, told)
    attempt = next((path for path in reversed(study.attempts(*key)) if _job_of(path) == told.job), None)
    state = polled.get((told.backend, told.job), JobState(phase="unknown"))
    blank = RunState(label=told.label, run=told.run, phase="failed", job=told.job, nodes=state.nodes)
    if state.phase == "unknown":
        return _by_records(study, blank, attempt, state.detail)
    if state.phase == "queued":
        return replace(blank, phase="queued", detail=state.detail)
    if state.phase == "running":
        progress = read_progress(attempt, _read_point(study, told.label))
        return replace(blank, phase="running", detail=state.detail, **vars(progress))
    ended_meanwhile = _done(study, *key)  # after its records were looked at, before its job was
    return ended_meanwhile or replace(blank, detail=why_failed(study, told.job, attempt, state))


def _without_job(study: Study, key: tuple[str, int], told: Told | None) -> RunState:
    blank = RunState(label=key[0], run=key[1], phase="missing")
    if told is None:
        newest = next(reversed(study.attempts(*key)), None)
        return _by_records(study, replace(blank, job=_job_of(newest)), newest, None) if newest else blank
    if told.event == "refused":
        return replace(blank, phase="failed", detail=f"refused: {told.reason}")
    if told.event == "intent":
        reason = "its submission was interrupted; the next `hpcddp submit` looks up what became of it"
        return replace(blank, phase="unknown", detail=reason)
    return blank


def _by_records(study: Study, blank: RunState, attempt: Path | None, doubt: str | None) -> RunState:
    """Without a backend: failed where the records say so, else not known, with how far it got."""
    reason = _recorded_reason(attempt)
    if reason:
        return replace(blank, phase="failed", detail=reason)
    progress = read_progress(attempt, _read_point(study, blank.label))
    detail = doubt or "no end.json: it runs, or ended without a word"
    return replace(blank, phase="unknown", detail=detail, **vars(progress))


def _job_of(attempt: Path) -> str:
    return attempt.name.rpartition(".")[0]


def why_failed(study: Study, job: str, attempt: Path | None, state: JobState) -> str:
    """What the backend saw, what the ranks recorded, or else the last line they wrote."""
    seen = "it ended without leaving an end.json" if state.phase == "done" else state.detail or "it failed"
    told = _recorded_reason(attempt)
    if told is None:
        last = _last_words(study.job_dir(job))
        return f"{seen}; {last}" if last else seen
    return told if "exit code" in seen else f"{seen}; {told}"


def _recorded_reason(attempt: Path | None) -> str | None:
    """From end.json, else from the earliest error that a rank recorded."""
    from hpcddp.worker.finish import first_cause

    if attempt is None:
        return None
    end = _read_object(attempt / "end.json")
    return (end or {}).get("reason") or first_cause(attempt)


def _last_words(folder: Path) -> str | None:
    """The last line on stderr of the first rank that wrote one, else of the batch script."""
    for file in (*sorted(folder.glob("*_log.err")), folder / "batch.err"):
        for line in reversed(list(_last_lines(file))):
            if line.strip() and not line.startswith(_NO_REASON):
                return f"{file.name} ends: {line.strip()}"
    return None


def _last_lines(file: Path) -> Iterator[str]:
    if file.is_file():
        with file.open("rb") as text:
            text.seek(max(0, file.stat().st_size - TAIL_BYTES))
            yield from text.read().decode("utf-8", errors="replace").splitlines()


def _read_point(study: Study, label: str) -> Point | None:
    plain = _read_object(study.point_file(label))
    return None if plain is None else point_from_dict(plain["point"])


def _read_object(file: Path) -> dict[str, Any] | None:
    """None where there is no such file, nor a folder for it; HpcddpError names a damaged one."""
    try:
        plain: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except ValueError as error:
        raise HpcddpError(f"{file}: not a file hpcddp wrote: {error}") from error
    return plain
