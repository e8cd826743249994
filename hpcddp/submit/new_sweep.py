"""A sweep to edit for a cluster: the GPUs of one node, then as many nodes as the cluster gives."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hpcddp.cluster.profile import ClusterProfile
from hpcddp.cluster.profile_names import own_folder
from hpcddp.cluster.settings import Settings
from hpcddp.cluster.yaml_text import flow
from hpcddp.cluster.yamlfile import parse_yaml
from hpcddp.core.catalog import is_on_disk
from hpcddp.core.errors import UsageError
from hpcddp.core.point import Data, Workload
from hpcddp.core.schema import decode, encode
from hpcddp.script.templating import render_template
from hpcddp.submit.choose import ChosenPoints, job_requests
from hpcddp.sweep.expand import expand
from hpcddp.sweep.file import make_sweep
from hpcddp.sweep.shipped import SCHEMA

NODES = (1, 2, 4, 8)
"""Sizes of a first study: some node hours, and enough to see where scaling bends."""

CPU_RANKS = (1, 2)
"""In place of GPUs where there is no Slurm: any machine has two cores."""

COMMON = {"model": "resnet50", "data": {"name": "synthetic-imagenet"}}
"""Of a profile that has no workload of its own: no data to prepare, and gradients that a network feels."""

WORKERS = 8
"""Processes that load data for a rank, at most."""


def sweep_file(profile: ClusterProfile, workload: str | None) -> Path:
    """Where the sweep goes if nothing is said: `rcc-resnet50.yaml`, here."""
    model = _workload(profile, workload)["model"].rpartition(":")[2]
    return Path(f"{profile.name}-{model}.yaml")


@dataclass(frozen=True)
class Start:
    """What the sweep begins with."""

    profile: ClusterProfile
    file: Path
    """Where the sweep will be."""
    workload: Mapping[str, Any]
    gpus: Sequence[int]
    """Numbers of GPUs on one node, the last of them those of all other points."""
    nodes: Sequence[int]


def new_sweep(profile: ClusterProfile, workload: str | None, file: Path) -> str:
    """A sweep in `file` that `hpcddp plan` takes; `workload`: MODEL/DATA. UsageError if unknown, or without even one node."""
    most = profile.node_type(None).gpus or 1
    one_node = Start(profile, file, _workload(profile, workload), (most,), (1,))
    if profile.backend == "local":
        return _checked(replace(one_node, gpus=CPU_RANKS))
    _checked(one_node)
    gpus = [each for each in NODES if each < most and _is_given(replace(one_node, gpus=(each,)))]
    nodes = [each for each in NODES if _is_given(replace(one_node, nodes=(each,)))]
    return _checked(replace(one_node, gpus=(*gpus, most), nodes=nodes))


def _workload(profile: ClusterProfile, named: str | None) -> dict[str, Any]:
    """The workload as it is written; the profile's own, where none is named."""
    default = encode(profile.default_workload, keep_defaults=False) if profile.default_workload else COMMON
    model, _, data = (named or "").partition("/")
    chosen = default if named is None else {"model": model, "data": {"name": data}}
    node = profile.node_type(None)
    cpus = max(1, (node.logical_cpus or WORKERS) // (node.gpus or 1))
    workers = 0 if decode(Workload, chosen).data.name.startswith("synthetic-") else min(WORKERS, cpus)
    filled = {"precision": "fp32", "batch_per_gpu": 32, "loader_workers_per_rank": workers, **chosen}
    return {key: filled[key] for key in dict.fromkeys(["model", "data", *filled])}


def _is_given(start: Start) -> bool:
    """Whether the cluster gives the points of it."""
    try:
        _checked(start)
    except UsageError:
        return False
    return True


def _checked(start: Start) -> str:
    """The text, if that is a sweep whose points the cluster gives; UsageError with what it refuses."""
    text = _text(start)
    source = make_sweep(parse_yaml(text, str(start.file)), (), start.file)
    job_requests(ChosenPoints(source=source, profile=start.profile, points=expand(source, start.profile)), Settings())
    return text


def _text(start: Start) -> str:
    """The file, of its template."""
    profile, data = start.profile, decode(Data, start.workload["data"])
    values = {
        "cluster": _cluster(start),
        "file": shlex.quote(start.file.name),
        "schema": SCHEMA,
        "needs_root": is_on_disk(data) and data.root is None,
        "rules": profile.rules_of(profile.node_type(None)),
    }
    return render_template("new_sweep.yaml.j2", {"yaml": flow}, {**vars(start), **values})


def _cluster(start: Start) -> str:
    """As the sweep names it: a file by its path from the sweep's."""
    file = start.profile.file
    if file is None or Path(file).parent == own_folder():
        return start.profile.name
    path = os.path.relpath(file, start.file.parent)
    return path if path.startswith("../") else f"./{path}"
