"""An attempt that trains nothing: the benchmark of the ranks' collectives, from launch.json to end.json."""

from __future__ import annotations

import hashlib
from pathlib import Path

from hpcddp.core.jobspec import JobSpec
from hpcddp.core.point import to_json
from hpcddp.core.records import SCHEMA, write_json
from hpcddp.worker import gates
from hpcddp.worker.comm.bench import bench_comm
from hpcddp.worker.finish import write_end
from hpcddp.worker.rendezvous import ProcessGroup


def run_comm(spec: JobSpec, group: ProcessGroup, attempt: Path) -> bool | None:
    """Measures, and records on rank 0: there whether all gates passed, None elsewhere."""
    found = bench_comm(group)
    digest = hashlib.sha256(to_json(found).encode()).hexdigest()[:12]
    ranks = group.gather("comm", {"rank": group.rank.rank, "host": group.rank.host, "digest": digest})
    if not ranks:
        return None
    write_json(attempt / "comm.json", {"schema": SCHEMA, "point": spec.point.id, "run": spec.run, **found})
    checked = [gates.collectives_correct(found["ops"]), gates.ranks_agree([entry.pop("digest") for entry in ranks])]
    write_end(attempt, "done", None, gates=checked, ranks=ranks)
    return all(gate["passed"] for gate in checked)
