"""What `hpcddp plan` says of more nodes than were measured: a block for each anchor, and why there is none."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from textwrap import fill

from hpcddp.cluster.hosts import ON
from hpcddp.core.errors import UsageError
from hpcddp.core.prediction import PredictedPoint
from hpcddp.core.text import count, duration, table, thousands
from hpcddp.predict.expected import NO_BUCKETS, NOT_MEASURED, AnchorSource, Expected, Predictions, why_not
from hpcddp.predict.model import FORWARD, MATTERS, Anchor, hidden_from_s
from hpcddp.sweep.file import SweepFile

WIDTH = 80
"""Of a terminal, in columns."""

MOST_NODES, PAYS = 1024, 0.8
"""How far beyond a sweep is looked, for the efficiency below which more nodes do not pay."""

BLOCKS = 4
"""Anchors that a screen has room for."""


def expected_text(predictions: Predictions, found: Sequence[Expected], chosen: Sequence[str] = ()) -> str:
    """Blocks and sentences below the plan's table; empty where nothing is on several nodes. `chosen`: the words that chose the
    points, for the command that measures a node.
    """
    blocks, sentences, measure = dict[tuple[str, str], dict[int, Expected]](), dict[str, str](), list[str]()
    for each in sorted(found, key=lambda each: (-each.point.layout.gpus_per_node, each.point.layout.nodes)):
        if each.predicted.anchor:
            kind = each.predicted.anchor, predictions.kind(each.point)
            blocks.setdefault(kind, {}).setdefault(each.point.layout.nodes, each)
        else:
            key, sentence = _unmeasured(predictions, each)
            sentences[key] = sentence
    lacking = [each.point for each in found if each.predicted.reason in (NOT_MEASURED, NO_BUCKETS)]
    if lacking:
        comm = [] if predictions.link(lacking[0]).buckets else ["--comm", "on"]
        groups = next(each.groups for each in predictions.points if each.point == lacking[0])
        group = ["--group", groups[0]] if groups and "--group" not in chosen else []
        command = _command(predictions.sweep, [*chosen, *group, *comm])
        measure = [f"Measure one node:\n  {command} \\\n    --where 'layout.nodes == 1'"]
    shown = [_block(predictions, [*rows.values()]) for rows in [*blocks.values()][:BLOCKS]]
    more = [f"and {count(len(blocks) - BLOCKS, 'more block')}: --format json"] * (len(blocks) > BLOCKS)
    return "\n".join([*shown, *more, *map(_filled, sentences.values()), *measure])


def expected_plain(found: Sequence[Expected], repeat: int) -> list[dict[str, object]]:
    """For JSON."""
    sizes = [{"nodes": each.point.layout.nodes, "run_s": each.run_s, "node_hours": _hours(each, repeat)} for each in found]
    return [{**asdict(each.predicted), **more} for each, more in zip(found, sizes, strict=True)]


def _hours(each: Expected, repeat: int) -> float | None:
    return None if each.run_s is None else each.point.layout.nodes * each.run_s * repeat / 3600


def too_long(found: Sequence[Expected], walltime_min: int) -> list[str]:
    """A remark where a run is expected to take longer than its time limit."""
    over = [(each.run_s, each.point.label) for each in found if each.run_s and each.run_s > walltime_min * 60]
    if not over:
        return []
    longest_s, label = max(over)
    words = f"A run of {label} is expected to take {duration(longest_s)}, and slurm.walltime_min is {walltime_min}"
    return [f"{words}. Set at least {math.ceil(longest_s / 60) + 1}."]


def _filled(text: str) -> str:
    """Lines of a terminal's width; commands, and what stands in parentheses, are not broken."""
    glued = re.sub(r"`[^`]*`|\([^)]*\)", lambda code: code[0].replace(" ", "\xa0"), text)
    return fill(glued, WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False).replace("\xa0", " ")


def _block(predictions: Predictions, rows: Sequence[Expected]) -> str:
    source = rows[-1].source
    assert source is not None
    anchor, repeat = source.anchor, predictions.sweep.sweep.repeat
    facts = [*([count(len(source.runs), "run")] if source.runs else []), f"{_rate(anchor.samples_per_s)} samples/s"]
    facts += [] if anchor.waits is None else [f"{_percent(anchor.waits)} waiting for data"]
    cells = [_cells(each, source, repeat) for each in rows if each.predicted.high]
    takes = "a run takes" if source.runs else "steps take"
    heads = ("nodes", "samples/s", "between", f"vs {count(anchor.nodes, 'node')}", "limit", takes, "node-h")
    lines = [
        _filled(f"expected, from {source.name} ({', '.join(facts)}):"),
        *([_filled(f"  {source.passed_over}")] if source.passed_over else []),
        *([table(heads, cells, left=("limit",))] if cells else []),
    ]
    why = {each.predicted.reason: each.point.layout.nodes for each in reversed(rows) if each.predicted.reason}
    lines += [_filled(f"  from {count(nodes, 'node')} on: {reason}.") for reason, nodes in why.items()]
    return "\n".join([*lines, *_beyond(predictions, rows[-1], source)])


def _cells(each: Expected, source: AnchorSource, repeat: int) -> tuple[object, ...]:
    found, nodes, hours = each.predicted, each.point.layout.nodes, _hours(each, repeat)
    if found.samples_per_s is None or found.low is None or found.high is None:
        return nodes, f"at most {_rate(found.high or 0)}", *[None] * 5
    between = f"{_rate(found.low)}-{_rate(found.high)}"
    takes = None if each.run_s is None else duration(each.run_s)
    share = _percent(_efficiency(found, nodes, source))
    return nodes, _rate(found.samples_per_s), between, share, found.limit, takes, hours and f"{hours:.1f}"


