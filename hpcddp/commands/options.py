"""Options that several commands share, and the pieces they ask for."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hpcddp.cluster.profile import ClusterProfile
    from hpcddp.cluster.settings import Settings
    from hpcddp.script.job_request import JobRequest, User
    from hpcddp.sweep.expand import PlannedPoint
    from hpcddp.sweep.file import SweepFile

F = TypeVar("F", bound=Callable[..., Any])

cluster_option = click.option(
    "--cluster", metavar="NAME|FILE", help="A profile by name or YAML file; else the sweep's, HPCDDP_CLUSTER, or the host name's."
)
set_option = click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="Change a value that the groups do not vary."
)
where_option = click.option(
    "--where", "conditions", multiple=True, metavar="COND", help="Only points with, say, 'layout.nodes <= 4'."
)
group_option = click.option("--group", "groups", multiple=True, metavar="NAME", help="Only the points of this group.")
format_option = click.option(
    "--format", "format_", type=click.Choice(["table", "json"]), default="table", show_default=True, help="JSON is for scripts."
)
style_option = click.option(
    "--style",
    type=click.Choice(["default", "paper", "slides"]),
    default="default",
    show_default=True,
    help="Of figures: a journal's column without titles, or 16:9 with large type.",
)
runs_option = click.option(
    "--runs",
    type=click.Path(path_type=Path, file_okay=False),
    envvar="HPCDDP_RUNS",
    help="Run root; by default the sweep's folder.",
)
yes_option = click.option("-y", "--yes", is_flag=True, help="Do not ask.")
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


def measuring(command: F) -> F:
    """--input, --comm and --profile-steps: how the chosen points are measured.

    The command gets the first two as `also` of sweep.expand, and the last among its settings.
    """

    @functools.wraps(command)
    def folded(
        *arguments: Any, settings: tuple[str, ...], profile_steps: int | None, inputs: Any, comms: Any, **options: Any
    ) -> Any:
        also = {key: values for key, values in (("measure.input", inputs), ("measure.comm", comms)) if values}
        asked = () if profile_steps is None else (f"measure.profile_steps={profile_steps}",)
        flags = {"measure.input": inputs, "measure.comm": comms, "measure.profile_steps": asked}
        refuse_twice([key for key, given in flags.items() if given], settings)
        return command(*arguments, settings=(*settings, *asked), also=also, **options)

    for option in (
        click.option(
            "--profile-steps", type=click.IntRange(min=0), metavar="N", help="After the timed steps, N under torch.profiler."
        ),
        _each_point(
            "--comm", ["off", "on", "check"], "--comm off --comm on is the headline without the hook and the breakdown with it."
        ),
        _each_point(
            "--input", ["full", "synthetic", "io"], "--input synthetic --input io is the trainer's limit and the loader's."
        ),
    ):
        folded = option(folded)
    return cast("F", folded)


def _each_point(flag: str, values: Sequence[str], example: str) -> Callable[[F], F]:
    """A flag to be given once for each value that the chosen points are measured with; `inputs` of `--input`."""
    return click.option(flag, f"{flag[2:]}s", multiple=True, type=click.Choice(values), help=f"Each point so: {example}")


def refuse_twice(keys: Sequence[str], settings: Sequence[str]) -> None:
    """UsageError where a `--set` gives a key that a flag of its own gives, too: one would win without a word."""
    for text in settings:
        key = text.partition("=")[0]
        if key in keys:
            flag = f"--{key.rpartition('.')[2].replace('_', '-')}"
            raise click.UsageError(f"{flag} and --set {text} are about the same key: give one of them")


def laying_out(command: F) -> F:
    """--nodes, --gpus-per-node and --node-type: what says a layout where there is no sweep file."""
    for option in (
        click.option("--node-type", help="One of the profile's node types; by default its default one."),
        click.option(
            "--gpus-per-node", type=click.IntRange(min=1), help="GPUs, and so ranks, on each node; by default all of a node's."
        ),
        click.option("--nodes", type=click.IntRange(min=1), help="Nodes (without a sweep file)."),
    ):
        command = option(command)
    return command


def _job_ids(ctx: click.Context, param: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
    for job in given:
        if re.fullmatch(r"[0-9]+(_[0-9]+)?", job) is None:
            raise click.BadParameter(f"{job!r} is no job's number; `squeue --me` lists yours, as 4711 or 4711_3", ctx, param)
    return given


def submitting(command: F) -> F:
    """Where runs go, raw job options, and how much of commands.submit.carry_out is done."""
    for option in (
        yes_option,
        click.option("--wait", is_flag=True, help="Stay until all runs are over, showing progress."),
        click.option(
            "--after",
            multiple=True,
            metavar="JOB",
            callback=_job_ids,
            help="Only when that job of Slurm has ended well: one that prepares data, say.",
        ),
        click.option("--max-jobs", type=click.IntRange(min=1), metavar="N", help="Submit no more runs than this now."),
        click.option("--max-running", type=click.IntRange(min=1), metavar="N", help="So many runs at a time; Slurm sees to it."),
        click.option("--serial", "max_running", type=int, flag_value=1, help="--max-running 1: nothing of yours on the network."),
        click.option("--one-allocation", is_flag=True, help="All runs in one job, one after the other, on the same nodes."),
        click.option("--smoke", is_flag=True, help="One short job first: imports, data on every node, versions, GPUs."),
        click.option("--dry-run", is_flag=True, help="Show what would be submitted; submit nothing."),
        job_option,
        runs_option,
    ):
        command = option(command)
    return command


def remark(text: str) -> None:
    """Something worth knowing that is not the result: on stderr."""
    from hpcddp.core.text import escape_controls

    click.echo(escape_controls(f"! {text}"), err=True)


def print_json(plain: Any) -> None:
    import json

    click.echo(json.dumps(plain, indent=1, allow_nan=False))


def read_settings() -> Settings:
    """The user's settings; what the environment changed in them is said."""
    from hpcddp.cluster.settings import load_settings

    settings, remarks = load_settings()
    for text in remarks:
        remark(text)
    return settings


