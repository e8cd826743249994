"""Requests to a cluster, random ones and one at each limit that its profile documents; whether hpcddp and its Slurm take them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal
from unittest.mock import patch

from hypothesis import strategies as st

from hpcddp.cluster.profile import ClusterProfile, NodeType
from hpcddp.cluster.slurm_rules import Intent, Partition, Qos
from hpcddp.core.errors import UsageError
from hpcddp.core.jobspec import JobSpec
from hpcddp.core.point import Data, Layout, Point, Workload
from hpcddp.script import resources
from hpcddp.script.job_request import User
from hpcddp.script.queues import Queue, choose_queue
from hpcddp.script.render import launch_by_hand, render
from hpcddp.sweep.file import SlurmOptions
from tests.twin.controllers import UNKNOWN_NODES, Controller
from tests.twin.rules import ACCOUNTS, PARTITION, TwinPartition, account_for, partitions


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a sweep can ask a cluster for."""

    node_type: str
    nodes: int = 1
    gpus_per_node: int = 1
    cores_per_rank: int | None = 1
    exclusive: bool = False
    launcher: Literal["direct", "torchrun"] = "direct"
    device: Literal["cuda", "cpu"] = "cuda"
    walltime_min: int = 10
    partition: str | None = None
    qos: str | None = None
    intent: Intent | None = None
    mem_mb: int | None = None
    account: str


def script(profile: ClusterProfile, request: Request) -> str:
    """The job script; UsageError where hpcddp refuses the request."""
    point = Point(
        cluster=profile.name,
        workload=Workload(model="mnist-cnn", data=Data(name="synthetic-mnist"), batch_per_gpu=8),
        device=request.device,
        layout=Layout(
            nodes=request.nodes,
            gpus_per_node=request.gpus_per_node,
            node_type=request.node_type,
            physical_cores_per_rank=request.cores_per_rank,
            exclusive=request.exclusive,
            launcher=request.launcher,
        ),
    )
    options = SlurmOptions(
        walltime_min=request.walltime_min,
        partition=request.partition,
        qos=request.qos,
        intent=request.intent,
        mem_mb=request.mem_mb,
    )
    job = resources.job_request(profile, point, options, User(account=request.account))
    return render(profile, point, job, launch_by_hand(profile, JobSpec(point=point, study="."), None))


def refusal_by_hpcddp(profile: ClusterProfile, request: Request) -> str | None:
    """hpcddp's words; None where it takes the request."""
    try:
        script(profile, request)
    except UsageError as error:
        return str(error)
    return None


def refusal_by_slurm(controller: Controller, request: Request) -> str | None:
    """Slurm's words for the script that hpcddp would write if it checked nothing; None where Slurm takes it."""
    with (
        patch.object(resources, "broken_limits", lambda *_: iter(())),
        patch.object(resources, "choose_queue", _choose_any),
    ):
        taken, words = controller.test_only(script(controller.profile, request))
    return None if taken else words


def _choose_any(profile: ClusterProfile, point: Point, slurm: SlurmOptions, job: Any) -> Queue:
    """Where no rule may be used unasked, a job without a QOS."""
    try:
        return choose_queue(profile, point, slurm, job)
    except UsageError:
        return Queue(
            rule=Qos(), partition=slurm.partition or profile.rules_of(profile.node_type(point.layout.node_type)).partition
        )


@dataclass(frozen=True, kw_only=True)
class DocumentedLimit:
    """A limit: its name, a request that keeps it and one that does not."""

    name: str
    within: Request
    past: Request


def documented_limits(profile: ClusterProfile) -> list[DocumentedLimit]:
    """All of them, each once, with requests that keep every other limit."""
    found: dict[str, DocumentedLimit] = {}
    for limit in _all_limits(profile):
        if limit.name not in found and refusal_by_hpcddp(profile, limit.within) is None:
            found[limit.name] = limit
    return list(found.values())


def _all_limits(profile: ClusterProfile) -> Iterator[DocumentedLimit]:
    """Some of them cannot be reached by the request that is tried: another limit is narrower there."""
    for base, partition, rule in _base_requests(profile):
        node = profile.node_types[base.node_type]
        name = f"qos {rule.name or 'none'} from {rule.min_nodes} nodes on in {partition.name}"
        of_rule = (*_size_limits(name, base, rule), *_rule_limits(name, base, rule, node))
        yield from (limit for limit in of_rule if not _fits_another(profile, rule, partition, limit.past))
        table = profile.slurm.partitions.get(partition.name, Partition())
        yield from _size_limits(f"partition {partition.name}", base, table)
        yield from _node_limits(f"node type {base.node_type}", base, node)
        yield from _user_limits(profile, base, node)
        yield from _forms(profile, base)


