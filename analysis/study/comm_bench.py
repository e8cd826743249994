"""The exchange of each run, and what `hpcddp bench comm` measured: each collective of each layout by message size."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import pandas as pd

from hpcddp.analysis.records.json_files import environment_names
from hpcddp.analysis.runs.communication import algorithm_bandwidth, bus_bandwidth
from hpcddp.analysis.runs.run import Run
from hpcddp.analysis.study.frames import typed_frame
from hpcddp.analysis.study.series import differing, key_text, series_key, words
from hpcddp.analysis.util.wording import capital, quantity, unit
from hpcddp.core.comm_record import CommOperation, bus_share, disturbed, fit_link
from hpcddp.core.text import count, message_size

BUCKET_COLUMNS = {
    **{"label": "string", "run": "Int64", "bucket": "Int64", "bytes": "Int64", "slack_s": "Float64", "own_s": "Float64"},
    **{"algbw_bytes_per_s": "Float64", "busbw_bytes_per_s": "Float64"},
}
"""Medians over steady steps. `slack_s` is the time from the first rank that is ready to the last; `own_s` is how long this
bucket itself travelled, and the bandwidths are its own: only on NCCL, where buckets travel one after the other."""


def buckets_frame(runs: Sequence[Run]) -> pd.DataFrame:
    """A row per bucket of each run with the communication hook, whether the run counts or not."""
    return typed_frame((row for run in runs for row in _rows(run)), BUCKET_COLUMNS)


def _rows(run: Run) -> Iterator[dict[str, Any]]:
    if run.exchange is None or run.point is None:
        return
    for _, bucket in run.exchange.buckets.iterrows():
        row = {"label": run.label, "run": run.run, "slack_s": bucket["slack_ns"] / 1e9}
        row |= {name: int(bucket[name]) for name in ("bucket", "bytes")}
        if run.point.device == "cuda":
            own_s = bucket["own_ns"] / 1e9
            algorithm = algorithm_bandwidth(row["bytes"], own_s)
            row |= {"own_s": own_s, "algbw_bytes_per_s": algorithm}
            row |= {"busbw_bytes_per_s": bus_bandwidth(algorithm, run.point.ranks)}
        yield row


STRAGGLER_COLUMNS = {
    **{"label": "string", "run": "Int64", "rank": "Int64", "host": "string", "last": "Float64"},
    **{f"{name}_s": "Float64" for name in ("slack", "transfer", "peer_wait", "comm_hidden", "others_wait")},
}
"""`last`: the share of all-reduces at which the others waited for it; `slack_s`: how long before the last rank it was ready, the
median over all-reduces; `others_wait_s`: the mean of the other ranks' peer wait per step."""


def stragglers_frame(runs: Sequence[Run]) -> pd.DataFrame:
    """A row per rank of each run with the communication hook and known clocks, whether the run counts or not."""
    tables = [_of_run(run, run.exchange.ranks) for run in runs if run.exchange is not None and len(run.exchange.ranks)]
    rows = pd.concat(tables) if tables else pd.DataFrame(columns=list(STRAGGLER_COLUMNS))
    return rows.astype(STRAGGLER_COLUMNS).reset_index(drop=True)


def _of_run(run: Run, ranks: pd.DataFrame) -> pd.DataFrame:
    waits = ranks["peer_wait_ns"]
    found = ranks[["rank", "host", "last"]].assign(label=run.label, run=run.run)
    for name in ("slack", "transfer", "peer_wait"):
        found[f"{name}_s"] = ranks[f"{name}_ns"] / 1e9
    found["comm_hidden_s"] = ranks["hidden_ns"] / 1e9
    found["others_wait_s"] = (waits.sum() - waits) / max(1, len(waits) - 1) / 1e9
    return found[list(STRAGGLER_COLUMNS)]


OPS = {
    "all_reduce": "all-reduce",
    "reduce_scatter": "reduce-scatter",
    "all_gather": "all-gather",
    "broadcast": "broadcast",
    "send_recv": "send/receive",
}
"""Name in records -> in words, in the order they are shown."""

UNSTEADY = 2.0
"""Slowest / fastest of five batches of 20 ms of an unsteady size: for most of a batch something else had the link."""

_WHO = {"label": "string", "run": "Int64", "layout": "string", "nodes": "Int64", "gpus_per_node": "Int64", "ranks": "Int64"}
_WHO |= {"device": "string", "gpu": "string", "backend": "string", "op": "string"}

COMM_COLUMNS = {
    **{**_WHO, "limit_bytes_per_s": "Float64", "bytes": "Int64", "calls": "Int64"},
    **dict.fromkeys(("time_s", "time_min_s", "time_max_s", "algbw_bytes_per_s", "busbw_bytes_per_s"), "Float64"),
    "correct": "boolean",
}
"""A row per layout, operation and size: median, least and greatest time of a call over batches of `calls`; see fabric_limit."""

FIT_COLUMNS = {
    **_WHO,
    **dict.fromkeys(("latency_s", "bandwidth_bytes_per_s", "busbw_bytes_per_s"), "Float64"),
    "largest_bytes": "Int64",
    "largest_busbw_bytes_per_s": "Float64",
}
"""A row per layout and operation: a call takes latency_s + bytes / bandwidth_bytes_per_s; the same as bus bandwidth."""


def comm_frame(runs: Sequence[Run]) -> pd.DataFrame:
    """A row per size of each operation, from the benchmarks that count; COMM_COLUMNS."""
    return typed_frame(({**who, **asdict(size)} for who, found in _operations(runs) for size in found.sizes), COMM_COLUMNS)


