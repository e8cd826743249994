"""Whether all ranks see the same data: compared before the first step, so that a log says so before hours are spent."""

from __future__ import annotations

import sys

from hpcddp.core.point import Point
from hpcddp.data import Source
from hpcddp.data.fingerprint import fingerprint
from hpcddp.worker import gates
from hpcddp.worker.rendezvous import ProcessGroup


def compare_data(point: Point, group: ProcessGroup, train: Source, evaluated: Source | None) -> list[gates.Gate]:
    """All ranks call it; the gate on rank 0, nothing elsewhere, nor where a single rank has nobody to compare with."""
    if group.rank.world == 1:
        return []
    workers, order_of = point.workload.loader_workers_per_rank, (point.workload.seed, point.global_batch)
    here = {
        "host": group.rank.host,
        "train": fingerprint(train, order_of=order_of, workers=workers),
        "eval": fingerprint(evaluated, order_of=None, workers=workers) if evaluated is not None else None,
    }
    by_rank = group.gather("data", here)
    found = [gates.same_data(by_rank)] if by_rank else []
    for gate in found:
        if not gate["passed"]:
            print(f"hpcddp: {gate['name']}: {gate['evidence']}; this run will not count", file=sys.stderr, flush=True)
    return found
