"""How far a run is, from the end of its first rank's step rows alone, and whether it gets to its last step in time."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from hpcddp.backends.base import JobState
from hpcddp.backends.slurm_words import limit_min
from hpcddp.core.catalog import train_samples
from hpcddp.core.epoch_plan import EpochPlan
from hpcddp.core.errors import HpcddpError
from hpcddp.core.launch_record import LaunchRecord
from hpcddp.core.own_script import completed
from hpcddp.core.point import Point
from hpcddp.core.records import STEP_COLUMNS_1, steps_file
from hpcddp.core.start_up import start_up
from hpcddp.core.text import duration
from hpcddp.study.logs import tail
from hpcddp.study.study_records import read_record
from hpcddp.sweep.disk_usage import run_steps

TAIL_BYTES = 4096
"""Some 30 rows."""


@dataclass(frozen=True, kw_only=True)
class Progress:
    """Steps of rank 0, warm-up included; None where nothing is trained."""

    steps_done: int | None = None
    steps_total: int | None = None
    samples_per_s: float | None = None
    """Of all ranks, over the last rows."""
    left_s: float | None = None
    """Until the last step, at the pace of the last rows; what comes after the steps is not in it."""
    start_up_s: float | None = None
    """What it took from srun to the first step."""
    staging_s: float | None = None
    """How long it waited for its data to be copied to the nodes."""


def read_progress(attempt: Path | None, point: Point | None) -> Progress:
    """From what is on disk: at most a second behind."""
    if point is not None and point.work == "comm":
        return Progress()
    rows, launch = ([], None) if attempt is None else (last_rows(steps_file(attempt, 0)), _launch(attempt))
    if point is not None and launch is not None and launch.script is not None:
        point = completed(point, launch.script)
    done, total = rows[-1]["step"] + 1 if rows else 0, None if point is None else planned_steps(point)
    pace = _steps_per_s(rows)
    # a script may say its samples itself, and its launch.json may not be read
    knows_batch = point is not None and bool(point.workload.model or point.workload.known_batch)
    started = start_up(attempt, launch) if attempt is not None and launch is not None and rows else None
    return Progress(
        steps_done=done,
        steps_total=total,
        samples_per_s=None if point is None or pace is None or not knows_batch else _batch(point, done) * pace,
        start_up_s=started.until_first_step_s if started else None,
        staging_s=launch.data.staging.wait_s if launch and launch.data.staging else None,
        left_s=None if total is None or pace is None else max(0, total - done) / pace,
    )


def _launch(attempt: Path) -> LaunchRecord | None:
    try:
        return read_record(LaunchRecord, attempt / "launch.json")
    except HpcddpError:  # damaged: whoever counts the run says so
        return None


def _batch(point: Point, steps: int) -> int:
    """The global batch after so many steps."""
    samples = train_samples(point.workload.data)
    return point.global_batch if samples is None else EpochPlan.of(point, samples).batch_at(steps)


def planned_steps(point: Point) -> int | None:
    """None for epochs of data whose size only its files know, and where the run itself finds out when it has enough."""
    finds_out = point.measure.stop != "steps" or point.measure.target_accuracy is not None
    unknown = point.work in ("epoch", "train") and train_samples(point.workload.data) is None
    return None if finds_out or unknown else run_steps(point)


def last_rows(file: Path) -> list[dict[str, int]]:
    """`step` and `start_ns` of the last complete rows; none where there is no file yet."""
    complete = tail(file, TAIL_BYTES).split("\n")[1:-1]  # the first may be the header, what follows the last break is torn
    rows = (dict(zip(STEP_COLUMNS_1, line.split(","), strict=False)) for line in complete)
    return [{name: int(row[name]) for name in ("step", "start_ns")} for row in rows if len(row) == len(STEP_COLUMNS_1)]


def _steps_per_s(rows: list[dict[str, int]]) -> float | None:
    """Between the starts of the first and the last row; None for fewer than two."""
    if len(rows) < 2 or rows[-1]["start_ns"] <= rows[0]["start_ns"] or rows[-1]["step"] <= rows[0]["step"]:
        return None
    return (rows[-1]["step"] - rows[0]["step"]) / ((rows[-1]["start_ns"] - rows[0]["start_ns"]) / 1e9)


START_STEPS = 50
"""Until then, or until the end of a shorter warm-up, the pace is that of a start (compilation, caches, cuDNN's search)."""

PACE_VARIES = 1.05
"""The pace of some 35 steps differs by so much from that of all: what comes as near to the limit is not known."""

SPARE = 1.1
"""Of a time limit that would be enough, for what comes before and after the steps too."""


def time_limit_words(job: JobState, progress: Progress, point: Point | None, *, requeues: bool) -> tuple[str, str | None] | None:
    """What happens at the time limit, and the next step; None where the run ends before it, as far as is known. `requeues`:
    whether the job of a run that resumes is requeued there.
    """
    if point is None or progress.left_s is None or progress.steps_done is None or job.time_left_s is None:
        return None
    is_past_start = progress.steps_done > min(START_STEPS, point.measure.warmup_steps)
    if not is_past_start or progress.left_s <= PACE_VARIES * job.time_left_s:
        return None
    left = duration(max(0.0, job.time_left_s))
    if point.measure.resume and requeues:
        return f"its time limit is in {left}; Slurm then requeues it, and it resumes", None
    longer = f"cancel the run, then submit it with --set slurm.walltime_min={_enough_min(job, progress.left_s)} or more"
    resumes = (
        "; or submit it again once it was ended, to resume"
        if point.measure.resume
        else ", or with measure.resume: true (a different point)"
    )
    return f"the run will not finish: it has {left} until its time limit", f"{longer}{resumes}"


def _enough_min(job: JobState, left_s: float) -> int:
    """Minutes for the time elapsed so far and what is left."""
    limit = limit_min(job.time_limit)
    elapsed_s = 0.0 if limit is None or job.time_left_s is None else max(0.0, 60 * limit - job.time_left_s)
    return math.ceil(SPARE * (elapsed_s + left_s) / 60)
