"""From points to jobs: everything still missing, nothing twice."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import os
import secrets
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcddp import __version__
from hpcddp.backends.base import Backend, Submission, job_name
from hpcddp.catalog import is_factory
from hpcddp.cluster import ClusterProfile
from hpcddp.errors import HpcddpError, RefusedError, UsageError
from hpcddp.jobspec import JobSpec
from hpcddp.plan import without_folder
from hpcddp.point import Point, point_to_dict
from hpcddp.records import SCHEMA, write_json
from hpcddp.request import JobRequest
from hpcddp.runroot import Study
from hpcddp.schema import encode
from hpcddp.script import Launch, render
from hpcddp.settings import Settings, config_file
from hpcddp.snapshot import take_snapshot
from hpcddp.status import RunState, read_study_file, study_states
from hpcddp.submissions import Told, last_told, tell
from hpcddp.sweep import PlannedPoint, SweepFile


@dataclass(frozen=True, kw_only=True)
class Order:
    """What is to be submitted: points of a sweep, on a cluster, for a user."""

    source: SweepFile
    profile: ClusterProfile
    points: Sequence[PlannedPoint]
    requests: Mapping[str, JobRequest]
    """By label; empty where nothing is asked of Slurm."""
    settings: Settings


@dataclass(frozen=True, kw_only=True)
class SubmittedRun:
    """One run on its way."""

    label: str
    run: int
    job: str


def pending_runs(points: Sequence[Point], repeat: int, states: Sequence[RunState]) -> list[tuple[Point, int]]:
    """What is missing or failed, repetition by repetition, so that a queue that is cut short has every point once.

    A run whose submission was interrupted counts too: submit_runs looks it up before it asks again.
    """
    known = {(state.label, state.run): state for state in states}
    return [(point, run) for run in range(1, repeat + 1) for point in points if _is_pending(known.get((point.label, run)))]


def _is_pending(state: RunState | None) -> bool:
    return state is None or state.phase in ("missing", "failed") or (state.phase == "unknown" and state.job is None)


def submit_runs(
    study: Study, order: Order, backend: Backend, on_submitted: Callable[[SubmittedRun], None] = lambda run: None
) -> list[SubmittedRun]:
    """Submits what is pending and returns at once; `on_submitted` hears of each run as soon as it has a job.

    UsageError before any job is submitted for what is sure to be refused. RefusedError at the first run that is refused: those
    before it are submitted and recorded.
    """
    study = Study(study.folder.absolute())
    check_order(order)
    with _alone(study):
        _settle(study, backend)
        runs = pending_runs([planned.point for planned in order.points], order.source.sweep.repeat, study_states(study, backend))
        if not runs:
            return []
        requests = submissions(study, order, backend.name, runs)
        for request in requests:
            backend.check(request)
        _describe(study, order)
        return [_submit(request, backend, on_submitted) for request in requests]


def _submit(request: Submission, backend: Backend, on_submitted: Callable[[SubmittedRun], None]) -> SubmittedRun:
    """The intent is on disk before the backend is asked: whatever happens in between, the job can be found again."""
    spec, study = request.spec, request.study
    intent = Told(event="intent", token=request.token, label=spec.label, run=spec.run, backend=backend.name, unix_s=time.time())
    tell(study, "intent", intent)
    try:
        job = backend.submit(request)
    except RefusedError as error:
        tell(study, "refused", intent, reason=str(error))
        raise
    tell(study, "submitted", intent, job=job)
    submitted = SubmittedRun(label=spec.label, run=spec.run, job=job)
    on_submitted(submitted)
    return submitted


def _settle(study: Study, backend: Backend) -> None:
    """Looks up what became of submissions that were interrupted between intent and answer."""
    for told in last_told(study).values():
        if told.event == "intent" and told.backend == backend.name:
            job = backend.find(job_name(told.label, told.run), told.token)
            tell(study, "submitted", told, job=job) if job else tell(study, "lost", told)


def submissions(study: Study, order: Order, backend: str, runs: Sequence[tuple[Point, int]]) -> list[Submission]:
    """One for each run, all with one snapshot."""
    near = order.source.file.resolve().parent
    code = take_snapshot(study, _factories(order.points), near=[near])
    profile = encode(dataclasses.replace(order.profile, facts={}))
    commit = git_commit(near)
    return [
        Submission(
            spec=JobSpec(
                point=_anchored(point),
                run=run,
                study=str(study.folder),
                backend="local" if backend == "local" else "slurm",
                data_root=order.settings.data_roots.get(point.workload.data.name),
                profile=profile,
                git_commit=commit,
            ),
            code=code,
            python=order.profile.compute.python,
            walltime_min=order.source.sweep.slurm.walltime_min,
            token=secrets.token_hex(4),
            render_text=_renderer(order, point),
            account=_account(order),
        )
        for point, run in runs
    ]


def _renderer(order: Order, point: Point) -> Callable[[Launch], str] | None:
    request = order.requests.get(point.label)
    if request is None:
        return None
    return lambda launch: render(order.profile, point, request, launch)


def _factories(points: Sequence[PlannedPoint]) -> list[str]:
    """The user's own models and data, as `package.module:factory`."""
    names = {name for p in points for name in (p.point.workload.model, p.point.workload.data.name)}
    return sorted(name for name in names if is_factory(name))


