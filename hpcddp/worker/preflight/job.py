"""The job of preflight: every rank measures, rank 0 judges and records, and says which nodes the runs shall use."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from hpcddp.core.preflight import PreflightRecord, preflight_words, slow_readings, usable_hosts
from hpcddp.worker.small_job import begin, leave

MEET_WITHIN = timedelta(minutes=4)
"""A first import of torch by every node at once may take minutes on a parallel file system."""

SPARE_VARIABLE, HOSTS_VARIABLE = "HPCDDP_SPARE_NODES", "HPCDDP_HOSTS"
"""Of a job with spare nodes: how many, and the file that is to name the hosts which its runs shall use, a line each."""


def run(spec: dict[str, Any]) -> dict[str, Any]:
    """Of each rank; rank 0 writes the record and returns its content."""
    from hpcddp.worker.preflight.readings import measure
    from hpcddp.worker.rendezvous import join

    job, rank, study = begin(spec)
    group = join(rank, job.point.device, MEET_WITHIN)
    begun_s = time.monotonic()
    readings = measure(group)
    ranks = group.gather_records("preflight", readings)
    group.leave()
    if not ranks:
        return {}
    slow = slow_readings(ranks)
    hosts, left_out = usable_hosts(ranks, slow, int(os.environ.get(SPARE_VARIABLE) or 0))
    record = PreflightRecord(
        job=rank.job,
        restart=rank.restart,
        unix_ns=time.time_ns(),
        took_s=round(time.monotonic() - begun_s, 3),
        device=group.device.type,
        ranks=tuple(ranks),
        slow=slow,
        excluded=tuple(left_out),
    )
    plain = leave(study.preflight_file(rank.job, rank.restart), record)
    _write_hosts(hosts)
    print(f"hpcddp: preflight: {preflight_words(record)}", flush=True)
    return plain


def _write_hosts(hosts: Sequence[str]) -> None:
    """Where the job's script reads them."""
    if file := os.environ.get(HOSTS_VARIABLE):
        Path(file).write_text("".join(f"{host}\n" for host in hosts), encoding="utf-8")
