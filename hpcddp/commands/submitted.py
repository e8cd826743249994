"""What `hpcddp submit` says of the jobs that it has submitted."""

from __future__ import annotations

from collections.abc import Sequence


def submitted_words(jobs: Sequence[str], max_running: int | None, after: Sequence[str]) -> str:
    """How many jobs, from the first to the last of them, and what keeps them from starting all at once.

    Tasks of an array are as scancel takes them: `12_[0-249]-16`; runs in one allocation are one job.
    """
    from itertools import groupby

    from hpcddp.core.job_ids import base_id, slurm_id
    from hpcddp.core.text import count

    groups = [list(same) for _, same in groupby(map(slurm_id, dict.fromkeys(jobs)), key=base_id)]
    ends = (
        group[0] if len(set(group)) == 1 else f"{base_id(group[0])}_[0-{len(group) - 1}]" for group in (groups[0], groups[-1])
    )
    together = sum("+" in job for job in jobs)
    turns = f", {count(together, 'run')} one after the other" if together else ""
    at_most = "" if max_running is None or together == len(jobs) else f", at most {max_running} at a time"
    later = f", when {' and '.join(after)} ended well" if after else ""
    number = len(set(map(slurm_id, jobs)))
    return f"submitted    {count(number, 'job')}    {'-'.join(dict.fromkeys(ends))}{turns}{at_most}{later}"
