"""What one job receives: the value that crosses from the login node into every rank."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from hpcddp.core.errors import HpcddpError
from hpcddp.core.job_ids import BackendName
from hpcddp.core.point import Point
from hpcddp.core.run_root import Study
from hpcddp.core.schema import Positive, added_later, decode, encode

LINE = 100
"""Characters of a line in a script, where its text can be divided."""


@dataclass(frozen=True, kw_only=True)
class ScriptPlace:
    """Where a script of the user's own is, and where it runs."""

    file: str
    """In the snapshot; of a job that the user submits by hand where it lay when that was rendered."""
    folder: str
    """The sweep's: the script's working directory."""


@dataclass(frozen=True, kw_only=True)
class JobSpec:
    """One run of one point; the job id and restart count are the job's own to find out."""

    schema: Literal[1] = 1
    point: Point
    run: Positive = 1
    study: str
    """Absolute path of the study's folder, as the compute nodes see it."""
    backend: BackendName = "slurm"
    data_root: str | None = None
    """Where the data are if the point itself does not say; may hold variables, expanded in the job."""
    profile: Mapping[str, Any] = field(default_factory=dict)
    """The cluster profile as used, for the record; in a script to submit by hand what is read of it (ProfileFacts)."""
    local_device: Literal["rank", "zero"] = added_later("rank")
    """Which GPU a rank uses that srun started: the one of its local rank, or device 0 where it has only its own."""
    script: ScriptPlace | None = added_later(None)
    """Of the point's script, where it is one."""
    data_task: Mapping[str, Any] | None = added_later(None)
    """Of a job that trains nothing and prepares, packs or checks a data set: a DataTask, plain, which no render has to import."""
    git_commit: str | None = None
    """Of the folder the sweep was submitted from, for the record; `+` at the end: with local changes."""

    @property
    def label(self) -> str:
        return self.point.label

    def attempt_dir(self, job: str, restart: int) -> Path:
        return Study(Path(self.study)).attempt_dir(self.label, self.run, job, restart)


def spec_to_dict(spec: JobSpec) -> dict[str, Any]:
    """Plain JSON-able values; the profile, which is plain already and large, is not copied for each of many specs."""
    plain: dict[str, Any] = encode(replace(spec, profile={}))
    return {**plain, "profile": spec.profile}


def json_lines(plain: Any, indent: str = "", key: str = "") -> str:
    """JSON for people: what does not fit into a line of 100 characters has its items below it, short ones together."""
    text = json.dumps(plain, sort_keys=True, allow_nan=False)
    if not isinstance(plain, dict | list) or (indent and len(indent + key + text) < LINE):
        return indent + key + text
    names = [f"{json.dumps(name)}: " for name in sorted(plain)] if isinstance(plain, dict) else [""] * len(plain)
    items = [plain[name] for name in sorted(plain)] if isinstance(plain, dict) else plain
    rows = list[str]()
    for row in (json_lines(item, f"{indent}  ", name) for name, item in zip(names, items, strict=True)):
        if rows and "\n" not in rows[-1] + row and len(rows[-1] + row.lstrip()) + 2 < LINE:
            rows[-1] += f", {row.lstrip()}"
        else:
            rows.append(row)
    return ",\n".join(rows).join((f"{indent}{key}{text[0]}\n", f"\n{indent}{text[-1]}"))


def spec_from_dict(plain: object) -> JobSpec:
    """The reverse; raises SchemaError."""
    return decode(JobSpec, plain)


def data_root_as_given(spec: JobSpec) -> str | None:
    """The point's own root, else the job's; None for data that need none."""
    return spec.point.workload.data.root or spec.data_root


def data_root(spec: JobSpec) -> str | None:
    """That root with variables filled in on this node; HpcddpError for one that is not set."""
    root = data_root_as_given(spec)
    return None if root is None else expanded(root, "data root")


def expanded(path: str, what: str) -> str:
    """`path` with ~ and $VARIABLES filled in; HpcddpError names a variable that this process does not have."""
    unset = [name for name in re.findall(r"\$\{?(\w+)", path) if name not in os.environ]
    if unset:
        raise HpcddpError(
            f"{what} `{path}`: ${unset[0]} is not set in the job; set it in the profile's environment, or give the path in full"
        )
    return os.path.expanduser(os.path.expandvars(path))
