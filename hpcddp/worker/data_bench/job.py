"""The job of `hpcddp bench data`: all ranks load at the same time, rank 0 records what they found and prints it."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from hpcddp.core.data_bench_record import DataBenchRecord
from hpcddp.core.data_bench_text import data_bench_text
from hpcddp.core.errors import HpcddpError
from hpcddp.core.jobspec import spec_from_dict
from hpcddp.core.launch_record import ProfileFacts
from hpcddp.core.paths import data_root_as_given
from hpcddp.core.records import write_json
from hpcddp.core.run_root import Study
from hpcddp.core.schema import decode_record, encode
from hpcddp.worker.ranks import this_rank

MEET_WITHIN = timedelta(minutes=10)
"""A first import of torch by every node at once may take minutes on a parallel file system, and ranks may load unevenly."""


@dataclass(frozen=True, kw_only=True)
class Peer:
    """What a rank says of itself."""

    host: str
    cpus: tuple[int, ...]
    """That it may run on, by the node's numbers."""


def run(spec: dict[str, Any]) -> dict[str, Any]:
    """Of each rank; rank 0 writes the record and returns its content."""
    from hpcddp.worker.data_bench.bench import bench_data
    from hpcddp.worker.rendezvous import join

    job = spec_from_dict(spec)
    if job.data_bench is None:
        raise HpcddpError("the job's spec does not say what to measure: submit it by `hpcddp bench data`")
    rank = this_rank(job.backend, local_device=job.local_device)
    group = join(rank, job.point.device, MEET_WITHIN)
    begun_s = time.monotonic()
    peers = group.gather_records("data bench", Peer(host=rank.host, cpus=tuple(os.sched_getaffinity(0))))
    cpus = cpus_of_ranks(peers)
    fewest = int(group.share("data bench cpus", min(cpus, default=0)))
    request = replace(job.data_bench, loader_workers_per_rank=job.data_bench.loader_workers_per_rank or usual_workers(fewest))
    point = replace(job.point, measure=replace(job.point.measure, input="io"))
    found = bench_data(group, point, data_root_as_given(job), request)
    group.leave()
    if not found.rates:
        raise HpcddpError("\n".join(found.problems))
    if not peers:
        return {}
    record = DataBenchRecord(
        job=rank.job,
        restart=rank.restart,
        unix_ns=time.time_ns(),
        took_s=round(time.monotonic() - begun_s, 3),
        cluster=point.cluster,
        layout=point.layout,
        device=group.device.type,
        gpu=decode_record(ProfileFacts, job.profile).node_type(point.layout.node_type).gpu,
        hosts=tuple(dict.fromkeys(peer.host for peer in peers)),
        cpus_of_ranks=cpus,
        model=point.workload.model,
        precision=point.workload.precision,
        data=replace(job.data_bench.data[0], root=data_root_as_given(job)),
        **vars(found),
    )
    plain: dict[str, Any] = encode(record)
    write_json(Study(Path(job.study)).data_bench_file(rank.job), plain)
    print(data_bench_text(record), flush=True)
    return plain


def cpus_of_ranks(peers: Sequence[Peer]) -> tuple[int, ...]:
    """How many each has: those that it may run on, or its share where ranks of a node may run on the same ones."""
    found = []
    for peer in peers:
        there = [other for other in peers if other.host == peer.host]
        found.append(max(1, min(len(peer.cpus), len({cpu for other in there for cpu in other.cpus}) // len(there))))
    return tuple(found)


def usual_workers(cpus: int) -> tuple[int, ...]:
    """Powers of two up to as many as a rank has CPUs, and that many."""
    powers = [2**power for power in range(cpus.bit_length()) if 2**power < cpus]
    return (0, *powers, cpus) if cpus > 1 else (0, 1)
