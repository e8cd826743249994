"""The points that a sweep comes to: its groups' combinations, resolved on a cluster, and the baselines they lack.

Baselines are what speedups are relative to: one GPU and one full node, for each series that is measured at several sizes.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from hpcddp.cluster.profile import ClusterProfile
from hpcddp.core.catalog import check_workload
from hpcddp.core.errors import UsageError
from hpcddp.core.point import Layout, Measure, Point, Workload
from hpcddp.core.point_rules import check_point
from hpcddp.core.schema import Path, SchemaError, did_you_mean
from hpcddp.sweep.file import Sweep, SweepFile, chosen_groups, decode_sweep, set_dotted, with_line
from hpcddp.sweep.groups import Combination, Condition, SweepGroup, compared_values, parse_condition

DEFAULTS = Measure()

TORCHRUN_ONLY = ("hosts", "sagemaker")
"""Backends on which torchrun starts all ranks, whatever a sweep says."""

Measured = tuple[Sweep, Point, str]
"""A point with its sweep of one point and its group."""


@dataclass(frozen=True)
class PlannedPoint:
    """A point and the groups of the sweep it is in."""

    point: Point
    groups: tuple[str, ...]
    is_added: bool = False
    """No group lists it: it is what points of its groups are compared with."""


def expand(
    source: SweepFile, profile: ClusterProfile, groups: Sequence[str] = (), also: Mapping[str, Sequence[object]] | None = None
) -> list[PlannedPoint]:
    """The union of the groups' points in the file's order, equal points merged by id; no groups: the one point. Then the
    baselines that these lack, unless the sweep says otherwise or a group that was not chosen has them. `also` (key -> values) is
    one more product over every group; a group's own axis of that key wins.
    """
    also = also or {}
    for name in groups:
        if name not in source.groups:
            raise UsageError(f"{source.file}: no group `{name}` in points{did_you_mean(name, source.groups)}")
    chosen = chosen_groups(source, groups)
    measured = [each for group in chosen for each in _measured(source, group, profile, also)]
    found: dict[str, Point] = {}
    of_groups: dict[str, dict[str, None]] = {}
    for _, point, name in measured:
        found.setdefault(point.id, point)
        of_groups.setdefault(point.id, {}).update({name: None} if name else {})
    planned = [PlannedPoint(point, tuple(of_groups[id_])) for id_, point in found.items()]
    lacked = missing_baselines(measured) if source.sweep.baselines else []
    if lacked and len(chosen) < len(source.groups):  # a group that was not chosen may have them
        names = {group.name for group in chosen}
        others = [group for group in source.groups.values() if group.name not in names]
        elsewhere = (each for group in others for each in _while_valid(_measured(source, group, profile, also)))
        in_all = missing_baselines([*measured, *elsewhere])
        lacked = [baseline for baseline in in_all if names & set(baseline.groups)]
    return [*planned, *_possible(lacked, profile)]


def _while_valid(measured: Iterator[Measured]) -> Iterator[Measured]:
    """Up to the first point that is not valid."""
    with contextlib.suppress(UsageError):
        yield from measured


def _possible(baselines: Sequence[Baseline], profile: ClusterProfile) -> Iterator[PlannedPoint]:
    """The baselines that are valid points: a profile of rank 3, say, needs more than one GPU."""
    for baseline in baselines:
        with contextlib.suppress(UsageError):
            yield PlannedPoint(resolve(baseline.sweep, profile), baseline.groups, is_added=True)


def _measured(
    source: SweepFile, group: SweepGroup, profile: ClusterProfile, also: Mapping[str, Sequence[object]]
) -> Iterator[Measured]:
    """The points of one group that its conditions admit; those that they leave out need not be valid."""
    conditions = _Conditions(source, group)
    rest = {key: value for key, value in source.document.items() if key != "points"}  # the values of an axis may be thousands
    none = True
    for combination in group.combinations(also):
        sweep = _decode(rest, combination, source)
        if combination.included or conditions.admits(_filled(sweep, profile)):
            none = False
            yield sweep, resolve(sweep, profile), group.name
    if none:
        message = f"`where` and `exclude` remove every point of group `{group.name}`"
        raise with_line(SchemaError(("points", group.name), message), source.file)


class _Conditions:
    """What `where` and `exclude` of a group leave of its product."""

    def __init__(self, source: SweepFile, group: SweepGroup) -> None:
        self._file = source.file
        here: Path = ("points", group.name)
        self._conditions = [
            (self._parsed(text, (*here, word)), (*here, word), word == "where")
            for word, texts in (("where", group.where), ("exclude", group.exclude))
            for text in texts
        ]

    def admits(self, point: Point) -> bool:
        if not self._conditions:
            return True
        values = compared_values(point)
        return all(self._holds(condition, values, place) == wanted for condition, place, wanted in self._conditions)

    def _parsed(self, text: str, place: Path) -> Condition:
        try:
            return parse_condition(text)
        except UsageError as error:
            raise with_line(SchemaError(place, f"`{text}`: {error}"), self._file) from error

    def _holds(self, condition: Condition, values: Mapping[str, object], place: Path) -> bool:
        try:
            return condition.holds(values)
        except UsageError as error:
            raise with_line(SchemaError(place, f"`{condition.text}`: {error}"), self._file) from error


def _decode(rest: Mapping[str, object], combination: Combination, source: SweepFile) -> Sweep:
    """The sweep of one point; a complaint about a value of an axis names its place in the file."""
    document = copy.deepcopy(dict(rest))
    for key, value in combination.values.items():
        set_dotted(document, key, value)
    try:
        return decode_sweep(document)
    except SchemaError as error:
        own = [key for key in combination.values if key in combination.places]
        if not own:
            raise
        key = next((key for key in own if error.path[: key.count(".") + 1] == tuple(key.split("."))), own[0])
        raise with_line(SchemaError(combination.places[key], error.message), source.file) from error


def resolve(sweep: Sweep, profile: ClusterProfile) -> Point:
    """The point of a sweep without groups: defaults that depend on the cluster or on `hold` filled in."""
    _check_batch(sweep)
    point = _filled(sweep, profile)
    _ = point.workload.loader_workers  # an error where it is not known
    check_workload(point.workload)
    check_point(point)
    return point


def _filled(sweep: Sweep, profile: ClusterProfile) -> Point:
    """The same without the checks."""
    layout = with_node_type(sweep.layout, profile)
    if profile.backend in TORCHRUN_ONLY:
        layout = dataclasses.replace(layout, launcher="torchrun")
    return Point(
        cluster=profile.name,
        workload=_with_workers(_with_batch(sweep), layout, sweep.device),
        layout=layout,
        measure=_without_unused(sweep.measure, sweep.work),
        work=sweep.work,
        device=sweep.device,
        env=sweep.variables,
    )


def _without_unused(measure: Measure, work: str) -> Measure:
    """`measure` with what has no effect on this run at its default: equal work has equal ids."""
    unused = {
        "steps": work != "steps" or measure.stop == "seconds",
        "interval_percent": measure.stop != "interval",
        "max_steps": measure.stop == "steps",
        "profile_ranks": not measure.profile_steps,
        "evaluate": measure.input != "full" or work == "train",
        "comm": measure.input == "io",
    }
    return dataclasses.replace(measure, **{key: getattr(DEFAULTS, key) for key, holds in unused.items() if holds})


def _check_batch(sweep: Sweep) -> None:
    """UsageError for a global batch that is missing, unwanted or not divisible."""
    batch, gpus = sweep.workload.global_batch, sweep.layout.nodes * sweep.layout.gpus_per_node
    if sweep.hold == "batch_per_gpu":
        if batch is not None:
            raise UsageError("workload.global_batch needs `hold: global_batch`; this sweep holds batch_per_gpu")
    elif batch is not None and sweep.workload.samples_per_step is not None:
        raise UsageError("workload.samples_per_step follows from workload.global_batch. Remove one of them.")
    elif batch is None and not sweep.workload.script:
        raise UsageError("`hold: global_batch` needs workload.global_batch, the samples per step over all GPUs")
    elif batch is not None and batch % gpus:
        raise UsageError(f"workload.global_batch {batch} cannot be shared equally by {gpus} GPUs")


def _with_batch(sweep: Sweep) -> Workload:
    workload, gpus = sweep.workload, sweep.layout.nodes * sweep.layout.gpus_per_node
    if sweep.hold == "global_batch" and workload.global_batch is not None:
        share = workload.global_batch // gpus
        samples = share if workload.script else None
        return dataclasses.replace(workload, batch_per_gpu=share, samples_per_step=samples, global_batch=None)
    if workload.samples_per_step is not None:
        return dataclasses.replace(workload, batch_per_gpu=workload.samples_per_step)
    return workload


def _with_workers(workload: Workload, layout: Layout, device: str) -> Workload:
    """`auto` loader workers as a number: a rank's physical cores less one for the rank itself, at least one, and no more where it
    trains on them; none of data on the device. As it is where the cores are not known."""
    if workload.loader_workers_per_rank != "auto":
        return workload
    cores = layout.physical_cores_per_rank
    if workload.data.resident:
        workers = 0
    elif device == "cpu":
        workers = 1
    elif cores is not None:
        workers = max(1, cores - 1)
    else:
        return workload
    return dataclasses.replace(workload, loader_workers_per_rank=workers)


def with_node_type(layout: Layout, profile: ClusterProfile) -> Layout:
    """The node type named, and its cores shared out among its GPUs where the sweep does not say how many a rank gets."""
    if not profile.node_types:
        return layout
    name = layout.node_type or profile.default_node_type
    node = profile.node_type(name)
    cores = layout.physical_cores_per_rank
    if cores is None and node.physical_cores and node.gpus:
        cores = max(1, node.physical_cores // max(node.gpus, layout.gpus_per_node))
    return dataclasses.replace(layout, node_type=name, physical_cores_per_rank=cores)


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """A baseline that no group of the sweep lists, and the groups of the series that lacks it."""

    sweep: Sweep
    groups: tuple[str, ...]


@dataclass
class _Series:
    first: Sweep
    sizes: dict[tuple[int, int], None] = field(default_factory=dict)
    """Nodes, GPUs per node."""
    groups: dict[str, None] = field(default_factory=dict)


def missing_baselines(measured: Iterable[Measured]) -> list[Baseline]:
    """The baselines that each series, points that differ in their size only, lacks. A series of a single size scales nowhere and
    needs none. A full node has the most GPUs per node of its series, as in analysis.
    """
    found: dict[Point, _Series] = {}
    for sweep, point, group in measured:
        series = found.setdefault(without_size(point, sweep.hold), _Series(sweep))
        series.sizes[point.layout.nodes, point.layout.gpus_per_node] = None
        series.groups[group] = None
    return [
        Baseline(
            sweep=replace(series.first, layout=replace(series.first.layout, nodes=1, gpus_per_node=gpus)),
            groups=tuple(series.groups),
        )
        for series in found.values()
        if len(series.sizes) > 1
        for gpus in dict.fromkeys([1, max(gpus for _, gpus in series.sizes)])
        if (1, gpus) not in series.sizes
    ]


def without_size(point: Point, hold: str) -> Point:
    """Equal for the points of a series: these differ in nodes and GPUs, and in what is done beside or after the timed steps."""
    holds_total = hold == "global_batch" and point.workload.known_batch is not None
    batch = point.global_batch if holds_total else point.workload.batch_per_gpu
    beside = {key: getattr(Measure, key) for key in ("comm", "profile_steps", "profile_ranks", "evaluate", "evaluate_every")}
    return dataclasses.replace(
        point,
        workload=replace(point.workload, batch_per_gpu=batch),
        layout=replace(point.layout, nodes=1, gpus_per_node=1),
        measure=replace(point.measure, **beside),
    )
