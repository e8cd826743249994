"""The tables of a study: how it scales, where the step goes, how gradients travel, what limits it, what laws say."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pandas as pd

from hpcddp.analysis.report.accuracy_table import accuracy, losses, to_accuracy
from hpcddp.analysis.report.cells import (
    Spec,
    between,
    between_cell,
    giga,
    key_columns,
    milli,
    number_cell,
    number_of,
    size_columns,
    table_of,
    text_cell,
    unit_of,
    words_of,
)
from hpcddp.analysis.report.effect_tables import effect_tables
from hpcddp.analysis.report.exchange_tables import profiled, sharding
from hpcddp.analysis.report.node_tables import bindings, gpu_readings, loaders, node_readings, preflight
from hpcddp.analysis.report.table import UNKNOWN, Cell, Column, Table
from hpcddp.analysis.study import effects
from hpcddp.analysis.study.comm_bench import OPS
from hpcddp.analysis.study.fits import NAMES as LAW_NAMES
from hpcddp.analysis.study.frames import NAMES, TOKENS_PER_S, hidden_parts, shown_parts, step_total_s
from hpcddp.analysis.study.series import Apart, differing, full_names
from hpcddp.analysis.util.wording import percent, percent_within, percents, quantity, time_words, times
from hpcddp.analysis.verdicts.context import data_wait, layout, listed, span, step_s
from hpcddp.analysis.verdicts.findings import Findings
from hpcddp.core.text import message_size

IN_BRACKETS = " ({})"


def study_tables(found: Findings) -> dict[str, Table]:
    """By what they are of, the most important first; some may have no rows, and one that raises is noted as failed."""
    shown, apart = found.shown, found.shown_apart
    no_tables: dict[str, Callable[[], Table]] = {}
    effects = found.failures.contain("tables of effects", lambda: effect_tables(found.effects, found.sentences), no_tables)
    tables: dict[str, Callable[[], Table]] = {
        **(effects if found.is_of_keys else {}),
        "scaling": lambda: scaling(shown, apart, is_of_keys=found.is_of_keys),
        "training": lambda: training(shown, apart),
        "accuracy": lambda: accuracy(shown, apart),
        "losses": lambda: losses(shown, apart),
        "time to accuracy": lambda: to_accuracy(found.targets, apart),
        "the step's parts": lambda: breakdown(shown, apart),
        "loaders": lambda: loaders(found.loaders, differing(found.loaders["series"].unique())),
        "the exchange": lambda: exchange(shown, apart),
        "sharding": lambda: sharding(found.records.runs),
        "profiled exchange": lambda: profiled(found.records.runs),
        **effects,
        "limits": lambda: limits(found.limits),
        "readings of GPUs": lambda: gpu_readings(found.readings, apart),
        "readings of nodes": lambda: node_readings(found.readings, apart),
        "bindings": lambda: bindings(found.records.runs),
        "preflight": lambda: preflight(found.records.preflights),
        "collectives": lambda: collectives(found.fits),
        "laws": lambda: laws(found.laws, full_names(found.apart)),
    }
    done = {name: found.failures.contain(f"the table of {name}", make, None) for name, make in tables.items()}
    return {name: table for name, table in done.items() if table is not None}


EPOCH = "one epoch"
"""Heading of its costs."""


def scaling(points: pd.DataFrame, apart: Apart, *, is_of_keys: bool = False) -> Table:
    """Throughput with its spread, speedup and efficiency against its baselines (not of points of one size), costs of an epoch."""
    is_of_keys = is_of_keys or _load_at_one_size(points)
    gpu, baselines = unit_of(points), {} if is_of_keys else _baselines(points)
    costs = [
        (Column("time", EPOCH, terminal="epoch"), number_of("epoch_s", time_words)),
        (Column("evaluation and checkpoints", EPOCH, terminal="eval/ckpt"), number_of("pauses_s_per_epoch", time_words)),
        (Column("node h", EPOCH), number_of("node_h_per_epoch", quantity)),
        (Column("GPU kWh", EPOCH, terminal=None), number_of("gpu_kwh_per_epoch", quantity)),
    ]
    specs = [
        (Column("nodes"), number_of("nodes", str)),
        (Column(f"{gpu}s/node"), number_of("gpus_per_node", str)),
        (Column(f"{gpu}s"), number_of("gpus", str)),
        *key_columns(apart),
        (Column("n"), number_of("n", str)),
        (Column("samples/s"), number_of("samples_per_s", quantity)),
        (
            Column(_spread_head(points["interval"]), within=IN_BRACKETS),
            between("samples_per_s_low", "samples_per_s_high", quantity),
        ),
        (Column("tokens/s"), number_of(TOKENS_PER_S, quantity)),
        *(spec for base, head in baselines.items() for spec in _against(base, head, points)),
        *([(Column("waits for data", terminal="data wait"), _data_wait)] if _starved(points) else []),
        *costs,
    ]
    note = "Medians over n runs, each the samples of its timed steps / the time they took."
    if not is_of_keys:
        note += f" Efficiency is speedup per added {gpu}; 100 % is perfect scaling."
    title = "Throughput" if is_of_keys else "How it scales"
    return table_of("scaling", title, " ".join([note, *scaling_foot(points)]), specs, points)


def scaling_foot(points: pd.DataFrame) -> list[str]:
    """What the numbers of the scaling table do not say by themselves, in sentences; the terminal has them, too."""
    found = [range_words(points)] if (points["interval"] == "range").any() else []
    if points["epoch_s"].notna().any():
        found.append("Time, node hours and energy of an epoch are means over the runs, as they are billed.")
    if starved := _starved(points):
        bases = {"1x1", f"1x{points['full_node_gpus'].max()}"} - {layout(points.iloc[-1])}
        of_base = ", those of a baseline among them" if bases & set(starved) else ""
        found.append(
            f"Ranks wait for data for {span(list(starved.values()))} of the step at {listed(list(starved))}: efficiency compares "
            f"steps that wait{of_base}."
        )
    return found


def range_words(points: pd.DataFrame) -> str:
    """How often ranges of so many runs contain what they are ranges of."""
    few = sorted({int(n) for n in points.loc[points["interval"] == "range", "n"]})
    medians, ratios = (
        listed([f"{percent(confidence(n))} of studies with {n} runs" for n in few])
        for confidence in (effects.range_confidence, effects.effect_confidence)
    )
    efficiency = (points["efficiency_1gpu_interval"] == "range") | (points["efficiency_1node_interval"] == "range")
    of_ratios = f", that of an efficiency in {ratios}" if efficiency.any() else ""
    return f"The range of the runs contains the true median in {medians}{of_ratios}."


def _starved(points: pd.DataFrame) -> dict[str, float]:
    """Layout -> the share of the step that waits for data, where it counts."""
    shares = {layout(row): data_wait(row) for _, row in points.iterrows()}
    return {name: share for name, share in shares.items() if share is not None}


def _data_wait(row: Any) -> Cell:
    return number_cell(row["data_wait_s"] / step_s(row), percent)


def training(points: pd.DataFrame, apart: Apart) -> Table:
    """What a whole training costs at each size, and which points' runs that is from; no rows where its epochs are not known."""
    known = points[points["train_s"].notna()]
    specs = [
        *size_columns(unit_of(points)),
        *key_columns(apart),
        (Column("n"), number_of("n", str)),
        (Column("epochs", terminal=None), number_of("train_epochs", str)),
        (Column("time"), number_of("train_s", time_words)),
        (Column("range", within=IN_BRACKETS, documents=False), _training_spread),
        (Column("node h"), number_of("node_h_to_train", quantity)),
        (Column("GPU h"), number_of("gpu_h_to_train", quantity)),
        (Column("GPU kWh"), number_of("gpu_kwh_to_train", quantity)),
        (Column("runs in", numeric=False), words_of("label")),
    ]
    note = "Means over n runs: training alone, without start, evaluation and checkpoints. Nodes count whole."
    return table_of("training", "What a training costs", note, specs, known)


