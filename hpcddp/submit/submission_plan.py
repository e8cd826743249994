"""What a user wants submitted, what is sure to go wrong with it, and what of each of its runs a cluster is given."""

from __future__ import annotations

import dataclasses
import functools
import os
import secrets
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from hpcddp.backends.base import Submission
from hpcddp.backends.choose import lacking
from hpcddp.backends.slurm_commands import longest_min
from hpcddp.backends.slurm_states import find_awaited
from hpcddp.cluster.ownership import check_ownership, trusted_gids
from hpcddp.cluster.profile import ClusterProfile
from hpcddp.cluster.settings import Settings, config_file
from hpcddp.core.catalog import is_factory
from hpcddp.core.errors import UsageError
from hpcddp.core.job_ids import BackendName
from hpcddp.core.jobspec import JobSpec, ScriptPlace
from hpcddp.core.point import Point
from hpcddp.core.records import not_for_others
from hpcddp.core.run_root import Study
from hpcddp.core.schema import encode
from hpcddp.script.job_request import JobRequest
from hpcddp.script.render import ScriptLaunch, render
from hpcddp.submit.choose import ChosenPoints, job_requests
from hpcddp.submit.options import SubmitOptions
from hpcddp.submit.remarks import missing_data, without_folder
from hpcddp.sweep.expand import TORCHRUN_ONLY, PlannedPoint
from hpcddp.sweep.file import SweepFile


@dataclass(frozen=True, kw_only=True)
class SubmissionPlan:
    """What is to be submitted: points of a sweep, on a cluster, for a user."""

    source: SweepFile
    profile: ClusterProfile
    points: Sequence[PlannedPoint]
    requests: Mapping[str, JobRequest]
    """By label; empty where there is no Slurm."""
    settings: Settings
    more: Mapping[str, int] = field(default_factory=dict)
    """By label, where a point shall be run more often than the sweep says."""
    options: SubmitOptions = SubmitOptions()
    """How much of it; of `after`, the jobs that have not ended."""
    is_cut_at_budget: bool = False
    """Whether as many runs are submitted as the budget holds where it does not hold all; False: none are."""
    cannot_await: Sequence[str] = ()
    """A sentence for each such job that has failed, or that nobody knows."""
    reads_data: bool = True
    """False of a job that makes or checks a data set."""
    longest_min: int | None = None
    """The time limit at most of the job of --one-allocation, as Slurm has it for the partition; None: not known."""

    @property
    def account(self) -> str | None:
        """That is charged: the sweep's before the user's."""
        return self.source.sweep.account or self.settings.account

    @functools.cached_property
    def repeats(self) -> Mapping[str, int]:
        """How often each point shall be run, by label."""
        repeat = self.source.sweep.repeat
        return {planned.point.label: max(repeat, self.more.get(planned.point.label, 0)) for planned in self.points}


def plan_submission(points: ChosenPoints, settings: Settings, options: SubmitOptions = SubmitOptions()) -> SubmissionPlan:  # noqa: B008
    """The points with the user's settings and the jobs they request; UsageError for what the cluster would refuse."""
    requests = job_requests(points, settings)
    on_slurm = points.profile.backend == "slurm"
    has_limit = options.one_allocation and on_slurm
    after, refused = find_awaited(options.after) if options.after and on_slurm else (options.after, ())
    return SubmissionPlan(
        source=points.source,
        profile=points.profile,
        points=points.points,
        requests=requests,
        settings=settings,
        options=dataclasses.replace(options, after=tuple(after)),
        cannot_await=refused,
        longest_min=longest_min(max(requests.values(), key=lambda one: one.nodes).partition) if has_limit else None,
    )


