"""An attempt that trains nothing: the benchmark of the ranks' collectives, from their meeting to end.json."""

from __future__ import annotations

import hashlib
import time
from pathlib import Path

from hpcddp.core.attempt_records import CommEnd, RankName
from hpcddp.core.comm_record import CommRecord
from hpcddp.core.jobspec import JobSpec
from hpcddp.core.point import to_json
from hpcddp.core.records import SCHEMA, write_json
from hpcddp.core.schema import decode_record, encode
from hpcddp.worker import gates
from hpcddp.worker.comm.bench import bench_comm
from hpcddp.worker.finish import write_end
from hpcddp.worker.rendezvous import ProcessGroup


def run_comm(spec: JobSpec, group: ProcessGroup, attempt: Path) -> bool | None:
    """Measures, and records on rank 0: there whether all gates passed, None elsewhere."""
    found = bench_comm(group)
    digest = hashlib.sha256(to_json(encode(found)).encode()).hexdigest()[:12]
    ranks = group.gather("comm", {"rank": group.rank.rank, "host": group.rank.host, "digest": digest})
    if not ranks:
        return None
    write_json(attempt / "comm.json", encode(CommRecord(schema=SCHEMA, point=spec.point.id, run=spec.run, **vars(found))))
    checked = (gates.collectives_correct(found.ops), gates.ranks_agree([entry["digest"] for entry in ranks]))
    names = tuple(decode_record(RankName, entry) for entry in ranks)
    write_end(attempt, CommEnd(state="done", reason=None, ended_unix_ns=time.time_ns(), gates=checked, ranks=names))
    return all(gate.passed for gate in checked)
