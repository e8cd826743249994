"""How GPUs were used, as centres ask for it: utilisation, memory, power and energy by size of job, and by rank where uneven."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from hpcddp.analysis.proposal.blocks import Block, Heading, Items, Text, text_table
from hpcddp.analysis.proposal.proposal import MeasuredSize, Proposal, readings_of
from hpcddp.analysis.report.cells import giga
from hpcddp.analysis.runs.run import Run
from hpcddp.analysis.util.wording import duration, percent, quantity
from hpcddp.core.telemetry_record import GpuTelemetry

UNEVEN_PERCENT, UNEVEN_SHARE = 10.0, 0.10
"""GPUs of one run are uneven from so many points of utilisation between least and most, or from such a share of the highest mean
power or memory: a convention."""

SHOWN_RANKS = 8
"""Of uneven ranks; the records have all."""

UNKNOWN = "unknown"


@dataclass(frozen=True)
class _RankGpu:
    rank: int
    host: str
    gpu: GpuTelemetry


def gpu_use(found: Proposal) -> list[Block]:
    """The blocks of the page; none on CPUs."""
    if found.sizes[0].row["device"] == "cpu":
        return []
    rows = [(size, readings_of(found.found, size)) for size in found.sizes]
    remarks = [*_not_read(found, rows), *_misleading(found, rows)]
    return [
        Heading("Use of the GPUs"),
        Text(
            "Read on every node while the timed steps ran, medians over the runs, of energy means. Utilisation is the share of "
            "time in which any kernel ran, waiting for other ranks included; memory is the most taken on any GPU, of what it "
            "has; energy is of GPUs alone, without hosts, network and cooling."
        ),
        text_table(
            [*COLUMNS, "runs"], [[*(text(size, row) for text in COLUMNS.values()), found.source(size)] for size, row in rows]
        ),
        *([Items(remarks)] if remarks else []),
        *_by_rank(found),
    ]


COLUMNS: dict[str, Callable[[MeasuredSize, Any], str]] = {
    "nodes": lambda size, row: str(size.nodes),
    "GPUs": lambda size, row: str(size.row["gpus"]),
    "utilisation": lambda size, row: _known(row["gpu_util_percent"], lambda value: f"{value:.0f} %"),
    "waiting for data": lambda size, row: _known(row["data_wait_share"], percent),
    "GPU memory, GB": lambda size, row: _memory(row),
    "mean power per GPU, W": lambda size, row: _known(row["gpu_power_w_mean"], quantity),
    "kWh per GPU and epoch": lambda size, row: _known(row["gpu_kwh_per_epoch"], lambda value: quantity(value / size.row["gpus"])),
}
"""Head -> what stands below it, of a size and its row of readings."""


def _memory(row: Mapping[str, Any]) -> str:
    if pd.isna(row["gpu_mem_used_peak_bytes"]):
        return UNKNOWN
    of = "" if pd.isna(row["gpu_mem_total_bytes"]) else f" of {giga(row['gpu_mem_total_bytes'])}"
    return f"{giga(row['gpu_mem_used_peak_bytes'])}{of}"


def _known(value: Any, text: Callable[[float], str]) -> str:
    return UNKNOWN if pd.isna(value) else text(float(value))


def _not_read(found: Proposal, rows: Sequence[tuple[MeasuredSize, Mapping[str, Any]]]) -> Iterator[str]:
    """Reasons, sizes with the same together."""
    why: dict[str, list[str]] = {}
    for size, row in rows:
        if pd.notna(row["gpus_not_read"]):
            why.setdefault(str(row["gpus_not_read"]), []).append(found.source(size))
    yield from (f"Not read at {', '.join(sizes)}: {reason}." for reason, sizes in why.items())


def _misleading(found: Proposal, rows: Sequence[tuple[MeasuredSize, Mapping[str, Any]]]) -> Iterator[str]:
    yield from (f"At {found.source(size)} {row['misleads']}." for size, row in rows if pd.notna(row["misleads"]))


def _by_rank(found: Proposal) -> list[Block]:
    """Of the size that is asked for, or else the largest: the run whose GPUs differ most, where they do."""
    size = found.choice.size if found.choice else found.sizes[-1]
    uneven = [(run, spread) for run in size.runs if (spread := _spread(run)) >= 1]
    if not uneven:
        return []
    run = max(uneven, key=lambda each: each[1])[0]
    gpus = _of_ranks(run)
    middle = pd.Series([each.gpu.util_percent_mean for each in gpus], dtype=float).median()
    furthest = sorted(gpus, key=lambda each: -abs((each.gpu.util_percent_mean or 0.0) - middle))[:SHOWN_RANKS]
    which = "its GPUs" if len(gpus) <= SHOWN_RANKS else f"the {SHOWN_RANKS} of its {len(gpus)} GPUs that are furthest off"
    heads = ["rank", "host", "utilisation", "GPU memory, GB", "mean power, W", "energy, Wh"]
    rows = [_rank_row(each) for each in sorted(furthest, key=lambda each: each.rank)]
    window_s = run.readings.nodes[0].window_s
    time = "" if window_s is None else f", over {duration(window_s)} of timed steps"
    text = f"The GPUs of {found.source(size)} are not used evenly; {which} in {run.name}{time}:"
    return [Text(text), text_table(heads, rows)]


def _of_ranks(run: Run) -> list[_RankGpu]:
    """Nodes are in the order of their first ranks, and ranks of a node number its GPUs."""
    each = run.point.layout.gpus_per_node if run.point else 0
    return [_RankGpu(i * each + gpu.gpu, str(node.host), gpu) for i, node in enumerate(run.readings.nodes) for gpu in node.gpus]


def _spread(run: Run) -> float:
    """How far apart the run's GPUs are, in the largest of the limits; 1 and more is uneven."""
    gpus = run.readings.gpus
    util = [gpu.util_percent_mean for gpu in gpus if gpu.util_percent_mean is not None]
    found = [(max(util) - min(util)) / UNEVEN_PERCENT] if util else [0.0]
    for name in ("power_w_mean", "mem_used_peak_bytes"):
        known = [value for gpu in gpus if (value := getattr(gpu, name)) is not None]
        found += [(1 - min(known) / max(known)) / UNEVEN_SHARE] if known and max(known) > 0 else []
    return max(found)


def _rank_row(of: _RankGpu) -> list[str]:
    gpu = of.gpu
    known = (
        _or_unknown(gpu.util_percent_mean, lambda value: f"{value:.0f} %"),
        _or_unknown(gpu.mem_used_peak_bytes, giga),
        _or_unknown(gpu.power_w_mean, quantity),
        _or_unknown(gpu.energy_j, lambda joules: quantity(joules / 3600)),
    )
    return [str(of.rank), of.host, *known]


def _or_unknown(value: float | None, text: Callable[[float], str]) -> str:
    return UNKNOWN if value is None else text(value)