def _fits_another(profile: ClusterProfile, own: Qos, partition: TwinPartition, request: Request) -> bool:
    """Whether the nodes and the time suit another rule of the same QOS: such limits are for ranges of nodes."""
    others = (rule for rule in profile.slurm.qos if rule is not own and rule.name == own.name)
    return any(
        rule.partition in (None, partition.name)
        and (not rule.node_types or request.node_type in rule.node_types)
        and rule.min_nodes <= request.nodes <= (rule.max_nodes or request.nodes)
        and request.walltime_min <= (rule.max_walltime_min or request.walltime_min)
        for rule in others
    )


def _base_requests(profile: ClusterProfile) -> Iterator[tuple[Request, TwinPartition, Qos]]:
    """The least that fits each rule in each partition, for each node type, for as long as the rule allows."""
    named = profile.slurm.partitions or any(kind.partition for kind in profile.node_types.values())
    for partition in partitions(profile):
        for rule in profile.slurm.qos:
            for key in partition.node_types:
                if rule.partition not in (None, partition.name) or (rule.node_types and key not in rule.node_types):
                    continue
                given = profile.slurm.partitions.get(partition.name, Partition())
                is_named = (named or rule.partition) and partition.name != PARTITION
                base = Request(
                    node_type=key,
                    nodes=max(rule.min_nodes, given.min_nodes or 1),
                    partition=partition.name if is_named else None,
                    qos=rule.name,
                    walltime_min=rule.max_walltime_min or given.max_walltime_min or 10,
                    account=account_for(profile, key),
                )
                yield base, partition, rule


def _change(base: Request, name: str, key: str, limit: int | None, least: bool = False) -> Iterator[DocumentedLimit]:
    past = None if limit is None else limit - 1 if least else limit + 1
    if past:
        changes: tuple[dict[str, Any], ...] = ({key: limit}, {key: past})
        within, beyond = (dataclasses.replace(base, **change) for change in changes)
        yield DocumentedLimit(name=name, within=within, past=beyond)


def _size_limits(name: str, base: Request, limits: Qos | Partition) -> Iterator[DocumentedLimit]:
    yield from _change(base, f"{name}: max_nodes", "nodes", limits.max_nodes)
    yield from _change(base, f"{name}: min_nodes", "nodes", limits.min_nodes, least=True)
    yield from _change(base, f"{name}: max_walltime_min", "walltime_min", limits.max_walltime_min)


def _rule_limits(name: str, base: Request, rule: Qos, node: NodeType) -> Iterator[DocumentedLimit]:
    """GPUs and CPUs of a job, on as many nodes as they take evenly."""
    for nodes in range(base.nodes, (rule.max_nodes or node.count or 1000) + 1):
        if rule.max_gpus and rule.max_gpus % nodes == 0 and rule.max_gpus // nodes <= (node.gpus or 0):
            yield from _change(
                dataclasses.replace(base, nodes=nodes), f"{name}: max_gpus", "gpus_per_node", rule.max_gpus // nodes
            )
            break
    cpus = rule.max_cpus and rule.max_cpus // node.smt
    yield from _change(base, f"{name}: max_cpus", "cores_per_rank", cpus)


def _node_limits(name: str, base: Request, node: NodeType) -> Iterator[DocumentedLimit]:
    yield from _change(base, f"{name}: count", "nodes", node.count)
    yield from _change(base, f"{name}: gpus", "gpus_per_node", node.gpus)
    yield from _change(base, f"{name}: physical_cores", "cores_per_rank", node.physical_cores)
    exclusive = dataclasses.replace(base, exclusive=True, gpus_per_node=node.gpus or 1)
    yield from _change(exclusive, f"{name}: memory_mb", "mem_mb", node.memory_mb)


