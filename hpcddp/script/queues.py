"""Which QOS and partition a job asks for, and what their limits refuse: the value, the limit and the next step."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from hpcddp.cluster.profile import ClusterProfile
from hpcddp.cluster.slurm_rules import Partition, Qos
from hpcddp.core.errors import UsageError
from hpcddp.core.point import Point
from hpcddp.script.job_request import JobRequest
from hpcddp.sweep.file import SlurmOptions


@dataclass(frozen=True, kw_only=True)
class Queue:
    """A rule of the profile's QOS in a partition: one way to have a job started."""

    rule: Qos
    partition: str | None
    """None: the job names no partition."""
    limits: Partition = Partition()
    """Of the partition, as far as the profile knows them."""
    always_exclusive: bool = False
    """Whether its jobs have their nodes alone, and count for all of them."""

    @property
    def walltime_min(self) -> int | None:
        """Time limit of a job at most; None: not known."""
        known = (self.rule.max_walltime_min, self.limits.max_walltime_min)
        return min((limit for limit in known if limit is not None), default=None)


class _Counts(NamedTuple):
    """What a job holds on all its nodes; None: not known."""

    gpus: int
    cpus: int | None
    cores: int | None


class _Job(NamedTuple):
    """What of a request the limits of a queue are about."""

    node_type: str | None
    nodes: int
    requested: _Counts
    of_nodes: _Counts
    """Held where its nodes are its own whatever it asks for."""
    mem_mb: int | None
    """On each node."""
    walltime_min: int


class _Check(NamedTuple):
    """One limit of a queue: whether the job keeps it, the sentence where it does not, and where it holds."""

    fits: bool
    text: str
    of_partition: bool = False


def choose_queue(profile: ClusterProfile, point: Point, slurm: SlurmOptions, request: JobRequest) -> Queue:
    """The queue of the QOS and partition that the sweep names, or else of the first rule that fits and that a job is given
    unasked; where none fits the nearest one, for `beyond_queue` to refuse. UsageError where there is no such rule.
    """
    if slurm.qos is None:
        rules = [rule for rule in profile.slurm.qos if _is_given(rule, slurm)]
        rules.sort(key=lambda rule: slurm.intent is not None and rule.intent != slurm.intent)
        if not rules:
            raise UsageError(_none_given(profile, slurm))
    else:
        rules = [rule for rule in profile.slurm.qos if rule.name == slurm.qos] or [Qos(name=slurm.qos)]
    return _nearest(_queues(profile, point, rules, slurm.partition), _job(profile, point, request))


def beyond_queue(profile: ClusterProfile, point: Point, request: JobRequest) -> Iterator[str]:
    """A sentence for each limit of its QOS and partition that the request does not keep; one where both have the same."""
    if unknown := _unknown_names(profile, point, request):
        yield unknown
        return
    job = _job(profile, point, request)
    queue = _nearest(_same_queues(profile, point, request), job)
    broken = [check for check in _checks(queue, job) if not check.fits]
    if broken:
        step = _next_step(profile, point, request, job, queue)
        yield from dict.fromkeys(f"{check.text} on {profile.name} {_place(queue, check)}. {step}" for check in broken)


def _unknown_names(profile: ClusterProfile, point: Point, request: JobRequest) -> str | None:
    """A sentence on a QOS or partition that the profile does not know. A profile without a table of partitions knows not all."""
    known, table = dict.fromkeys(rule.name for rule in profile.slurm.qos if rule.name), profile.slurm.partitions
    own = profile.rules_of(profile.node_type(point.layout.node_type)).partition
    if request.qos is not None and request.qos not in known:
        key, value, names = "slurm.qos", request.qos, ", ".join(known) or "none"
    elif table and request.partition not in (None, own, *table):
        key, value, names = "slurm.partition", str(request.partition), ", ".join(table)
    else:
        return None
    return f"{key} is {value}, but the profile of {profile.name} defines {names}. Add a new one to the profile."


def walltime_limit_min(profile: ClusterProfile, point: Point, request: JobRequest) -> int | None:
    """The time limit at most of a job of this size in its queue; None: not known."""
    job = _job(profile, point, request)._replace(walltime_min=0)
    limits = [queue.walltime_min for queue in _same_queues(profile, point, request) if _fits(queue, job)]
    return max((limit for limit in limits if limit is not None), default=None) if None not in limits else None