def fits_frame(runs: Sequence[Run]) -> pd.DataFrame:
    """A row per operation that was timed, with its latency and bandwidth; FIT_COLUMNS."""
    return typed_frame(({**who, **_fitted(who, found)} for who, found in _operations(runs) if found.sizes), FIT_COLUMNS)


def comm_notes(runs: Sequence[Run]) -> Iterator[str]:
    """Sentences on operations that a backend does not support (each once), and on sizes that were disturbed or unsteady."""
    for who, found in _operations(runs):
        yield from _disturbed(who, found)
        yield from _unsteady(who, found)
    lacking = {(who["backend"], who["op"]): found.not_supported for who, found in _operations(runs) if found.not_supported}
    yield from (f"{capital(OPS[op])} was not timed: {backend} reports `{reason}`." for (backend, op), reason in lacking.items())


def _disturbed(who: Mapping[str, Any], found: CommOperation) -> Iterator[str]:
    least_s = _least_s(found)
    odd = disturbed(least_s)
    if odd:
        size = odd[0]
        larger = min((other for other in least_s if other > size), key=lambda other: least_s[other])
        yield (
            f"{capital(OPS[who['op']])} on {who['layout']} was disturbed: {message_size(size)} took at least "
            f"{quantity(least_s[size] * 1e3)} ms, {message_size(larger)} {quantity(least_s[larger] * 1e3)} ms. Latency and "
            f"bandwidth exclude {count(len(odd), 'such size')}. Run the benchmark again when nothing else runs there."
        )


def _unsteady(who: Mapping[str, Any], found: CommOperation) -> Iterator[str]:
    """A sentence on sizes whose calls took unlike times: it names the worst of them."""
    apart = {size.bytes: size for size in found.sizes if size.time_max_s > UNSTEADY * size.time_min_s}
    if apart:
        worst = max(apart.values(), key=lambda size: size.time_max_s / size.time_min_s)
        least_ms, most_ms = (quantity(time_s * 1e3) for time_s in (worst.time_min_s, worst.time_max_s))
        more = f" The same holds for {count(len(apart) - 1, 'more size')}." if len(apart) > 1 else ""
        yield (
            f"{capital(OPS[who['op']])} on {who['layout']} was unsteady: a call of {message_size(worst.bytes)} took {least_ms} "
            f"to {most_ms} ms.{more} Latency and bandwidth come from the fastest calls. Training may meet slower calls."
        )


def _least_s(found: CommOperation) -> dict[int, float]:
    return {size.bytes: size.time_min_s for size in found.sizes}


def _operations(runs: Sequence[Run]) -> Iterator[tuple[dict[str, Any], CommOperation]]:
    """For each operation of each benchmark that counts: columns that identify it, and its part of comm.json."""
    counting = [run for run in runs if run.collectives is not None and run.state == "counts"]
    for run, layout in zip(counting, _layouts(counting), strict=True):
        found = run.collectives
        assert found is not None
        for op in (op for op in OPS if op in found.ops):
            yield {**_who(run), "layout": layout, "backend": found.backend, "op": op}, found.ops[op]


def _who(run: Run) -> dict[str, Any]:
    assert run.point is not None
    layout, point = run.point.layout, run.point
    size = {"nodes": layout.nodes, "gpus_per_node": layout.gpus_per_node, "ranks": point.ranks}
    limit = fabric_limit(run.fabric_gbps, layout.nodes)
    return {"label": run.label, "run": run.run, **size, "device": point.device, "gpu": run.gpu, "limit_bytes_per_s": limit}


def fabric_limit(gbps_per_node: float | None, nodes: int) -> float | None:
    """The bus bandwidth that a node's adapters allow, bytes/s, one way; switches that sum up themselves (SHARP) exceed it. None
    where the profile does not say, and within a node, whose links have no number there."""
    return gbps_per_node * 1e9 / 8 if gbps_per_node and nodes > 1 else None


def _layouts(runs: Sequence[Run]) -> list[str]:
    """`2 nodes x 4 GPUs`, with whatever else tells benchmarks of this size apart."""
    points = [run.point for run in runs if run.point is not None]
    names = environment_names((run.env_id, run.software) for run in runs)
    texts = [key_text(series_key(point, "", names[run.env_id], run.gpu)) for point, run in zip(points, runs, strict=True)]
    apart = differing(dict.fromkeys(texts))
    sizes = [layout_of_bench(point.layout.nodes, point.layout.gpus_per_node, point.device) for point in points]
    return [", ".join(filter(None, [size, words(apart[text])])) for size, text in zip(sizes, texts, strict=True)]


def layout_of_bench(nodes: int, gpus: int, device: str) -> str:
    """`2 nodes x 4 GPUs`"""
    return f"{count(nodes, 'node')} x {count(gpus, unit(device))}"


def _fitted(who: dict[str, Any], found: CommOperation) -> dict[str, Any]:
    largest, fitted = found.sizes[-1], fit_link(_least_s(found))
    bandwidth = fitted.bandwidth_bytes_per_s
    return {
        "latency_s": fitted.latency_s,
        "bandwidth_bytes_per_s": bandwidth,
        "busbw_bytes_per_s": None if bandwidth is None else bandwidth * bus_share(who["op"], who["ranks"]),
        "largest_bytes": largest.bytes,
        "largest_busbw_bytes_per_s": largest.busbw_bytes_per_s,
    }
