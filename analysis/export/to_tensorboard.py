"""Event files as TensorBoard's own writer makes them: FOLDER/STUDY/POINT/rN. Its HParams page has points beside means."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from hpcddp.analysis.export.exported import ExportedRun, ExportedStudy
from hpcddp.analysis.util.output import library

EXTRA = "tensorboard"

QUEUED = 10_000
"""Events in the writer's queue at most."""


def write(studies: Iterable[ExportedStudy], folder: Path) -> int:
    """Returns how many runs were written."""
    return sum(_write_run(run, folder / _plain(study.name)) for study in studies for run in study.runs)


def view(folder: Path) -> str:
    """The command that shows them."""
    return f"tensorboard --logdir {folder}"


def _write_run(run: ExportedRun, study: Path) -> int:
    event = library("tensorboard.compat.proto.event_pb2", EXTRA).Event
    summary = library("tensorboard.compat.proto.summary_pb2", EXTRA).Summary
    hparams = library("tensorboard.plugins.hparams.summary_v2", EXTRA).hparams_pb
    text = library("tensorboard.plugins.text.summary_v2", EXTRA).text_pb
    writer = library("tensorboard.summary.writer.event_file_writer", EXTRA).EventFileWriter(
        str(study / _plain(run.label) / f"r{run.run}"), QUEUED
    )

    def scalar(name: str, value: float, step: int, unix_s: float) -> None:
        values = [summary.Value(tag=name, simple_value=value)]
        writer.add_event(event(wall_time=unix_s, step=step, summary=summary(value=values)))

    try:
        point = hparams(dict(run.params), trial_id=run.name, start_time_secs=run.start_unix_s)
        for each in (point, text("tags", _table(run.tags))):
            writer.add_event(event(wall_time=run.start_unix_s, step=0, summary=_same(each, summary)))
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


def _same(message: Any, summary: Any) -> Any:
    """The plugins' message as the writer's."""
    return summary.FromString(message.SerializeToString())


def _table(tags: Mapping[str, str]) -> str:
    """Markdown."""
    return "\n".join(["| tag | |", "|---|---|", *(f"| {key} | {value.replace('|', '/')} |" for key, value in tags.items())])
