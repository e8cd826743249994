"""A sweep to edit for a cluster: the GPUs of one node, then as many nodes as the cluster gives."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from hpcddp.cluster.profile import ClusterProfile
from hpcddp.cluster.settings import Settings
from hpcddp.cluster.yamlfile import parse_yaml
from hpcddp.core.errors import UsageError
from hpcddp.core.point import Workload
from hpcddp.core.schema import decode, encode
from hpcddp.submit.choose import ChosenPoints, job_requests
from hpcddp.submit.new_sweep_text import Start, sweep_text
from hpcddp.sweep.expand import expand
from hpcddp.sweep.file import make_sweep

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


def new_sweep(profile: ClusterProfile, workload: str | None, file: Path) -> str:
    """The text of a sweep in `file` that `hpcddp plan` takes unchanged; `workload` is MODEL/DATA.

    UsageError for an unknown model or data set, and where the cluster gives not even one node.
    """
    most = profile.node_type(None).gpus or 1
    one_node = Start(profile, file, _workload(profile, workload), (most,), (1,))
    if one_node.is_local:
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
    text = sweep_text(start)
    source = make_sweep(parse_yaml(text, str(start.file)), (), start.file)
    job_requests(ChosenPoints(source=source, profile=start.profile, points=expand(source, start.profile)), Settings())
    return text