def _anchored(point: Point) -> Point:
    """A relative data root is meant from where the user stands; the job stands elsewhere."""
    data = point.workload.data
    if data.root is None or data.root.startswith(("/", "$", "~")):
        return point
    workload = dataclasses.replace(point.workload, data=dataclasses.replace(data, root=os.path.abspath(data.root)))
    return dataclasses.replace(point, workload=workload)


def _account(order: Order) -> str | None:
    return order.source.sweep.account or order.settings.account


def obstacles(order: Order) -> list[str]:
    """What is sure to be refused or to fail whatever the cluster says, a sentence each with the next step."""
    found = without_folder(order.points, order.settings.data_roots)
    if order.profile.slurm.account_required and _account(order) is None:
        found.append(
            f"{order.profile.name} needs an account: --set account=NAME, `account: NAME` in {config_file()}, or SBATCH_ACCOUNT"
        )
    return found


def check_order(order: Order) -> None:
    """UsageError with every obstacle."""
    if found := obstacles(order):
        raise UsageError("\n".join(found))


def _describe(study: Study, order: Order) -> None:
    """study.json and each point.json. Points asked for earlier stay in study.json: their runs are there."""
    repeat = order.source.sweep.repeat
    entries: dict[str, dict[str, Any]] = {}
    before = read_study_file(study)
    for entry in before["points"]:
        entries[entry["label"]] = {"repeat": before["repeat"], **entry}
    for planned in order.points:
        point, old = planned.point, entries.get(planned.point.label, {})
        groups = list(dict.fromkeys([*old.get("groups", []), *planned.groups]))
        entries[point.label] = {"label": point.label, "id": point.id, "groups": groups, "repeat": repeat}
        write_json(study.point_file(point.label), {"schema": SCHEMA, "id": point.id, "point": point_to_dict(_anchored(point))})
    described = {
        "schema": SCHEMA,
        "hpcddp": __version__,
        "name": study.name,
        "sweep": dict(order.source.document),
        "repeat": repeat,
        "points": list(entries.values()),
    }
    write_json(study.study_file, described)


def git_commit(folder: Path) -> str | None:
    """The commit checked out there, `+` behind it where tracked files differ; None outside a repository or without git."""
    commit = _git(folder, "rev-parse", "HEAD")
    return commit and f"{commit}{'+' if _git(folder, 'status', '--porcelain', '--untracked-files=no') else ''}"


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


@contextlib.contextmanager
def _alone(study: Study) -> Iterator[None]:
    """Two submissions at once would submit everything twice: the second is refused while the first is at it."""
    try:
        study.jobs.mkdir(parents=True, exist_ok=True)
        file = (study.jobs / "submit.lock").open("a")
    except OSError as error:
        raise HpcddpError(f"{study.folder}: runs cannot go there ({error.strerror}); give another folder with --runs") from error
    with file as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise HpcddpError(f"{study.folder}: another `hpcddp submit` is at work here; try again when it is done") from error
        except OSError:
            pass  # a file system without locks (some Lustre mounts): it is submitted to all the same
        yield
