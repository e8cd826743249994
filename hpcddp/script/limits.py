"""What a cluster would refuse of a request, said before Slurm sees it: the value, the limit and the next step."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from hpcddp.cluster.profile import ClusterProfile, NodeType
from hpcddp.core.point import Point
from hpcddp.script.job_request import JobRequest
from hpcddp.script.queues import beyond_queue, cores_counted, memory_limit_mb, rival_types
from hpcddp.script.slurm_options import own_srun_options

OWN_OPTIONS = {
    "--nodes": "set layout.nodes",
    "--ntasks": "set layout.gpus_per_node",
    "--ntasks-per-node": "set layout.gpus_per_node",
    "--cpus-per-task": "set layout.physical_cores_per_rank",
    "--time": "set slurm.walltime_min",
    "--array": "each run is a job: set repeat",
    "--clusters": "set SLURM_CLUSTERS, which `hpcddp status` reads too",
    "--wait": "use `hpcddp submit --wait`",
    "--test-only": "use `hpcddp submit --dry-run`",
}
"""Raw sbatch options that would make a job other than its point says, or one that cannot be followed, and what to do instead."""

MEMORY_OPTIONS = ("--mem", "--mem-per-cpu", "--mem-per-gpu")

SIGNAL_EARLY_S = 60
"""Slurm may send a warning so much earlier than it was to (sbatch(1), --signal)."""

BEGIN_S = 60
"""Python, torch and the data on every rank, 10 to 40 s on a shared file system, and some steps: else a restart is for nothing."""


def broken_limits(profile: ClusterProfile, point: Point, request: JobRequest) -> Iterator[str]:
    """A sentence for each thing the cluster would refuse: the value, the limit and the next step."""
    node = profile.node_type(point.layout.node_type)
    yield from _own_options(request)
    yield from own_srun_options(request)
    yield from _beyond_nodes(profile, point, node)
    yield from _untyped(profile, point, request, node)
    yield from _in_partition_of_others(profile, point, request)
    yield from _beyond_one_node(profile, point, request, node)
    yield from _memory_options(profile, point, request)
    yield from _beyond_memory_per_core(profile, point, request)
    yield from _account_of_another_form(profile, point, request)
    yield from beyond_queue(profile, point, request)
    yield from _beyond_user(profile, point, request)
    yield from _warned_at_once(request)


def _own_options(request: JobRequest) -> Iterator[str]:
    for option in request.options:
        if (name := option.partition("=")[0]) in OWN_OPTIONS:
            yield f"job option {option}: hpcddp sets {name} itself; {OWN_OPTIONS[name]}."


def _beyond_nodes(profile: ClusterProfile, point: Point, node: NodeType) -> Iterator[str]:
    wanted, name = point.layout.nodes, point.layout.node_type
    if node.count is not None and wanted > node.count:
        names = f" ({node.names})" if node.names else ""
        counts = [other.count for other in profile.node_types.values()]
        total = sum(count for count in counts if count is not None)
        mixed = f"; {total} nodes in all if types may mix" if None not in counts and total >= wanted else ""
        yield (
            f"{profile.name} has {node.count} nodes of type {name}{names}; {wanted} asked for. "
            f"`{profile.show_command}` lists them{mixed}."
        )


def _untyped(profile: ClusterProfile, point: Point, request: JobRequest, node: NodeType) -> Iterator[str]:
    typed = node.gres_type or node.constraint or request.nodelist
    if not typed and (rivals := rival_types(profile, point, request.partition)):
        yield (
            f"layout.node_type {point.layout.node_type}: the profile of {profile.name} knows no GPU type, constraint or "
            f"partition to ask Slurm for it, so nodes of type {' or '.join(rivals)} could be timed instead. Name the nodes with "
            f"slurm.nodelist."
        )


def _in_partition_of_others(profile: ClusterProfile, point: Point, request: JobRequest) -> Iterator[str]:
    """A partition that other node types name as theirs; what the table of partitions says of types, `beyond_queue` says."""
    wanted = point.layout.node_type or profile.default_node_type
    others = [name for name, node in profile.node_types.items() if request.partition and node.partition == request.partition]
    if others and wanted not in others and request.partition not in profile.slurm.partitions:
        yield (
            f"slurm.partition is {request.partition}: its nodes are of type {' or '.join(others)}, and layout.node_type is "
            f"{wanted}. Use `--set slurm.partition=null` or `--set layout.node_type={others[0]}`."
        )


def _beyond_one_node(profile: ClusterProfile, point: Point, request: JobRequest, node: NodeType) -> Iterator[str]:
    where = f"a node of type {point.layout.node_type} of {profile.name}"
    gpus, cores = point.layout.gpus_per_node, point.layout.physical_cores_per_rank
    if point.device == "cuda" and node.gpus is not None and gpus > node.gpus:
        yield f"layout.gpus_per_node is {gpus}: {where} has {node.gpus} GPUs. Ask for at most {node.gpus} and more nodes."
    if cores is not None and node.physical_cores is not None and gpus * cores > node.physical_cores:
        yield (
            f"layout.physical_cores_per_rank is {cores}: {gpus} ranks take {gpus * cores} physical cores; {where} has "
            f"{node.physical_cores}. Ask for at most {node.physical_cores // gpus}."
        )
    if request.mem_mb is not None and node.memory_mb is not None and request.mem_mb > node.memory_mb:
        yield f"slurm.mem_mb is {request.mem_mb}: Slurm gives at most {node.memory_mb} MB on {where}."


def _memory_options(profile: ClusterProfile, point: Point, request: JobRequest) -> Iterator[str]:
    """Memory that is asked for where it must not be, or not where it must."""
    rule, options = profile.slurm.memory_option, [each for each in request.options if each.partition("=")[0] in MEMORY_OPTIONS]
    if rule == "forbidden":
        requested = [*options, *([] if request.mem_mb is None else [f"slurm.mem_mb is {request.mem_mb}"])]
        yield from (f"{each}: {profile.name} takes no request for memory. Leave it out." for each in requested)
    elif rule == "required" and request.mem_mb is None and not options:
        yield (
            f"{profile.name} takes no job without a request for memory, and its profile does not say what a node of type "
            f"{point.layout.node_type} has. Use `--set slurm.mem_mb=MB`."
        )
    elif rule == "nonzero":
        zeros = [each for each in options if re.fullmatch(r"--mem=0+[KMGT]?", each)]
        yield from (f"job option {each}: {profile.name} refuses 0. Leave it out, or set slurm.mem_mb." for each in zeros)


def _beyond_memory_per_core(profile: ClusterProfile, point: Point, request: JobRequest) -> Iterator[str]:
    limit = profile.rules_of(profile.node_type(point.layout.node_type)).max_mb_per_core
    most_mb = memory_limit_mb(limit, cores_counted(profile, point, request), request.nodes)
    if request.mem_mb is not None and most_mb is not None and request.mem_mb > most_mb:
        yield (
            f"slurm.mem_mb is {request.mem_mb}: {profile.name} gives at most {limit} MB a core, {most_mb} MB to the cores of "
            f"this job. Ask for less, or for more cores with layout.physical_cores_per_rank."
        )


def _account_of_another_form(profile: ClusterProfile, point: Point, request: JobRequest) -> Iterator[str]:
    form, account = profile.rules_of(profile.node_type(point.layout.node_type)).account_form, request.user.account
    if form is not None and account is not None and not re.fullmatch(form.pattern, account):
        yield f"account is {account}: {form.sentence.rstrip('.')} ({profile.name}). Use `--set account=NAME`."


def _beyond_user(profile: ClusterProfile, point: Point, request: JobRequest) -> Iterator[str]:
    gpus, limit = request.nodes * request.gpus_counted, profile.slurm.max_gpus_per_user
    if limit is not None and gpus > limit:
        yield f"{gpus} GPUs asked for ({request.nodes} nodes x {request.gpus_counted}): {profile.name} allows {limit} a user."
    cores = cores_counted(profile, point, request)
    limit = profile.slurm.max_cores_per_user
    if limit is not None and cores is not None and cores > limit:
        yield f"{cores} cores asked for on {request.nodes} nodes: {profile.name} allows {limit} a user."


def _warned_at_once(request: JobRequest) -> Iterator[str]:
    """A job that Slurm warns as it begins would write a checkpoint after one step and be requeued, again and again."""
    warning_s = _warning_s(request)
    if warning_s is None or 60 * request.walltime_min >= warning_s + SIGNAL_EARLY_S + BEGIN_S:
        return
    enough_min = math.ceil((warning_s + SIGNAL_EARLY_S + BEGIN_S) / 60)
    yield (
        f"slurm.walltime_min is {request.walltime_min}: Slurm warns {warning_s} s before the time limit, or up to "
        f"{SIGNAL_EARLY_S} s earlier, and starting takes up to {BEGIN_S} s: the job would be requeued again and again without "
        f"training. Use `--set slurm.walltime_min={enough_min}` or more, or a later warning (-J --signal=USR2@SECONDS)."
    )


def _warning_s(request: JobRequest) -> int | None:
    """Before the time limit: by the user's last option, 60 s where that names no time (sbatch(1)), else by the request's own."""
    signals = [option for option in request.options if option.startswith("--signal=")]
    if request.warning_s is None or not signals:
        return request.warning_s
    found = re.search(r"@(\d+)$", signals[-1])
    return int(found[1]) if found else 60
