"""What small jobs have in common: which rank this is, the records that ranks leave, and rank 0's wait for those of all."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

from hpcddp.core.errors import HpcddpError
from hpcddp.core.jobspec import JobSpec, spec_from_dict
from hpcddp.core.records import write_json
from hpcddp.core.run_root import Study
from hpcddp.core.schema import decode_record, encode
from hpcddp.worker.ranks import Rank, this_rank

Record = TypeVar("Record")
T = TypeVar("T")

ANSWER_WITHIN_S = 180.0
"""A network file system may show a new file a minute late (NFS's acdirmax is 60 s)."""

MEET_WITHIN = timedelta(minutes=4)
"""A first import of torch by every node at once may take minutes on a parallel file system; the job has ten."""


def begin(spec: Mapping[str, Any]) -> tuple[JobSpec, Rank, Study]:
    """The job of this process (of jobspec.spec_to_dict), its rank in it, and where the job leaves records."""
    job = spec_from_dict(spec)
    return job, this_rank(job.backend, local_device=job.local_device), Study(Path(job.study))


def leave(file: Path, record: object) -> dict[str, Any]:
    """Writes the record; its content, which a job's entry returns."""
    plain: dict[str, Any] = encode(record)
    write_json(file, plain)
    return plain


def tried(problems: list[str], host: str, what: str, function: Callable[..., T], *arguments: object) -> T | None:
    """What the function returns; None where it fails, and why is a sentence among the problems."""
    try:
        return function(*arguments)
    except HpcddpError as error:
        problems.append(str(error))
    except Exception as error:
        problems.append(f"{host}: {what}: {type(error).__name__}: {error}")
    return None


def answer_file(folder: Path, number: int) -> Path:
    """Of a rank, or a node, among those that answer rank 0."""
    return folder / f"{number:05d}.json"


def answers(cls: type[Record], folder: Path, count: int) -> tuple[list[Record], str]:
    """As soon as all have answered, or when the time is over: what they left, and the numbers of those that are missing."""
    files, give_up_at = [answer_file(folder, number) for number in range(count)], time.monotonic() + ANSWER_WITHIN_S
    while time.monotonic() < give_up_at and not all(file.exists() for file in files):
        time.sleep(0.2)
    there = [file for file in files if file.exists()]
    missing = ", ".join(str(int(file.stem)) for file in files if file not in there)
    return [decode_record(cls, json.loads(file.read_text(encoding="utf-8"))) for file in there], missing
