"""Offline runs of Weights & Biases, a project per study: FOLDER/wandb/offline-run-*, for `wandb sync` to send from elsewhere."""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hpcddp.analysis.export.exported import ExportedRun, ExportedStudy
from hpcddp.analysis.util.output import environment, library

EXTRA = "wandb"

LONGEST_TAG = 64
"""Characters; wandb refuses longer ones."""


def write(studies: Iterable[ExportedStudy], folder: Path) -> int:
    """Returns how many runs were written. Nothing is sent, and nothing is written elsewhere."""
    folder.mkdir(parents=True, exist_ok=True)
    scratch = (folder / ".scratch").resolve()
    places = dict.fromkeys(("WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR", "WANDB_ARTIFACT_DIR"), str(scratch))
    with environment(**places, WANDB_ERROR_REPORTING="false"):
        wandb = library("wandb", EXTRA)
        try:
            return sum(_write_run(wandb, study.name, run, folder.resolve()) for study in studies for run in study.runs)
        finally:
            wandb.teardown()
            shutil.rmtree(scratch, ignore_errors=True)


def view(folder: Path) -> str:
    """The command that sends them."""
    return f"wandb sync {folder}/wandb/offline-run-*"


def _write_run(wandb: Any, study: str, run: ExportedRun, folder: Path) -> int:
    project = re.sub(r"[^A-Za-z0-9_.-]", "_", study)[:128]
    recorded = wandb.init(
        project=project,
        group=run.label,
        name=run.name,
        id=hashlib.sha256(f"{study}/{run.name}/{run.tags['attempt']}".encode("utf-8", "replace")).hexdigest()[:16],
        config=dict(run.params),
        tags=[run.tags[key][:LONGEST_TAG] for key in ("cluster", "env_id", "state") if key in run.tags],
        notes="\n".join(f"{key}: {value}" for key, value in run.tags.items()),
        reinit="create_new",
        settings=_settings(wandb, folder),
    )
    try:
        recorded.config.update({"tags": dict(run.tags)})
        for step, row in sorted(_rows(run).items()):
            recorded.log(row, step=step)
        recorded.summary.update({f"run/{name}": value for name, value in run.summary.items()})
    finally:
        recorded.finish()
    return 1


def _rows(run: ExportedRun) -> dict[int, dict[str, float]]:
    """Step -> its values and when it ended."""
    rows: dict[int, dict[str, float]] = {}
    for series in run.series:
        for step, value, unix_s in zip(series.steps, series.values, series.unix_s, strict=True):
            rows.setdefault(step, {"_timestamp": unix_s})[series.name] = value
    return rows


def _settings(wandb: Any, folder: Path) -> Any:
    """Without information on the exporting machine: the runs were on another."""
    return wandb.Settings(
        mode="offline",
        root_dir=str(folder),
        console="off",
        silent=True,
        disable_git=True,
        disable_code=True,
        x_disable_meta=True,
        x_disable_stats=True,
        x_disable_machine_info=True,
        x_save_requirements=False,
    )
