"""What a point asks of Slurm: the arithmetic between physical cores, ranks and Slurm's words."""

from __future__ import annotations

from dataclasses import replace

from hpcddp.cluster.profile import ClusterProfile, NodeType
from hpcddp.cluster.slurm_rules import SlurmRules
from hpcddp.core.errors import UsageError
from hpcddp.core.hours import Hours
from hpcddp.core.point import Point
from hpcddp.script.job_request import JobRequest, User
from hpcddp.script.limits import broken_limits
from hpcddp.script.queues import Queue, choose_queue, rival_types
from hpcddp.script.slurm_options import job_options, srun_options
from hpcddp.sweep.file import SlurmOptions

WARNING_S = 120
"""What a checkpoint may take; up to 60 s more (sbatch(1)), so jobs of a few minutes are warned when a quarter is left."""


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
        warning_s=min(WARNING_S, slurm.walltime_min * 15) if point.measure.resume else None,
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