def _user_limits(profile: ClusterProfile, base: Request, node: NodeType) -> Iterator[DocumentedLimit]:
    rules = profile.slurm
    if rules.max_gpus_per_user and node.gpus and rules.max_gpus_per_user % node.gpus == 0:
        full = dataclasses.replace(base, gpus_per_node=node.gpus)
        yield from _change(full, "max_gpus_per_user", "nodes", rules.max_gpus_per_user // node.gpus)
    if rules.max_cores_per_user and node.count:
        for nodes in range(1, node.count + 1):
            if rules.max_cores_per_user % nodes == 0:
                several = dataclasses.replace(base, nodes=nodes)
                yield from _change(several, "max_cores_per_user", "cores_per_rank", rules.max_cores_per_user // nodes)


def _forms(profile: ClusterProfile, base: Request) -> Iterator[DocumentedLimit]:
    """An account of another form, and memory where it must not be asked for."""
    if profile.rules_of(profile.node_types[base.node_type]).account_form is not None:
        other = dataclasses.replace(base, account="another")
        yield DocumentedLimit(name=f"node type {base.node_type}: account_form", within=base, past=other)
    if profile.slurm.memory_option == "forbidden":
        yield DocumentedLimit(name="memory_option", within=base, past=dataclasses.replace(base, mem_mb=1000))


def unreachable_limits(profile: ClusterProfile) -> set[str]:
    """Names of limits that no request was found for that keeps all others."""
    return {limit.name for limit in _all_limits(profile)} - {limit.name for limit in documented_limits(profile)}


LONGEST_MIN = 20_000
"""Two weeks: longer than any site allows."""

ABSENT = "absent"
"""A QOS, partition or account that no cluster has."""


@st.composite
def requests(draw: st.DrawFn, profile: ClusterProfile) -> Request:
    """Most of them suit one rule of the profile in most respects."""
    key = draw(st.sampled_from(sorted(profile.node_types)))
    node, rule = profile.node_types[key], draw(st.sampled_from(profile.slurm.qos))
    gpus = draw(st.integers(1, node.gpus or 1))
    request = Request(
        node_type=key,
        nodes=draw(_counts(_nodes(profile, node, rule))),
        gpus_per_node=gpus,
        cores_per_rank=draw(st.integers(1, max(1, (node.physical_cores or 1) // gpus))),
        exclusive=draw(st.booleans()),
        launcher=draw(st.sampled_from(("direct", "direct", "torchrun"))),
        device=draw(st.sampled_from(("cuda", "cuda", "cuda", "cpu"))),
        walltime_min=draw(_counts(_minutes(profile, rule))),
        partition=draw(st.sampled_from([None, rule.partition])),
        qos=draw(st.sampled_from([rule.name, rule.name, None])),
        intent=draw(st.sampled_from([None, None, rule.intent])),
        mem_mb=draw(st.none() | _counts([node.memory_mb])) if node.memory_mb else None,
        account=account_for(profile, key),
    )
    return draw(st.just(request) | _with_one_change(profile, node, request))


def _with_one_change(profile: ClusterProfile, node: NodeType, request: Request) -> st.SearchStrategy[Request]:
    """The request with one thing that may be wrong."""
    names = [rule.name for rule in profile.slurm.qos]
    places = [partition.name for partition in partitions(profile)]
    changes: dict[str, st.SearchStrategy[object]] = {
        "nodes": st.integers(1, 2 * node.count if node.count else UNKNOWN_NODES),
        "gpus_per_node": st.integers(1, 2 * (node.gpus or 1)),
        "cores_per_rank": st.integers(1, 2 * (node.physical_cores or 1)),
        "walltime_min": st.integers(1, LONGEST_MIN),
        "qos": st.sampled_from([*names, None, ABSENT]),
        "partition": st.sampled_from([*places, None, ABSENT]),
        "account": st.sampled_from([*ACCOUNTS, ABSENT]),
        **({"mem_mb": st.integers(1000, 2 * node.memory_mb)} if node.memory_mb else {}),
    }
    return st.sampled_from(sorted(changes)).flatmap(
        lambda key: changes[key].map(lambda value: dataclasses.replace(request, **{key: value}))  # type: ignore[arg-type]
    )


def _counts(limits: Iterable[int | None]) -> st.SearchStrategy[int]:
    """Anything up to the largest limit, and what lies around each of them."""
    known = [limit for limit in limits if limit]
    around = [value for limit in known for value in (limit - 1, limit, limit + 1) if value > 0]
    within = st.integers(1, max(known, default=LONGEST_MIN))
    return within | st.sampled_from(around) if around else within


def _nodes(profile: ClusterProfile, node: NodeType, rule: Qos) -> list[int | None]:
    """Where the profile knows no limit, a few."""
    given = [limit for part in profile.slurm.partitions.values() for limit in (part.min_nodes, part.max_nodes)]
    known = [node.count, rule.min_nodes, rule.max_nodes, *given]
    return known if node.count or rule.max_nodes else [*known, UNKNOWN_NODES // 4]


def _minutes(profile: ClusterProfile, rule: Qos) -> list[int | None]:
    return [rule.max_walltime_min, *(part.max_walltime_min for part in profile.slurm.partitions.values())]