def pick_cluster(name: str | None) -> ClusterProfile:
    """The profile asked for, or the one of this machine; UsageError says how to name one."""
    from hpcddp.cluster.profile import current_cluster, load_profile, profile_names
    from hpcddp.core.errors import UsageError

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
    also: Mapping[str, Sequence[str]] | None = None,
) -> tuple[SweepFile, ClusterProfile, list[PlannedPoint]]:
    """The sweep, its cluster and the points chosen; UsageError where none is left."""
    from dataclasses import replace

    from hpcddp.core.errors import UsageError
    from hpcddp.submit.plan import added_words
    from hpcddp.sweep.conditions import matching
    from hpcddp.sweep.expand import expand
    from hpcddp.sweep.file import read_sweep, with_job_options, without_effect

    source = with_job_options(read_sweep(sweep, settings, cluster), job_options)
    source = replace(source, options=replace(source.options, also=dict(also or {})))
    profile = pick_cluster(source.sweep.cluster)
    points = expand(source, profile, groups, also)
    kept = matching([planned.point for planned in points], conditions)
    points = [planned for planned, keep in zip(points, kept, strict=True) if keep]
    if not points:
        raise UsageError(f"{sweep}: no point is left by --where {' '.join(conditions)}")
    for text in (*without_effect(source, groups, settings, also or {}), *added_words(points)):
        remark(text)
    return source, profile, points


def single_sweep(
    options: Mapping[str, Any], workload: Callable[[ClusterProfile], Any], name: str, job_options: Sequence[str]
) -> tuple[SweepFile, ClusterProfile]:
    """A sweep called `name` of the one layout that the flags of `laying_out` say, and its cluster."""
    from hpcddp.sweep.file import make_sweep, with_job_options

    refuse_twice([f"layout.{name}" for name in ("nodes", "gpus_per_node", "node_type") if options[name]], options["settings"])
    profile = pick_cluster(options["cluster"])
    node = profile.node_type(options["node_type"])
    layout = {
        "nodes": options["nodes"] or 1,
        "gpus_per_node": options["gpus_per_node"] or node.gpus or 1,
        "node_type": options["node_type"],
    }
    document = {
        "schema": 1,
        "cluster": profile.name,
        "workload": workload(profile),
        "layout": layout,
        "device": "cpu" if profile.backend == "local" else "cuda",
    }
    source = with_job_options(make_sweep(document, options["settings"], Path(name)), job_options)
    if source.sweep.layout.node_type is None and profile.default_node_type is not None:
        remark(f"node type {profile.default_node_type}, the default of {profile.name}")
    return source, profile


def check_sources(sweep: Path | None, options: Mapping[str, Any], flags: Sequence[str]) -> None:
    """UsageError where `flags`, which stand for a sweep file, are given beside one, or what chooses its points without one."""
    given = [f"--{name.replace('_', '-')}" for name in flags if options[name]]
    if sweep is not None and given:
        raise click.UsageError(f"{given[0]} is for use without a sweep file; use --set or --where with one")
    if sweep is None and (options["groups"] or options["conditions"]):
        raise click.UsageError("--group and --where choose among the points of a sweep file; none is given")


def user_of(source: SweepFile, settings: Settings) -> User:
    """Who asks: the sweep's account before the user's settings."""
    from hpcddp.script.job_request import User

    return User(account=source.sweep.account or settings.account, reservation=settings.reservation, mail=settings.mail)


def requests_for(source: SweepFile, profile: ClusterProfile, points: Sequence[PlannedPoint], user: User) -> dict[str, JobRequest]:
    """Label -> request; one UsageError names everything the cluster would refuse, each sentence once."""
    from hpcddp.core.errors import UsageError
    from hpcddp.core.text import merge_similar
    from hpcddp.script.resources import job_request

    requests, refused = {}, list[str]()
    for planned in points:
        try:
            requests[planned.point.label] = job_request(profile, planned.point, source.sweep.slurm, user)
        except UsageError as error:
            refused += str(error).splitlines()
    if refused:
        raise UsageError("\n".join(merge_similar(refused)))
    return requests


def study_folder(sweep: Path, runs: Path | None, settings: Settings) -> Path:
    """RUNS/NAME: --runs or HPCDDP_RUNS, the user's run root, or the folder the sweep is in."""
    from hpcddp.core.errors import UsageError

    folder = (runs or settings.run_root_here() or sweep.resolve().parent) / sweep.stem
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is not a folder, so no runs can go there: name the sweep {sweep.stem}.yaml, or give --runs")
    return folder
