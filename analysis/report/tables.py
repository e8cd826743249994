"""The tables of a study: how it scales, what a training costs, accuracy, what laws say, and a table per key, a row per value."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pandas as pd

from hpcddp.analysis.report.node_tables import bindings, gpu_readings, loaders, node_readings, preflight
from hpcddp.analysis.report.step_tables import breakdown, collectives, exchange_table, limits, profiled_table, sharding_table
from hpcddp.analysis.report.table import (
    UNKNOWN,
    Cell,
    Column,
    Spec,
    Table,
    between,
    between_cell,
    factor,
    giga,
    key_columns,
    number_cell,
    number_of,
    point_columns,
    size_columns,
    spread_head,
    table_of,
    text_cell,
    unit_of,
    words_of,
)
from hpcddp.analysis.study import effects
from hpcddp.analysis.study.axes import Axis, AxisPanel, AxisValue, axis_text, is_number, value_row
from hpcddp.analysis.study.axis_words import effect_sentence, effect_sentences
from hpcddp.analysis.study.fits import NAMES as LAW_NAMES
from hpcddp.analysis.study.frames import TOKENS_PER_S
from hpcddp.analysis.study.series import Apart, differing, full_names
from hpcddp.analysis.util.wording import accuracy_words, percent, percent_within, percents, points, quantity, time_words, unit
from hpcddp.analysis.verdicts.context import data_wait, layout, listed, span, step_s
from hpcddp.analysis.verdicts.findings import Findings
from hpcddp.core.text import count, thousands

IN_BRACKETS = " ({})"


def study_tables(found: Findings, columns: Sequence[str] = ()) -> dict[str, Table]:
    """By what they are of, the most important first; some may have no rows, and one that raises is noted as failed. `columns`: of
    the scaling table, or its usual ones."""
    shown, apart = found.shown, found.shown_apart
    effects = {axis.stem: partial(effect_table, axis, found.sentences) for axis in found.effects}
    tables: dict[str, Callable[[], Table]] = {
        **(effects if found.is_of_keys else {}),
        "scaling": lambda: scaling(shown, apart, columns, is_of_keys=found.is_of_keys),
        "training": lambda: training_table(shown, apart),
        "accuracy": lambda: accuracy_table(shown, apart),
        "losses": lambda: losses(shown, apart),
        "time to accuracy": lambda: to_accuracy(found.targets, apart),
        "the step's parts": lambda: breakdown(shown, apart),
        "loaders": lambda: loaders(found.loaders, differing(found.loaders["series"].unique())),
        "the exchange": lambda: exchange_table(shown, apart),
        "sharding": lambda: sharding_table(found.records.runs),
        "profiled exchange": lambda: profiled_table(found.records.runs),
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

OF_BASELINE = ("speedup", "efficiency")
"""Columns that a user may name without a baseline: against that of baseline_of."""


def scaling(points: pd.DataFrame, apart: Apart, columns: Sequence[str] = (), *, is_of_keys: bool = False) -> Table:
    """Throughput with its spread, speedup and efficiency against its baselines (not of points of one size), costs of an epoch;
    or `columns`, by their names in scaling.csv, with what tells series apart."""
    one_size = len(points[["nodes", "gpus_per_node"]].drop_duplicates()) == 1
    is_of_keys = is_of_keys or (bool((points["input"] == "io").all()) and one_size)  # of one size efficiency is against itself
    gpu = unit_of(points)
    known: dict[str, list[Spec]] = {
        "nodes": [(Column("nodes"), number_of("nodes", thousands))],
        "gpus_per_node": [(Column(f"{gpu}s/node"), number_of("gpus_per_node", thousands))],
        "gpus": [(Column(f"{gpu}s"), number_of("gpus", thousands))],
        "series": list(key_columns(apart)),
        "n": [(Column("n"), number_of("n", str))],
        "samples_per_s": [
            (Column("samples/s"), number_of("samples_per_s", quantity)),
            (Column(spread_head(points["interval"]), within=IN_BRACKETS), between("samples_per_s", quantity)),
        ],
        TOKENS_PER_S: [(Column("tokens/s"), number_of(TOKENS_PER_S, quantity))],
        "predicted_samples_per_s": [
            (Column("predicted"), number_of("predicted_samples_per_s", quantity)),
            (Column("band", terminal=None), between("predicted", quantity)),
        ],
    }
    for base, head in ({} if is_of_keys else baseline_heads(points)).items():
        known |= _against(base, head, points)
    if _starved(points):
        waiting = Column("waits for data", terminal="data wait")
        known["data_wait_s"] = [(waiting, lambda row: number_cell(row["data_wait_s"] / step_s(row), percent))]
    known |= {
        "epoch_s": [(Column("time", EPOCH, terminal="epoch"), number_of("epoch_s", time_words))],
        "pauses_s_per_epoch": [
            (Column("evaluation and checkpoints", EPOCH, terminal="eval/ckpt"), number_of("pauses_s_per_epoch", time_words))
        ],
        "node_h_per_epoch": [(Column("node h", EPOCH), number_of("node_h_per_epoch", quantity))],
        "gpu_kwh_per_epoch": [(Column("GPU kWh", EPOCH, terminal=None), number_of("gpu_kwh_per_epoch", quantity))],
    }
    specs = _chosen(columns, known, points) if columns else [spec for specs in known.values() for spec in specs]
    note = "Medians over n runs, each the samples of its timed steps / the time they took."
    if not is_of_keys:
        note += f" Efficiency is speedup per added {gpu}; 100 % is perfect scaling."
    title = "Throughput" if is_of_keys else "Scaling"
    return table_of("scaling", title, " ".join([note, *scaling_foot(points)]), specs, points)


def _chosen(columns: Sequence[str], known: Mapping[str, list[Spec]], points: pd.DataFrame) -> list[Spec]:
    """The columns of that table, or of scaling.csv as they are, each with its own head; series first unless named elsewhere."""
    base = baseline_of(points)[0]
    names = [f"{name}_{base}" if name in OF_BASELINE else name for name in columns]
    specs: list[Spec] = []
    for name in dict.fromkeys(["series"] * ("series" not in names) + names):
        found = known.get(name) or ([] if name == "series" else [_plain(name, points)])
        for i, (column, cell) in enumerate(found):
            head = column.name if column.group else ""
            specs.append((column if i else replace(column, terminal=head, within="", always=True), cell))
    return specs


def _plain(name: str, points: pd.DataFrame) -> Spec:
    """`GPU h/epoch`, of gpu_h_per_epoch; shares in percent."""
    numeric = pd.api.types.is_numeric_dtype(points[name].dtype) and points[name].dtype != "boolean"
    text = percent if name.startswith("efficiency") else thousands if str(points[name].dtype) == "Int64" else quantity
    head = name.replace("_per_", "/").replace("_", " ").replace("gpu", "GPU")
    return Column(head, numeric=numeric, always=True), number_of(name, text) if numeric else words_of(name)


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


def training_table(points: pd.DataFrame, apart: Apart) -> Table:
    """What a whole training costs at each size, and which points' runs that is from; no rows where its epochs are not known."""
    known = points[points["train_s"].notna()]
    specs = [
        *point_columns(points, apart),
        (Column("n"), number_of("n", str)),
        (Column("epochs", terminal=None), number_of("train_epochs", thousands)),
        (Column("time"), number_of("train_s", time_words)),
        (Column("range", within=IN_BRACKETS, documents=False), _training_spread),
        (Column("node h"), number_of("node_h_to_train", quantity)),
        (Column("GPU h"), number_of("gpu_h_to_train", quantity)),
        (Column("GPU kWh"), number_of("gpu_kwh_to_train", quantity)),
        (Column("runs in", numeric=False), words_of("label")),
    ]
    note = "Means over n runs, without start, evaluation and checkpoints. Nodes count as a whole."
    epochs = f" of {count(int(known['train_epochs'].iloc[0]), 'epoch')}" if len(known) else ""
    return table_of("training", f"Cost of a training{epochs}", note, specs, known)


