"""What is worth reading before a sweep is submitted, a sentence each: baselines, cores, shared nodes, data and copies of them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from hpcddp.cluster.profile import ClusterProfile
from hpcddp.cluster.settings import config_file, load_settings
from hpcddp.core.catalog import is_on_disk
from hpcddp.core.errors import HpcddpError
from hpcddp.core.jobspec import expanded
from hpcddp.core.point import Layout, Point
from hpcddp.core.text import count, merge_similar
from hpcddp.script.resources import cores_per_rank
from hpcddp.sweep.expand import PlannedPoint


def baseline_words(points: Sequence[PlannedPoint]) -> str:
    """`1 GPU and 1 node`: what speedups of these points will be relative to; empty where it is neither."""
    trained = [planned.point for planned in points if planned.point.work != "comm"]
    on_one_node = {point.layout.gpus_per_node for point in trained if point.layout.nodes == 1}
    full = max((point.layout.gpus_per_node for point in trained), default=1)
    one = "1 GPU" if any(point.device == "cuda" for point in trained) else "1 rank"
    return " and ".join([one] * (1 in on_one_node) + ["1 node"] * (full > 1 and full in on_one_node))


def added_words(points: Sequence[PlannedPoint]) -> list[str]:
    """A sentence on the baselines that were added to the points, where there are such."""
    added = [planned for planned in points if planned.is_added]
    if not added:
        return []
    groups = ", ".join(dict.fromkeys(name for p in added for name in p.groups))
    words = f"{count(len(added), 'baseline')} {'is' if len(added) == 1 else 'are'} added for {groups or 'the points'}"
    return [f"{words}. Set `baselines: false` to omit {'it' if len(added) == 1 else 'them'}."]


def remarks(profile: ClusterProfile, points: Sequence[PlannedPoint]) -> Iterator[str]:
    """What a referee would ask about the request, a sentence each with the next step; each once for all points."""
    if points and profile.status == "retired":
        yield f"{profile.name} is retired: its jobs cannot run. Check their scripts with `hpcddp render`."
    yield from _few_cores(profile, [planned.point.layout for planned in points])
    yield from merge_similar(text for planned in points for text in _remarks_on(profile, planned.point))
    data = with_data_on_disk(points, load_settings()[0].data_roots) if profile.backend == "sagemaker" else ()
    for root in dict.fromkeys(root for _, root in data if not root.startswith(("s3://", "/opt/ml/"))):
        yield f"Jobs read data root `{root}` inside the image. Set workload.data.root=s3://BUCKET/FOLDER for data in S3."


def _few_cores(profile: ClusterProfile, layouts: Iterable[Layout]) -> Iterator[str]:
    """One sentence for each type of node, however many numbers of cores are tried there."""
    few: dict[tuple[str | None, int], set[int]] = {}
    for layout in layouts:
        node, cores = profile.node_type(layout.node_type), layout.physical_cores_per_rank
        if node.physical_cores and node.gpus and cores is not None and cores * node.gpus < node.physical_cores:
            few.setdefault((layout.node_type, node.physical_cores // node.gpus), set()).add(cores)
    for (node_type, share), numbers in few.items():
        tried = ", ".join(map(str, sorted(numbers)))
        yield (
            f"layout.physical_cores_per_rank is {tried}, but a node of type {node_type} has {share} physical cores per GPU. "
            f"Fewer cores may starve data loading. Set {share}, unless {tried} is intended."
        )


def _remarks_on(profile: ClusterProfile, point: Point) -> Iterator[str]:
    node, layout = profile.node_type(point.layout.node_type), point.layout
    if point.device == "cpu" and node.gpus:
        yield f"device is cpu, so the GPUs of {profile.name}'s nodes are unused. Set `device: cuda`, unless that is intended."
    if not layout.exclusive and not profile.slurm.always_exclusive:
        yield "layout.exclusive is false: other users' jobs can slow a baseline, which inflates speedups. Set it to true."
    yield from staging_remarks(profile, point)
    workers, cores = point.workload.loader_workers, cores_per_rank(point)
    if cores is not None and workers > cores * node.smt and point.workload.script is None:  # a script's are its own
        yield (
            f"workload.loader_workers_per_rank is {workers}, but a rank has {count(cores * node.smt, 'CPU')} for loading and "
            f"training. Set at most {cores * node.smt}, unless {workers} is intended."
        )


def without_folder(points: Sequence[PlannedPoint], data_roots: Mapping[str, str]) -> list[str]:
    """A sentence for each data set on disk that has no folder, neither in its points nor in the user's settings."""
    trained = (planned.point.workload.data for planned in points if planned.point.work != "comm")
    rootless = {data.name: data for data in trained if data.root is None}
    return [
        f"Data `{name}` has no folder, so every run would fail. Add `--set workload.data.root=FOLDER`, "
        f"or write `data_roots: {{{name}: FOLDER}}` into {config_file()}."
        for name, data in rootless.items()
        if name not in data_roots and is_on_disk(data)
    ]


def staging_remarks(profile: ClusterProfile, point: Point) -> Iterator[str]:
    """Where the profile knows that nodes have no disk, or that copies may stay on it."""
    node_type = point.layout.node_type or profile.default_node_type
    if point.workload.data.stage == "none" or not profile.node_types:
        return
    node, fact = profile.node_type(node_type), profile.facts.get(f"node_types.{node_type}.local_disk_gb")
    if node.local_disk_gb is None and node.local_disk_path is None and fact is not None and fact.grade != "?":
        why = f" ({fact.note})" if fact.note else ""
        yield (
            f"workload.data.stage is tmpdir, but the profile defines no disk for a node of type {node_type}{why}. A copy may "
            f"take half of the free memory. Set `stage: none`, unless that is intended."
        )
    elif node.local_disk_per_job is False:
        yield (
            f"workload.data.stage is tmpdir, and the disk of a node of type {node_type} keeps files after a job. Your next "
            f"staged run there deletes the copy of a cancelled run."
        )


def with_data_on_disk(points: Sequence[PlannedPoint], data_roots: Mapping[str, str]) -> Iterator[tuple[Point, str]]:
    """Each data set's folder with the first point that reads it; of bigMNIST first those that need most copies."""
    from hpcddp.core.prepared import FILES, prepared_for

    found = dict[tuple[object, str], Point]()
    for planned in points:
        data = planned.point.workload.data
        root = data.root or data_roots.get(data.name)
        if planned.point.reads_data and data.name in FILES and root is not None:
            found.setdefault((data, root), planned.point)
    for (_, root), point in sorted(found.items(), key=lambda item: -prepared_for(item[1].workload.data)[0]):
        yield point, root


def root_here(root: str, *, runs_here: bool) -> Path | None:
    """The folder as this machine sees it; None where it does not, unless `runs_here`, or where only the job knows it."""
    try:
        folder = Path(os.path.abspath(expanded(root, "data root")))
    except HpcddpError:
        folder = Path(root)
    return folder if runs_here or folder.is_dir() else None


def missing_data(
    points: Sequence[PlannedPoint], data_roots: Mapping[str, str], *, runs_here: bool, prepares: bool
) -> Iterator[str]:
    """A sentence for each data set that runs are sure not to find. `prepares`: what hpcddp can make comes before them."""
    from hpcddp.core.prepared import prepare_task, unprepared

    for point, root in with_data_on_disk(points, data_roots):
        data, folder = point.workload.data, root_here(root, runs_here=runs_here)
        found = None if folder is None else unprepared(data, folder)
        if found is not None and not (prepares and found.is_missing and prepare_task(data, root)):
            yield found.text
