"""A study by the values of a key: points that differ in it alone side by side, each against one of them."""

from __future__ import annotations

from textwrap import wrap
from typing import Any

from hpcddp.analysis.study.axes import Axis, AxisPanel, axes, effect_rows
from hpcddp.analysis.study.axis_words import effect_sentences, judged_axes, times_words
from hpcddp.analysis.study.frames import runs_frame
from hpcddp.analysis.study.load import load_study
from hpcddp.analysis.study.scaling import scaling_frame
from hpcddp.analysis.util.wording import WIDE, quantity
from hpcddp.core.errors import UsageError
from hpcddp.core.run_root import Study
from hpcddp.core.schema import did_you_mean
from hpcddp.core.text import table

VALUES = 3
"""Columns of ratios with their intervals that a line has room for."""


def axis_of(study: Study, key: str) -> Axis:
    """What the key changes in the study; UsageError where no two of its points differ in that key alone."""
    records = load_study(study)
    runs = runs_frame(records)
    found = {axis.key: axis for axis in judged_axes(axes(runs, scaling_frame(runs, records.points, records.hold)))}
    if key not in found:
        raise UsageError(f"{study.name}: no points differ in `{key}` alone{did_you_mean(key, found)}")
    return found[key]


def by_plain(study: Study, axis: Axis) -> dict[str, Any]:
    """A row per point, for JSON; ratios are to the row's `base`."""
    return {"schema": 1, "study": study.name, "by": axis.key, "also": list(axis.joint), "points": list(effect_rows([axis]))}


def by_text(study: Study, axis: Axis) -> str:
    """A line per size and a column per value, then what may be claimed."""
    also = f" (with {', '.join(axis.joint)})" if axis.joint else ""
    lines = [f"{study.name} by {axis.key}{also}: throughput of each value as a ratio to the base", ""]
    values = list(dict.fromkeys(value.text for panel in axis.panels for value in panel.values))
    values = [text for text in values if any(panel.values[panel.base].text != text for panel in axis.panels)]
    for i in range(0, len(values), VALUES):
        heads = ("nodes x GPUs", "base", "samples/s", "runs", *values[i : i + VALUES])
        lines += [table(heads, [_row(panel, values[i : i + VALUES]) for panel in axis.panels], left=("nodes x GPUs",)), ""]
    return "\n".join([*lines, *(line for sentence in effect_sentences(axis) for line in wrap(sentence, WIDE))])


def _row(panel: AxisPanel, values: list[str]) -> list[str]:
    base, ratios = panel.values[panel.base], {value.text: panel.against_base(value) for value in panel.values}
    runs = sorted({len(value.rates) for value in panel.values})
    cells = [times_words(found).replace(" times", "") if (found := ratios.get(text)) else "-" for text in values]
    return [panel.where, base.text, quantity(base.rate), "-".join(map(str, dict.fromkeys((runs[0], runs[-1])))), *cells]
