"""A sweep: one YAML file that says what to measure, and the points it comes to."""

from __future__ import annotations

import copy
import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from hpcddp.catalog import check_workload
from hpcddp.cluster import ClusterProfile, is_profile_file
from hpcddp.errors import UsageError
from hpcddp.point import Layout, Measure, Point, Workload
from hpcddp.schema import SchemaError, at_least, decode, did_you_mean
from hpcddp.yamlfile import located, parse_yaml, read_yaml

AXIS_ROOTS = ("workload", "layout", "measure", "device", "work")
"""What an axis of a group may vary: the parts of a point."""

HELD_STEPS = Measure().steps


@dataclass(frozen=True, kw_only=True)
class SlurmOptions:
    """How the jobs are asked for; outside the id. None: the profile's rule, or what the user's settings say."""

    walltime_min: int = at_least(1, 30)
    partition: str | None = None
    qos: str | None = None
    mem_mb: int | None = at_least(1, None)
    reservation: str | None = None
    nodelist: str | None = None
    exclude: str | None = None
    options: tuple[str, ...] = ()
    """Raw sbatch options (`--constraint=hdr`), last in the header."""


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """The file, typed; keys as in design and README."""

    schema: Literal[1]
    cluster: str | None = None
    """A profile by name, or its file, relative to the sweep's; None: HPCDDP_CLUSTER, or the one of this machine."""
    hold: Literal["batch_per_gpu", "global_batch"] = "batch_per_gpu"
    work: Literal["steps", "epoch"] = "steps"
    workload: Workload
    layout: Layout = Layout()
    points: Mapping[str, Mapping[str, tuple[Any, ...]]] = field(default_factory=dict)
    measure: Measure = Measure()
    repeat: int = at_least(1, 1)
    device: Literal["cuda", "cpu"] = "cuda"
    account: str | None = None
    slurm: SlurmOptions = SlurmOptions()


@dataclass(frozen=True)
class SweepFile:
    """A sweep with the document and the file it came from: axes are applied to the document, complaints name the file."""

    sweep: Sweep
    document: Mapping[str, Any]
    file: Path

    @property
    def name(self) -> str:
        return self.file.stem


@dataclass(frozen=True)
class PlannedPoint:
    """A point and the groups of the sweep it is in."""

    point: Point
    groups: tuple[str, ...]


def read_sweep(file: Path, settings: Sequence[str] = (), cluster: str | None = None) -> SweepFile:
    """The sweep in `file` with `--set` values put under its groups; `cluster`, where given, replaces the file's own."""
    document = read_yaml(file)
    if not isinstance(document, dict):
        raise UsageError(f"{file}: a sweep is a mapping with schema, cluster, workload, ...; `hpcddp init` copies one")
    if cluster is not None:
        document["cluster"] = cluster
    elif is_profile_file(document.get("cluster")):
        document["cluster"] = str(file.parent / document["cluster"])
    return make_sweep(document, settings, file)


def make_sweep(document: Mapping[str, Any], settings: Sequence[str], file: Path) -> SweepFile:
    """The same from a document at hand; `file` is for the name and for complaints."""
    changed_document = copy.deepcopy(dict(document))
    changed = [_apply_setting(changed_document, text) for text in settings]
    try:
        return SweepFile(decode(Sweep, changed_document), changed_document, file)
    except SchemaError as error:
        for path, text in zip(changed, settings, strict=True):
            if error.path[: len(path)] == path:
                raise UsageError(f"--set {text}: {error.message}") from error
        raise located(error, file) if file.is_file() else error from error


def with_job_options(source: SweepFile, options: Sequence[str]) -> SweepFile:
    """The sweep with raw sbatch options behind its own."""
    if not options:
        return source
    own = {"options": [*source.sweep.slurm.options, *options]}
    return make_sweep({**source.document, "slurm": {**source.document.get("slurm", {}), **own}}, (), source.file)


def expand(source: SweepFile, profile: ClusterProfile, groups: Sequence[str] = ()) -> list[PlannedPoint]:
    """The union of the groups' products in the file's order, equal points merged by id; no groups: the one point."""
    sweep = source.sweep
    for group in groups:
        if group not in sweep.points:
            raise UsageError(f"{source.file}: no group `{group}` in points{did_you_mean(group, sweep.points)}")
    found: dict[str, PlannedPoint] = {}
    for group in (name for name in sweep.points if not groups or name in groups):
        for document in _product(source, group):
            point = resolve(document, profile)
            before = found.get(point.id, PlannedPoint(point, ()))
            found[point.id] = PlannedPoint(before.point, (*before.groups, group))
    if not sweep.points:
        point = resolve(sweep, profile)
        found[point.id] = PlannedPoint(point, ())
    return list(found.values())


