"""What is exported of a run: its point, what it was measured to do, and its steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from hpcddp.analysis.records.attempts import AttemptRecords, read_attempts
from hpcddp.analysis.records.epochs import Epoch
from hpcddp.analysis.records.json_files import read_launch, read_training_end
from hpcddp.analysis.records.rows import Rejected
from hpcddp.analysis.records.steps import Floats, losses_e9, samples_of_steps
from hpcddp.analysis.runs.resources import FIGURES
from hpcddp.analysis.runs.run import Run
from hpcddp.analysis.runs.step_times import batch_of_steps
from hpcddp.analysis.study.frames import ACCURACY_OF_RUN, RUN_COLUMNS, runs_frame
from hpcddp.analysis.study.load import load_study
from hpcddp.core.launch_record import LaunchRecord
from hpcddp.core.point import flat_keys
from hpcddp.core.run_root import RunKey, Study

SUMMARY = (
    *("samples_per_s", "steady_steps", "step_ci_percent", "warmup_detected_steps"),
    *(name for name in RUN_COLUMNS if name.endswith("_s") and name not in ("samples_per_s", "clock_error_s", *FIGURES)),
    *("flops_per_s_per_gpu", "share_of_peak", "peak_memory_bytes", "energy_j_per_1000_samples"),
    *("loss_first", "loss_last", "eval_samples", "eval_correct"),
    *(name for name, kind in FIGURES.items() if kind != "string"),
    *(name for name, kind in ACCURACY_OF_RUN.items() if kind != "boolean"),
)
"""Columns of runs_frame; `step_s` stands before them."""


@dataclass(frozen=True)
class Series:
    """A value per step; steps that were not measured are left out."""

    name: str
    steps: tuple[int, ...]
    values: tuple[float, ...]
    unix_s: tuple[float, ...]
    """When each step ended: its attempt's start and the durations of its steps since."""


@dataclass(frozen=True, kw_only=True)
class ExportedRun:
    """A run that is done, whether it counts or not."""

    label: str
    run: int
    params: Mapping[str, str | int | float | bool]
    """The point, keys as a sweep's axes name them; what is not set is left out."""
    tags: Mapping[str, str]
    """`cluster`, `env_id`, `gpu`, `attempt`; `state` (counts or rejected) and, of a rejected one, `rejected` with the reason."""
    summary: Mapping[str, float]
    """Means over the steady steps and ranks, seconds; what was not measured is left out."""
    series: tuple[Series, ...]
    """`step_s` (mean over ranks, or between boundaries that they share) and `samples_per_s`, of all steps, warm-up too; `loss`,
    of all (records without losses in their rows: of the first and the last); of a training `epoch/accuracy` and the like."""
    start_unix_s: float

    @property
    def name(self) -> str:
        return str(RunKey(self.label, self.run))

    @property
    def end_unix_s(self) -> float:
        return max((each.unix_s[-1] for each in self.series if each.unix_s), default=self.start_unix_s)


@dataclass(frozen=True)
class ExportedStudy:
    """One study's training runs, by label and number. The iterator reads one run at a time."""

    name: str
    """Of its folder."""
    runs: Iterator[ExportedRun]
    done: int
    missing: int
    """Runs that are not done and are not exported."""
    unknown: int
    """Runs whose point.json is damaged or missing, so that their parameters are unknown."""


def exported(study: Study) -> ExportedStudy:
    """HpcddpError where study.json is damaged."""
    records = load_study(study)
    rows = runs_frame(records).to_dict(orient="records")
    done = [(run, row) for run, row in zip(records.runs, rows, strict=True) if run.state != "missing" and run.trains]
    missing = sum(run.state == "missing" for run in records.runs)
    unknown = sum(run.state != "missing" and run.point is None for run in records.runs)
    exports = (_exported(study, run, row) for run, row in done)
    return ExportedStudy(study.folder.resolve().name, exports, len(done), missing, unknown)


