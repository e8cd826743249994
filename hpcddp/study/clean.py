"""What of a study nothing needs any more: checkpoints, and snapshots of code. Never records."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from hpcddp.core.job_ids import base_id
from hpcddp.core.run_root import Study
from hpcddp.study.data_jobs import data_job_states
from hpcddp.study.status import RunState
from hpcddp.study.study_records import read_end

CHECKPOINTS_LEFT = 2
"""Checkpoints of a run that is not done, as many as its ranks keep: the older one is for when the newest is damaged."""


@dataclass(frozen=True, kw_only=True)
class Waste:
    """A file or a folder that can go."""

    path: Path
    why: str
    bytes: int

    def remove(self) -> None:
        """Also a folder of files that are read-only."""
        if self.path.is_dir():
            shutil.rmtree(self.path)
        else:
            self.path.unlink(missing_ok=True)


def waste(study: Study, states: Sequence[RunState]) -> list[Waste]:
    """What can go, by path: nothing of runs that wait or run, or of which nobody knows what became."""
    return [Waste(path=path, why=why, bytes=_size(path)) for path, why in (*_checkpoints(study, states), *_code(study, states))]


def _checkpoints(study: Study, states: Sequence[RunState]) -> Iterator[tuple[Path, str]]:
    for state in states:
        attempts = study.attempts(*state.key)
        if state.phase == "done":
            yield from (
                (attempt / "checkpoints", "the run is done") for attempt in attempts if _is_folder(attempt / "checkpoints")
            )
        elif state.phase in ("failed", "missing"):
            yield from _abandoned(attempts)


def _abandoned(attempts: Sequence[Path]) -> Iterator[tuple[Path, str]]:
    """Of attempts that are over: files that were never complete, and checkpoints from which no submission would go on."""
    ends = [read_end(attempt) for attempt in attempts]
    begun_anew = max((number for number, end in enumerate(ends, start=1) if end and end.state == "done"), default=0)
    files = [(number, file) for number, attempt in enumerate(attempts) for file in sorted(attempt.glob("checkpoints/*"))]
    usable = [file for number, file in files if number >= begun_anew and re.fullmatch(r"\d+\.\w+\.pt", file.name)]
    left = usable[-CHECKPOINTS_LEFT:]
    shards = [file.with_name(f"{file.name.partition('.')[0]}.shards") for file in left]
    for _, file in files:
        if file not in left and file not in shards:
            yield file, "its attempt was abandoned"


def _code(study: Study, states: Sequence[RunState]) -> Iterator[tuple[Path, str]]:
    """Snapshots that no waiting or running job names; none where the snapshot of such a job is not known."""
    named: set[str] = set()
    live = [state.job for state in states if state.phase in ("queued", "running", "unknown")]
    for job in [*live, *(state.record.job for state in data_job_states(study) if state.is_live)]:
        found = _named_by(study, job) if job else set()
        if not found:
            return
        named |= found
    snapshots = [path for path in sorted(study.code.glob("*")) if _is_folder(path)]
    yield from ((path, "no job needs it") for path in snapshots if path.name not in named)


def _named_by(study: Study, job: str) -> set[str]:
    """The snapshots in the job's script. Runs on this machine have none: their runner may work from any snapshot."""
    try:
        script = (study.job_dir(base_id(job)) / "job.sbatch").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return set()
    return set(re.findall(r"/\.code/([0-9a-f]+)", script))


def _is_folder(path: Path) -> bool:
    """A folder itself: what a link leads to is not the study's."""
    return path.is_dir() and not path.is_symlink()


def _size(path: Path) -> int:
    files = [Path(here) / name for here, _, names in os.walk(path) for name in names] if path.is_dir() else [path]
    return sum(file.lstat().st_size for file in files)