def _training_spread(row: Any) -> Cell:
    low, high = (row["train_s"] * row[f"epoch_s_{end}"] / row["epoch_s"] for end in ("low", "high"))
    return between_cell(low, high, time_words)


def laws(rows: pd.DataFrame, names: dict[str, str]) -> Table:
    """Laws of scaling and their parameters."""
    specs = [
        (Column("series", numeric=False), lambda row: text_cell(names.get(row["series"], ""))),
        (Column("over", numeric=False), lambda row: Cell(f"{row['smallest']}–{row['largest']} {row['over']}s", str(row["over"]))),
        (Column("law", numeric=False), lambda row: text_cell(LAW_NAMES.get(row["law"], row["law"]))),
        (Column("parameter", numeric=False), lambda row: text_cell(str(row["parameter"]).replace("_", " "))),
        (Column("value"), number_of("value", quantity)),
        (Column("95 %"), lambda row: between_cell(row["low"], row["high"], quantity)),
        (Column("off by, %"), number_of("left_out_percent", quantity)),
    ]
    note = "Fitted to throughput, separately over full nodes and over the GPUs of one node. Off by: the error at held-out points."
    return table_of("laws", "Scaling models", note, specs, rows)


def _against(baseline: str, group: str, points: pd.DataFrame) -> dict[str, list[Spec]]:
    share = f"efficiency_{baseline}"
    head = spread_head(points[f"{share}_interval"])

    def efficiency(row: Any) -> Cell:
        low, high = row[f"{share}_low"], row[f"{share}_high"]
        return number_cell(row[share], percent if pd.isna(low) else lambda value: percent_within(value, low, high))

    def ends(row: Any) -> Cell:
        return number_cell(row[f"{share}_low"], lambda low: percents(low, row[f"{share}_high"], "–"))

    speedup = Column("speedup", group, terminal=group, always=True), number_of(f"speedup_{baseline}", factor)
    shares: list[Spec] = [
        (Column("efficiency", group, within=" {}"), efficiency),
        (Column(head, group, within=IN_BRACKETS), ends),
    ]
    return {f"speedup_{baseline}": [speedup], share: shares}


