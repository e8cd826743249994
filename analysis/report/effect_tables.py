"""The tables of effects: one per key, a row per value, and the same as plain values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd

from hpcddp.analysis.report.cells import Spec, between, giga, number_of, size_columns, table_of, words_of
from hpcddp.analysis.report.table import Cell, Column, Table
from hpcddp.analysis.study.axes import Axis, AxisPanel, AxisValue, axis_text, is_number, value_row
from hpcddp.analysis.study.axis_words import effect_sentence, effect_sentences
from hpcddp.analysis.util.wording import percent, quantity, unit

TITLE = "Effect of"

NOTE = (
    "Spread: the 95 % interval from six runs on, the range of the runs below that. That of ratios from three runs on, "
    "for all pairs of values at once; it reaches 1 where values do not differ by more than chance."
)


def effect_tables(found: Sequence[Axis], said: Sequence[str]) -> dict[str, Callable[[], Table]]:
    """By the stem of their files; `said`: sentences that stand above all tables."""
    return {axis.stem: lambda axis=axis: effect_table(axis, said) for axis in found}  # type: ignore[misc]


def effect_table(axis: Axis, said: Sequence[str] = ()) -> Table:
    """Below it what it comes to, a sentence per size that was not said."""
    rows = pd.DataFrame([_row(panel, value) for panel in axis.panels for value in panel.values])
    gpu, base = unit(axis.panels[0].device), _base_words(axis)
    specs: list[Spec] = [
        *size_columns(gpu)[:2],
        *((Column(name, numeric=False), words_of(f"other {name}")) for name in axis.panels[0].others),
        (Column(axis.name, numeric=axis.ordered), _value),
        (Column("with it", numeric=False), words_of("also")),
        (Column("n"), number_of("n", str)),
        (Column("samples/s"), number_of("samples_per_s", quantity)),
        (Column("spread", within=" ({})"), between("samples_per_s_low", "samples_per_s_high", quantity)),
        (Column("times", base, terminal=base), number_of("ratio", "{:.3f}".format)),
        (Column("spread", base, within=" ({})"), between("ratio_low", "ratio_high", "{:.3f}".format)),
        (Column("node h", "one epoch"), number_of("node_h_per_epoch", quantity)),
        (Column("waits for data", terminal="data"), number_of("data_wait_share", percent)),
    ]
    if "peak_memory_bytes" in rows:
        specs.append((Column("GB, at most", "memory of a rank"), number_of("peak_memory_bytes", giga)))
    note = " ".join([*(sentence for sentence in effect_sentences(axis) if sentence not in said), NOTE])
    return table_of(axis.stem, f"{TITLE} {axis.name}", note, specs, rows)


def _row(panel: AxisPanel, value: AxisValue) -> dict[str, Any]:
    others = {f"other {name}": axis_text(each) for name, each in panel.others.items()}
    number = value.value if is_number(value.value) else None
    return {**value_row(panel, value), **others, "number": number}


def _base_words(axis: Axis) -> str:
    """`against 16`; each panel's own where they differ."""
    bases = {panel.values[panel.base].text for panel in axis.panels}
    return f"against {bases.pop()}" if len(bases) == 1 else "against the base"


def _value(row: Any) -> Cell:
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
