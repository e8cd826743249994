"""Could these nodes and GPUs have run this?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from hpcddp.analysis.audit.findings import Finding
from hpcddp.analysis.audit.groups import Groups, kind, model, node_names
from hpcddp.analysis.audit.nodes import KnownNodes, expand
from hpcddp.analysis.audit.table import Row
from hpcddp.core.text import count


def check_layout(groups: Groups, known: KnownNodes) -> Iterator[Finding]:
    """Rows whose numbers of nodes, GPUs and processes contradict each other or the hardware."""
    for row in groups.table.rows:
        yield from _products(row)
        yield from _node_list(row)
        yield from _known(row, known)
        types = sorted(groups.hardware[row.line])
        if len(types) > 1 and row.summary is None:
            sentence = f"{row.node_list or row.gpu_type} is {' and '.join(types)} in one run"
            yield _one("gpu_types_mixed_in_row", row, row.gpu_type or "one type", " and ".join(types), sentence)
    yield from _types_of_nodes(groups)


def _products(row: Row) -> Iterator[Finding]:
    said, per_node, nodes = row.counts.get("gpus"), row.gpus_per_node, row.nodes
    if said and per_node and nodes and said != nodes * per_node:
        sentence = f"{count(nodes, 'node')} times {count(per_node, 'GPU')} per node are not {count(said, 'GPU')}"
        yield _one("gpus_wrong", row, str(said), str(nodes * per_node), sentence)
    batch, total, steps = row.counts.get("batch_per_gpu"), row.counts.get("global_batch"), row.counts.get("accumulation", 1)
    if batch and total and row.gpus and total != batch * row.gpus * steps and row.summary is None:
        of = f"{row.gpus} GPUs" + (f" times {steps} accumulation steps" if steps > 1 else "")
        sentence = f"the global batch {total} is not {batch} per GPU times {of}"
        yield _one("global_batch_wrong", row, str(total), str(batch * row.gpus * steps), sentence)


def _node_list(row: Row) -> Iterator[Finding]:
    if not row.node_list or row.summary:
        return
    try:
        names = expand(row.node_list)
    except ValueError as error:
        yield _one("node_list_malformed", row, row.node_list, "no list of nodes", str(error))
        return
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        yield _one(
            "node_repeated",
            row,
            row.node_list,
            f"{len(set(names))} different nodes",
            f"{twice[0]} is named twice in {row.node_list}",
        )
    elif row.nodes and len(names) != row.nodes:
        sentence = f"{row.node_list} names {count(len(names), 'node')}; the row says {row.nodes}"
        yield _one("node_count_wrong", row, str(row.nodes), str(len(names)), sentence)


def _known(row: Row, known: KnownNodes) -> Iterator[Finding]:
    """What the cluster's profile says of the row's nodes."""
    if not known:
        return
    names = list(dict.fromkeys(node_names(row)))
    strange = [name for name in names if name not in known]
    if strange:
        sentence = f"{', '.join(strange)} of {row.node_list} is no node of this cluster"
        yield _one("node_unknown", row, strange[0], "no such node", sentence)
    least = min((node.gpus for name in names if name in known and (node := known[name]).gpus is not None), default=None)
    if least is not None and row.gpus_per_node and row.gpus_per_node > least:
        sentence = f"{row.gpus_per_node} GPUs on each of {row.node_list}, whose nodes have {least}"
        yield _one("gpus_exceed_node", row, str(row.gpus_per_node), f"at most {least}", sentence)
    for name in names:
        there = known[name].gpu if name in known else None
        if row.gpu_type and there and model(kind(there)) != model(kind(row.gpu_type)):
            sentence = f"{name} is said to have {row.gpu_type}; it has {there}"
            yield _one("gpu_type_wrong", row, row.gpu_type, there, sentence)
            return


def _types_of_nodes(groups: Groups) -> Iterator[Finding]:
    """One node cannot have two GPU types in the same table."""
    said: dict[str, tuple[str, Row]] = {}
    for row in groups.table.measured:
        names = node_names(row)
        if not row.gpu_type or len(names) != 1:
            continue
        first, where = said.setdefault(names[0], (kind(row.gpu_type), row))
        if first != kind(row.gpu_type):
            sentence = f"{names[0]} has {where.gpu_type} in line {where.line} and {row.gpu_type} here"
            yield Finding("gpu_type_wrong", (where.line, row.line), row.gpu_type, where.gpu_type or first, sentence)


def _one(kind_: str, row: Row, claimed: str, follows: str, sentence: str) -> Finding:
    return Finding(kind_, (row.line,), claimed, follows, sentence)