def baseline_heads(points: pd.DataFrame) -> dict[str, str]:
    """Baseline, as columns end -> its head; a full node with its size where all series have the same, not where it is one GPU."""
    sizes = set(points["full_node_gpus"])
    node = {} if sizes == {1} else {"1node": f"vs 1 node of {sizes.pop()}" if len(sizes) == 1 else "vs 1 node"}
    return {"1gpu": f"vs 1 {unit_of(points)}", **node}


def baseline_of(points: pd.DataFrame) -> tuple[str, str]:
    """The baseline against which most of the first series is known, as columns end, and its head."""
    heads, first = baseline_heads(points), points[points["series"] == points["series"].iloc[0]]
    base = max(heads, key=lambda base: int(first[f"efficiency_{base}"].notna().sum()))
    return base, heads[base]


SPREAD_NOTE = (
    "Spread: the 95 % interval from six runs on, the range of the runs below that. That of ratios is from three runs on, "
    "for all pairs of values at once. It contains 1 if values differ by no more than chance."
)


def effect_table(axis: Axis, said: Sequence[str] = ()) -> Table:
    """Below it what it comes to, a sentence per size that was not `said` above all tables."""
    rows = pd.DataFrame([_effect_row(panel, value) for panel in axis.panels for value in panel.values])
    gpu, base = unit(axis.panels[0].device), _base_words(axis)
    specs: list[Spec] = [
        *size_columns(gpu)[:2],
        *((Column(name, numeric=False), words_of(f"other {name}")) for name in axis.panels[0].others),
        (Column(axis.name, numeric=axis.ordered), _value_cell),
        (Column("with it", numeric=False), words_of("also")),
        (Column("n"), number_of("n", str)),
        (Column("samples/s"), number_of("samples_per_s", quantity)),
        (Column("spread", within=IN_BRACKETS), between("samples_per_s", quantity)),
        (Column("times", base, terminal=base), number_of("ratio", "{:.3f}".format)),
        (Column("spread", base, within=IN_BRACKETS), between("ratio", "{:.3f}".format)),
        (Column("node h", "one epoch"), number_of("node_h_per_epoch", quantity)),
        (Column("waits for data", terminal="data"), number_of("data_wait_share", percent)),
    ]
    if "peak_memory_bytes" in rows:
        specs.append((Column("GB, at most", "memory of a rank"), number_of("peak_memory_bytes", giga)))
    note = " ".join([*(sentence for sentence in effect_sentences(axis) if sentence not in said), SPREAD_NOTE])
    return table_of(axis.stem, f"Effect of {axis.name}", note, specs, rows)


def _effect_row(panel: AxisPanel, value: AxisValue) -> dict[str, Any]:
    others = {f"other {name}": axis_text(each) for name, each in panel.others.items()}
    return {**value_row(panel, value), **others, "number": value.value if is_number(value.value) else None}


def _base_words(axis: Axis) -> str:
    """`against 16`; each panel's own where they differ."""
    bases = {panel.values[panel.base].text for panel in axis.panels}
    return f"against {bases.pop()}" if len(bases) == 1 else "against the base"


def _value_cell(row: Any) -> Cell:
    return Cell(str(row["value"]), str(row["value"]) if pd.isna(row["number"]) else float(row["number"]))


def plain_effects(found: Sequence[Axis]) -> list[dict[str, Any]]:
    """What report.json has of them: unknown is None."""
    return [
        {
            "key": axis.key,
            "joint": list(axis.joint),
            "panels": [_plain_panel(axis, panel) for panel in axis.panels],
            "interactions": list(axis.interactions),
        }
        for axis in found
    ]


def _plain_panel(axis: Axis, panel: AxisPanel) -> Mapping[str, Any]:
    return {
        "nodes": panel.nodes,
        "gpus_per_node": panel.gpus_per_node,
        "others": dict(panel.others),
        "base": panel.values[panel.base].value,
        "sentence": effect_sentence(axis, panel),
        "p_adjusted": panel.p,
        "is_sure": panel.is_sure,
        "in_blocks": [value.value for value in panel.in_blocks] if panel.in_blocks else None,
        "values": [{**value_row(panel, value), "value": value.value} for value in panel.values],
    }


