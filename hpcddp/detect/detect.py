"""`hpcddp clusters detect`: a live Slurm as the text of a profile, with remarks for whoever asked."""

from __future__ import annotations

import datetime
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from hpcddp.backends.slurm_commands import too_old
from hpcddp.cluster.profile_names import profile_names
from hpcddp.cluster.slurm_rules import GpuRequest
from hpcddp.cluster.yaml_text import yaml_text
from hpcddp.core.text import count, first_few
from hpcddp.detect.document import COMMENTS, Subject, default_type, document, trouble_words
from hpcddp.detect.fields import is_slice
from hpcddp.detect.live import READING_S, TIME_LIMIT_S, LiveSlurm, read_live, slurm_version
from hpcddp.detect.node_types import LiveNodeType, live_node_types
from hpcddp.detect.nodes import LiveNode, node_list
from hpcddp.detect.partitions import LivePartition
from hpcddp.detect.rules import enforces_accounts, my_accounts, my_partitions, qos_to_try
from hpcddp.detect.trial import Names, Trial, TrialVerdict, try_requests

WITH_GPUS: tuple[GpuRequest, ...] = ("gres", "gpus-per-node", "gpus-per-task", "none")
"""Ways to ask for GPUs; none comes last, as a job without GPUs is taken anywhere."""


@dataclass(frozen=True, kw_only=True)
class Detected:
    """A profile's file, and what its reader should know of it."""

    text: str
    remarks: tuple[str, ...]


def detect_cluster(name: str | None) -> Detected:
    """Asks Slurm; UnansweredError where it says nothing."""
    start_s = time.monotonic()
    live = read_live(start_s + READING_S)
    types = live_node_types(_usable_nodes(live))
    verdict = _try(live, types, start_s + TIME_LIMIT_S)
    subject = Subject(name=name or cluster_name(live), date=datetime.date.today().isoformat(), verdict=verdict)
    text = yaml_text(document(live, types, subject), COMMENTS)
    return Detected(text=text, remarks=tuple(_remarks(live, types, subject)))


def _usable_nodes(live: LiveSlurm) -> list[LiveNode]:
    """Those in a partition that the user may submit to, as far as Slurm says."""
    nodes, usable = live.nodes or (), {partition.name for partition in my_partitions(live)}
    known = live.partitions is not None
    return [node for node in nodes if not known or node.partitions is None or not usable.isdisjoint(node.partitions)]


def cluster_name(live: LiveSlurm) -> str:
    """Slurm's, unless a profile that comes with hpcddp has it."""
    name = re.sub(r"[^a-z0-9]+", "-", (live.setting("ClusterName") or "").lower()).strip("-") or "cluster"
    return f"my-{name}" if name in profile_names() else name


def trial_of(live: LiveSlurm, kind: LiveNodeType) -> Trial:
    """A node of the type, in the partition that a job would go to."""
    there = [partition for partition in my_partitions(live) if partition.name in kind.partitions]
    partition = there[0].name if there else None
    return Trial(partition=partition, constraint=kind.constraint, gres_type=kind.gres_type, gpus=kind.gpus or 1)


def _try(live: LiveSlurm, types: Sequence[LiveNodeType], deadline_s: float) -> TrialVerdict:
    name = default_type(types, my_partitions(live))
    kind = next((each for each in types if each.name == name), None)
    verdict = TrialVerdict()
    if kind is not None:
        names = Names(accounts=my_accounts(live), qos=qos_to_try(live))
        verdict = try_requests(trial_of(live, kind), WITH_GPUS if kind.gpus else ("none",), names, deadline_s)
    is_free = verdict.account_required is None and enforces_accounts(live) is False
    return replace(verdict, account_required=False) if is_free else verdict


def _remarks(live: LiveSlurm, types: Sequence[LiveNodeType], subject: Subject) -> Iterator[str]:
    """What Slurm did not answer, what a user may not use, what does not work now."""
    yield from live.problems
    if old := too_old(slurm_version(live)):
        yield old
    if subject.verdict.why:
        yield f"`sbatch --test-only` accepts no job for the default node type: {subject.verdict.why}"
    yield from (f"nodes: {text}" for text in trouble_words(live.nodes or ()))
    yield from _closed(live)
    yield from _indistinct(types)
    if not types:
        yield "`node_types` is empty: no node could be described"
    elif not any(kind.gpus for kind in types):
        yield "this Slurm does not count GPUs; find out whether its nodes have any. Jobs then get them without an option."
    if subject.name != (live.setting("ClusterName") or subject.name):
        yield f"the profile's name is {subject.name}. Choose another with --name."


def _closed(live: LiveSlurm) -> Iterator[str]:
    """Partitions that the user may not use, with the nodes that are in no other."""
    usable = {partition.name for partition in my_partitions(live)}
    described = {node.name for node in _usable_nodes(live)}
    for partition in live.partitions or ():
        if partition.name not in usable:
            there = [node.name for node in live.nodes or () if partition.name in (node.partitions or ())]
            lost = node_list(name for name in there if name not in described)
            nodes = f"; its nodes {lost} are omitted" if lost else ""
            yield f"partition {partition.name} is not open to you ({_who(partition)}){nodes}"


def _who(partition: LivePartition) -> str:
    if partition.root_only:
        return "RootOnly"
    if partition.allowed_accounts:
        return f"AllowAccounts={first_few(partition.allowed_accounts)}"
    return f"DenyAccounts={first_few(partition.denied_accounts or ())}"


def _indistinct(types: Sequence[LiveNodeType]) -> Iterator[str]:
    for kind in types:
        if kind.rivals and kind.gpus:
            rivals = " or ".join(kind.rivals)
            yield f"a job for {kind.name} may get {rivals}: no GPU type or feature selects it. Select nodes with slurm.nodelist."
        if kind.is_sliced:
            yield f"GPUs of {kind.name} are MIG slices, which DDP cannot combine. It is not the default node type."
        for name, number in kind.gpu_types[1:]:
            what = f"of type {name}" if name else "without a type"
            others = f"{count(number, 'MIG slice' if is_slice(name) else 'GPU')} {what}"
            yield f"{kind.name} also has {others}; the profile requests {kind.gres_type or 'any'}"