def _training_spread(row: Any) -> Cell:
    low, high = (row["train_s"] * row[f"epoch_s_{end}"] / row["epoch_s"] for end in ("low", "high"))
    return between_cell(low, high, time_words)


TERMINAL_HEADS = {
    "data_wait": "data",
    "h2d_exposed": "copy",
    "forward": "fwd",
    "backward": "bwd",
    "comm_exposed": "comm",
    "transfer": "transfer",
    "peer_wait": "wait",
    "optimizer": "opt",
    "other": "other",
    "unaccounted": "unacc",
    "h2d_hidden": "(copy)",
    "comm_hidden": "(comm)",
}
"""Of the breakdown's columns; what is hidden behind other parts is in brackets."""

HIDDEN = {"h2d_hidden": "copy", "comm_hidden": "communication"}


def breakdown(points: pd.DataFrame, apart: Apart) -> Table:
    """The step, and each part's share of it."""
    step_s = step_total_s(points)
    specs = [
        *size_columns(unit_of(points)),
        *key_columns(apart),
        (Column("step ms", always=True), number_of("step_s", milli)),
        (Column("with hook, ms", terminal="hook ms"), number_of("step_hook_s", milli)),
        *_shares(shown_parts(points), step_s, NAMES, "% of the step"),
        *_shares(hidden_parts(points), step_s, HIDDEN, "hidden, %"),
    ]
    note = "Means over ranks and steps, of the middle run; from runs with the communication hook where there are any."
    return table_of("breakdown", "Where the step goes", note, specs, points)


