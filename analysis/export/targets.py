"""What shows runs elsewhere, by its own library: event files of TensorBoard, FOLDER/STUDY/POINT/rN, whose HParams page has
points beside means; offline runs of Weights & Biases, a project per study, for `wandb sync` to send from elsewhere.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from hpcddp.analysis.export.exported import ExportedRun, ExportedStudy
from hpcddp.analysis.util.files import environment, library

QUEUED = 10_000
"""Events in the writer's queue at most."""


def write_tensorboard(studies: Iterable[ExportedStudy], folder: Path) -> int:
    """Returns how many runs were written."""
    return sum(_write_events(run, folder / _plain(study.name)) for study in studies for run in study.runs)


def _write_events(run: ExportedRun, study: Path) -> int:
    event = library("tensorboard.compat.proto.event_pb2", "tensorboard").Event
    summary = library("tensorboard.compat.proto.summary_pb2", "tensorboard").Summary
    hparams = library("tensorboard.plugins.hparams.summary_v2", "tensorboard").hparams_pb
    text = library("tensorboard.plugins.text.summary_v2", "tensorboard").text_pb
    writer = library("tensorboard.summary.writer.event_file_writer", "tensorboard").EventFileWriter(
        str(study / _plain(run.label) / f"r{run.run}"), QUEUED
    )

    def scalar(name: str, value: float, step: int, unix_s: float) -> None:
        values = [summary.Value(tag=name, simple_value=value)]
        writer.add_event(event(wall_time=unix_s, step=step, summary=summary(value=values)))

    tags = ["| tag | |", "|---|---|", *(f"| {key} | {value.replace('|', '/')} |" for key, value in run.tags.items())]
    try:
        point = hparams(dict(run.params), trial_id=run.name, start_time_secs=run.start_unix_s)
        for each in (point, text("tags", "\n".join(tags))):
            own = summary.FromString(each.SerializeToString())  # the plugin's message as the writer's
            writer.add_event(event(wall_time=run.start_unix_s, step=0, summary=own))
        for series in run.series:
            for step, value, unix_s in zip(series.steps, series.values, series.unix_s, strict=True):
                scalar(series.name, value, step, unix_s)
        for name, value in run.summary.items():
            scalar(f"run/{name}", value, 0, run.end_unix_s)
    finally:
        writer.close()
    return 1


def _plain(name: str) -> str:
    """The name as UTF-8: a folder may have any bytes, the writer takes text only."""
    return name.encode("utf-8", "replace").decode()


LONGEST_TAG = 64
"""Characters; wandb refuses longer ones."""


def write_wandb(studies: Iterable[ExportedStudy], folder: Path) -> int:
    """Returns how many runs were written. Nothing is sent, and nothing is written elsewhere."""
    folder.mkdir(parents=True, exist_ok=True)
    scratch = (folder / ".scratch").resolve()
    places = dict.fromkeys(("WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR", "WANDB_ARTIFACT_DIR"), str(scratch))
    with environment(**places, WANDB_ERROR_REPORTING="false"):
        wandb = library("wandb", "wandb")
        try:
            return sum(_write_offline(wandb, study.name, run, folder.resolve()) for study in studies for run in study.runs)
        finally:
            wandb.teardown()
            shutil.rmtree(scratch, ignore_errors=True)


def _write_offline(wandb: Any, study: str, run: ExportedRun, folder: Path) -> int:
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


TARGETS: Mapping[str, tuple[Callable[[Iterable[ExportedStudy], Path], int], str]] = {
    "tensorboard": (write_tensorboard, "tensorboard --logdir {folder}"),
    "wandb": (write_wandb, "wandb sync {folder}/wandb/offline-run-*"),
}
"""Name -> what writes studies to a folder and returns how many runs, and the command that shows or sends them."""
