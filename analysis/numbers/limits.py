"""Full training beside its two limits: what the trainer reaches with a batch that is there already, what the loader delivers."""

from __future__ import annotations

import json

import pandas as pd

from hpcddp.analysis.numbers.series import Apart, key_text, words

INPUTS = ("full", "synthetic", "io")

LAYOUT = {"series": "string", "nodes": "Int64", "gpus_per_node": "Int64", "device": "string"}
LIMITS_COLUMNS = {**LAYOUT, **dict.fromkeys(INPUTS, "Float64")}
"""Samples per second by `measure.input`; NA has no run that counts."""


def limits_frame(scaling: pd.DataFrame, apart: Apart) -> pd.DataFrame:
    """A row per layout with limited input, its series in words; none where a study has one input only."""
    rows = []
    several = scaling["input"].nunique() > 1
    alike = scaling["series"].map(_whatever_input)
    for _, points in scaling.groupby([alike, "nodes", "gpus_per_node"], sort=False):
        if several and (points["input"] != "full").any():
            rates = dict(zip(points["input"], points["samples_per_s"], strict=True))
            rows.append({**points.iloc[0][list(LAYOUT)], "series": _name(points, apart), **rates})
    return pd.DataFrame(rows, columns=list(LIMITS_COLUMNS)).astype(LIMITS_COLUMNS)


def _whatever_input(series: str) -> str:
    return key_text({name: value for name, value in json.loads(series).items() if name != "measure.input"})


def _name(points: pd.DataFrame, apart: Apart) -> str:
    """What tells the series from others besides its input."""
    return words({name: value for name, value in apart[points["series"].iloc[0]].items() if name != "input"})