def _exported(study: Study, run: Run, row: Mapping[Any, Any]) -> ExportedRun:
    assert run.point is not None
    attempt = study.run_dir(*run.key) / str(run.attempt)
    parts = []
    if run.step_ns is not None:  # load_study has read its records without an error
        parts = read_attempts(attempt, read_launch(attempt, run.point), read_training_end(attempt), run.point, [])
    measured = {"step_s": None if run.step_ns is None else run.step_ns / 1e9, **{name: row[name] for name in SUMMARY}}
    measured["accuracy"] = run.eval_correct / run.eval_samples if run.eval_correct is not None and run.eval_samples else None
    tags = {"cluster": run.point.cluster, "env_id": run.env_id, "gpu": run.gpu, "attempt": run.attempt, "state": run.state}
    return ExportedRun(
        label=run.label,
        run=run.run,
        params={
            key: value if isinstance(value, str | int | float) else str(value)
            for key, value in flat_keys(run.point).items()
            if value is not None
        },
        tags={key: value for key, value in {**tags, "rejected": run.reason}.items() if value},
        summary={name: float(value) for name, value in measured.items() if value is not None and not pd.isna(value)},
        series=() if not parts else _series(run, parts),
        start_unix_s=_start_unix_s(parts[0].launch if parts else _launch_or_nothing(attempt, run)),
    )


def _launch_or_nothing(attempt: Path, run: Run) -> LaunchRecord | None:
    """None where it cannot be read."""
    try:
        return read_launch(attempt, run.point)
    except Rejected:
        return None


def _start_unix_s(launch: LaunchRecord | None) -> float:
    return launch.started_unix_ns / 1e9 if launch and launch.started_unix_ns is not None else 0.0


def _series(run: Run, parts: Sequence[AttemptRecords]) -> tuple[Series, ...]:
    assert run.global_batch is not None
    step_s = np.concatenate([part.steps.step_ns for part in parts]) / 1e9
    numbers = np.concatenate([part.steps.step for part in parts])
    unix_s = np.concatenate([_start_unix_s(part.launch) + np.cumsum(np.nan_to_num(part.steps.step_ns / 1e9)) for part in parts])
    batches = [samples_of_steps(part.steps, batch_of_steps(part.steps.step, run.epochs, run.global_batch)) for part in parts]
    rate = np.divide(np.concatenate(batches), step_s, out=np.full_like(step_s, np.nan), where=step_s > 0)
    loss = np.concatenate([losses_e9(part.steps) for part in parts]) / 1e9
    for place, end in ((0, run.loss_first), (-1, run.loss_last)):
        loss[place] = end if np.isnan(loss[place]) and end is not None else loss[place]
    return (
        *(_known(name, numbers, values, unix_s) for name, values in _named(step_s, rate, loss)),
        *_epochs(run, numbers, unix_s),
    )


def _epochs(run: Run, numbers: np.ndarray[Any, Any], unix_s: Floats) -> Iterator[Series]:
    """A value per epoch of a training, at its last step; `epoch/accuracy` of those that were evaluated."""
    ends = {int(number): float(when) for number, when in zip(numbers, unix_s, strict=True)}
    epochs = [each for each in run.epochs or () if each.step - 1 in ends]
    for name, value in OF_EPOCH.items():
        known = [(each.step - 1, found) for each in epochs if (found := value(each)) is not None]
        if known:
            steps, values = zip(*known, strict=True)
            yield Series(f"epoch/{name}", steps, values, tuple(ends[step] for step in steps))


OF_EPOCH: Mapping[str, Callable[[Epoch], float | None]] = {
    "accuracy": lambda each: None if each.correct is None or not each.total else each.correct / each.total,
    "eval_loss": lambda each: each.eval_loss,
    "train_loss": lambda each: each.train_loss,
    "lr": lambda each: each.lr,
    "epoch": lambda each: float(each.epoch),
}
"""Name of a series -> its value of an epoch."""


def _named(step_s: Floats, rate: Floats, loss: Floats) -> Iterator[tuple[str, Floats]]:
    yield from (("step_s", step_s), ("samples_per_s", rate))
    if np.isfinite(loss).any():
        yield "loss", loss


def _known(name: str, steps: np.ndarray[Any, Any], values: Floats, unix_s: Floats) -> Series:
    known = np.isfinite(values)
    return Series(name, tuple(steps[known].tolist()), tuple(values[known].tolist()), tuple(unix_s[known].tolist()))
