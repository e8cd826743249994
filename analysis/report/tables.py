"""The tables of a report as cells with their values, whatever they are written as: HTML, Markdown, LaTeX."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import pandas as pd

from hpcddp.analysis.study.breakdown import NAMES, hidden_parts, shown_parts, whole_step
from hpcddp.analysis.study.comm_bench import OPS
from hpcddp.analysis.study.fit_words import NAMES as LAW_NAMES
from hpcddp.analysis.study.series import Apart, full_names, value_text
from hpcddp.analysis.util.column_heads import baselines, spread_head, unit_of, whole_percent
from hpcddp.analysis.util.wording import duration, percent, percent_within, percents, quantity, times
from hpcddp.analysis.verdicts.findings import Findings
from hpcddp.core.text import message_size

UNKNOWN = "–"


@dataclass(frozen=True)
class Column:
    """A head, and the heading it shares with its neighbours."""

    head: str
    group: str = ""
    numeric: bool = True

    @property
    def name(self) -> str:
        """Both in one line."""
        return f"{self.group}: {self.head}" if self.group else self.head


@dataclass(frozen=True)
class Cell:
    """What is written, and what it sorts by; None is unknown and sorts last."""

    text: str
    value: float | str | None


@dataclass(frozen=True)
class Table:
    """One table; `name` is the stem of its files, `note` says what its numbers are."""

    name: str
    title: str
    note: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]

    @property
    def groups(self) -> list[tuple[str, int]]:
        """(heading, how many columns in a row share it)"""
        return [(group, len(list(columns))) for group, columns in groupby(column.group for column in self.columns)]


Spec = tuple[Column, Callable[[Any], Cell]]
"""A column, and how its cell comes from a row."""


def report_tables(found: Findings) -> list[Table]:
    """The most important first; some may have no rows."""
    return [
        scaling(found.shown, found.shown_apart),
        training(found.shown, found.shown_apart),
        breakdown(found.shown, found.shown_apart),
        exchange(found.shown, found.shown_apart),
        limits(found.limits),
        collectives(found.fits),
        laws(found.laws, full_names(found.apart)),
    ]


def scaling(points: pd.DataFrame, apart: Apart) -> Table:
    """Throughput with its spread, speedup and efficiency against its baselines, costs of an epoch."""
    gpu = unit_of(points)
    costs = [
        (Column("time", "one epoch"), _value("epoch_s", duration)),
        (Column("node h", "one epoch"), _value("node_h_per_epoch", quantity)),
        (Column("GPU kWh", "one epoch"), _value("gpu_kwh_per_epoch", quantity)),
    ]
    specs = [
        *_size(gpu),
        *_keys(apart),
        (Column("n"), _value("n", str)),
        (Column("samples/s"), _value("samples_per_s", quantity)),
        (Column(spread_head(points["interval"])), _spread),
        *(spec for base, head in baselines(points).items() for spec in _against(base, head, points)),
        *costs,
    ]
    note = (
        "Medians over n runs, each the samples of its timed steps / the time they took. Efficiency is speedup per added "
        + gpu
        + "; 100 % is perfect scaling."
    )
    return _table("scaling", "How it scales", note, specs, points)


def training(points: pd.DataFrame, apart: Apart) -> Table:
    """What a whole training costs at each size, and which points' runs that is from; no rows where its epochs are not known."""
    known = points[points["train_s"].notna()]
    specs = [
        *_size(unit_of(points)),
        *_keys(apart),
        (Column("n"), _value("n", str)),
        (Column("epochs"), _value("train_epochs", str)),
        (Column("time"), _value("train_s", duration)),
        (Column("node h"), _value("node_h_to_train", quantity)),
        (Column("GPU h"), _value("gpu_h_to_train", quantity)),
        (Column("GPU kWh"), _value("gpu_kwh_to_train", quantity)),
        (Column("runs in", numeric=False), _words("label")),
    ]
    note = "At the median throughput: training alone, without start, evaluation and checkpoints. Nodes count whole."
    return _table("training", "What a training costs", note, specs, known)