def exchange(points: pd.DataFrame, apart: Apart) -> Table:
    """How gradients travel, of layouts with the communication hook. A single rank's go nowhere."""
    points = points[points["step_bytes"].notna() & (points["ranks"] > 1)]
    specs = [
        *size_columns(unit_of(points)),
        *key_columns(apart),
        (Column("MB per step", terminal="MB/step"), number_of("step_bytes", lambda size: quantity(size / 1e6))),
        *(
            (Column(f"{head}, ms", terminal=f"{head} ms", always=True), number_of(f"{name}_s", milli))
            for name, head in EXCHANGED.items()
        ),
        (Column("hidden", terminal="overlap", always=True), number_of("comm_overlap", percent)),
        (Column("algorithm", "GB/s", terminal="alg GB/s", always=True), number_of("algbw_bytes_per_s", giga)),
        (Column("bus", "GB/s", terminal="bus GB/s", always=True), number_of("busbw_bytes_per_s", giga)),
    ]
    note = "Hidden behind computation, exposed, waiting for peers; bandwidth while they travel (bus: as nccl-tests defines it)."
    return table_of("exchange", "How gradients travel", note, specs, points)


EXCHANGED = {"comm_hidden": "hidden", "transfer": "transfer", "peer_wait": "peer wait"}


def limits(rows: pd.DataFrame) -> Table:
    """Full training beside what the trainer and the loader reach alone."""
    specs = [
        (Column("layout", numeric=False, terminal=f"nodes x {unit_of(rows)}s"), _layout),
        (Column("series", numeric=False), words_of("series")),
        (Column("full training", terminal="full", always=True), number_of("full", quantity)),
        (Column("trainer's limit", always=True), number_of("synthetic", quantity)),
        (Column("loader's limit", always=True), number_of("io", quantity)),
    ]
    note = "Samples/s: with everything; with one batch that is there already; loading and copying without training."
    return table_of("limits", "What limits training", note, specs, rows)


BUS = "bus bandwidth, GB/s"


def collectives(rows: pd.DataFrame) -> Table:
    """Latency and bus bandwidth, one line per layout and operation."""
    specs = [
        (Column("layout", numeric=False), words_of("layout")),
        (Column("operation", numeric=False), lambda row: Cell(OPS[row["op"]], OPS[row["op"]])),
        (
            Column("latency, µs", terminal="latency us", always=True),
            number_of("latency_s", lambda seconds: quantity(seconds * 1e6)),
        ),
        (Column("fitted", BUS, terminal="fitted GB/s", always=True), number_of("busbw_bytes_per_s", giga)),
        (Column("measured", BUS, terminal="GB/s", always=True), number_of("largest_busbw_bytes_per_s", giga)),
        (Column("at", BUS, always=True), number_of("largest_bytes", lambda size: message_size(int(size)))),
    ]
    return table_of("collectives", "Collectives alone", "As `hpcddp bench comm` timed them.", specs, rows)


