"""Which points a command is about: those of a sweep file that its options choose, or one layout; with its requests of Slurm."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hpcddp.cluster.hosts import cluster_on
from hpcddp.cluster.profile import ClusterProfile
from hpcddp.cluster.profile_file import load_profile
from hpcddp.cluster.profile_names import is_below, own_profiles, profile_names
from hpcddp.cluster.settings import Settings
from hpcddp.core.errors import UsageError
from hpcddp.core.point import Point, comm_point
from hpcddp.core.schema import SchemaError
from hpcddp.core.text import merge_similar
from hpcddp.script.job_request import JobRequest, User
from hpcddp.script.resources import job_request
from hpcddp.submit.options import LayoutOptions, PointOptions
from hpcddp.submit.remarks import added_words
from hpcddp.sweep.expand import PlannedPoint, expand, with_node_type
from hpcddp.sweep.file import SweepFile, make_sweep, read_sweep, with_job_options, with_line, without_effect
from hpcddp.sweep.groups import matching


@dataclass(frozen=True, kw_only=True)
class ChosenPoints:
    """Points of a sweep and the cluster they are for."""

    source: SweepFile
    profile: ClusterProfile
    points: Sequence[PlannedPoint]
    remarks: Sequence[str] = ()
    """What the user should know of the choice."""


def choose_points(sweep: Path, options: PointOptions) -> ChosenPoints:
    """The points of the sweep file that the options choose; UsageError where none is left."""
    cluster = options.cluster
    if options.hosts is not None:
        cluster = cluster_on(cluster or read_sweep(sweep, options.settings).sweep.cluster, options.hosts)
    source = with_job_options(read_sweep(sweep, options.settings, cluster), options.job_options)
    source = replace(source, options=replace(source.options, also=dict(options.also)))
    profile = _with_template(pick_cluster(source.sweep.cluster), source)
    points = expand(source, profile, options.groups, options.also)
    meets = matching([planned.point for planned in points], options.conditions)
    points = [planned for planned, is_chosen in zip(points, meets, strict=True) if is_chosen]
    if not points:
        raise UsageError(f"{sweep}: no point meets --where {' '.join(options.conditions)}")
    _check_scripts(source, points)
    remarks = [*without_effect(source, options.groups, options.settings, options.also), *added_words(points)]
    return ChosenPoints(source=source, profile=profile, points=points, remarks=remarks)


def choose_layout(
    layout: LayoutOptions, options: PointOptions, workload: Callable[[ClusterProfile], Mapping[str, object]], name: str
) -> ChosenPoints:
    """A sweep called `name` of one layout, where there is no sweep file; its points are still to be resolved."""
    profile = pick_cluster(options.cluster if options.hosts is None else cluster_on(options.cluster, options.hosts))
    source = layout_sweep(profile, layout, options, workload, name)
    is_default = source.sweep.layout.node_type is None and profile.default_node_type is not None
    remarks = [f"The node type is {profile.default_node_type}, the default of {profile.name}."] if is_default else []
    return ChosenPoints(source=source, profile=_with_template(profile, source), points=(), remarks=remarks)


def layout_sweep(
    profile: ClusterProfile,
    layout: LayoutOptions,
    options: PointOptions,
    workload: Callable[[ClusterProfile], Mapping[str, object]],
    name: str,
) -> SweepFile:
    """The sweep called `name` of one layout on that cluster, what is not given as the profile has it."""
    node = profile.node_type(layout.node_type)
    document = {
        "schema": 1,
        "cluster": profile.name,
        "workload": workload(profile),
        "layout": {
            "nodes": layout.nodes or 1,
            "gpus_per_node": layout.gpus_per_node or node.gpus or 1,
            "node_type": layout.node_type,
        },
        "device": "cpu" if profile.backend == "local" else "cuda",
    }
    return with_job_options(make_sweep(document, options.settings, Path(name)), options.job_options)


def pick_cluster(name: str | None) -> ClusterProfile:
    """The profile of that name, or the one of this machine; UsageError says how to name one."""
    if name is not None:
        return load_profile(name)
    from hpcddp.cluster.profile_file import current_cluster

    known = current_cluster()
    if known is None:
        names = ", ".join([*own_profiles(), *profile_names()])
        raise UsageError(f"no cluster: give --cluster, set HPCDDP_CLUSTER, or name it in the sweep; profiles: {names}")
    return load_profile(known)


def _with_template(profile: ClusterProfile, source: SweepFile) -> ClusterProfile:
    """The profile with the sweep's template, which lies with the sweep: a sweep reads no file from elsewhere."""
    name = source.sweep.slurm.template
    if name is None:
        return profile
    file = source.file.parent / name
    if not is_below(file, source.file.parent) or not file.is_file():
        where = "is outside the sweep's folder" if file.is_file() else "does not exist"
        words = f"slurm.template: `{name}` {where}; put it beside the sweep, or below its folder"
        raise with_line(SchemaError(("slurm", "template"), words), source.file)
    return replace(profile, template=str(file.resolve()))


