"""A tracking database of MLflow, an experiment per study: FOLDER/mlflow.db."""

from __future__ import annotations

import itertools
import logging
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from hpcddp.analysis.export.exported import ExportedRun, ExportedStudy
from hpcddp.analysis.util.library import environment, library

EXTRA = "mlflow"

AT_ONCE = 1000
"""Metrics that one call may log."""

LONGEST = 5000
"""Characters of a tag, and of a parameter 6000."""


def write(studies: Iterable[ExportedStudy], folder: Path) -> int:
    """Returns how many runs were written."""
    folder.mkdir(parents=True, exist_ok=True)
    with environment(MLFLOW_DISABLE_TELEMETRY="true", DO_NOT_TRACK="true"):
        library("sqlalchemy", EXTRA)
        library("alembic", EXTRA)
        mlflow, entities = library("mlflow.tracking", EXTRA), library("mlflow.entities", EXTRA)
        for name in ("mlflow", "alembic"):
            logging.getLogger(name).setLevel(logging.WARNING)
        client = mlflow.MlflowClient(tracking_uri=_uri(folder), registry_uri=_uri(folder))
        return sum(_write_study(client, entities, study, folder) for study in studies)


def view(folder: Path) -> str:
    """The command that shows them."""
    return f"mlflow ui --backend-store-uri sqlite:///{folder}/mlflow.db"


def _uri(folder: Path) -> str:
    return f"sqlite:///{folder.resolve()}/mlflow.db"


def _write_study(client: Any, entities: Any, study: ExportedStudy, folder: Path) -> int:
    experiment = client.create_experiment(_plain(study.name), artifact_location=(folder / "artifacts").resolve().as_uri())
    return sum(_write_run(client, entities, experiment, run) for run in study.runs)


def _write_run(client: Any, entities: Any, experiment: str, run: ExportedRun) -> int:
    tags = {key: value[:LONGEST] for key, value in run.tags.items()}
    created = client.create_run(experiment, start_time=int(run.start_unix_s * 1e3), run_name=_plain(run.name), tags=tags)
    params = [entities.Param(key, str(value)[:LONGEST]) for key, value in run.params.items()]
    client.log_batch(created.info.run_id, params=params)
    metrics = (entities.Metric(name, value, int(unix_s * 1e3), step) for name, value, unix_s, step in _metrics(run))
    while some := list(itertools.islice(metrics, AT_ONCE)):
        client.log_batch(created.info.run_id, metrics=some)
    client.set_terminated(created.info.run_id, "FINISHED", int(run.end_unix_s * 1e3))
    return 1


def _metrics(run: ExportedRun) -> Iterator[tuple[str, float, float, int]]:
    """Name, value, time, step."""
    for series in run.series:
        for step, value, unix_s in zip(series.steps, series.values, series.unix_s, strict=True):
            yield series.name, value, unix_s, step
    for name, value in run.summary.items():
        yield f"run/{name}", value, run.end_unix_s, 0


def _plain(text: str) -> str:
    """Printable ASCII: names come from folders, which may have any bytes."""
    return re.sub(r"[^ -~]", "_", text)[:250]
