"""What a point asks of Slurm: the arithmetic between physical cores, ranks and Slurm's words; and what of it the cluster would
refuse, said before Slurm sees it: the value, the limit and the next step.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import replace

from hpcddp.cluster.profile import ClusterProfile, NodeType
from hpcddp.cluster.slurm_rules import SlurmRules
from hpcddp.core.errors import UsageError
from hpcddp.core.hours import Hours
from hpcddp.core.point import Point
from hpcddp.script.job_request import JobRequest, User, job_options, own_options, srun_options
from hpcddp.script.queues import Queue, beyond_queue, choose_queue, cores_counted, memory_limit_mb, rival_types
from hpcddp.sweep.file import SlurmOptions

WARNING_S = 120
"""What a checkpoint may take; up to 60 s more (sbatch(1)), so jobs of a few minutes are warned when a quarter is left."""


def usual_warning_s(walltime_min: int) -> int:
    """So long before the time limit Slurm sends the signal at which a checkpoint is written."""
    return min(WARNING_S, walltime_min * 15)


def job_request(profile: ClusterProfile, point: Point, slurm: SlurmOptions, user: User) -> JobRequest:
    """The request; UsageError lists everything in it that the cluster would not give, with the limit."""
    node, layout = profile.node_type(point.layout.node_type), point.layout
    rules, cores = profile.rules_of(node), cores_per_rank(point)
    request = JobRequest(
        name=point.label,
        nodes=layout.nodes,
        ranks_per_node=point.ranks_per_node,
        cpus_per_rank=None if cores is None else cores * threads_per_core(profile, node),
        physical_cores_per_rank=cores,
        launcher=layout.launcher,
        gpus_per_node=_gpus_requested(profile, node, point),
        gres_type=node.gres_type,
        gpu_request=rules.gpu_request,
        mem_mb=slurm.mem_mb,
        exclusive=layout.exclusive,
        constraint=node.constraint,
        partition=slurm.partition,
        qos=slurm.qos,
        walltime_min=slurm.walltime_min,
        warning_s=usual_warning_s(slurm.walltime_min) if point.measure.resume else None,
        nodelist=slurm.nodelist,
        exclude=slurm.exclude,
        options=(*job_options(profile.slurm), *slurm.options),
        env=tuple(sorted(point.env.items())),
        user=User(account=user.account, reservation=slurm.reservation or user.reservation, mail=user.mail),
    )
    queue = choose_queue(profile, point, slurm, request)
    request = replace(
        request,
        qos=queue.rule.name,
        partition=queue.partition,
        mem_mb=slurm.mem_mb or _memory_share_mb(rules, queue, node, point),
        node_gpus=node.gpus if queue.always_exclusive else None,
        srun_options=(
            *srun_options(profile, node, point, exclusive=layout.exclusive or queue.always_exclusive),
            *slurm.srun_options,
        ),
        nodelist=slurm.nodelist or _pinned_nodes(profile, queue.partition, node, point),
    )
    found = list(broken_limits(profile, point, request))
    if found:
        raise UsageError("\n".join(found))
    return request


def cores_per_rank(point: Point) -> int | None:
    """Physical cores of one process: those of all its GPUs."""
    of_gpu = point.layout.physical_cores_per_rank
    return None if of_gpu is None else of_gpu * point.layout.gpus_per_node // point.ranks_per_node


def threads_per_core(profile: ClusterProfile, node: NodeType) -> int:
    """CPUs of a core, as Slurm counts those that a job asks for."""
    return 1 if profile.slurm.one_thread_per_core else node.smt


def hours_at_most(request: JobRequest) -> Hours:
    """Nodes, and the GPUs held on them, x the wall time asked for."""
    node = request.nodes * request.walltime_min / 60
    return Hours(node=node, gpu=node * request.gpus_counted)


def _gpus_requested(profile: ClusterProfile, node: NodeType, point: Point) -> int:
    """A run on CPUs asks for GPUs too where nothing else gives it the node alone, or a node of the type meant."""
    requested, there = point.layout.gpus_per_node, node.gpus or 0
    on_cpus = point.device == "cpu"
    if point.layout.exclusive and profile.slurm.exclusive_needs_all_gpus and there:
        return there if on_cpus else max(there, requested)
    only_by_type = len(profile.node_types) > 1 and node.gres_type is not None
    if on_cpus:
        return min(requested, there) if only_by_type else 0
    return requested


def _pinned_nodes(profile: ClusterProfile, partition: str | None, node: NodeType, point: Point) -> str | None:
    """The nodes by name where a type cannot be asked for otherwise and the point takes all of them."""
    mixed = rival_types(profile, point, partition) and node.gres_type is None and node.constraint is None
    return node.names if mixed and node.count == point.layout.nodes else None


def _memory_share_mb(rules: SlurmRules, queue: Queue, node: NodeType, point: Point) -> int | None:
    """All the node's memory on a node of the job's own, else the share of the cores asked for; never above the limit per core.
    None where it is not known, or must not be asked for.
    """
    if rules.memory_option == "forbidden" or node.memory_mb is None or node.physical_cores is None:
        return None
    requested = (point.layout.physical_cores_per_rank or 1) * point.layout.gpus_per_node
    cores = node.physical_cores if point.layout.exclusive or queue.always_exclusive else min(requested, node.physical_cores)
    share = node.memory_mb * cores // node.physical_cores
    limits_mb = (limit and limit * cores for limit in (rules.max_mb_per_core, queue.limits.max_mb_per_core))
    return min([share, *(limit for limit in limits_mb if limit is not None)])


MEMORY_OPTIONS = ("--mem", "--mem-per-cpu", "--mem-per-gpu")

SIGNAL_EARLY_S = 60
"""Slurm may send a warning so much earlier than it was to (sbatch(1), --signal)."""

BEGIN_S = 60
"""Python, torch and the data on every rank, 10 to 40 s on a shared file system, and some steps: else a restart is for nothing."""


def broken_limits(profile: ClusterProfile, point: Point, request: JobRequest) -> Iterator[str]:
    """A sentence for each thing the cluster would refuse: the value, the limit and the next step."""
    node = profile.node_type(point.layout.node_type)
    yield from own_options(request)
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


def _beyond_nodes(profile: ClusterProfile, point: Point, node: NodeType) -> Iterator[str]:
    wanted, name = point.layout.nodes, point.layout.node_type
    if node.count is not None and wanted > node.count:
        names = f" ({node.names})" if node.names else ""
        counts = [other.count for other in profile.node_types.values()]
        total = sum(count for count in counts if count is not None)
        mixed = f"; all types together have {total}" if None not in counts and total >= wanted else ""
        yield (
            f"{profile.name} has {node.count} nodes of type {name}{names}, and {wanted} are requested. "
            f"List the nodes with `{profile.show_command}`{mixed}."
        )


def _untyped(profile: ClusterProfile, point: Point, request: JobRequest, node: NodeType) -> Iterator[str]:
    typed = node.gres_type or node.constraint or request.nodelist
    if not typed and (rivals := rival_types(profile, point, request.partition)):
        yield (
            f"The profile of {profile.name} defines no GPU type, constraint or partition that selects layout.node_type "
            f"{point.layout.node_type}. Slurm could allocate nodes of type {' or '.join(rivals)}. Name the nodes with "
            f"`--set slurm.nodelist=NODES`."
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
        yield f"layout.gpus_per_node is {gpus}: {where} has {node.gpus} GPUs. Request at most {node.gpus}, on more nodes."
    if cores is not None and node.physical_cores is not None and gpus * cores > node.physical_cores:
        yield (
            f"layout.physical_cores_per_rank is {cores}: {gpus} ranks take {gpus * cores} physical cores; {where} has "
            f"{node.physical_cores}. Request at most {node.physical_cores // gpus}."
        )
    if request.mem_mb is not None and node.memory_mb is not None and request.mem_mb > node.memory_mb:
        yield f"slurm.mem_mb is {request.mem_mb}: Slurm gives at most {node.memory_mb} MB on {where}."


def _memory_options(profile: ClusterProfile, point: Point, request: JobRequest) -> Iterator[str]:
    """Memory that is asked for where it must not be, or not where it must."""
    rule, options = profile.slurm.memory_option, [each for each in request.options if each.partition("=")[0] in MEMORY_OPTIONS]
    if rule == "forbidden":
        requested = [*options, *([] if request.mem_mb is None else [f"slurm.mem_mb is {request.mem_mb}"])]
        yield from (f"{each}, but {profile.name} accepts no memory request. Remove it." for each in requested)
    elif rule == "required" and request.mem_mb is None and not options:
        yield (
            f"{profile.name} requires a memory request, and its profile does not define the memory of node type "
            f"{point.layout.node_type}. Use `--set slurm.mem_mb=MB`."
        )
    elif rule == "nonzero":
        zeros = [each for each in options if re.fullmatch(r"--mem=0+[KMGT]?", each)]
        yield from (f"job option {each}: {profile.name} rejects 0. Remove it, or set slurm.mem_mb." for each in zeros)


def _beyond_memory_per_core(profile: ClusterProfile, point: Point, request: JobRequest) -> Iterator[str]:
    limit = profile.rules_of(profile.node_type(point.layout.node_type)).max_mb_per_core
    most_mb = memory_limit_mb(limit, cores_counted(profile, point, request), request.nodes)
    if request.mem_mb is not None and most_mb is not None and request.mem_mb > most_mb:
        yield (
            f"slurm.mem_mb is {request.mem_mb}, but {profile.name} allows at most {limit} MB per core, {most_mb} MB for this job."
            f" Request less memory, or more cores with layout.physical_cores_per_rank."
        )


def _account_of_another_form(profile: ClusterProfile, point: Point, request: JobRequest) -> Iterator[str]:
    form, account = profile.rules_of(profile.node_type(point.layout.node_type)).account_form, request.user.account
    if form is not None and account is not None and not re.fullmatch(form.pattern, account):
        yield f"account is {account}: {form.sentence.rstrip('.')} ({profile.name}). Use `--set account=NAME`."


def _beyond_user(profile: ClusterProfile, point: Point, request: JobRequest) -> Iterator[str]:
    gpus, limit = request.nodes * request.gpus_counted, profile.slurm.max_gpus_per_user
    if limit is not None and gpus > limit:
        yield f"{gpus} GPUs requested ({request.nodes} nodes x {request.gpus_counted}); {profile.name} allows {limit} per user."
    cores = cores_counted(profile, point, request)
    limit = profile.slurm.max_cores_per_user
    if limit is not None and cores is not None and cores > limit:
        yield f"{cores} cores requested on {request.nodes} nodes; {profile.name} allows {limit} per user."


def _warned_at_once(request: JobRequest) -> Iterator[str]:
    """A job that Slurm warns as it begins would write a checkpoint after one step and be requeued, again and again."""
    warning_s = _warning_s(request)
    if warning_s is None or 60 * request.walltime_min >= warning_s + SIGNAL_EARLY_S + BEGIN_S:
        return
    enough_min = math.ceil((warning_s + SIGNAL_EARLY_S + BEGIN_S) / 60)
    yield (
        f"slurm.walltime_min is {request.walltime_min}. Slurm warns {warning_s} s before the time limit, or up to "
        f"{SIGNAL_EARLY_S} s earlier, and a start takes up to {BEGIN_S} s. The job would be requeued repeatedly without "
        f"training. Use `--set slurm.walltime_min={enough_min}` or more, or a later warning (-J --signal=USR2@SECONDS)."
    )


def _warning_s(request: JobRequest) -> int | None:
    """Before the time limit: by the user's last option, 60 s where that names no time (sbatch(1)), else by the request's own."""
    signals = [option for option in request.options if option.startswith("--signal=")]
    if request.warning_s is None or not signals:
        return request.warning_s
    found = re.search(r"@(\d+)$", signals[-1])
    return int(found[1]) if found else 60
