"""Whether a run gets to its last step before its job's time limit, and what to do where it does not."""

from __future__ import annotations

import math

from hpcddp.backends.base import JobState
from hpcddp.backends.slurm_time import limit_min
from hpcddp.core.point import Point
from hpcddp.core.text import duration
from hpcddp.study.progress import Progress

START_STEPS = 50
"""Until then, or until the end of a shorter warm-up, the pace is that of a start (compilation, caches, cuDNN's search)."""

PACE_VARIES = 1.05
"""The pace of some 35 steps differs by so much from that of all: what comes as near to the limit is not known."""

SPARE = 1.1
"""Of a time limit that would be enough, for what comes before and after the steps too."""


def time_limit_words(job: JobState, progress: Progress, point: Point | None, *, requeues: bool) -> tuple[str, str | None] | None:
    """What happens at the time limit, and the next step; None where the run ends before it, as far as is known.

    `requeues`: whether the job of a run that resumes is requeued there.
    """
    if point is None or progress.left_s is None or progress.steps_done is None or job.time_left_s is None:
        return None
    is_past_start = progress.steps_done > min(START_STEPS, point.measure.warmup_steps)
    if not is_past_start or progress.left_s <= PACE_VARIES * job.time_left_s:
        return None
    left = duration(max(0.0, job.time_left_s))
    if point.measure.resume and requeues:
        return f"its time limit comes in {left}, then it is requeued and goes on", None
    longer = f"cancel it, then submit it with --set slurm.walltime_min={_enough_min(job, progress.left_s)} or more"
    resumes = (
        "; or submit it when it was ended, to go on" if point.measure.resume else ", or with measure.resume: true (another point)"
    )
    return f"it will not finish: its time limit is in {left}", f"{longer}{resumes}"


def _enough_min(job: JobState, left_s: float) -> int:
    """Minutes for the time elapsed so far and what is left."""
    limit = limit_min(job.time_limit)
    elapsed_s = 0.0 if limit is None or job.time_left_s is None else max(0.0, 60 * limit - job.time_left_s)
    return math.ceil(SPARE * (elapsed_s + left_s) / 60)