def _efficiency(found: PredictedPoint, nodes: int, source: AnchorSource) -> float:
    return (found.samples_per_s or 0.0) / nodes * source.anchor.nodes / source.anchor.samples_per_s


def _rate(per_s: float) -> str:
    return thousands(per_s, sum(per_s < least for least in (100, 10)))


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _beyond(predictions: Predictions, largest: Expected, source: AnchorSource) -> Iterator[str]:
    """`beyond the sweep: 32 nodes 90 %, 64 nodes 89 %; below 80 % from 512 nodes on`"""
    kind = predictions.kind(largest.point)
    planned = {point.layout.nodes for point in predictions.wanted() if predictions.kind(point) == kind}
    last = max(planned)
    if largest.predicted.samples_per_s is None or largest.point.layout.nodes < last:
        return
    sizes = planned | {source.anchor.nodes * 2**doublings for doublings in range(1, MOST_NODES.bit_length())}
    wanted = sorted(nodes for nodes in sizes if source.anchor.nodes < nodes <= MOST_NODES)
    found = {nodes: predictions.on(largest.point, source, nodes) for nodes in wanted}
    shares = {nodes: _efficiency(each, nodes, source) for nodes, each in found.items() if each.samples_per_s}
    poor = next((nodes for nodes, share in shares.items() if share < PAYS), None)
    parts = [", ".join([f"{nodes} nodes {_percent(share)}" for nodes, share in shares.items() if nodes > last][:2])]
    parts += [f"below {_percent(PAYS)} from {poor} nodes on"] if poor else []
    node = predictions.profile.node_types.get(largest.point.layout.node_type or "")
    parts += [f"{predictions.profile.name} has {node.count}"] if node and node.count and node.count < 2 * last else []
    if any(parts):
        yield _filled(f"beyond the sweep: {'; '.join(filter(None, parts))}")


def _unmeasured(predictions: Predictions, each: Expected) -> tuple[str, str]:
    """What is true of the exchange all the same, or why there is no number; and what it is about."""
    point, reason, link = each.point, each.predicted.reason, predictions.link(each.point)
    if reason != NOT_MEASURED or not link.network or not link.buckets:
        words = f"Not predicted: {link.missing if reason == NOT_MEASURED and link.buckets else reason}."
        return words, words
    only = "at least" if link.missing else "only"
    step_ms = 1e3 * hidden_from_s(point.layout.nodes, FORWARD, link.buckets, link.network)
    megabytes = sum(bucket.size_bytes for bucket in link.buckets) / 1e6
    return f"{point.workload.model} {megabytes:.0f}", (
        f"{point.layout.nodes} nodes at {link.rate}: the exchange of {point.workload.model}'s {megabytes:.0f} MB costs more than "
        f"{_percent(MATTERS)} {only} where a step takes less than {thousands(step_ms, int(step_ms < 2))} ms."
    )


def _command(sweep: SweepFile, chosen: Sequence[str]) -> str:
    name, _, hosts = (sweep.options.cluster or "").partition(ON)
    given = ("--cluster", name), ("--hosts", hosts), *(("--set", text) for text in sweep.options.settings)
    return shlex.join(["hpcddp", "submit", str(sweep.file), *(word for pair in given if pair[1] for word in pair), *chosen])


def with_given(predictions: Predictions, text: str) -> Predictions:
    """From `--measured 665@1x4`: samples/s on full nodes of the sweep, their number and GPUs; UsageError for what is none."""
    match = re.fullmatch(r"((?:\d{1,3}(?:,\d{3}){0,3}|\d{1,12})(?:\.\d{1,9})?)@(\d{1,6})x(\d{1,6})", text, re.ASCII)
    rate, nodes, gpus = (float(match[1].replace(",", "")), int(match[2]), int(match[3])) if match else (0.0, 0, 0)
    if not rate:
        what = "give samples/s above 0, of all GPUs together, and the layout, such as 665@1x4 for 1 node of 4 GPUs"
        raise UsageError(f"--measured {text}: {what}")
    wanted = [point for point in predictions.wanted() if not why_not(point)]
    full = max((point.layout.gpus_per_node for point in wanted), default=gpus)
    if gpus != full:
        raise UsageError(f"--measured {text}: points on several nodes have {count(full, 'GPU')} per node. Give the rate of such.")
    larger = {predictions.kind(point) for point in wanted if point.layout.nodes > nodes}
    there = (each for each in predictions.points if (each.point.layout.nodes, each.point.layout.gpus_per_node) == (nodes, gpus))
    alike = {kind: each for each in there if (kind := predictions.kind(each.point)) in larger}
    if not alike:
        raise UsageError(f"--measured {text}: no chosen point is {nodes} x {gpus} and also on more nodes")
    if len(alike) > 1:
        names = ", ".join(f"{each.point.label} ({', '.join(each.groups)})" for each in alike.values())
        several = f"these points are all {nodes} x {gpus}: {names}"
        raise UsageError(f"--measured {text}: {several}. Choose one with --group or --where.")
    [(kind, planned)] = alike.items()
    point, batch = planned.point, planned.point.workload.known_batch
    if batch is None:
        raise UsageError(f"--measured {text}: the sweep defines no batch. Set workload.samples_per_step.")
    anchor = Anchor(nodes=nodes, gpus_per_node=gpus, batch_per_gpu=batch, step_s=point.gpus * batch / rate)
    return replace(predictions, given={kind: AnchorSource(name=f"--measured {text}", anchor=anchor)})
