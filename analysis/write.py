"""The report's files: deterministic bytes, no absolute paths, figures of an earlier analysis never left behind."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from hpcddp.analysis.frames import RUN_COLUMNS
from hpcddp.analysis.scaling import SCALING_COLUMNS
from hpcddp.errors import UsageError

BREAKDOWN = [name for name in SCALING_COLUMNS if name.endswith("_s") and not name.startswith("samples")]
"""Seconds per step: the step, its parts in order and what they leave of it."""

SCALING = [name for name in SCALING_COLUMNS if name not in BREAKDOWN or name == "step_s"]
POINT = ["label", "series", "nodes", "gpus_per_node", "ranks", "n"]
RUNS = [name for name in RUN_COLUMNS if name != "step_ns"]


def write_tables(folder: Path, runs: pd.DataFrame, scaling: pd.DataFrame, names: Mapping[str, str]) -> list[str]:
    """scaling.csv, breakdown.csv and runs.csv; returns their names."""
    tables = {
        "scaling.csv": scaling[SCALING],
        "breakdown.csv": scaling[[*POINT, *BREAKDOWN]],
        "runs.csv": runs.assign(step_s=runs["step_ns"] / 1e9)[[*RUNS, "step_s"]],
    }
    for name, table in tables.items():
        _write(folder / name, csv_text(table, names))
    return list(tables)


def csv_text(table: pd.DataFrame, names: Mapping[str, str]) -> str:
    """CSV with the series in words; unknown is an empty cell."""
    named = table.assign(series=table["series"].map(lambda key: names.get(key, ""), na_action="ignore"))
    return str(named.to_csv(index=False, float_format="%.9g", lineterminator="\n"))


def plain_rows(table: pd.DataFrame, names: Mapping[str, str]) -> list[dict[str, Any]]:
    """Rows as JSON-able dicts; unknown is None, every float finite."""
    rows = table.assign(series=table["series"].map(names)).to_dict(orient="records")
    return [{str(name): _plain(value) for name, value in row.items()} for row in rows]


def write_plain(file: Path, plain: Mapping[str, Any]) -> None:
    """JSON, two spaces, sorted keys."""
    _write(file, json.dumps(plain, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n")


def _plain(value: Any) -> Any:
    if value is pd.NA or value is None or (isinstance(value, float) and not math.isfinite(value)):
        return None
    return value


def _write(file: Path, text: str) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{file} cannot be written ({error.strerror}); name another folder with -o") from error
