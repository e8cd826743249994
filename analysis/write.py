"""The report's files: deterministic bytes, no absolute paths, figures of an earlier analysis never left behind."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from hpcddp.analysis.findings import Findings
from hpcddp.analysis.numbers.frames import RUN_COLUMNS
from hpcddp.analysis.numbers.scaling import BREAKDOWN_COLUMNS, SCALING_COLUMNS
from hpcddp.analysis.numbers.series import full_names
from hpcddp.errors import UsageError

POINT = ["label", "series", "nodes", "gpus_per_node", "gpus", "ranks", "n"]
BREAKDOWN = list(BREAKDOWN_COLUMNS)
SCALING = [name for name in SCALING_COLUMNS if name not in BREAKDOWN or name in ("step_s", "step_hook_s")]
RUNS = [name for name in RUN_COLUMNS if name != "step_ns"]


def write_tables(folder: Path, found: Findings) -> list[str]:
    """scaling.csv, breakdown.csv, runs.csv, and those of the others that have rows; returns their names."""
    names = full_names(found.apart)
    tables = {
        "scaling.csv": named(found.scaling, names)[SCALING],
        "breakdown.csv": named(found.scaling, names)[[*POINT, *BREAKDOWN]],
        "runs.csv": named(found.runs, names).assign(step_s=found.runs["step_ns"] / 1e9)[[*RUNS, "step_s"]],
    }
    others = {"limits.csv": found.limits, "stragglers.csv": found.stragglers, "buckets.csv": found.buckets}
    others |= {"comm.csv": found.collectives, "comm_fit.csv": found.fits}
    others |= {"fits.csv": named(found.laws, names), "outliers.csv": named(found.outliers, names)}
    tables |= {name: table for name, table in others.items() if len(table)}
    for name, table in tables.items():
        _write(folder / name, csv_text(table))
    for name in set(others) - set(tables):
        (folder / name).unlink(missing_ok=True)  # of an earlier analysis
    return list(tables)


def write_texts(folder: Path, texts: Mapping[str, str | None]) -> list[str]:
    """Files by name; None removes that of an earlier analysis. Returns the names of those that are there."""
    for name, text in texts.items():
        if text is None:
            (folder / name).unlink(missing_ok=True)
        else:
            _write(folder / name, text)
    return [name for name, text in texts.items() if text is not None]


def csv_text(table: pd.DataFrame) -> str:
    """CSV; unknown is an empty cell."""
    return str(table.to_csv(index=False, float_format="%.9g", lineterminator="\n"))


def named(table: pd.DataFrame, names: Mapping[str, str]) -> pd.DataFrame:
    """The table with its series in words."""
    return table.assign(series=table["series"].map(lambda key: names.get(key, ""), na_action="ignore"))


def plain_rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows as JSON-able dicts; unknown is None, every float finite."""
    return [{str(name): _plain(value) for name, value in row.items()} for row in table.to_dict(orient="records")]


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
        file.write_text(text, encoding="utf-8", errors="replace")  # half a surrogate pair, from a damaged record, is no UTF-8
    except OSError as error:
        raise UsageError(f"{file} cannot be written ({error.strerror}); name another folder with -o") from error
