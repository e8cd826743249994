"""A study's sweep for another cluster: what was measured stays, what belongs to the first cluster goes."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterable, Mapping
from typing import get_type_hints

from hpcddp.sweep.file import Sweep

CLUSTER_KEYS = (("account",), ("layout", "node_type"), ("workload", "data", "root"))
"""Keys of a sweep that mean something on its own cluster only."""

RETAINED_SLURM_KEYS = ("walltime_min",)
"""Keys of `slurm` that hold on another cluster, too; partitions, QOS, nodes and raw options do not."""


def for_cluster(document: Mapping[str, object], cluster: str) -> tuple[dict[str, object], list[str]]:
    """The sweep for `cluster`, and what was taken out of it, such as `layout.node_type v100`."""
    changed: dict[str, object] = copy.deepcopy(dict(document))
    dropped = [f"{'.'.join(path)} {value}" for path in CLUSTER_KEYS if (value := _take(changed, path)) is not None]
    slurm = changed.get("slurm")
    if isinstance(slurm, dict):
        dropped += [f"slurm.{key} {slurm.pop(key)}" for key in sorted(set(slurm) - set(RETAINED_SLURM_KEYS))]
    return {**changed, "cluster": cluster}, dropped


def in_file_order(document: Mapping[str, object], groups: Iterable[str]) -> dict[str, object]:
    """The sweep with its keys as README has them, and its groups as given: study.json sorts what it holds."""
    ordered = _by_fields(document, Sweep)
    points = ordered.get("points")
    if isinstance(points, dict):
        ordered["points"] = {name: points[name] for name in dict.fromkeys([*groups, *points]) if name in points}
    return ordered


def _by_fields(plain: Mapping[str, object], kind: type) -> dict[str, object]:
    hints = get_type_hints(kind)
    names = [field.name for field in dataclasses.fields(kind) if field.name in plain]
    return {
        name: _by_fields(value, hints[name]) if dataclasses.is_dataclass(hints.get(name)) and isinstance(value, dict) else value
        for name, value in ((name, plain[name]) for name in dict.fromkeys([*names, *plain]))
    }


def _take(document: dict[str, object], path: tuple[str, ...]) -> object:
    """Removes and returns the value; None where there is none."""
    *parents, last = path
    for parent in parents:
        below = document.get(parent)
        if not isinstance(below, dict):
            return None
        document = below
    return document.pop(last, None)
