"""What `hpcddp data` is to do to a data set, and what a job leaves that does it.

In the folder of its records (`Study.data_dir`): `job.json` a DataJob, `progress.json` a DataProgress while it runs, `end.json` a
DataEnd once it is over.
"""

from __future__ import annotations

import dataclasses
import posixpath
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hpcddp.core.job_ids import BackendName
from hpcddp.core.records import SCHEMA
from hpcddp.core.schema import Count, NonNegative, decode


@dataclass(frozen=True, kw_only=True)
class DataTask:
    """A command of `hpcddp data` with its options."""

    action: str
    """`prepare`, `pack` and so on."""
    data: str
    """Name of the data set."""
    options: Mapping[str, object] = field(default_factory=dict, hash=False)
    """Those that were given, by name; folders are text that may hold variables, which the job fills in."""
    folders: tuple[str, ...] = ()
    """Those of the options that are folders."""

    @property
    def title(self) -> str:
        """`prepare-bigmnist`: the name of its job."""
        return f"{self.action}-{self.data}"

    @property
    def places(self) -> tuple[str, ...]:
        """The folders that its folders lie in, as these may have to be made yet."""
        given = (str(self.options[name]) for name in self.folders if self.options.get(name) is not None)
        return tuple(path if posixpath.dirname(path) in ("", "/") else posixpath.dirname(path) for path in given)

    @property
    def command(self) -> str:
        """What a user types to have it done on this machine."""
        given = {name.replace("_", "-"): value for name, value in self.options.items() if value is not None}
        return " ".join(["hpcddp data", self.action, self.data, *(f"--{name} {_word(value)}" for name, value in given.items())])

    def with_folders(self, change: Mapping[str, str]) -> DataTask:
        """The same with other folders, by option."""
        return dataclasses.replace(self, options={**self.options, **change})


def task_of(plain: Mapping[str, Any]) -> DataTask:
    """The task that a job's spec has; SchemaError for what is none."""
    return decode(DataTask, plain)


def _word(value: object) -> str:
    """In double quotes where it holds a variable, which is filled in there."""
    text = str(value)
    return f'"{text}"' if "$" in text else shlex.quote(text)


JOB_FILE, PROGRESS_FILE, END_FILE = "job.json", "progress.json", "end.json"


@dataclass(frozen=True, kw_only=True)
class DataJob:
    """job.json: what was submitted."""

    schema: int = SCHEMA
    task: DataTask
    job: str
    name: str
    """The job's, by which the backend knows it beside its id."""
    backend: BackendName
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
