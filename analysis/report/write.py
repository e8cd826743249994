"""The report's files: deterministic bytes, no absolute paths, figures of an earlier analysis never left behind."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from hpcddp.analysis.runs.readings import FIGURES
from hpcddp.analysis.study.axes import effect_rows
from hpcddp.analysis.study.frames import ACCURACY_OF_RUN, RUN_COLUMNS
from hpcddp.analysis.study.scaling import BREAKDOWN_COLUMNS, SCALING_COLUMNS
from hpcddp.analysis.study.series import full_names
from hpcddp.analysis.util.failures import Failures
from hpcddp.analysis.util.output_files import write_text
from hpcddp.analysis.verdicts.findings import Findings

POINT = ["label", "series", "nodes", "gpus_per_node", "gpus", "ranks", "n"]
BREAKDOWN = list(BREAKDOWN_COLUMNS)
SCALING = [name for name in SCALING_COLUMNS if name not in BREAKDOWN or name in ("step_s", "step_hook_s")]
RUNS = [name for name in RUN_COLUMNS if name not in ("timed_ns", "step_ns", *FIGURES, *ACCURACY_OF_RUN)]
RUNS += ["step_s", *FIGURES, *ACCURACY_OF_RUN]


def write_tables(folder: Path, found: Findings, failures: Failures) -> list[str]:
    """scaling.csv, breakdown.csv, runs.csv, readings.csv, and the others that have rows; returns the names of those written."""
    names = full_names(found.apart)
    tables = {
        "scaling.csv": lambda: named(found.scaling, names)[SCALING],
        "breakdown.csv": lambda: named(found.scaling, names)[[*POINT, *BREAKDOWN]],
        "runs.csv": lambda: named(found.runs, names).assign(step_s=found.runs["step_ns"] / 1e9)[RUNS],
    }
    if len(found.readings):
        tables["readings.csv"] = lambda: named(found.readings, names)
    others = {"limits.csv": found.limits, "stragglers.csv": found.stragglers, "buckets.csv": found.buckets}
    others |= {"comm.csv": found.collectives, "comm_fit.csv": found.fits}
    others |= {"epochs.csv": named(found.epochs, names), "to_accuracy.csv": named(found.targets, names)}
    others |= {"effects.csv": pd.DataFrame(effect_rows(found.effects))}
    others |= {"fits.csv": named(found.laws, names), "outliers.csv": named(found.outliers, names)}
    texts = {name: failures.contain(name, lambda make=make: csv_text(make()), None) for name, make in tables.items()}  # type: ignore[misc]
    texts |= {name: csv_text(table) if len(table) else None for name, table in others.items()}
    return write_texts(folder, {**texts, "readings.csv": texts.get("readings.csv")}, failures)


def write_texts(folder: Path, texts: Mapping[str, str | None], failures: Failures) -> list[str]:
    """Files by name; None removes that of an earlier analysis. Returns the names of those that are written."""
    for name in (name for name, text in texts.items() if text is None):
        with contextlib.suppress(OSError):
            (folder / name).unlink(missing_ok=True)
    given = {name: text for name, text in texts.items() if text is not None}
    return [name for name, text in given.items() if failures.contain(name, partial(_written, folder / name, text), False)]


def _written(file: Path, text: str) -> bool:
    write_text(file, text)
    return True


def csv_text(table: pd.DataFrame) -> str:
    """CSV; unknown is an empty cell."""
    return str(table.to_csv(index=False, float_format="%.9g", lineterminator="\n"))


def named(table: pd.DataFrame, names: Mapping[str, str]) -> pd.DataFrame:
    """The table with its series in words."""
    return table.assign(series=table["series"].map(lambda key: names.get(key, ""), na_action="ignore"))


def plain_rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows as JSON-able dicts; unknown is None, every float finite."""
    return [{str(name): _plain(value) for name, value in row.items()} for row in table.to_dict(orient="records")]


def _plain(value: Any) -> Any:
    if value is pd.NA or value is None or (isinstance(value, float) and not math.isfinite(value)):
        return None
    return value