LOSS = "loss"
"""Heading of its columns."""

accuracy_spread = between("accuracy", points)


def accuracy_table(frame: pd.DataFrame, apart: Apart) -> Table:
    """Points of which accuracy or loss is known; no rows where nothing was evaluated."""
    known = frame[frame["accuracy"].notna() | frame["loss_end"].notna()] if frame["accuracy"].notna().any() else frame[:0]
    specs: list[Spec] = [
        *point_columns(frame, apart),
        (Column("n"), number_of("eval_n", str)),
        (Column("accuracy"), accuracy_cell),
        (Column(spread_head(known["accuracy_interval"]), within=IN_BRACKETS), accuracy_spread),
        (Column("samples trained", terminal="trained"), trained_cell),
        (Column("evaluated", LOSS, terminal=None), number_of("eval_loss", quantity)),
        *_losses(),
    ]
    note = (
        "Medians over n runs, on the whole evaluation set. Points that trained different numbers of samples are not ranked. "
        f"{_loss_note(known)}"
    )
    return table_of("accuracy", "Accuracy", note, specs, known)


def losses(frame: pd.DataFrame, apart: Apart) -> Table:
    """The training loss of studies that evaluated nothing."""
    known = frame[frame["loss_end"].notna()] if frame["accuracy"].isna().all() else frame[:0]
    return table_of("losses", "Training loss", _loss_note(known), [*point_columns(frame, apart), *_losses()], known)


def _losses() -> list[Spec]:
    return [
        (Column("at the start", LOSS, terminal="loss: start"), number_of("loss_start", quantity)),
        (Column("at the end", LOSS, terminal="end"), number_of("loss_end", quantity)),
    ]


def to_accuracy(frame: pd.DataFrame, apart: Apart) -> Table:
    """How long each size takes to an accuracy, and its speedup beside the throughput's."""
    specs: list[Spec] = [
        *point_columns(frame, apart),
        (Column("accuracy"), number_of("target", lambda share: f"{points(share)} %")),
        (Column("reached", numeric=False, always=True), reached_cell),
        (Column("epochs"), number_of("epochs", lambda epochs: f"{epochs:g}")),
        (Column("time"), number_of("train_s", time_words)),
        (Column(spread_head(frame["interval"]), within=IN_BRACKETS), between("train_s", time_words)),
        (Column("node h"), number_of("node_h", quantity)),
        *_speedups("1gpu", f"{AGAINST}1 {unit_of(frame)}"),
        *_speedups("1node", f"{AGAINST}1 node"),
    ]
    note = (
        "Training time without evaluations, to the end of the first evaluated epoch that reaches the accuracy. "
        "Times are medians over runs, and unknown if half the runs did not reach it. "
        "Node hours are means, as they are billed, if all runs did. "
        f"The accuracy is {' or '.join(dict.fromkeys(frame['target_of'].dropna()))}."
    )
    return table_of("to_accuracy", "Time to accuracy", note, specs, frame)


AGAINST = "vs "
"""How the headings of speedups begin."""


def reached_cell(row: Any) -> Cell:
    """`5 of 6` runs reached the accuracy."""
    return Cell(f"{row['reached']} of {row['n']}", float(row["reached"]))


def _speedups(base: str, head: str) -> list[Spec]:
    return [
        (Column("to accuracy", head, terminal=head), number_of(f"speedup_{base}", factor)),
        (Column("throughput", head, terminal="samples/s"), number_of(f"throughput_{base}", factor)),
    ]


def _loss_note(known: pd.DataFrame) -> str:
    steps = sorted({int(each) for each in known["loss_steps"].dropna()})
    over = "step" if steps in ([], [1]) else f"{steps[-1]} steps" if len(steps) == 1 else f"{steps[0]} to {steps[-1]} steps"
    return f"Loss at the start and at the end: mean over ranks and the first and last {over}."


def accuracy_cell(row: Any) -> Cell:
    """`97.22 % (9,722 of 10,000)`"""
    if pd.isna(row["accuracy"]):
        return Cell(UNKNOWN, None)
    text = accuracy_words(row["accuracy"], row["eval_correct"], int(row["eval_samples"]))
    return Cell(text, float(row["accuracy"]))


def trained_cell(row: Any) -> Cell:
    """Samples, `640,000–650,000` where runs differ."""
    least, most = row["samples_trained"], row["samples_trained_most"]
    if pd.isna(least):
        return Cell(UNKNOWN, None)
    return Cell(thousands(int(least)) if pd.isna(most) else f"{thousands(int(least))}–{thousands(int(most))}", float(least))