def _check_scripts(source: SweepFile, points: Sequence[PlannedPoint]) -> None:
    """UsageError where a point's script is not there."""
    for name in dict.fromkeys(planned.point.workload.script for planned in points):
        if name is not None and not (source.file.parent / name).is_file():
            words = f"no file `{name}` in {source.file.absolute().parent}: a script's path is relative to its sweep"
            raise with_line(SchemaError(("workload", "script"), words), source.file)


def slurm_user(source: SweepFile, settings: Settings) -> User:
    """Who submits: the sweep's account before the user's settings."""
    return User(account=source.sweep.account or settings.account, reservation=settings.reservation, mail=settings.mail)


def job_requests(points: ChosenPoints, settings: Settings) -> dict[str, JobRequest]:
    """Label -> request; none on this machine. One UsageError has all that the cluster would refuse, each once."""
    if points.profile.backend == "local":
        return {}
    user = slurm_user(points.source, settings)
    requests, refused = {}, list[str]()
    for planned in points.points:
        try:
            requests[planned.point.label] = job_request(points.profile, planned.point, points.source.sweep.slurm, user)
        except UsageError as error:
            refused += str(error).splitlines()
    if refused:
        raise UsageError("\n".join(merge_similar(refused)))
    return requests


WALLTIME_MIN = 15
"""Of a run, at most: it measures for three minutes, and nodes take theirs to import torch."""

NO_BASELINES = "baselines=false"
"""--set for a sweep whose layouts are benchmarked: nothing here is relative to another layout."""


def untrained_layout(layout: LayoutOptions, options: PointOptions) -> ChosenPoints:
    """A point of that layout that is of no training of hpcddp's, where no sweep file is given."""
    chosen = choose_layout(layout, options, lambda profile: {"model": "none", "data": {"name": "none"}}, "bench-comm")
    wanted = chosen.source.sweep
    full = with_node_type(wanted.layout, chosen.profile)
    point = Point(cluster=chosen.profile.name, workload=wanted.workload, layout=full, device=wanted.device, env=wanted.variables)
    return replace(chosen, points=[PlannedPoint(comm_point(point), ())])


def command_layout(layout: LayoutOptions, options: PointOptions) -> ChosenPoints:
    """The layout that a command of the user's own runs on; UsageError where there is no Slurm."""
    chosen = untrained_layout(layout, options)
    if chosen.profile.backend != "slurm":
        raise UsageError(f"{chosen.profile.name} has no Slurm: start the command here yourself, or with torchrun")
    return chosen


def comm_benchmarks(chosen: ChosenPoints) -> ChosenPoints:
    """One run for each layout of the points; UsageError where no layout has two ranks."""
    found = {point.id: point for point in (comm_point(planned.point) for planned in chosen.points)}
    several = [point for point in found.values() if point.ranks > 1]
    if not several:
        raise UsageError("a single rank has no communication: choose layouts of two or more ranks (--nodes, --gpus-per-node)")
    left_out = ["Layouts of a single rank are omitted: they have no communication."] if len(several) < len(found) else []
    chosen = shorter(chosen, WALLTIME_MIN)
    source = replace(chosen.source, sweep=replace(chosen.source.sweep, repeat=1))
    return replace(chosen, source=source, points=[PlannedPoint(point, ()) for point in several], remarks=left_out)


def shorter(chosen: ChosenPoints, walltime_min: int) -> ChosenPoints:
    """The same with that time limit, unless the sweep's is shorter still."""
    sweep = chosen.source.sweep
    slurm = replace(sweep.slurm, walltime_min=min(walltime_min, sweep.slurm.walltime_min))
    return replace(chosen, source=replace(chosen.source, sweep=replace(sweep, slurm=slurm)))
