"""What a point asks of Slurm: the arithmetic between physical cores, ranks and Slurm's words, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hpcddp.cluster import ClusterProfile, NodeType, Qos
from hpcddp.errors import UsageError
from hpcddp.point import Point
from hpcddp.sweep import SlurmOptions

NOT_RAW = {
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


@dataclass(frozen=True, kw_only=True)
class User:
    """Who asks; never part of an id. None: left out of the script."""

    account: str | None = None
    reservation: str | None = None
    mail: str | None = None


@dataclass(frozen=True, kw_only=True)
class JobRequest:
    """One job's header, in Slurm's terms."""

    name: str
    nodes: int
    ranks_per_node: int
    cpus_per_rank: int | None
    """Logical CPUs, as Slurm counts them; None: Slurm's default."""
    physical_cores_per_rank: int | None
    gpus_per_node: int
    gres_type: str | None
    gpu_request: str
    mem_mb: int | None
    exclusive: bool
    constraint: str | None
    partition: str | None
    qos: str | None
    walltime_min: int
    nodelist: str | None
    exclude: str | None
    options: tuple[str, ...]
    user: User


def job_request(profile: ClusterProfile, point: Point, slurm: SlurmOptions, user: User) -> JobRequest:
    """The request; UsageError lists everything in it that the cluster would not give, with the limit."""
    node, layout = profile.node_type(point.layout.node_type), point.layout
    cores = layout.physical_cores_per_rank
    request = JobRequest(
        name=point.label,
        nodes=layout.nodes,
        ranks_per_node=layout.gpus_per_node,
        cpus_per_rank=None if cores is None else cores * node.smt,
        physical_cores_per_rank=cores,
        gpus_per_node=_gpus_asked(profile, node, point),
        gres_type=node.gres_type,
        gpu_request=profile.slurm.gpu_request,
        mem_mb=slurm.mem_mb or _memory_share_mb(profile, node, point),
        exclusive=layout.exclusive,
        constraint=node.constraint,
        partition=slurm.partition or profile.slurm.partition,
        qos=slurm.qos,
        walltime_min=slurm.walltime_min,
        nodelist=slurm.nodelist or _pinned_nodes(profile, node, point),
        exclude=slurm.exclude,
        options=slurm.options,
        user=User(account=user.account, reservation=slurm.reservation or user.reservation, mail=user.mail),
    )
    found = list(refusals(profile, point, request))
    if found:
        raise UsageError("\n".join(found))
    return request


def refusals(profile: ClusterProfile, point: Point, request: JobRequest) -> Iterator[str]:
    """A sentence for each thing the cluster would refuse: the value, the limit and the next step."""
    node = profile.node_type(point.layout.node_type)
    yield from _not_raw(request)
    yield from _beyond_nodes(profile, point, node)
    yield from _untyped(profile, point, request, node)
    yield from _beyond_one_node(profile, point, request, node)
    yield from _beyond_qos(profile, request)
    yield from _beyond_user(profile, request, node)


def node_hours(request: JobRequest) -> float:
    """At most, in hours: nodes x wall time asked for."""
    return request.nodes * request.walltime_min / 60


def _gpus_asked(profile: ClusterProfile, node: NodeType, point: Point) -> int:
    """A run on CPUs asks for GPUs too where nothing else gives it the node alone, or a node of the type meant."""
    asked, there = point.layout.gpus_per_node, node.gpus or 0
    on_cpus = point.device == "cpu"
    if point.layout.exclusive and profile.slurm.exclusive_needs_all_gpus and there:
        return there if on_cpus else max(there, asked)
    only_by_type = len(profile.node_types) > 1 and node.gres_type is not None
    if on_cpus:
        return min(asked, there) if only_by_type else 0
    return asked


def _pinned_nodes(profile: ClusterProfile, node: NodeType, point: Point) -> str | None:
    """The nodes by name where a type cannot be asked for otherwise and the point takes all of them."""
    mixed = len(profile.node_types) > 1 and node.gres_type is None and node.constraint is None
    return node.names if mixed and node.count == point.layout.nodes else None


def _memory_share_mb(profile: ClusterProfile, node: NodeType, point: Point) -> int | None:
    """All the node's memory on an exclusive node, else the share of the cores asked for; never above the site's cap."""
    if node.memory_mb is None or node.physical_cores is None:
        return None
    asked = (point.layout.physical_cores_per_rank or 1) * point.layout.gpus_per_node
    cores = node.physical_cores if point.layout.exclusive else min(asked, node.physical_cores)
    share = node.memory_mb * cores // node.physical_cores
    return min(share, (profile.slurm.max_mb_per_core or share) * cores)


def _not_raw(request: JobRequest) -> Iterator[str]:
    for option in request.options:
        if (name := option.partition("=")[0]) in NOT_RAW:
            yield f"job option {option}: hpcddp sets {name} itself; {NOT_RAW[name]}."


def _beyond_nodes(profile: ClusterProfile, point: Point, node: NodeType) -> Iterator[str]:
    asked, name = point.layout.nodes, point.layout.node_type
    if node.count is not None and asked > node.count:
        names = f" ({node.names})" if node.names else ""
        counts = [other.count for other in profile.node_types.values()]
        total = sum(count for count in counts if count is not None)
        mixed = f"; {total} nodes in all if types may mix" if None not in counts and total >= asked else ""
        yield (
            f"{profile.name} has {node.count} nodes of type {name}{names}; {asked} asked for. "
            f"`hpcddp clusters show {profile.name}` lists them{mixed}."
        )


