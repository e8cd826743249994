"""The tables of what changes it: one per key, a row per value, and the same as plain values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd

from hpcddp.analysis.report.cells import Spec, giga, number_of, table_of, words_of
from hpcddp.analysis.report.table import UNKNOWN, Cell, Column, Table
from hpcddp.analysis.study.axes import Axis, AxisPanel, AxisValue, axis_text, is_number, value_row
from hpcddp.analysis.study.axis_words import effect_sentence, effect_sentences
from hpcddp.analysis.util.wording import percent, quantity, unit
from hpcddp.core.text import count

TITLE = "What changes it"

LINES_AT_MOST = 4
"""Keys of which the terminal has a sentence; the page has all sentences."""


def effect_lines(found: Sequence[Axis]) -> list[str]:
    """For the terminal: `effect: At 1x4, workers ...`, of each key the largest size."""
    lines = [f"effect: {effect_sentence(axis, axis.panels[-1])}" for axis in found[:LINES_AT_MOST]]
    more = sum(len(axis.panels) for axis in found) - len(lines)
    return [*lines, f"effect: {count(more, 'more comparison')}: effects.csv and index.html have them"] if more else lines


def effect_tables(found: Sequence[Axis]) -> dict[str, Callable[[], Table]]:
    """By the stem of their files."""
    return {axis.stem: lambda axis=axis: effect_table(axis) for axis in found}  # type: ignore[misc]


def effect_table(axis: Axis) -> Table:
    """Below it what it comes to, a sentence per size."""
    rows = pd.DataFrame([_row(panel, value) for panel in axis.panels for value in panel.values])
    gpu, base = unit(axis.panels[0].device), _base_words(axis)
    specs: list[Spec] = [
        (Column("nodes"), number_of("nodes", str)),
        (Column(f"{gpu}s/node"), number_of("gpus_per_node", str)),
        *((Column(name, numeric=False), words_of(f"other {name}")) for name in axis.panels[0].others),
        (Column(axis.name, numeric=axis.ordered), _value),
        (Column("with it", numeric=False), words_of("also")),
        (Column("n"), number_of("n", str)),
        (Column("samples/s"), number_of("samples_per_s", quantity)),
        (Column("spread"), _between("samples_per_s_low", "samples_per_s_high", quantity)),
        (Column("times", base), number_of("ratio", _times)),
        (Column("spread", base), _between("ratio_low", "ratio_high", _times)),
        (Column("node h", "one epoch"), number_of("node_h_per_epoch", quantity)),
        (Column("waits for data"), number_of("data_wait_share", percent)),
    ]
    if "peak_memory_bytes" in rows:
        specs.append((Column("GB, at most", "memory of a rank"), number_of("peak_memory_bytes", giga)))
    spread = "Spread: the 95 % interval from six runs on, the range of the runs below that. Node hours: means."
    note = " ".join([*effect_sentences(axis), spread])
    return table_of(axis.stem, f"{TITLE}: {axis.name}", note, specs, rows)


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


def _times(share: float) -> str:
    return f"{share:.3f}"


def _between(low: str, high: str, text: Callable[[float], str]) -> Callable[[Any], Cell]:
    def cell(row: Any) -> Cell:
        if pd.isna(row[low]) or pd.isna(row[high]):
            return Cell(UNKNOWN, None)
        return Cell(f"{text(row[low])}–{text(row[high])}", float(row[low]))

    return cell


def plain_effects(found: Sequence[Axis]) -> list[dict[str, Any]]:
    """What report.json has of them: unknown is None."""
    return [
        {
            "key": axis.key,
            "joint": list(axis.joint),
            "panels": [
                _plain_panel(panel, sentence) for panel, sentence in zip(axis.panels, effect_sentences(axis), strict=True)
            ],
        }
        for axis in found
    ]


def _plain_panel(panel: AxisPanel, sentence: str) -> Mapping[str, Any]:
    return {
        "nodes": panel.nodes,
        "gpus_per_node": panel.gpus_per_node,
        "others": dict(panel.others),
        "base": panel.values[panel.base].value,
        "sentence": sentence,
        "values": [{**value_row(panel, value), "value": value.value} for value in panel.values],
    }