def breakdown(points: pd.DataFrame, apart: Apart) -> Table:
    """The step, and each part's share of it."""
    parts = shown_parts(points)
    hidden = hidden_parts(points).rename(columns={"h2d_hidden": "copy", "comm_hidden": "communication"})
    whole = whole_step(points)
    specs = [
        *_size(unit_of(points)),
        *_keys(apart),
        (Column("step ms"), _value("step_s", _milli)),
        (Column("with hook, ms"), _value("step_hook_s", _milli)),
        *_shares(parts.rename(columns=NAMES), whole, "% of the step"),
        *_shares(hidden, whole, "hidden, %"),
    ]
    note = "Means over ranks and steps, of the middle run; from runs with the communication hook where there are any."
    return _table("breakdown", "Where the step goes", note, specs, points)


def exchange(points: pd.DataFrame, apart: Apart) -> Table:
    """How gradients travel, of layouts with the communication hook. A single rank's go nowhere."""
    points = points[points["step_bytes"].notna() & (points["ranks"] > 1)]
    specs = [
        *_size(unit_of(points)),
        *_keys(apart),
        (Column("MB per step"), _value("step_bytes", lambda size: quantity(size / 1e6))),
        *((Column(f"{head}, ms"), _value(f"{name}_s", _milli)) for name, head in EXCHANGED.items()),
        (Column("hidden"), _value("comm_overlap", percent)),
        (Column("algorithm", "GB/s"), _value("algbw_bytes_per_s", _giga)),
        (Column("bus", "GB/s"), _value("busbw_bytes_per_s", _giga)),
    ]
    note = "Hidden behind computation, exposed, waiting for peers; bandwidth while they travel (bus: as nccl-tests defines it)."
    return _table("exchange", "How gradients travel", note, specs, points)


EXCHANGED = {"comm_hidden": "hidden", "transfer": "transfer", "peer_wait": "peer wait"}


def limits(rows: pd.DataFrame) -> Table:
    """Full training beside what the trainer and the loader reach alone."""
    specs = [
        (Column("layout", numeric=False), _layout),
        (Column("series", numeric=False), _words("series")),
        (Column("full training"), _value("full", quantity)),
        (Column("trainer's limit"), _value("synthetic", quantity)),
        (Column("loader's limit"), _value("io", quantity)),
    ]
    note = "Samples/s: with everything; with one batch that is there already; loading and copying without training."
    return _table("limits", "What limits training", note, specs, rows)


def collectives(rows: pd.DataFrame) -> Table:
    """Latency and bus bandwidth, one line per layout and operation."""
    specs = [
        (Column("layout", numeric=False), _words("layout")),
        (Column("operation", numeric=False), lambda row: Cell(OPS[row["op"]], OPS[row["op"]])),
        (Column("latency, µs"), _value("latency_s", lambda seconds: quantity(seconds * 1e6))),
        (Column("fitted", "bus bandwidth, GB/s"), _value("busbw_bytes_per_s", _giga)),
        (Column("measured", "bus bandwidth, GB/s"), _value("largest_busbw_bytes_per_s", _giga)),
        (Column("at", "bus bandwidth, GB/s"), _value("largest_bytes", lambda size: message_size(int(size)))),
    ]
    return _table("collectives", "Collectives alone", "As `hpcddp bench comm` timed them.", specs, rows)


def laws(rows: pd.DataFrame, names: dict[str, str]) -> Table:
    """Laws of scaling and their parameters."""
    specs = [
        (Column("series", numeric=False), lambda row: _text(names.get(row["series"], ""))),
        (Column("over", numeric=False), lambda row: Cell(f"{row['smallest']}–{row['largest']} {row['over']}s", str(row["over"]))),
        (Column("law", numeric=False), lambda row: _text(LAW_NAMES.get(row["law"], row["law"]))),
        (Column("parameter", numeric=False), lambda row: _text(str(row["parameter"]).replace("_", " "))),
        (Column("value"), _value("value", quantity)),
        (Column("95 %"), _interval),
        (Column("off by, %"), _value("left_out_percent", quantity)),
    ]
    note = "Fitted to throughput: over full nodes and over the GPUs of one node, never over both. Off by: of points left out."
    return _table("laws", "What fitted laws say", note, specs, rows)


