"""What a job leaves that prepares, packs, checks or copies a data set, as frozen dataclasses. For Python 3.10, without libraries.

In the folder of its records (`Study.data_dir`): `job.json` a DataJob, `progress.json` a DataProgress while it runs, `end.json` a
DataEnd once it is over.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hpcddp.core.data_task import DataTask
from hpcddp.core.records import SCHEMA
from hpcddp.core.schema import Count, NonNegative

JOB_FILE, PROGRESS_FILE, END_FILE = "job.json", "progress.json", "end.json"


@dataclass(frozen=True, kw_only=True)
class DataJob:
    """job.json: what was submitted."""

    schema: int = SCHEMA
    task: DataTask
    job: str
    name: str
    """The job's, by which the backend knows it beside its id."""
    backend: Literal["slurm", "local"]
    submitted_at: str
    """ISO 8601; of jobs for one task the last counts."""


@dataclass(frozen=True, kw_only=True)
class DataProgress:
    """progress.json: how far it is."""

    schema: int = SCHEMA
    done: Count
    total: Count | None = None
    """None where it is not known before the end."""
    per_s: NonNegative | None = None
    """Over the last seconds."""

    @property
    def left_s(self) -> float | None:
        """Until its end, at the pace of the last seconds."""
        if self.total is None or not self.per_s:
            return None
        return max(0, self.total - self.done) / self.per_s


@dataclass(frozen=True, kw_only=True)
class DataEnd:
    """end.json: how it ended."""

    schema: int = SCHEMA
    ok: bool
    text: str
    """What it did, or why it failed with the next step."""
    took_s: NonNegative
