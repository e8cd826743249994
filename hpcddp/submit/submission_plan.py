"""What a user wants submitted, what is sure to go wrong with it, and what of each of its runs a cluster is given."""

from __future__ import annotations

import dataclasses
import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from hpcddp.backends.base import Submission
from hpcddp.cluster.ownership import check_ownership, trusted_gids
from hpcddp.cluster.profile import ClusterProfile
from hpcddp.cluster.settings import Settings, config_file
from hpcddp.core.catalog import is_factory
from hpcddp.core.errors import UsageError
from hpcddp.core.jobspec import JobSpec
from hpcddp.core.point import Point
from hpcddp.core.run_root import Study
from hpcddp.core.schema import encode
from hpcddp.core.umask import not_for_others
from hpcddp.script.job_request import JobRequest
from hpcddp.script.render import Launch, render
from hpcddp.submit.git import git_commit
from hpcddp.submit.plan import without_folder
from hpcddp.submit.snapshot import take_snapshot
from hpcddp.sweep.expand import PlannedPoint
from hpcddp.sweep.file import SweepFile


@dataclass(frozen=True, kw_only=True)
class SubmissionPlan:
    """What is to be submitted: points of a sweep, on a cluster, for a user."""

    source: SweepFile
    profile: ClusterProfile
    points: Sequence[PlannedPoint]
    requests: Mapping[str, JobRequest]
    """By label; empty where nothing is asked of Slurm."""
    settings: Settings
    more: Mapping[str, int] = field(default_factory=dict)
    """By label, where a point shall be run more often than the sweep says."""
    max_running: int | None = None
    """So many runs of the study at a time; None: as many as the cluster likes."""
    is_cut_at_budget: bool = False
    """Whether as many runs are submitted as the budget holds where it does not hold all; False: none are."""
    max_jobs: int | None = None
    """So many runs are submitted at once; None: all that are missing."""
    after: tuple[str, ...] = ()
    """Jobs of Slurm, of whatever study, that have to end well first."""
    one_allocation: bool = False
    """Whether all runs are steps of one job."""
    longest_min: int | None = None
    """That job's time limit at most, as Slurm has it for the partition; None: not known."""

    @property
    def repeats(self) -> dict[str, int]:
        """How often each point shall be run, by label."""
        asked = self.source.sweep.repeat
        return {planned.point.label: max(asked, self.more.get(planned.point.label, 0)) for planned in self.points}


def obstacles(order: SubmissionPlan) -> list[str]:
    """What is sure to be refused or to fail whatever the cluster says, a sentence each with the next step."""
    found = without_folder(order.points, order.settings.data_roots)
    if order.profile.slurm.account_required and _account(order) is None:
        found.append(
            f"{order.profile.name} needs an account: --set account=NAME, `account: NAME` in {config_file()}, or SBATCH_ACCOUNT"
        )
    if order.after and order.profile.backend != "slurm":
        found.append(f"--after {order.after[0]}: jobs of Slurm are meant, and {order.profile.name} has none; leave it out")
    return found


def check_order(order: SubmissionPlan) -> None:
    """UsageError with every obstacle."""
    if found := obstacles(order):
        raise UsageError("\n".join(found))


def submissions(study: Study, order: SubmissionPlan, backend: str, runs: Sequence[tuple[Point, int]]) -> list[Submission]:
    """One for each run, all with one snapshot."""
    near, trusted = order.source.file.resolve().parent, trusted_gids(order.settings)
    check_ownership(study, trusted)
    with not_for_others(trusted):
        code = take_snapshot(study, _factories(order.points), near=[near], trusted=trusted)
    profile = encode(dataclasses.replace(order.profile, facts={}))
    commit = git_commit(near)
    return [
        Submission(
            spec=JobSpec(
                point=anchored(point),
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
            shape=_shape(order, point),
            account=_account(order),
            trusted=trusted,
        )
        for point, run in runs
    ]


def _renderer(order: SubmissionPlan, point: Point) -> Callable[[Launch], str] | None:
    request = order.requests.get(point.label)
    if request is None:
        return None
    return lambda launch: render(order.profile, point, request, launch)


def _shape(order: SubmissionPlan, point: Point) -> JobRequest | None:
    request = order.requests.get(point.label)
    return request and dataclasses.replace(request, name="")


def _factories(points: Sequence[PlannedPoint]) -> list[str]:
    """The user's own models and data, as `package.module:factory`."""
    names = {name for p in points for name in (p.point.workload.model, p.point.workload.data.name)}
    return sorted(name for name in names if is_factory(name))


def anchored(point: Point) -> Point:
    """A relative data root is meant from where the user stands; the job stands elsewhere."""
    data = point.workload.data
    if data.root is None or data.root.startswith(("/", "$", "~")):
        return point
    workload = dataclasses.replace(point.workload, data=dataclasses.replace(data, root=os.path.abspath(data.root)))
    return dataclasses.replace(point, workload=workload)


def _account(order: SubmissionPlan) -> str | None:
    return order.source.sweep.account or order.settings.account