def cores_counted(profile: ClusterProfile, point: Point, request: JobRequest) -> int | None:
    """Physical cores that the job is charged for: whole nodes where it has them alone."""
    if request.exclusive or _always_exclusive(profile, profile.slurm.partitions.get(request.partition or "", Partition())):
        cores = profile.node_type(point.layout.node_type).physical_cores
        return None if cores is None else request.nodes * cores
    of_rank = request.physical_cores_per_rank
    return None if of_rank is None else request.nodes * request.ranks_per_node * of_rank


def rival_types(profile: ClusterProfile, point: Point, partition: str | None) -> list[str]:
    """Types of the nodes that a job in that partition may be given in place of its own, if it does not say which: a request for
    GPUs names those with as many.
    """
    if profile.backend != "slurm":
        return []
    own = profile.node_type(point.layout.node_type)
    by_gpus = point.device == "cuda" and profile.rules_of(own).gpu_request != "none"
    needed = point.layout.gpus_per_node if by_gpus else 0
    others = [(name, profile.node_types[name]) for name in _types_in(profile, partition)]
    return [name for name, other in others if other is not own and (other.gpus is None or other.gpus >= needed)]


def _types_in(profile: ClusterProfile, partition: str | None) -> tuple[str, ...]:
    """Types of the nodes in that partition."""
    given = profile.slurm.partitions.get(partition or "")
    if given is not None:
        return given.node_types or tuple(profile.node_types)
    own = [name for name, node in profile.node_types.items() if partition is not None and node.partition == partition]
    ruled = [
        name for rule in profile.slurm.qos if partition is not None and rule.partition == partition for name in rule.node_types
    ]
    return tuple(dict.fromkeys(own or ruled or (name for name, node in profile.node_types.items() if node.partition is None)))


def _is_given(rule: Qos, slurm: SlurmOptions) -> bool:
    """Whether a job that names no QOS may be given this rule's. To name its partition is to ask for it, if it has no name."""
    is_named = rule.partition is not None and rule.partition == slurm.partition
    is_automatic = rule.automatic or (rule.name is None and (rule.automatic is None or is_named))
    return is_automatic and (is_named or rule.intent in (None, slurm.intent or "production"))


def _none_given(profile: ClusterProfile, slurm: SlurmOptions) -> str:
    names = ", ".join(dict.fromkeys(rule.name for rule in profile.slurm.qos if rule.name))
    if slurm.intent is None:
        return f"{profile.name} needs a QOS. Set slurm.qos to one of {names}."
    what = f"{profile.name} has no automatic QOS with that intent"
    return f"slurm.intent is {slurm.intent}, but {what}. List them with `{profile.show_command}`; choose one with slurm.qos."


def _queues(profile: ClusterProfile, point: Point, rules: Sequence[Qos], partition: str | None) -> list[Queue]:
    """The rules with the partitions that each may be used in; `partition`: the only one."""
    table = profile.slurm.partitions
    own = profile.rules_of(profile.node_type(point.layout.node_type)).partition
    default_first: list[str | None] = [None] if not table else sorted(table, key=lambda name: not table[str(name)].default)
    queues = []
    for rule in rules:
        named = partition or rule.partition or own
        for name in [named] if named else default_first:
            limits = table.get(name or "", Partition())
            queues.append(Queue(rule=rule, partition=name, limits=limits, always_exclusive=_always_exclusive(profile, limits)))
    return queues


def _always_exclusive(profile: ClusterProfile, limits: Partition) -> bool:
    return bool(profile.slurm.always_exclusive if limits.always_exclusive is None else limits.always_exclusive)


def _same_queues(profile: ClusterProfile, point: Point, request: JobRequest) -> list[Queue]:
    """The queues of the request's QOS and partition: several where limits depend on nodes."""
    rules = [rule for rule in profile.slurm.qos if rule.name == request.qos]
    queues = _queues(profile, point, rules, request.partition)
    return [queue for queue in queues if queue.partition == request.partition] or queues


def _nearest(queues: Sequence[Queue], job: _Job) -> Queue:
    """The first that fits, or the first whose limits are kept furthest in the order of `_checks`."""
    return min(queues, key=lambda queue: [not check.fits for check in _checks(queue, job)])


def _fits(queue: Queue, job: _Job) -> bool:
    return all(check.fits for check in _checks(queue, job))


