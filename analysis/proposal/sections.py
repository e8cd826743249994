"""Sections of a proposal: how GPUs were used, as centres ask for it; what the runs learned, and what each parameter does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from hpcddp.analysis.proposal.blocks import Block, CellOf, Heading, Items, Text, rows_table
from hpcddp.analysis.proposal.proposal import Proposal, readings_of
from hpcddp.analysis.report.accuracy_table import accuracy_cell, accuracy_spread, reached_cell, trained_cell
from hpcddp.analysis.report.table import UNKNOWN, Cell, giga, number_cell, number_of, text_cell, words_of
from hpcddp.analysis.runs.run import Run
from hpcddp.analysis.study.axis_words import effect_sentence
from hpcddp.analysis.util.wording import percent, quantity, time_words, times, unit
from hpcddp.analysis.verdicts.accuracy import target_sentences
from hpcddp.core.attempt_records import GpuTelemetry

UNEVEN_PERCENT, UNEVEN_SHARE = 10.0, 0.10
"""GPUs of one run are uneven from so many points of utilisation between least and most, or from such a share of the highest mean
power or memory: a convention."""

SHOWN_RANKS = 8
"""Of uneven ranks; the records have all."""


@dataclass(frozen=True)
class _RankGpu:
    rank: int
    host: str
    gpu: GpuTelemetry


def gpu_use(found: Proposal) -> list[Block]:
    """The blocks of the page; none on CPUs."""
    if found.sizes[0].row["device"] == "cpu":
        return []
    rows = [{**size.row, **readings_of(found.found, size), "runs": found.source(size)} for size in found.sizes]
    remarks = [*_not_read(rows), *(f"At {row['runs']} {row['misleads']}." for row in rows if pd.notna(row["misleads"]))]
    return [
        Heading("Use of the GPUs"),
        Text(
            "Read on every node while the timed steps ran, medians over the runs, of energy means. Utilisation is the share of "
            "time in which any kernel ran, waiting for other ranks included; memory is the most taken on any GPU, of what it "
            "has; energy is of GPUs alone, without hosts, network and cooling."
        ),
        rows_table(COLUMNS, rows),
        *([Items(remarks)] if remarks else []),
        *_by_rank(found),
    ]


def _memory(row: Mapping[str, Any]) -> Cell:
    of = "" if pd.isna(row["gpu_mem_total_bytes"]) else f" of {giga(row['gpu_mem_total_bytes'])}"
    return number_cell(row["gpu_mem_used_peak_bytes"], lambda peak: f"{giga(peak)}{of}")


COLUMNS: dict[str, CellOf] = {
    "nodes": number_of("nodes", str),
    "GPUs": number_of("gpus", str),
    "utilisation": number_of("gpu_util_percent", "{:.0f} %".format),
    "waiting for data": number_of("data_wait_share", percent),
    "GPU memory, GB": _memory,
    "mean power per GPU, W": number_of("gpu_power_w_mean", quantity),
    "kWh per GPU and epoch": lambda row: number_cell(row["gpu_kwh_per_epoch"], lambda kwh: quantity(kwh / row["gpus"])),
    "runs": words_of("runs"),
}
"""Of a size: its rows of scaling_frame and of readings as one."""

RANK_COLUMNS: dict[str, CellOf] = {
    "rank": lambda of: text_cell(of.rank),
    "host": lambda of: text_cell(of.host),
    "utilisation": lambda of: number_cell(of.gpu.util_percent_mean, "{:.0f} %".format),
    "GPU memory, GB": lambda of: number_cell(of.gpu.mem_used_peak_bytes, giga),
    "mean power, W": lambda of: number_cell(of.gpu.power_w_mean, quantity),
    "energy, Wh": lambda of: number_cell(of.gpu.energy_j, lambda joules: quantity(joules / 3600)),
}
"""Of a _RankGpu."""


def _not_read(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Reasons, sizes with the same together."""
    why: dict[str, list[str]] = {}
    for row in rows:
        if pd.notna(row["gpus_not_read"]):
            why.setdefault(str(row["gpus_not_read"]), []).append(row["runs"])
    yield from (f"Not read at {', '.join(sizes)}: {reason}." for reason, sizes in why.items())


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
    window_s = run.readings.nodes[0].window_s
    time = "" if window_s is None else f", over {time_words(window_s)} of timed steps"
    text = f"The GPUs of {found.source(size)} are not used evenly; {which} in {run.name}{time}:"
    return [Text(text), rows_table(RANK_COLUMNS, sorted(furthest, key=lambda each: each.rank))]


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


ABOUT = (
    "Of the whole evaluation set, each sample once, as the median over runs; sizes that trained unlike numbers of samples "
    "are not to be ranked by it."
)


def accuracy_blocks(found: Proposal) -> list[Block]:
    """A heading and tables; nothing where no run of the series was evaluated."""
    rows = [size.row for size in found.sizes if pd.notna(size.row["accuracy"])]
    if not rows:
        return []
    gpu = unit(rows[0]["device"])
    size: dict[str, CellOf] = {f"nodes x {gpu}s": lambda row: text_cell(f"{row['nodes']} x {row['gpus_per_node']}")}
    counts = {
        **size,
        "n": number_of("eval_n", str),
        "accuracy": accuracy_cell,
        "between": accuracy_spread,
        "samples trained": trained_cell,
    }
    blocks: list[Block] = [Heading("Accuracy"), Text(ABOUT), rows_table(counts, rows, UNKNOWN)]
    targets = targets_of(found)
    if targets.empty:
        return blocks
    base = next((base for base in ("1gpu", "1node") if targets[f"speedup_{base}"].notna().any()), "1gpu")
    effort = {
        **size,
        "reached": reached_cell,
        "epochs": number_of("epochs", "{:g}".format),
        "time": number_of("train_s", time_words),
        "node hours": number_of("node_h", quantity),
        f"over one {gpu if base == '1gpu' else 'node'}": number_of(f"speedup_{base}", times),
        "throughput": number_of(f"throughput_{base}", times),
    }
    sentences = " ".join(target_sentences(targets, found.rows, {}))
    return [*blocks, Text(sentences), rows_table(effort, (row for _, row in targets.iterrows()), UNKNOWN)]


def targets_of(found: Proposal) -> pd.DataFrame:
    """What each size of the series takes to an accuracy: rows of targets_frame."""
    every = found.found.targets
    rows: pd.DataFrame = every[every["series"] == found.sizes[0].row["series"]]
    return rows


def what_changes_it(found: Proposal) -> list[Block]:
    """A sentence for each key that was varied beside the size, at the largest size at which enough runs tell its effect from
    chance; nothing without one."""
    tested = [(axis, [panel for panel in axis.panels if panel.p is not None]) for axis in found.found.effects]
    sentences = [effect_sentence(axis, panels[-1]) for axis, panels in tested if panels]
    return [Heading("Effect of each parameter"), Items(sentences)] if sentences else []