def laws(rows: pd.DataFrame, names: dict[str, str]) -> Table:
    """Laws of scaling and their parameters."""
    specs = [
        (Column("series", numeric=False), lambda row: text_cell(names.get(row["series"], ""))),
        (Column("over", numeric=False), lambda row: Cell(f"{row['smallest']}–{row['largest']} {row['over']}s", str(row["over"]))),
        (Column("law", numeric=False), lambda row: text_cell(LAW_NAMES.get(row["law"], row["law"]))),
        (Column("parameter", numeric=False), lambda row: text_cell(str(row["parameter"]).replace("_", " "))),
        (Column("value"), number_of("value", quantity)),
        (Column("95 %"), between("low", "high", quantity)),
        (Column("off by, %"), number_of("left_out_percent", quantity)),
    ]
    note = "Fitted to throughput: over full nodes and over the GPUs of one node, never over both. Off by: of points left out."
    return table_of("laws", "What fitted laws say", note, specs, rows)


def _against(baseline: str, group: str, points: pd.DataFrame) -> list[Spec]:
    share = f"efficiency_{baseline}"
    head = _spread_head(points[f"{share}_interval"])
    return [
        (
            Column("speedup", group, terminal=group, always=True),
            number_of(f"speedup_{baseline}", lambda speedup: f"{times(speedup)}×"),
        ),
        (
            Column("efficiency", group, within=" {}"),
            lambda row: _efficiency(*(row[f"{share}{end}"] for end in ("", "_low", "_high"))),
        ),
        (Column(head, group, within=IN_BRACKETS), lambda row: _percents(row[f"{share}_low"], row[f"{share}_high"])),
    ]


def _efficiency(share: Any, low: Any, high: Any) -> Cell:
    return number_cell(share, percent if pd.isna(low) else lambda value: percent_within(value, low, high))


def _percents(low: Any, high: Any) -> Cell:
    return Cell(UNKNOWN, None) if pd.isna(low) else Cell(percents(low, high, "–"), float(low))


def _shares(parts: pd.DataFrame, step_s: pd.Series[Any], names: Mapping[str, str], group: str) -> Iterator[Spec]:
    shares = parts.div(step_s, axis=0)
    for part in parts:
        column = Column(names[str(part)], group, terminal=TERMINAL_HEADS[str(part)], always=True)
        yield column, lambda row, part=part: number_cell(shares.loc[row.name, part], _percent_number)  # type: ignore[misc]


def _percent_number(share: float) -> str:
    """Without the sign: `39`; noise below nothing is `0`."""
    return f"{100 * share:.0f}".replace("-0", "0")


def _layout(row: Any) -> Cell:
    return Cell(f"{row['nodes']} × {row['gpus_per_node']}", float(row["nodes"] * row["gpus_per_node"]))


def _load_at_one_size(points: pd.DataFrame) -> bool:
    """Where an efficiency would be that of a size against itself."""
    return bool((points["input"] == "io").all()) and len(points[["nodes", "gpus_per_node"]].drop_duplicates()) == 1


def _baselines(points: pd.DataFrame) -> dict[str, str]:
    """What efficiencies are against, as columns end, with their heads: a full node by its size where all series have the same,
    not at all where it is one GPU.
    """
    sizes = set(points["full_node_gpus"])
    node = {} if sizes == {1} else {"1node": f"vs 1 node of {sizes.pop()}" if len(sizes) == 1 else "vs 1 node"}
    return {"1gpu": f"vs 1 {unit_of(points)}", **node}


def _spread_head(intervals: pd.Series[Any]) -> str:
    """`95 %` or `range`; `spread` where rows have either, or none has any."""
    kinds = set(intervals.dropna())
    return str(kinds.pop()) if len(kinds) == 1 else "spread"