def _checks(queue: Queue, job: _Job) -> Iterator[_Check]:
    """All limits, those first that say that another queue is meant."""
    rule, there, nodes, held = queue.rule, queue.limits, job.nodes, job.of_nodes if queue.always_exclusive else job.requested
    yield _Check(rule.partition in (None, queue.partition), f"partition {queue.partition} requested, {rule.partition} needed")
    for types, of_partition in ((rule.node_types, False), (there.node_types, True)):
        needed = f"nodes of type {job.node_type} requested, {' or '.join(types)} needed"
        yield _Check(not types or job.node_type in types, needed, of_partition)
    names = f"QOS {rule.name} requested, {' or '.join(there.qos)} needed"
    yield _Check(not there.qos or rule.name is None or rule.name in there.qos, names, True)
    for limits, of_partition in ((rule, False), (there, True)):
        least = f"{nodes} nodes requested, at least {limits.min_nodes} needed"
        yield _Check(nodes >= (limits.min_nodes or 1), least, of_partition)
        yield _Check(
            _within(nodes, limits.max_nodes), f"{nodes} nodes requested, at most {limits.max_nodes} allowed", of_partition
        )
    for limits, of_partition in ((rule, False), (there, True)):
        time = f"slurm.walltime_min is {job.walltime_min}, at most {limits.max_walltime_min} minutes allowed"
        yield _Check(_within(job.walltime_min, limits.max_walltime_min), time, of_partition)
    yield _Check(_within(held.gpus, rule.max_gpus), f"{held.gpus} GPUs requested, at most {rule.max_gpus} allowed")
    yield _Check(_within(held.cpus, rule.max_cpus), f"{held.cpus} CPUs requested, at most {rule.max_cpus} allowed")
    most_mb = memory_limit_mb(there.max_mb_per_core, held.cores, nodes)
    memory = f"slurm.mem_mb is {job.mem_mb}, at most {most_mb} allowed with {there.max_mb_per_core} a core"
    yield _Check(_within(job.mem_mb, most_mb), memory, True)


def memory_limit_mb(mb_per_core: int | None, cores: int | None, nodes: int) -> int | None:
    """What a job may ask for on each node with that many cores in all; None: not known."""
    return None if mb_per_core is None or cores is None else mb_per_core * cores // nodes


def _within(value: int | None, limit: int | None) -> bool:
    return value is None or limit is None or value <= limit


def _job(profile: ClusterProfile, point: Point, request: JobRequest) -> _Job:
    node = profile.node_type(point.layout.node_type)
    nodes, cpus = request.nodes, request.cpus_per_rank
    exclusive = dataclasses.replace(request, exclusive=True)
    return _Job(
        node_type=point.layout.node_type or profile.default_node_type,
        nodes=nodes,
        requested=_Counts(
            gpus=nodes * request.gpus_per_node,
            cpus=None if cpus is None else nodes * request.ranks_per_node * cpus,
            cores=cores_counted(profile, point, request),
        ),
        of_nodes=_Counts(
            gpus=nodes * (request.gpus_per_node if node.gpus is None else node.gpus),
            cpus=None if node.logical_cpus is None else nodes * node.logical_cpus,
            cores=cores_counted(profile, point, exclusive),
        ),
        mem_mb=request.mem_mb,
        walltime_min=request.walltime_min,
    )


def _place(queue: Queue, check: _Check) -> str:
    """Where a limit holds, as a user asks for it."""
    name = queue.rule.name and f"QOS {queue.rule.name}"
    if check.of_partition or (queue.rule.partition and not name):
        return f"in partition {queue.partition}"
    if queue.rule.partition and queue.rule.partition == queue.partition:
        return f"{name} in partition {queue.partition}"
    return name or "without a QOS (`slurm.qos`)"


def _next_step(profile: ClusterProfile, point: Point, request: JobRequest, job: _Job, refusing: Queue) -> str:
    """How to ask for a queue that fits, where the profile has one. Where memory is not what is refused, it may be one that gives
    less of it; one for debugging comes last.
    """
    lighter = job._replace(mem_mb=None)
    queues = _queues(profile, point, profile.slurm.qos, None)
    fitting = [queue for queue in queues if _fits(queue, job)]
    if not fitting and not _fits(refusing, lighter):
        fitting = [queue for queue in queues if _fits(queue, lighter)]
    if not fitting:
        return f"List the limits with `{profile.show_command}`."
    best = min(fitting, key=lambda queue: queue.rule.intent == "debug")
    qos, partition = best.rule.name, best.partition
    sets = [f"--set slurm.qos={qos or 'null'}"] if qos != request.qos else []
    sets += [f"--set slurm.partition={partition or 'null'}"] if partition != request.partition else []
    return f"Use `{' '.join(sets)}`."
