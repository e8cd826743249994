"""A study's sweep for another cluster: what was measured stays, what belongs to the first cluster goes."""

from __future__ import annotations

import copy
import dataclasses
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from hpcddp.cluster.profile_names import is_profile_file
from hpcddp.core.errors import UsageError
from hpcddp.core.run_root import single_study
from hpcddp.share.unbundle import opened_study
from hpcddp.study.study_records import read_study_file
from hpcddp.sweep.file import Sweep, make_sweep

CLUSTER_KEYS = (("account",), ("layout", "node_type"), ("workload", "data", "root"))
"""Keys of a sweep that mean something on its own cluster only."""

RETAINED_SLURM_KEYS = ("walltime_min",)
"""Keys of `slurm` that hold on another cluster, too; partitions, QOS, nodes and raw options do not."""


@dataclass(frozen=True, kw_only=True)
class BundledSweep:
    """A bundle's sweep, to be run on another cluster."""

    study: str
    """The study's name."""
    text: str
    """YAML; its first line says where it is from."""
    dropped: Sequence[str]
    """What was left out, as it means something on its own cluster only."""


def bundled_sweep(bundle: Path, cluster: str) -> BundledSweep:
    """The sweep in a bundle's study.json for that cluster, a profile's name or file; UsageError where it holds none."""
    with opened_study(bundle) as root:
        found = single_study(root)
        recorded = read_study_file(found)
        name = found.folder.resolve().name
    if not recorded.sweep:
        raise UsageError(f"{bundle}: its study.json contains no sweep to run again")
    document, dropped = for_cluster(recorded.sweep, os.path.abspath(cluster) if is_profile_file(cluster) else cluster)
    groups = [group for point in recorded.points for group in point.groups]
    source = make_sweep(in_file_order(document, groups), (), Path(f"{bundle}: the sweep in study.json"))
    text = yaml.safe_dump(dict(source.document), sort_keys=False, allow_unicode=True)
    return BundledSweep(study=name, text=f"# The sweep of {name}, from a bundle.\n{text}", dropped=dropped)


def for_cluster(document: Mapping[str, object], cluster: str) -> tuple[dict[str, object], list[str]]:
    """The sweep for `cluster`, and what was taken out of it, such as `layout.node_type v100`."""
    changed: dict[str, object] = copy.deepcopy(dict(document))
    dropped = [f"{'.'.join(path)} {value}" for path in CLUSTER_KEYS if (value := _take(changed, path)) is not None]
    slurm = changed.get("slurm")
    if isinstance(slurm, dict):
        dropped += [f"slurm.{key} {slurm.pop(key)}" for key in sorted(set(slurm) - set(RETAINED_SLURM_KEYS))]
    return {**changed, "cluster": cluster}, dropped


def in_file_order(document: Mapping[str, object], groups: Iterable[str]) -> dict[str, object]:
    """The sweep with its keys as the reference has them, and its groups as given: study.json sorts what it holds."""
    names = [field.name for field in dataclasses.fields(Sweep) if field.name in document]
    ordered = {name: document[name] for name in dict.fromkeys([*names, *document])}
    points = ordered.get("points")
    if isinstance(points, dict):
        ordered["points"] = {name: points[name] for name in dict.fromkeys([*groups, *points]) if name in points}
    return ordered


def _take(document: dict[str, object], path: tuple[str, ...]) -> object:
    """Removes and returns the value; None where there is none."""
    *parents, last = path
    for parent in parents:
        below = document.get(parent)
        if not isinstance(below, dict):
            return None
        document = below
    return document.pop(last, None)