def _untyped(profile: ClusterProfile, point: Point, request: JobRequest, node: NodeType) -> Iterator[str]:
    typed = node.gres_type or node.constraint or request.nodelist
    if len(profile.node_types) > 1 and not typed:
        yield (
            f"layout.node_type {point.layout.node_type}: the profile of {profile.name} knows no GPU type or constraint to ask "
            f"Slurm for it, so other nodes could be timed instead. Name the nodes with slurm.nodelist."
        )


def _beyond_one_node(profile: ClusterProfile, point: Point, request: JobRequest, node: NodeType) -> Iterator[str]:
    where = f"a node of type {point.layout.node_type} of {profile.name}"
    ranks, cores = request.ranks_per_node, request.physical_cores_per_rank
    if point.device == "cuda" and node.gpus is not None and ranks > node.gpus:
        yield f"layout.gpus_per_node is {ranks}: {where} has {node.gpus} GPUs. Ask for at most {node.gpus} and more nodes."
    if cores is not None and node.physical_cores is not None and ranks * cores > node.physical_cores:
        yield (
            f"layout.physical_cores_per_rank is {cores}: {ranks} ranks take {ranks * cores} physical cores; {where} has "
            f"{node.physical_cores}. Ask for at most {node.physical_cores // ranks}."
        )
    if request.mem_mb is not None and node.memory_mb is not None and request.mem_mb > node.memory_mb:
        yield f"slurm.mem_mb is {request.mem_mb}: Slurm gives at most {node.memory_mb} MB on {where}."


def _beyond_qos(profile: ClusterProfile, request: JobRequest) -> Iterator[str]:
    rules = {rule.name: rule for rule in profile.slurm.qos}
    if request.qos not in rules:
        if request.qos is None:
            yield f"{profile.name} needs a QOS; slurm.qos is one of {', '.join(str(name) for name in rules)}."
        else:
            known = ", ".join(name for name in rules if name)
            yield f"slurm.qos is {request.qos}: the profile of {profile.name} knows {known or 'none'}; a new one goes into it."
        return
    rule = rules[request.qos]
    if all(_fits(rule, request)):
        return
    named = f"QOS {rule.name}" if rule.name else "without a QOS (`slurm.qos`)"
    other = [name for name, other in rules.items() if all(_fits(other, request)) and name]
    step = f"Use `--set slurm.qos={other[0]}`." if other else f"`hpcddp clusters show {profile.name}` lists the limits."
    for text in _qos_limits_passed(rule, request):
        yield f"{text} on {profile.name} {named}. {step}"


def _fits(rule: Qos, request: JobRequest) -> tuple[bool, ...]:
    gpus, cpus = request.nodes * request.gpus_per_node, _cpus(request)
    return (
        request.nodes >= rule.min_nodes,
        rule.max_nodes is None or request.nodes <= rule.max_nodes,
        rule.max_walltime_min is None or request.walltime_min <= rule.max_walltime_min,
        rule.max_gpus is None or gpus <= rule.max_gpus,
        rule.max_cpus is None or cpus is None or cpus <= rule.max_cpus,
    )


def _qos_limits_passed(rule: Qos, request: JobRequest) -> Iterator[str]:
    texts = (
        f"{request.nodes} nodes asked for, at least {rule.min_nodes} needed",
        f"{request.nodes} nodes asked for, at most {rule.max_nodes} allowed",
        f"slurm.walltime_min is {request.walltime_min}, at most {rule.max_walltime_min} minutes allowed",
        f"{request.nodes * request.gpus_per_node} GPUs asked for, at most {rule.max_gpus} allowed",
        f"{_cpus(request)} CPUs asked for, at most {rule.max_cpus} allowed",
    )
    return (text for text, fits in zip(texts, _fits(rule, request), strict=True) if not fits)


def _cpus(request: JobRequest) -> int | None:
    return None if request.cpus_per_rank is None else request.nodes * request.ranks_per_node * request.cpus_per_rank


def _beyond_user(profile: ClusterProfile, request: JobRequest, node: NodeType) -> Iterator[str]:
    gpus, limit = request.nodes * request.gpus_per_node, profile.slurm.max_gpus_per_user
    if limit is not None and gpus > limit:
        yield f"{gpus} GPUs asked for ({request.nodes} nodes x {request.gpus_per_node}): {profile.name} allows {limit} a user."
    cores = _cores_counted(request, node)
    limit = profile.slurm.max_cores_per_user
    if limit is not None and cores is not None and cores > limit:
        yield f"{cores} cores asked for on {request.nodes} nodes: {profile.name} allows {limit} a user."


def _cores_counted(request: JobRequest, node: NodeType) -> int | None:
    """Physical cores the job is charged for: whole nodes where it is exclusive."""
    if request.exclusive:
        return None if node.physical_cores is None else request.nodes * node.physical_cores
    cores = request.physical_cores_per_rank
    return None if cores is None else request.nodes * request.ranks_per_node * cores
