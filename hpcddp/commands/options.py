"""Options that several commands share, and the pieces they ask for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from hpcddp.cluster import ClusterProfile
    from hpcddp.request import JobRequest, User
    from hpcddp.settings import Settings
    from hpcddp.sweep import PlannedPoint, SweepFile

F = TypeVar("F", bound=Callable[..., Any])

cluster_option = click.option(
    "--cluster", metavar="NAME|FILE", help="A profile by name or YAML file; else the sweep's, HPCDDP_CLUSTER, or the host name's."
)
set_option = click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Change a value under the groups.")
where_option = click.option(
    "--where", "conditions", multiple=True, metavar="COND", help="Only points with, say, 'layout.nodes <= 4'."
)
group_option = click.option("--group", "groups", multiple=True, metavar="NAME", help="Only the points of this group.")
format_option = click.option(
    "--format", "format_", type=click.Choice(["table", "json"]), default="table", show_default=True, help="JSON is for scripts."
)
runs_option = click.option(
    "--runs",
    type=click.Path(path_type=Path, file_okay=False),
    envvar="HPCDDP_RUNS",
    help="Run root; by default the sweep's folder.",
)
job_option = click.option(
    "-J",
    "--job-option",
    "job_options",
    multiple=True,
    metavar="OPTION",
    help="A raw sbatch option: -J --constraint=hdr.",
)


def choosing(command: F) -> F:
    """--set, --where, --group and --cluster: what chooses the points of a sweep file."""
    for option in (cluster_option, group_option, where_option, set_option):
        command = option(command)
    return command


def remark(text: str) -> None:
    """Something worth knowing that is not the result: on stderr."""
    click.echo(f"! {text}", err=True)


def print_json(plain: Any) -> None:
    import json

    click.echo(json.dumps(plain, indent=1, allow_nan=False))


def read_settings() -> Settings:
    """The user's settings; what the environment changed in them is said."""
    from hpcddp.settings import load_settings

    settings, remarks = load_settings()
    for text in remarks:
        remark(text)
    return settings


def pick_cluster(name: str | None) -> ClusterProfile:
    """The profile asked for, or the one of this machine; UsageError says how to name one."""
    from hpcddp.cluster import current_cluster, load_profile, profile_names
    from hpcddp.errors import UsageError

    chosen = name or current_cluster()
    if chosen is None:
        raise UsageError(
            f"no cluster: give --cluster, set HPCDDP_CLUSTER, or name it in the sweep; known: {', '.join(profile_names())}"
        )
    return load_profile(chosen)


def read_study(
    sweep: Path,
    cluster: str | None,
    settings: Sequence[str],
    groups: Sequence[str],
    conditions: Sequence[str],
    job_options: Sequence[str] = (),
) -> tuple[SweepFile, ClusterProfile, list[PlannedPoint]]:
    """The sweep, its cluster and the points chosen; UsageError where none is left."""
    from hpcddp.errors import UsageError
    from hpcddp.sweep import expand, read_sweep, with_job_options
    from hpcddp.where import choose

    source = with_job_options(read_sweep(sweep, settings, cluster), job_options)
    profile = pick_cluster(source.sweep.cluster)
    points = choose(expand(source, profile, groups), conditions)
    if not points:
        reason = f"is left by --where {' '.join(conditions)}" if conditions else "in it: an axis of a group has no values"
        raise UsageError(f"{sweep}: no point {reason}")
    return source, profile, points


def user_of(source: SweepFile, settings: Settings) -> User:
    """Who asks: the sweep's account before the user's settings."""
    from hpcddp.request import User

    return User(account=source.sweep.account or settings.account, reservation=settings.reservation, mail=settings.mail)


def requests_for(source: SweepFile, profile: ClusterProfile, points: Sequence[PlannedPoint], user: User) -> dict[str, JobRequest]:
    """Label -> request; one UsageError names everything the cluster would refuse, each sentence once."""
    from hpcddp.errors import UsageError
    from hpcddp.request import job_request

    requests, refused = {}, list[str]()
    for planned in points:
        try:
            requests[planned.point.label] = job_request(profile, planned.point, source.sweep.slurm, user)
        except UsageError as error:
            refused += str(error).splitlines()
    if refused:
        raise UsageError("\n".join(dict.fromkeys(refused)))
    return requests


def study_folder(sweep: Path, runs: Path | None, settings: Settings) -> Path:
    """RUNS/NAME: --runs or HPCDDP_RUNS, the user's run root, or the folder the sweep is in."""
    from hpcddp.errors import UsageError

    folder = (runs or settings.run_root_here() or sweep.resolve().parent) / sweep.stem
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is not a folder, so no runs can go there: name the sweep {sweep.stem}.yaml, or give --runs")
    return folder
