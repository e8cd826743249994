"""The logs of a job: what its ranks and its batch script wrote, in the job's folder."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from hpcddp.core.causes import HARMLESS
from hpcddp.core.errors import UsageError
from hpcddp.core.run_root import Study, job_of, newest_of
from hpcddp.core.text import size
from hpcddp.study.study_records import recorded_end
from hpcddp.study.submission_log import latest_events

TAIL_BYTES = 8192
"""Of a log in which the reason of a failure is looked for."""

SHOWN_BYTES = 64_000
"""Of a log that is shown to people."""

RANKS_READ = 4
"""Of a job with many ranks that failed, the logs of so many that wrote something are read: they tend to say the same."""


class LogLine(NamedTuple):
    """A line of a log, and the name of its file."""

    file: str
    text: str

    @property
    def quoted(self) -> str:
        """The line behind the name of its file."""
        return f"{self.file}: {self.text}"


def rank_logs(folder: Path, kind: str = "err") -> dict[int, Path]:
    """The logs by rank; `kind` is `err` or `out`."""
    named = ((re.fullmatch(rf".*_(\d+)_log\.{kind}", file.name), file) for file in folder.glob(f"*_log.{kind}"))
    return {int(found[1]): file for found, file in sorted(named, key=lambda each: each[1].name) if found}


def last_words(folder: Path) -> list[LogLine]:
    """The last lines on stderr of the first ranks that wrote some, then of the batch script; of each, the last first."""
    written = (lines for _, file in sorted(rank_logs(folder).items()) if (lines := list(_last_lines(file))))
    ranks = itertools.chain.from_iterable(itertools.islice(written, RANKS_READ))
    return [*ranks, *_last_lines(folder / "batch.err")]


def _last_lines(file: Path) -> Iterator[LogLine]:
    for line in reversed(tail(file).splitlines()):
        if line.strip() and not HARMLESS.match(line):
            yield LogLine(file.name, line.strip())


def tail(file: Path, at_most_bytes: int = TAIL_BYTES) -> str:
    """The end of the file, from the beginning of a line; nothing where there is no such file."""
    try:
        with file.open("rb") as text:
            size = text.seek(0, os.SEEK_END)
            text.seek(max(0, size - at_most_bytes))
            read = text.read()
    except (FileNotFoundError, NotADirectoryError):
        return ""
    cut = read.find(b"\n") + 1 if size > at_most_bytes else 0
    return read[cut:].decode("utf-8", errors="replace")


def newest_job(study: Study, label: str, run: int | None) -> tuple[int, str]:
    """The point's run that was submitted last, or `run`, and its newest job; UsageError where none was."""
    events = [event for event in latest_events(study).values() if event.label == label and event.job and run in (None, event.run)]
    if events:
        newest = max(events, key=lambda event: event.unix_s)
        return newest.run, str(newest.job)
    begun = [key for key in study.begun() if key.label == label and run in (None, key.run)]
    found = [attempt for key in begun for attempt in study.attempts(*key)]
    if not found:
        raise UsageError(
            f"{study.folder / label}: no job of this {'point' if run is None else 'run'} yet; `hpcddp status` shows its state"
        )
    attempt = max(found, key=lambda path: path.stat().st_mtime)
    return int(attempt.parent.name[1:]), job_of(attempt)


def rank_at_fault(study: Study, label: str, run: int, job: str) -> int:
    """By the newest attempt of that job; 0 where none is known."""
    end = recorded_end(newest_of(study.attempts(label, run), job))
    return end.fault.rank if end and end.fault else 0


def job_logs(study: Study, job: str, rank: int) -> list[Path]:
    """What that rank and the batch script wrote, where they wrote something, also the one of a job that several runs share;
    UsageError where there is no such rank.
    """
    folder = study.job_dir(job)
    ranks = [rank_logs(folder, kind) for kind in ("out", "err")]
    if rank and not any(rank in logs for logs in ranks):
        known = f"the job has logs of ranks {min(ranks[1])} to {max(ranks[1])}" if ranks[1] else "its ranks wrote no logs"
        raise UsageError(f"{folder}: no log of rank {rank}; {known}")
    files = [logs[rank] for logs in ranks if rank in logs]
    files += [each / name for each in (folder, *([folder.parent] if "+" in job else [])) for name in ("batch.out", "batch.err")]
    written = [file for file in files if file.is_file() and file.stat().st_size]
    if not written:
        raise UsageError(f"{folder}: the job has no logs; `hpcddp status` shows its state")
    return written


def shown(file: Path) -> str:
    """The log below its path, the end of it where it is long."""
    total_bytes = file.stat().st_size
    left_out = f" (its last {size(SHOWN_BYTES)} of {size(total_bytes)})" if total_bytes > SHOWN_BYTES else ""
    return f"== {file}{left_out}\n{tail(file, SHOWN_BYTES).rstrip()}"