def resolve(sweep: Sweep, profile: ClusterProfile) -> Point:
    """The point of a sweep without groups: defaults that depend on the cluster or on `hold` filled in."""
    point = Point(
        cluster=profile.name,
        workload=_with_batch(sweep),
        layout=_with_node_type(sweep.layout, profile),
        measure=sweep.measure if sweep.work == "steps" else dataclasses.replace(sweep.measure, steps=HELD_STEPS),
        work=sweep.work,
        device=sweep.device,
    )
    check_workload(point.workload)
    return point


def _with_batch(sweep: Sweep) -> Workload:
    workload, ranks = sweep.workload, sweep.layout.nodes * sweep.layout.gpus_per_node
    if sweep.hold == "batch_per_gpu":
        if workload.global_batch is not None:
            raise UsageError("workload.global_batch needs `hold: global_batch`; this sweep holds batch_per_gpu")
        return workload
    if workload.global_batch is None:
        raise UsageError("`hold: global_batch` needs workload.global_batch, the samples per step over all ranks")
    if workload.global_batch % ranks:
        raise UsageError(f"workload.global_batch {workload.global_batch} cannot be shared equally by {ranks} ranks")
    return dataclasses.replace(workload, batch_per_gpu=workload.global_batch // ranks, global_batch=None)


def _with_node_type(layout: Layout, profile: ClusterProfile) -> Layout:
    """The node type named, and its cores shared out among its GPUs where the sweep does not say how many a rank gets."""
    if not profile.node_types:
        return layout
    name = layout.node_type or profile.default_node_type
    node = profile.node_type(name)
    cores = layout.physical_cores_per_rank
    if cores is None and node.physical_cores and node.gpus:
        cores = max(1, node.physical_cores // max(node.gpus, layout.gpus_per_node))
    return dataclasses.replace(layout, node_type=name, physical_cores_per_rank=cores)


def _product(source: SweepFile, group: str) -> Iterator[Sweep]:
    axes = source.sweep.points[group]
    for axis in axes:
        if axis.split(".")[0] not in AXIS_ROOTS:
            error = SchemaError(("points", group, axis), f"`{axis}` cannot be an axis{did_you_mean(axis, AXIS_ROOTS)}")
            raise located(error, source.file) if source.file.is_file() else error
    for values in itertools.product(*axes.values()):
        document = {**copy.deepcopy(dict(source.document)), "points": {}}
        for axis, value in zip(axes, values, strict=True):
            set_dotted(document, axis, value)
        yield _decode_axes(document, source, group, tuple(axes))


def _decode_axes(document: Mapping[str, Any], source: SweepFile, group: str, axes: tuple[str, ...]) -> Sweep:
    """Complaints about a value that came from an axis name the axis in the file."""
    try:
        return decode(Sweep, document)
    except SchemaError as error:
        axis = next((axis for axis in axes if error.path[: axis.count(".") + 1] == tuple(axis.split("."))), axes[0])
        there = SchemaError(("points", group, axis), error.message)
        raise located(there, source.file) if source.file.is_file() else there from error


def set_dotted(document: dict[str, Any], dotted_key: str, value: Any) -> None:
    """Sets `workload.batch_per_gpu` in nested dicts, making those on the way."""
    *parents, last = dotted_key.split(".")
    for parent in parents:
        below = document.setdefault(parent, {})
        if not isinstance(below, dict):
            raise UsageError(f"`{dotted_key}`: `{parent}` is {below!r}, not a mapping")
        document = below
    document[last] = value


def _apply_setting(document: dict[str, Any], text: str) -> tuple[str, ...]:
    """Applies one `key=value`, the value read as YAML; returns the key's path."""
    key, equals, value = text.partition("=")
    if not equals or key.split(".")[0] in ("points", "schema"):
        raise UsageError(f"--set {text}: write key=value with a key of the sweep, such as workload.batch_per_gpu=64")
    set_dotted(document, key, parse_yaml(value, f"--set {text}"))
    return tuple(key.split("."))