def _table(name: str, title: str, note: str, specs: Iterable[Spec], frame: pd.DataFrame) -> Table:
    """Columns in which nothing is known are left out."""
    rows = [row for _, row in frame.iterrows()]
    made = [(column, [cell(row) for row in rows]) for column, cell in specs]
    kept = [(column, cells) for column, cells in made if any(cell.value is not None for cell in cells)]
    return Table(name, title, note, [column for column, _ in kept], list(zip(*(cells for _, cells in kept), strict=True)))


def _value(name: str, text: Callable[[Any], str]) -> Callable[[Any], Cell]:
    return lambda row: _cell(row[name], text)


def _words(name: str) -> Callable[[Any], Cell]:
    return lambda row: _text(row[name])


def _cell(value: Any, text: Callable[[Any], str]) -> Cell:
    return Cell(UNKNOWN, None) if pd.isna(value) else Cell(text(value), float(value))


def _text(value: Any) -> Cell:
    return Cell(UNKNOWN, None) if pd.isna(value) or value == "" else Cell(str(value), str(value))


def _size(gpu: str) -> list[Spec]:
    heads = {"nodes": "nodes", "gpus_per_node": f"{gpu}s/node", "gpus": f"{gpu}s"}
    return [(Column(head), _value(name, str)) for name, head in heads.items()]


def _keys(apart: Apart) -> Iterator[Spec]:
    """What tells the series apart, a column each."""
    for key in next(iter(apart.values()), {}):
        yield Column(key, numeric=all(_is_number(each[key]) for each in apart.values())), _key(apart, key)


def _key(apart: Apart, key: str) -> Callable[[Any], Cell]:
    def cell(row: Any) -> Cell:
        value = apart[row["series"]][key]
        return Cell(value_text(value), value if _is_number(value) else value_text(value))

    return cell


def _is_number(value: Any) -> bool:
    """True and False are words."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _against(baseline: str, group: str, points: pd.DataFrame) -> list[Spec]:
    share = f"efficiency_{baseline}"
    head = spread_head(points[f"{share}_interval"])
    return [
        (Column("speedup", group), _value(f"speedup_{baseline}", lambda speedup: f"{times(speedup)}×")),
        (Column("efficiency", group), lambda row: _efficiency(*(row[f"{share}{end}"] for end in ("", "_low", "_high")))),
        (Column(head, group), lambda row: _percents(row[f"{share}_low"], row[f"{share}_high"])),
    ]


def _efficiency(share: Any, low: Any, high: Any) -> Cell:
    return _cell(share, percent if pd.isna(low) else lambda value: percent_within(value, low, high))


def _percents(low: Any, high: Any) -> Cell:
    return Cell(UNKNOWN, None) if pd.isna(low) else Cell(percents(low, high, "–"), float(low))


def _shares(parts: pd.DataFrame, whole: pd.Series[Any], group: str) -> Iterator[Spec]:
    shares = parts.div(whole, axis=0)
    for part in parts:
        yield Column(str(part), group), lambda row, part=part: _cell(shares.loc[row.name, part], whole_percent)  # type: ignore[misc]


def _spread(row: Any) -> Cell:
    return _range(row["samples_per_s_low"], row["samples_per_s_high"])


def _interval(row: Any) -> Cell:
    return _range(row["low"], row["high"])


def _range(low: Any, high: Any) -> Cell:
    if pd.isna(low) or pd.isna(high):
        return Cell(UNKNOWN, None)
    return Cell(f"{quantity(low)}–{quantity(high)}", float(low))


def _layout(row: Any) -> Cell:
    return Cell(f"{row['nodes']} × {row['gpus_per_node']}", float(row["nodes"] * row["gpus_per_node"]))


def _milli(seconds: float) -> str:
    return quantity(seconds * 1e3)


def _giga(rate: float) -> str:
    return quantity(rate * 1e-9)
