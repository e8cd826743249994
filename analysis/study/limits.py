"""Full training beside its two limits: what the trainer reaches with a batch that is there already, what the loader delivers."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pandas as pd

from hpcddp.analysis.study.series import Apart, key_text, words

INPUTS = ("full", "synthetic", "io")

LAYOUT = {"series": "string", "nodes": "Int64", "gpus_per_node": "Int64", "device": "string"}
LIMITS_COLUMNS = {**LAYOUT, **dict.fromkeys(INPUTS, "Float64")}
"""Samples per second by `measure.input`; NA where no run counts."""


def limits_frame(scaling: pd.DataFrame, apart: Apart) -> pd.DataFrame:
    """A row per layout that was measured with `synthetic` or `io` input, too; none where a study has one kind of input only."""
    rows = []
    several = scaling["input"].nunique() > 1
    for _, points in _alike(scaling):
        if several and (points["input"] != "full").any():
            rows.append({**points.iloc[0][list(LAYOUT)], "series": _name(points, apart), **_rates(points)})
    return pd.DataFrame(rows, columns=list(LIMITS_COLUMNS)).astype(LIMITS_COLUMNS)


Rates = dict[tuple[str, int, int], dict[str, float]]
"""(Series as `whatever_input` has it, nodes, GPUs per node) -> samples per second by `measure.input`."""


def rates_by_input(scaling: pd.DataFrame) -> Rates:
    """Of all layouts."""
    return {key: _rates(points) for key, points in _alike(scaling)}


def whatever_input(series: str) -> str:
    """The key that a series shares with those that differ from it only in `measure.input`."""
    return key_text({name: value for name, value in json.loads(series).items() if name != "measure.input"})


def _alike(scaling: pd.DataFrame) -> Iterable[tuple[Any, pd.DataFrame]]:
    return scaling.groupby([scaling["series"].map(whatever_input), "nodes", "gpus_per_node"], sort=False)


def _rates(points: pd.DataFrame) -> dict[str, float]:
    return dict(zip(points["input"], points["samples_per_s"], strict=True))


def _name(points: pd.DataFrame, apart: Apart) -> str:
    """What distinguishes the series from others, besides its input."""
    return words({name: value for name, value in apart[points["series"].iloc[0]].items() if name != "input"})