def obstacles(plan: SubmissionPlan) -> list[str]:
    """What is sure to be refused or to fail whatever the cluster says, a sentence each with the next step."""
    found, roots, runs_here = list(plan.cannot_await), plan.settings.data_roots, plan.profile.backend == "local"
    if plan.reads_data:
        missing = missing_data(plan.points, roots, runs_here=runs_here, prepares=plan.options.prepare)
        found = [*without_folder(plan.points, roots), *dict.fromkeys(missing), *found]
    if lacks_account(plan):
        ways = f"Add `--set account=NAME`, write `account: NAME` into {config_file()}, or set SBATCH_ACCOUNT"
        found.append(f"{plan.profile.name} needs an account. {ways}.")
    if plan.profile.backend in TORCHRUN_ONLY:
        options = ("preflight", "prepare", "smoke")
        given = [f"--{name.replace('_', '-')}" for name in options if getattr(plan.options, name)]
        found += [f"{each} needs a Slurm, and {plan.profile.name} has none. Omit it." for each in given]
        found += lacking(plan.profile)
        if plan.profile.backend == "hosts" and any(planned.point.measure.resume for planned in plan.points):
            found.append("measure.resume needs Slurm or SageMaker: runs on hosts begin anew. Set it to false.")
        if plan.profile.backend == "hosts" and plan.profile.compute.container is not None:
            found.append(f"compute.container of {plan.profile.name} needs Slurm. Name a Python on the hosts.")
        if any(planned.point.workload.script for planned in plan.points):
            found.append(f"A script of your own runs under Slurm or on this machine, not on {plan.profile.name}.")
    if plan.options.after and plan.profile.backend != "slurm":
        found.append(f"--after {plan.options.after[0]} names a Slurm job, but {plan.profile.name} has no Slurm. Omit --after.")
    return found


def lacks_account(plan: SubmissionPlan) -> bool:
    """Whether the cluster wants an account and nobody has named one: Slurm would refuse every request."""
    return bool(plan.profile.slurm.account_required) and plan.account is None


def check_plan(plan: SubmissionPlan) -> None:
    """Raises UsageError with every obstacle, where there is any."""
    if found := obstacles(plan):
        raise UsageError("\n".join(found))


def make_submissions(study: Study, plan: SubmissionPlan, backend: str, runs: Sequence[tuple[Point, int]]) -> list[Submission]:
    """A submission for each run, all with the same snapshot."""
    from hpcddp.submit.snapshot import script_place, take_snapshot

    near, trusted = plan.source.file.resolve().parent, trusted_gids(plan.settings)
    check_ownership(study, trusted)
    workloads = [planned.point.workload for planned in plan.points]
    factories = sorted({name for each in workloads for name in (each.model, each.data.name) if is_factory(name)})
    scripts = sorted({each.script for each in workloads if each.script})
    with not_for_others(trusted):
        code = take_snapshot(study, factories, near=[near], trusted=trusted, scripts=scripts)
    profile = encode(dataclasses.replace(plan.profile, facts={}))
    commit = git_commit(near)

    shapes = {label: dataclasses.replace(request, name="") for label, request in plan.requests.items()}

    def place(script: str | None) -> ScriptPlace | None:
        return ScriptPlace(file=str(code / script_place(script)), folder=str(near)) if script else None

    return [
        Submission(
            spec=JobSpec(
                point=anchored(point),
                run=run,
                study=str(study.folder),
                backend=cast(BackendName, backend),
                data_root=plan.settings.data_roots.get(point.workload.data.name),
                profile=profile,
                local_device=plan.profile.slurm.local_device,
                script=place(point.workload.script),
                git_commit=commit,
            ),
            code=code,
            python=plan.profile.compute.python,
            walltime_min=plan.source.sweep.slurm.walltime_min,
            token=secrets.token_hex(4),
            render_text=_renderer(plan, point),
            shape=shapes.get(point.label),
            gpus_per_node=plan.requests[point.label].gpus_counted if point.label in plan.requests else None,
            account=plan.account,
            trusted=trusted,
        )
        for point, run in runs
    ]


def _renderer(plan: SubmissionPlan, point: Point) -> Callable[[ScriptLaunch], str] | None:
    request = plan.requests.get(point.label)
    if request is None:
        return None
    return lambda launch: render(plan.profile, point, request, launch)


def anchored(point: Point) -> Point:
    """The point with an absolute data root: a relative one is meant from where the user stands, and the job stands elsewhere."""
    data = point.workload.data
    if data.root is None:
        return point
    workload = dataclasses.replace(point.workload, data=dataclasses.replace(data, root=anchored_path(data.root)))
    return dataclasses.replace(point, workload=workload)


def anchored_path(path: str) -> str:
    """From here, where it is relative: it begins with no variable, and is not in S3."""
    return path if path.startswith(("/", "$", "~", "s3://")) else os.path.abspath(path)


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
